"""The page's one style and one script, and the policy that allows a browser these two by their hashes and nothing else."""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { --ink: #1b1b1b; --soft: #555; --rule: #c9ced6; --paper: #fff; --wash: #f3f5f8; --blue: #0b4a8f; --alarm: #9b0000; }
* { box-sizing: border-box; }
html { color-scheme: light; -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  overflow-wrap: anywhere; -webkit-print-color-adjust: exact; print-color-adjust: exact; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: .3rem 0 .6rem; }
h2 { font-size: 1.2rem; margin: 0; display: inline; }
h3 { font-size: 1.02rem; margin: 0; }
p { margin: .45rem 0; max-width: 46rem; }
a { color: var(--blue); }
a:focus-visible, button:focus-visible, summary:focus-visible { outline: 3px solid #d98200; outline-offset: 2px; }
.soft { color: var(--soft); font-size: .9rem; }
.facts { display: flex; flex-wrap: wrap; gap: .5rem; margin: .6rem 0; padding: 0; list-style: none; }
.facts li { background: var(--wash); border: 1px solid var(--rule); border-radius: .4rem; padding: .25rem .7rem; }
.facts b { display: block; font-size: 1.1rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: .82rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .6rem 0; padding: 0; list-style: none; }
.tools { display: flex; gap: .5rem; margin: .4rem 0; }
button { font: inherit; color: inherit; background: var(--wash); border: 1px solid var(--rule); border-radius: .3rem;
  padding: .1rem .6rem; cursor: pointer; }
details.section { border-top: 2px solid var(--rule); padding: .7rem 0; }
details.section > summary { padding: .15rem 0; }
summary { cursor: pointer; }
.stamp { background: var(--alarm); color: #fff; padding: .8rem 1rem; border-radius: .4rem; margin: 0 0 .8rem; }
.stamp strong { display: block; font-size: 1.5rem; letter-spacing: .03em; }
.stamp p { margin: .2rem 0 0; }
.foot { display: none; }
body.rehearsal { border-left: .6rem solid var(--alarm); border-right: .6rem solid var(--alarm); }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); gap: .2rem 2.2rem; }
.two > * { min-width: 0; }
dl { display: grid; grid-template-columns: minmax(7rem, max-content) 1fr; gap: .15rem 1rem; margin: .6rem 0; align-content: start; }
dt { color: var(--soft); }
dd { margin: 0; }
ul.plain { margin: .4rem 0; padding-left: 1.2rem; }
.warnings { list-style: none; padding: 0; margin: .5rem 0; align-items: start; }
.warnings li { border-left: .35rem solid var(--rule); padding: .1rem .8rem; margin: .6rem 0; max-width: 48rem; }
.warnings li.care { border-color: #b35806; }
.warnings li.alarm { border-color: var(--alarm); background: #fdf0f0; }
.warnings .weight { font-size: .78rem; text-transform: uppercase; letter-spacing: .05em; color: var(--soft); }
.warnings .alarm .weight { color: var(--alarm); font-weight: bold; }
.warnings .care .weight { color: #8a4200; font-weight: bold; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; margin: .5rem 0; }
caption { text-align: left; color: var(--soft); font-size: .88rem; padding: .2rem 0; }
th, td { padding: .22rem .55rem; text-align: right; border-bottom: 1px solid var(--rule); overflow-wrap: normal; }
td { white-space: nowrap; }
th { background: var(--wash); vertical-align: bottom; }
th.text, td.text { text-align: left; }
td.text { white-space: normal; min-width: 7rem; overflow-wrap: anywhere; }
th button { border: 0; background: none; padding: 0; font-weight: bold; text-align: inherit; }
th button::after { content: " \\2195"; color: var(--soft); }
th[aria-sort="ascending"] button::after { content: " \\2191"; color: var(--ink); }
th[aria-sort="descending"] button::after { content: " \\2193"; color: var(--ink); }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr)); gap: .9rem; margin: .8rem 0; }
.card { border: 1px solid var(--rule); border-radius: .4rem; padding: .6rem .8rem; min-width: 0; }
.card p { margin: .15rem 0; }
svg { display: block; width: 100%; max-width: 28rem; height: auto; margin: .4rem 0; }
svg text { font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  fill: var(--ink); unicode-bidi: isolate; font-variant-numeric: tabular-nums; }
svg .label { fill: #444; }
svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .bar { fill: #8fbde3; stroke: var(--blue); stroke-width: .6; }
svg .axis { stroke: #444; stroke-width: 1; }
svg .grid { stroke: #dfe3e8; stroke-width: .7; }
svg .all { stroke: var(--ink); stroke-width: 1.3; }
svg .noise { stroke: #b35806; stroke-width: 3.6; }
.key { display: inline-block; vertical-align: middle; width: 1.6rem; height: .8rem; margin: 0 .3rem 0 .8rem; }
.key.bar { background: #8fbde3; border: 1px solid var(--blue); }
.key.all { border-top: 2px solid var(--ink); height: 0; }
.key.noise { border-top: 5px solid #b35806; height: 0; }
.heat td, .heat th { padding: .15rem .3rem; font-size: .8rem; border: 1px solid #fff; }
.heat th { background: none; font-weight: normal; text-align: center; }
.heat thead th { height: 9.5rem; vertical-align: bottom; }
.heat thead th span { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; text-align: left; }
.heat tbody th { text-align: right; white-space: nowrap; }
.heat td { text-align: center; min-width: 2.5rem; }
.none { color: #595959; }
.p1 { background: #e3eef9; } .p2 { background: #c0d9f0; } .p3 { background: #8fbde3; }
.p4 { background: #2f6fad; color: #fff; } .p5 { background: #0b4a8f; color: #fff; }
.m1 { background: #fdeede; } .m2 { background: #fbd3a9; } .m3 { background: #f2a65e; }
.m4 { background: #b35806; color: #fff; } .m5 { background: #7f3b08; color: #fff; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .88rem; }
pre { background: var(--wash); border: 1px solid var(--rule); border-radius: .3rem; padding: .35rem .6rem; margin: .15rem 0 .7rem;
  white-space: pre-wrap; user-select: all; -webkit-user-select: all; }
@media (max-width: 40rem) { body { padding: .7rem; } body.rehearsal { border-width: 0 .3rem; }
  dl { grid-template-columns: 7.2rem 1fr; gap: .2rem .6rem; } h1 { font-size: 1.25rem; } }
@media print {
  @page { margin: 14mm; }
  @page rehearsal { margin: 14mm; @bottom-center { content: "NOT PRIVATE: a rehearsal"; color: #9b0000; font-weight: bold; } }
  body.rehearsal { page: rehearsal; padding: 0 .4rem; }
  body { max-width: none; font-size: 10pt; }
  body:not(.rehearsal) { padding: 0; }
  nav, .tools { display: none; }
  .card, tr, .warnings li, .stamp, .heat, .ask { break-inside: avoid; }
  details.section > summary, h3, .legend { break-after: avoid; }
  .scroll { overflow: visible; }
  .cards { grid-template-columns: 1fr 1fr; } .two { grid-template-columns: 1fr 1fr; } pre { padding: .15rem .4rem; }
  .card details, .long { display: none; }
  .columns table { font-size: 7.2pt; } .heat table { font-size: 7pt; }
  .columns th, .columns td { padding: .12rem .2rem; } .columns td.text { min-width: 0; }
  .heat td, .heat th { font-size: 6.5pt; padding: .1rem; min-width: 0; }
  th button::after { content: none !important; }
  a { color: inherit; text-decoration: none; }
  @supports not (page: rehearsal) {
    body.rehearsal .foot { display: block; position: fixed; bottom: 0; left: 0; right: 0; text-align: center;
      color: var(--alarm); font-weight: bold; }
  }
}
"""

SCRIPT = """
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
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(STYLE)}; base-uri 'none'; form-action 'none'"
)
