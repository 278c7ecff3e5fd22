
"use strict";
(function () {
  function key(row, column) {
    var cell = row.cells[column], value = cell.getAttribute("data-v");
    return value === null ? cell.textContent.trim().toLowerCase() : value === "" ? NaN : Number(value);
  }
  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") {
      return isNaN(a) || isNaN(b) ? 0 : a - b;
    }
    return String(a).localeCompare(String(b));
  }
  function sort(table, column, head) {
    var up = head.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
    var rows = Array.prototype.slice.call(body.rows).map(function (row) { return [key(row, column), row]; });
    var known = rows.filter(function (r) { return r[0] === r[0]; }), unknown = rows.filter(function (r) { return r[0] !== r[0]; });
    known.sort(function (a, b) { return up ? compare(a[0], b[0]) : compare(b[0], a[0]); });
    known.concat(unknown).forEach(function (r) { body.appendChild(r[1]); });
    table.querySelectorAll("thead th").forEach(function (th) { th.removeAttribute("aria-sort"); });
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }
  document.querySelectorAll("table.sortable").forEach(function (table) {
    table.querySelectorAll("thead th").forEach(function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) { button.appendChild(head.firstChild); }
      head.appendChild(button);
      button.addEventListener("click", function () { sort(table, column, head); });
    });
  });
  var sections = document.querySelectorAll("details.section");
  var tools = document.createElement("div");
  tools.className = "tools";
  [["Fold all", false], ["Unfold all", true]].forEach(function (choice) {
    var button = document.createElement("button");
    button.type = "button";
    button.textContent = choice[0];
    button.addEventListener("click", function () { sections.forEach(function (one) { one.open = choice[1]; }); });
    tools.appendChild(button);
  });
  document.querySelector("nav").appendChild(tools);
  function unfold(name) {
    var target = name && document.getElementById(name), section = target && target.closest("details.section");
    if (section) { section.open = true; target.scrollIntoView(); }
  }
  document.querySelectorAll('a[href^="#"]').forEach(function (link) {
    link.addEventListener("click", function () { unfold(link.getAttribute("href").slice(1)); });
  });
  var folded = [];
  window.addEventListener("beforeprint", function () {
    folded = Array.prototype.filter.call(sections, function (one) { return !one.open; });
    folded.forEach(function (one) { one.open = true; });
  });
  window.addEventListener("afterprint", function () { folded.forEach(function (one) { one.open = false; }); });
})();
