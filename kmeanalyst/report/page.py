"""The report's page: facts in, one HTML text out, and a file that is written atomically."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from kmeanalyst import __version__
from kmeanalyst.inference.contingency.association import DISTINGUISHED, LEAST_SHARE, MOST_GROUPS, Association
from kmeanalyst.releases.declared_statement import DeclaredStatement
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.releases.texts import shortened
from kmeanalyst.report import guarantee
from kmeanalyst.report.caveats import warnings_of
from kmeanalyst.report.charts import bare_percent, chart, percent, value_text, with_error
from kmeanalyst.report.facts import ColumnFacts, ReleaseFacts, facts_of
from kmeanalyst.report.markup import Markup, document, element, joined, key, name_of, scrolling, sections, table
from kmeanalyst.representation.progress import Progress

_NAME = 60  # characters of a name in running text
_LEVEL = 80
_BALOG = (
    "Balog, M., Tolstikhin, I. & Schölkopf, B. (2018). Differentially private database release via kernel mean embeddings. "
    "ICML, PMLR 80."
)
_HARDER = (
    "Harder, F., Adamczewski, K. & Park, M. (2021). DP-MERF: Differentially private mean embeddings with random features for "
    "practical privacy-preserving data generation. AISTATS, PMLR 130."
)
_MCSHERRY = "McSherry, F. & Talwar, K. (2007). Mechanism design via differential privacy. FOCS."
_BALLE = (
    "Balle, B. & Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy: analytical calibration and "
    "optimal denoising. ICML, PMLR 80."
)
_CANONNE = "Canonne, C., Kamath, G. & Steinke, T. (2020). The discrete Gaussian for differential privacy. NeurIPS 33."
_GRETTON = "Gretton, A., Borgwardt, K., Rasch, M., Schölkopf, B. & Smola, A. (2012). A kernel two-sample test. JMLR 13."


def write_report(
    release: ReleaseData, path: str | Path, *, source: str | Path | None = None, columns: Sequence[str] | None = None,
    view: View | None = None, progress: Progress | None = None,
) -> ReleaseFacts:  # fmt: skip
    """Write the report of a release as one self-contained HTML page, and return its numbers; see `facts_of`."""
    facts = facts_of(release, source=source, columns=columns, view=view, progress=progress)
    with atomic_write(path) as temporary:
        temporary.write_bytes(report_html(facts).encode())
    return facts


def report_html(facts: ReleaseFacts) -> str:
    rehearsal = facts.release.is_rehearsal
    parts = sections(
        ("guarantee", "What this is, and what it guarantees", _guarantee(facts)),
        ("limits", "What it cannot show", _caveats(facts)), ("columns", "Columns at a glance", _glance(facts)),
        ("distributions", "Distributions", _distributions(facts)), ("pairs", "Which columns go together", _pairs(facts)),
        ("cite", "How to ask more, how to cite, and how to check", _cite(facts)),
    )  # fmt: skip
    title = ("NOT PRIVATE (rehearsal): " if rehearsal else "") + f"Report on {facts.source or 'a release'}"
    return document(
        title, _stamp() if rehearsal else None, element("main", _header(facts), parts),
        element("p", "NOT PRIVATE: a rehearsal", class_="foot") if rehearsal else None,
        kind="rehearsal" if rehearsal else None,
    )  # fmt: skip


def _stamp() -> Markup:
    text = (
        "The noise of this release was drawn from a seed and can be removed. Show this page only to those who may see "
        "the private table itself."
    )
    return element("div", element("strong", "NOT PRIVATE: a rehearsal"), element("p", text), class_="stamp", role="alert")


def _header(facts: ReleaseFacts) -> Markup:
    release, stated = facts.release, facts.release.statement
    known = [] if stated is None else [
        (f"{stated.n_rows:,}", f"{'' if stated.declared_by else 'private '}{stated.counted} (N)"),
        *((f"{value:g}", name) for name, value in (("ε", stated.epsilon), ("δ", stated.delta)) if value is not None),
    ]  # fmt: skip
    known += [
        (f"{len(release):,}", "weighted points"),
        (f"{len(release.columns):,}", "columns"),
        (f"{100 * float((release.weights < 0).mean()):.3g} %", "negative weights"),
    ]
    items = [element("li", element("b", value), element("span", label)) for value, label in known]
    title = element("h1", "Report on ", name_of(facts.source or "a release", 100))
    made = {
        "signed": "in signed weights, as released; medians and pairs in the probability view. ±",
        "fitted": "of the most plausible population for the measurement; ±",
    }.get(facts.view, f"in the release’s {facts.view} weights; ±")
    soft = element("p", f"Estimates {made} is one standard error.", class_="soft")
    return element("header", title, element("ul", items, class_="facts"), soft)


def _guarantee(facts: ReleaseFacts) -> Markup:
    release = facts.release
    texts: list[object] = [element("p", text) for text in guarantee.plain_words(release)]
    lines = [(element("dt", label), element("dd", text)) for label, text in guarantee.numbers(release).items()]
    if release.statement is not None and release.statement.taken_as_public:
        items = [element("li", name_of(item, 300)) for item in release.statement.taken_as_public[:50]]
        texts += [element("p", "Taken as public, and not protected:"), element("ul", items, class_="plain")]
    if rules := release.domain.rules:
        named = [element("li", name_of(rule.named(number), 300)) for number, rule in enumerate(rules[:50], 1)]
        text = "Rules that are taken as true of the table, and that every row of the release keeps:"
        texts += [element("p", text), element("ul", named, class_="plain")]
        texts += [element("p", f"and {len(rules) - 50} more")] if len(rules) > 50 else []
    return element("div", element("div", texts), element("dl", lines), class_="two")


def _caveats(facts: ReleaseFacts) -> Markup:
    labels = {"alarm": "Alarm", "care": "Take care", "note": "Note"}
    items = [
        element(
            "li", element("span", labels[one.weight], class_="weight"), element("h3", one.headline), element("p", one.text),
            class_=one.weight,
        )
        for one in warnings_of(facts)
    ]  # fmt: skip
    return element("ul", items, class_="warnings two")


def _glance(facts: ReleaseFacts) -> Markup:
    heads = [
        ("column", "text"), ("kind", "text"), ("mean ± error", ""), ("standard deviation", ""), ("median ± error", ""),
        ("missing", ""), ("most frequent", "text"),
    ]  # fmt: skip
    rows = [_glance_row(one, k) for k, one in enumerate(facts.columns)]
    caption = "Estimates with their standard errors; a click on a heading sorts."
    return element("div", table(heads, rows, caption, "sortable"), class_="columns")


def _glance_row(one: ColumnFacts, k: int) -> Markup:
    link = element("a", name_of(one.name, _NAME), href=f"#c{k}")
    cells = [_number_cell(one, name) for name in ("mean", "std", "median")]
    missing = one.statistics.get("missing")
    if missing is None:
        cells.append(element("td", "none", data_v="0"))
    else:
        cells.append(element("td", percent(missing), data_v=key(missing.value)))
    return element("tr", element("td", link, class_="text"), element("td", one.column.kind, class_="text"), cells, _commonest(one))


def _number_cell(one: ColumnFacts, name: str) -> Markup:
    estimate = one.statistics.get(name)
    if estimate is None:
        return element("td", "–", data_v="")
    if name == "std" and one.column.kind == "date":
        text = f"{estimate.value:,.4g} days" if math.isfinite(estimate.value) else "not known"
    else:
        text = with_error(estimate, one.column)
    return element("td", text, data_v=key(estimate.value), data_error=key(estimate.standard_error))


def _commonest(one: ColumnFacts) -> Markup:
    bar = one.commonest
    if bar is None:
        return element("td", "–", class_="text")
    return element("td", name_of(bar.label, _NAME), f": {percent(bar.estimate)}", class_="text")


def _distributions(facts: ReleaseFacts) -> list[Markup]:
    legend = element(
        "p", "Each bar is an estimated share:", element("span", class_="key bar"), "estimate",
        element("span", class_="key all"), "95 % interval",
        element("span", class_="key noise"), "the part of it that is noise added for privacy", class_="soft",
    )  # fmt: skip
    return [legend, element("div", [_card(one, k) for k, one in enumerate(facts.columns)], class_="cards")]


def _card(one: ColumnFacts, k: int) -> Markup:
    return element(
        "article", element("h3", name_of(one.name, _NAME)), element("p", name_of(one.description, 200), class_="soft"),
        chart(one, f"c{k}") or element("p", "No distribution is shown: see “What it cannot show”."), _sentence(one),
        [element("p", name_of(note, 400), class_="soft") for note in one.notes[:3]], _shares(one) if one.bars else None,
        class_="card", id=f"c{k}",
    )  # fmt: skip


def _sentence(one: ColumnFacts) -> Markup | None:
    parts = []
    if "mean" in one.statistics:
        parts.append(f"mean {with_error(one.statistics['mean'], one.column)}")
    if "median" in one.statistics:
        median = one.statistics["median"]
        low, high = (value_text(median, one.column, end) for end in median.interval())
        parts.append(f"median {value_text(median, one.column, median.value)} (95 %: {low} to {high})")
        ends = (one.statistics[f"{which} quartile"] for which in ("lower", "upper"))
        parts.append("quartiles " + " and ".join(value_text(e, one.column, e.value) for e in ends))
    if "missing" in one.statistics:
        parts.append(f"missing {percent(one.statistics['missing'])}")
    return element("p", "; ".join(parts)) if parts else None


def _shares(one: ColumnFacts) -> Markup:
    heads = [("value", "text"), ("share %", ""), ("error", ""), ("95 % from", ""), ("to", ""), ("privacy", ""),
             ("sampling", ""), ("resolution", "")]  # fmt: skip
    rows = []
    for bar in one.bars:
        e = bar.estimate
        low, high = e.interval()
        parts = (e.parts.get(name) for name in ("privacy", "sampling", "resolution"))
        numbers = [e.value, e.standard_error, low, high, *parts]
        cells = [element("td", bare_percent(n, e), data_v="" if n is None else key(n)) for n in numbers]
        rows.append(element("tr", element("td", name_of(bar.label, _LEVEL), class_="text"), cells))
    caption = "Shares in per cent, with their error in parts."
    return element("details", element("summary", "All numbers"), table(heads, rows, caption, "sortable shares"))


def _pairs(facts: ReleaseFacts) -> list[Markup]:
    if not facts.pairs:
        return [element("p", "There is no pair of columns to show.")]
    explained = (
        "Correlation for two numbers (days and booleans count as numbers), from −1 to 1; the correlation ratio for a number and "
        "levels, and Cramér’s V for two columns of levels, from 0 to 1 and without a sign. Missing cells are a level of their "
        "own in pairs with levels, and are left out in pairs with numbers. Levels rarer than "
        f"{100 * LEAST_SHARE:g} %, and all but the {MOST_GROUPS - 1} most frequent, are merged. In parentheses: not "
        f"distinguished from 0 (p ≥ {DISTINGUISHED:g}, given the errors of the release)."
    )
    left = f"{len(facts.paired)} of the {len(facts.columns)} columns are paired."
    return [element("p", explained), element("p", left, class_="soft"), _heat(facts), _pair_list(facts)]


def _heat(facts: ReleaseFacts) -> Markup:
    names = facts.paired
    known = {pair.columns: pair for pair in facts.pairs}
    tops = [element("th", element("span", name_of(name, 20)), scope="col") for name in names[:-1]]
    rows = []
    for i, name in enumerate(names[1:], start=1):
        cells = [_heat_cell(known[(other, name)]) for other in names[:i]]
        rest = [element("td") for _ in range(len(names) - 1 - i)]
        rows.append(element("tr", element("th", name_of(name, 20), scope="row"), cells, rest))
    caption = "Associations of pairs; errors are in the list below, and appear over a cell."
    head = element("thead", element("tr", element("td"), tops))
    heat = element("table", element("caption", caption), head, element("tbody", rows))
    return element("div", scrolling(heat, caption), class_="heat")


def _heat_cell(pair: Association) -> Markup:
    if not math.isfinite(pair.value):
        return element("td", "–", title=_hover(pair))
    text = _short_number(pair.value)
    if not pair.distinguished:
        return element("td", f"({text})", title=_hover(pair), class_="none")
    depth = min(5, max(1, math.ceil(5 * abs(pair.value))))
    return element("td", text, title=_hover(pair), class_=f"{'p' if pair.value >= 0 else 'm'}{depth}")


def _hover(pair: Association) -> str:
    names = " × ".join(shortened(name, _NAME) for name in pair.columns)
    if not math.isfinite(pair.value):
        return f"{names}: {pair.note or 'not known'}"
    low, high = (_short_number(end, 3) for end in pair.interval)
    return f"{names}: {pair.measure} {_short_number(pair.value, 3)} ± {pair.standard_error:.3f} (95 %: {low} to {high})"


def _short_number(number: float, digits: int = 2) -> str:
    return f"{round(number, digits) + 0.0:.{digits}f}".replace("-", "−")  # -0.0 is 0.0


def _pair_list(facts: ReleaseFacts) -> Markup:
    heads = [("column", "text"), ("and column", "text"), ("measure", "text"), ("value", ""), ("error", ""),
             ("95 % from", ""), ("to", ""), ("p-value", "")]  # fmt: skip
    ordered = sorted(facts.pairs, key=lambda p: (not p.distinguished, -abs(p.value) if math.isfinite(p.value) else math.inf))
    rows = []
    for pair in ordered:
        numbers = (pair.value, pair.standard_error, *pair.interval)
        shown = (_short_number(n, 3) if math.isfinite(n) else "not known" for n in numbers)
        cells = [element("td", text, data_v=key(n)) for n, text in zip(numbers, shown, strict=True)]
        pvalue = f"{pair.pvalue:.2g}" if math.isfinite(pair.pvalue) else "not known"
        names = [element("td", name_of(name, _NAME), class_="text") for name in pair.columns]
        measure = element("td", pair.measure or name_of(pair.note, 120) or "–", class_="text")
        rows.append(element("tr", names, measure, cells, element("td", pvalue, data_v=key(pair.pvalue))))
    caption = "All pairs: those distinguished from 0 first, the strongest first; a click on a heading sorts."
    return element(
        "details", element("summary", f"All {len(rows)} pairs, with errors"), table(heads, rows, caption, "sortable"),
        open=len(rows) <= 15, class_="long" if len(rows) > 15 else None,
    )  # fmt: skip


def _cite(facts: ReleaseFacts) -> list[object]:
    asked = f"kmeanalyst expect FILE.kme COLUMN{' --allow-rehearsal' if facts.release.is_rehearsal else ''}"
    parts: list[object] = [
        element("p", "The package kmeanalyst answers other questions from the file, with errors; its --help lists them:"),
        element("pre", element("code", asked)),
        element("p", "This release:"),
        element("pre", element("code", citation(facts))),
    ]
    if facts.sha256:
        text = (
            f"The report was made from a file of {facts.n_bytes:,} bytes with this SHA-256. A file with another one is another "
            "release, even under the same name."
        )
        parts.append(element("p", text))
    if cited := papers(facts):
        parts += [element("p", "The methods:"), element("ul", [element("li", paper) for paper in cited], class_="plain")]
    statement = facts.release.statement
    versions = [] if statement is None else list(statement.versions.items())[:12]
    if versions:
        made = ", ".join(f"{name} {version}" for name, version in versions)
        parts.append(element("p", "Release made with: ", name_of(made, 400), class_="soft"))
    parts.append(element("p", f"Report made with kmeanalyst {__version__}.", class_="soft"))
    return [joined(part) for part in parts]


def papers(facts: ReleaseFacts) -> list[str]:
    statement, method = facts.release.statement, facts.release.method
    if not isinstance(statement, PrivacyStatement):
        return []
    found = [_BALOG]
    if method == "generator":
        found.append(_HARDER)
    if statement.is_selection:
        found.append(_MCSHERRY)
    if statement.calibration == "analytic":
        found.append(_BALLE)
    if "gaussian" in statement.mechanism:
        found.append(_CANONNE)
    return [*found, _GRETTON]


def citation(facts: ReleaseFacts) -> str:
    statement = facts.release.statement
    described = "weighted points without a privacy guarantee"
    if isinstance(statement, DeclaredStatement):
        described = f"tables of {statement.n_rows:,} rows, {statement.claim}"
    elif statement is not None:
        kind = "NOT PRIVATE rehearsal of a release" if statement.is_rehearsal else "differentially private release"
        described = (
            f"{kind} of {statement.n_rows:,} {statement.counted} ({statement.claim}, "
            f"{statement.neighbouring}; {facts.release.method}, {statement.mechanism})"
        )
    digest = f" SHA-256 {facts.sha256}." if facts.sha256 else ""
    return f"{facts.source or 'A release'}: {described}.{digest}"
