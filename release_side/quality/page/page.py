"""The page from top to bottom: the stamp, one line, what fits on a screen, and below it each part with its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.resources import files

from kmeanalyst import __version__
from kmeanalyst.report.assets import document
from kmeanalyst.report.markup import Markup, element, key, name_of, scrolling, short, table
from release_side.choices.internal_files import STAMP
from release_side.quality.answers.questions import Compared
from release_side.quality.answers.slopes import SlopeCompared
from release_side.quality.page.named_scores import named_scores, number, per_cent
from release_side.quality.page.pictures import column_picture, percent, sample_picture
from release_side.quality.quality import Quality
from release_side.quality.scores import ColumnScore, PairScores

_STYLE = files("release_side.quality.page").joinpath("quality.css").read_text(encoding="utf-8")
_NAME = 60  # characters of a name in running text
_FIRST = 5  # of a list that is on the first screen
_MOST_CARDS = 60
_MOST_HEAT = 30  # columns of a heat map
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.4)  # of total variation, and of a difference of correlations, between colours
_SECTIONS = (
    ("names", "Scores by the names of other tools"),
    ("groups", "Groups, the worst first"),
    ("slopes", "Slopes: inference, in addition to the scores"),
    ("columns", "Columns, the worst first"),
    ("pairs", "Pairs of columns"),
    ("propensity", "Propensity score"),
    ("questions", "What the release answers"),
    ("models", "Models"),
    ("disclosure", "Disclosure at a glance"),
    ("made", "How this was made"),
)


def quality_html(found: Quality) -> str:
    """The page as text; it holds no address, and a browser may use its own script and style alone."""
    makers = (_names, _groups, _slopes, _columns, _pairs, _propensity, _questions, _models, _disclosure, _made)
    sections = [
        element("details", element("summary", element("h2", label)), make(found), class_="section", id=name, open=True)
        for (name, label), make in zip(_SECTIONS, makers, strict=True)
    ]
    links = [element("li", element("a", label, href=f"#{name}")) for name, label in _SECTIONS]
    navigation = element("nav", element("ul", links), aria_label="Sections")
    title = f"NOT FOR PUBLICATION: quality of {found.source or 'a release'}"
    main = element("main", _header(found), navigation, sections)
    return document(title, _banner(), main, description=STAMP, more_style=_STYLE, kind="internal")


def _banner() -> Markup:
    first, rest = STAMP.split(":", 1)
    return element("p", element("strong", first), f":{rest}", class_="banner", role="note")


# ------------------------------------------------------------------ the first screen


def _header(found: Quality) -> Markup:
    scores, statement = found.tables, found.release.statement
    known = [(number(scores.k_marginal, ".0f"), "k-marginal, of 1000")]
    if scores.group is not None:
        known.append((number(scores.worst_group, ".0f"), "worst group"))
    known += [
        (f"{found.questions.held} of {found.questions.known}", "noise intervals hold the table’s answer"),
        *_best_model(found),
        (f"{scores.n_rows:,}", "private rows"),
        (f"{scores.n_points:,}", "released points"),
    ]
    if statement is not None:
        known.append((f"{statement.epsilon:g}, {statement.delta:g}", "ε, δ"))
    items = [element("li", element("b", value), element("span", label)) for value, label in known]
    rehearsal = "The release is a rehearsal, and not private either." if found.release.is_rehearsal else None
    return element(
        "header",
        element("h1", "Quality of ", name_of(found.source or "a release", 100), ", compared with its private table"),
        element("p", _one_line(found), class_="lead"),
        element("ul", items, class_="facts"),
        [element("p", note, class_="bad") for note in (*found.notes, rehearsal) if note],
        element("div", _first_groups(found), _first_slopes(found), class_="minute"),
    )


def _best_model(found: Quality) -> list[tuple[str, str]]:
    """Of each side the best of the three estimators."""
    models = found.models
    best = [
        max([x for x in side if math.isfinite(x)], default=math.nan)
        for side in zip(*((m.release, m.table) for m in models.models), strict=True)
    ]
    metric = {"roc_auc": "ROC area", "r2": "r²"}.get(models.metric, "")
    return [(f"{number(best[0])} | {number(best[1])}", f"{metric}: trained on the release | the table")] if best else []


def _one_line(found: Quality) -> list[object]:
    sample = found.tables.sub_sample
    if sample is None:
        return ["There are no two columns with cells, so that no score compares the release with samples of the table."]
    return ["As near to the table as a random sample of ", element("strong", sample.text), " of its rows."]


def _first_groups(found: Quality) -> Markup:
    """The five worst groups; without a group, the five worst columns."""
    scores = found.tables
    if scores.group is None:
        rows = [_row([name_of(c.name, _NAME)], [c.total_variation]) for c in _worst_columns(found)[:_FIRST]]
        return table([("column", "text"), ("TV", "")], rows, "The worst columns (total variation; 0 is best).", "first")
    rows = [_row([name_of(g.name, _NAME)], [g.rows, g.score], ",.0f") for g in scores.groups[:_FIRST]]
    caption = element("span", "The worst of ", f"{len(scores.groups)} groups of ", name_of(scores.group, _NAME), ".")
    return table([("group", "text"), ("rows", ""), ("score of 1000", "")], rows, caption, "first")


def _first_slopes(found: Quality) -> Markup:
    if not found.slopes:
        return element("p", 'No slope is compared: name one with --slope "y ~ x".', class_="soft")
    heads = [("slope", "text"), ("table", ""), ("release", ""), ("95 % noise interval", "")]
    rows = [
        element(
            "tr", element("td", name_of(s.text, _NAME), class_="text"), _cell(s.table, ".3g"), _cell(s.release, ".3g"),
            _interval(s.noise_interval, ".3g"), class_="off" if _outside(s) else None,
        )
        for s in found.slopes[:_FIRST]
    ]  # fmt: skip
    return table(heads, rows, "Slopes. Shaded: the interval does not hold the table’s.", "first")


# ------------------------------------------------------------------ scores and groups


def _names(found: Quality) -> list[object]:
    scores, sample = found.tables, found.tables.sub_sample
    rows = [_texts(line, (0, 3)) for line in named_scores(found)]
    heads = [("score", "text"), ("value", ""), ("best", ""), ("source and meaning", "text")]
    words = "Scores compare tables of two columns at a time; none of them is inference: see the slopes."
    drawn = None
    if sample is not None and scores.k_marginal is not None and len(sample.curve) > 1:
        about = "Grey: the k-marginal of random samples of the table, by their share of its rows. Blue: the release’s."
        drawn = element("div", sample_picture(sample, scores.k_marginal), element("p", about, class_="soft"))
    notes = [element("p", name_of(note, 400), class_="soft") for note in scores.notes]
    return [element("p", words), table(heads, rows, "As their sources compute them.", "names"), drawn, notes]


def _groups(found: Quality) -> list[object]:
    scores = found.tables
    if scores.group is None:
        return [element("p", "The table was not divided into groups: name a column with --group.")]
    heads = [("group", "text"), ("rows", ""), ("score", "")]
    rows = [_row([name_of(g.name, _NAME)], [g.rows, g.score], ",.0f") for g in scores.groups]
    words = (
        "SDNist’s score within each group: 1000·(1 − Σ|p − q| / share of the group), each term at most 1, mean over pairs of the "
        "other columns. A group that the release lacks has 0. It is not on the scale of the whole table’s score."
    )
    return [element("p", words), table(heads, rows, "All groups.", "sortable")]


# ------------------------------------------------------------------ slopes


def _slopes(found: Quality) -> list[object]:
    if not found.slopes:
        return [
            element(
                "p",
                'The domain has no two columns of numbers. Name slopes with --slope "y ~ x"; number(grade) reads levels '
                "as numbers.",
            )
        ]
    heads = [("slope", "text"), ("table", ""), ("its 95 % interval", ""), ("release", ""), ("95 % interval", ""),
             ("95 % noise interval", "")]  # fmt: skip
    rows = [
        element(
            "tr", element("td", name_of(s.text, 120), class_="text"), _cell(s.table), _interval(s.table_interval), _cell(s.release),
            _interval(s.interval), _interval(s.noise_interval), class_="off" if _outside(s) else None,
        )
        for s in found.slopes
    ]  # fmt: skip
    words = (
        "Least squares. The noise interval is for the table itself, the other two are for the population. Shaded: the noise "
        "interval does not hold the table’s slope."
    )
    refused = [element("p", name_of(f"{s.text}: {s.note}", 400), class_="soft") for s in found.slopes if s.note]
    return [element("p", words), table(heads, rows, "Slope of the first on the second.", "sortable"), refused]


def _outside(slope: SlopeCompared) -> bool:
    low, high = slope.noise_interval
    return not low <= slope.table <= high if math.isfinite(low) and math.isfinite(slope.table) else False


# ------------------------------------------------------------------ columns


def _worst_columns(found: Quality) -> list[ColumnScore]:
    return sorted(
        found.tables.columns, key=lambda c: -1.0 if c.total_variation is None else c.total_variation, reverse=True
    )


def _columns(found: Quality) -> list[object]:
    ordered, shapes = _worst_columns(found), found.tables.sdmetrics.columns
    legend = element(
        "p", element("span", class_="key own"), "the table", element("span", class_="key released"), "the release "
        "(numbers: table | release)", class_="soft",
    )  # fmt: skip
    cards = [_card(column, shapes.get(column.name), f"c{k}") for k, column in enumerate(ordered[:_MOST_CARDS])]
    rest = [
        element("p", f"and {len(ordered) - _MOST_CARDS} columns that are nearer; their numbers are in the JSON.")
    ] * (len(ordered) > _MOST_CARDS)
    return [legend, element("div", cards, class_="cards"), rest]


def _card(column: ColumnScore, shape: float | None, name: str) -> Markup:
    scores = [] if column.total_variation is None else [f"TV {number(column.total_variation)}"]
    scores += [] if shape is None else [f"shape {number(shape)} (SDMetrics)"]
    quantiles = None
    if column.quantiles:
        heads = [("quantile", "text"), ("table", ""), ("release", "")]
        rows = [
            element("tr", element("td", q, class_="text"), element("td", _value(own)), element("td", _value(theirs)))
            for q, (own, theirs) in column.quantiles.items()
        ]
        quantiles = element("details", element("summary", "Quantiles"), table(heads, rows, "Natural units.", "plain"))
    return element(
        "article", element("h3", name_of(column.name, _NAME)), element("p", f"{column.kind}; " + "; ".join(scores), class_="soft"),
        column_picture(column, name), quantiles, class_="card", id=name,
    )  # fmt: skip


# ------------------------------------------------------------------ pairs


def _pairs(found: Quality) -> list[object]:
    pairs, trends = found.tables.pairs, found.tables.sdmetrics.pairs
    rows = [_row([name_of(a, _NAME), name_of(b, _NAME)], [tv]) for a, b, tv in pairs.worst]
    worst = table([("column", "text"), ("and column", "text"), ("TV", "")], rows, "The worst pairs.", "plain")
    low = [_row([name_of(a, _NAME), name_of(b, _NAME)], [score]) for a, b, score in trends[:_FIRST]]
    trend = table(
        [("column", "text"), ("and column", "text"), ("trend", "")],
        low,
        "Pair trends, the worst (SDMetrics; 1 is best).",
        "plain",
    )
    words = (
        "Total variation of the table of each pair, of the column’s own on the diagonal: 0 is best, 1 is the largest."
    )
    parts: list[object] = [element("div", worst, trend, class_="two"), element("p", words), _total_variations(pairs)]
    if len(pairs.ordered) > 1:
        words = "Correlation in the release less that in the table; both are over the cell."
        parts += [element("p", words), _correlations(pairs)]
    return parts


def _total_variations(pairs: PairScores) -> Markup:
    size = len(pairs.names)
    mean = [_mean([v for v in row if math.isfinite(v)]) for row in pairs.total_variation]
    kept = sorted(sorted(range(size), key=lambda i: -mean[i])[:_MOST_HEAT])
    cells = [[_tv_cell(pairs, i, j) for j in kept if j <= i] for i in kept]
    left = f"; the {_MOST_HEAT} worst of {size} columns" if size > _MOST_HEAT else ""
    return _heat([pairs.names[i] for i in kept], cells, f"Total variation of pairs{left}.")


def _tv_cell(pairs: PairScores, i: int, j: int) -> Markup:
    tv = pairs.total_variation[i][j]
    title = f"{pairs.names[i]} × {pairs.names[j]}: {number(tv)}" if i != j else f"{pairs.names[i]}: {number(tv)}"
    return _heat_cell(tv, f"{tv:.2f}".lstrip("0") if math.isfinite(tv) else "–", title)


def _correlations(pairs: PairScores) -> Markup:
    kept = list(range(len(pairs.ordered)))[:_MOST_HEAT]
    cells = []
    for i in kept:
        row = []
        for j in kept[:i]:
            own, theirs = pairs.table[i][j], pairs.release[i][j]
            title = f"{pairs.ordered[i]} × {pairs.ordered[j]}: table {number(own)}, release {number(theirs)}"
            row.append(_heat_cell(theirs - own, _signed(theirs - own), title))
        cells.append(row)
    return _heat(
        [pairs.ordered[i] for i in kept], cells, "Differences of correlations: blue higher in the release, brown lower."
    )


def _heat_cell(value: float, text: str, title: str) -> Markup:
    depth = sum(abs(value) >= step for step in _STEPS) if math.isfinite(value) else 0
    kind = f"{'p' if value >= 0 else 'm'}{depth}" if depth else "none"
    return element("td", text, title=title, class_=kind)


def _heat(names: Sequence[str], cells: Sequence[Sequence[Markup]], caption: str) -> Markup:
    """The lower triangle of a matrix, with its diagonal if the first row has a cell."""
    tops = [
        element("th", element("span", name_of(name, 20)), scope="col")
        for name in names[: max(map(len, cells), default=0)]
    ]
    rows = [
        element(
            "tr",
            element("th", name_of(name, 20), scope="row"),
            row,
            [element("td") for _ in range(len(tops) - len(row))],
        )
        for name, row in zip(names, cells, strict=True)
        if row
    ]
    head = element("thead", element("tr", element("td"), tops))
    inner = element("table", element("caption", caption), head, element("tbody", rows))
    return element("div", scrolling(inner, caption), class_="heat")


# ------------------------------------------------------------------ propensity, questions, models


def _propensity(found: Quality) -> list[object]:
    scores = found.propensity
    words = (
        "How well a model tells rows of the table from rows of the release: the mean squared distance of its probabilities "
        f"from the share of released rows, on {scores.table_rows:,} rows of the table and {scores.release_rows:,} of the "
        "release; 0 is best, .25 the most for equal numbers."
    )
    rows = [
        _row(["tree of depth 6, on the cells of columns"], [scores.tree_pmse, math.nan, math.nan]),
        _row([f"logistic regression, main effects ({scores.parameters} parameters)"],
             [scores.logistic_pmse, scores.expected_pmse, scores.S_pMSE]),
    ]  # fmt: skip
    heads = [("model", "text"), ("pMSE", ""), ("expected under the null", ""), ("S_pMSE", "")]
    return [element("p", words), table(heads, rows, "Propensity scores (Snoke et al. 2018).", "plain"),
            [element("p", name_of(note, 600), class_="soft") for note in scores.notes]]  # fmt: skip


def _questions(found: Quality) -> list[object]:
    asked = found.questions
    words = (
        f"Questions {asked.source}. {asked.held} of {asked.known} noise intervals of 95 % hold the table’s own answer. This is a "
        "count and no test: the questions share the release’s noise, so that it varies far more than if they were independent."
    )
    heads = [
        ("question", "text"),
        ("table", ""),
        ("release", ""),
        ("95 % noise interval", ""),
        ("distance", ""),
    ]
    rows = [_question_row(each) for each in asked.compared]
    refused = [
        element("p", name_of(f"{each.question}: {each.note}", 400), class_="soft")
        for each in asked.compared
        if each.note
    ]
    caption = "The farthest off first, in standard errors of the noise. Shaded: not held by the interval."
    return [element("p", words), table(heads, rows, caption, "sortable"), refused[:_FIRST]]


def _question_row(each: Compared) -> Markup:
    return element(
        "tr", element("td", name_of(each.question, 160), class_="text"), _cell(each.table), _cell(each.release),
        _interval((each.low, each.high)), _cell(each.distance, ".2f"), class_="off" if each.held is False else None,
    )  # fmt: skip


def _models(found: Quality) -> list[object]:
    models = found.models
    if models.target is None:
        return [element("p", "No column of few levels or of numbers can be predicted from others.")]
    metric = {
        "roc_auc": "area under the ROC curve; .5 is guessing, 1 best",
        "r2": "r²; 0 is guessing the mean, 1 best",
    }[models.metric]
    words = [
        "Models of ", name_of(models.target, _NAME), f" on {models.rows:,} rows of the table: {metric}. Trained on the release, "
        "compared with the mean of five folds of models that the table trains, which no release should beat by much.",
    ]  # fmt: skip
    heads = [
        ("estimator", "text"),
        ("trained on the release", ""),
        ("on the table", ""),
        ("deviation of folds", ""),
        ("difference", ""),
    ]
    rows = [
        _row([m.estimator], [m.release, m.table, m.table_deviation, m.release - m.table], ".3f") for m in models.models
    ]
    notes = [element("p", name_of(f"{m.estimator}: {m.note}", 400), class_="soft") for m in models.models if m.note]
    return [element("p", words), table(heads, rows, "Scores on the table’s rows.", "plain"), notes]


# ------------------------------------------------------------------ disclosure, and how it was made


def _disclosure(found: Quality) -> list[object]:
    copies, other = found.tables.copies, found.tables.synthpop
    expected = (
        f"{copies.expected:,.4g} expected by chance: as many rows of one half of the table, found in the other half"
    )
    unique = (
        f"rows with keys that are unique in the table and in the release; unique in the table: {per_cent(other.UiO)}"
    )
    disclosed = (
        f"rows whose keys have one value of {other.target or 'the target'} in the release, and that have it; in the table "
        f"itself: {per_cent(other.Dorig)}"
    )
    lines = [
        ("released points equal to a private row", f"{copies.equal:,} of {copies.points:,}", expected),
        ("repU", per_cent(other.repU), unique),
        ("DiSCO", per_cent(other.DiSCO), disclosed),
    ]
    words = (
        "Where columns have few values, equal rows are no copies: chance makes them. What protects the rows is the "
        "guarantee, and not these numbers; they are what readers ask for."
    )
    heads = [("measure", "text"), ("value", ""), ("meaning", "text")]
    caption = "Copies, and synthpop’s disclosure measures in per cent of the table’s rows."
    known = element(
        "p", "Keys that an attacker is thought to know: ", name_of(", ".join(other.keys), 300), class_="soft"
    )
    return [
        element("p", words),
        table(heads, [_texts(line, (0, 2)) for line in lines], caption, "plain"),
        known,
        _rules(found),
    ]


def _rules(found: Quality) -> Markup | None:
    """How many rows break each rule of the domain; nothing without rules."""
    rules = [(rule.rule, percent(rule.table), percent(rule.release)) for rule in found.tables.rules]
    heads = [("rule", "text"), ("table", ""), ("release", "")]
    rows = [_texts((short(text, 300), own, theirs), (0,)) for text, own, theirs in rules]
    return table(heads, rows, "Rows that break a rule of the domain.", "plain") if rules else None


def _made(found: Quality) -> list[object]:
    scores = found.tables
    parts = [
        f"Made with kmeanalyst {__version__} from {scores.n_rows:,} rows of the table, in one reading; in the scores of tables the "
        f"release’s points have {scores.view} weights.",
        "Models, propensity scores and the intervals of the table’s slopes are from "
        f"{found.sampled:,} {found.counted} that a public seed draws; everything else is from all rows.",
        "Whoever reads this page sees exact numbers of private rows. To choose among draws or options without that: "
        "release-side plan, the releases themselves, or scores bought with noise.",
    ]
    return [element("p", part) for part in parts]


# ------------------------------------------------------------------ numbers


def _texts(texts: Sequence[str], left: tuple[int, ...]) -> Markup:
    """A row of texts; those at these places begin at the left."""
    return element("tr", [element("td", text, class_="text" if i in left else None) for i, text in enumerate(texts)])


def _row(texts: Sequence[object], numbers: Sequence[float | None], style: str = ".3g") -> Markup:
    return element("tr", [element("td", text, class_="text") for text in texts], [_cell(n, style) for n in numbers])


def _cell(value: float | None, style: str = ".4g") -> Markup:
    return element("td", number(value, style), data_v="" if value is None else key(value))


def _interval(ends: tuple[float, float], style: str = ".4g") -> Markup:
    low, high = ends
    text = f"{number(low, style)} to {number(high, style)}" if math.isfinite(low) else "not known"
    return element("td", text, data_v=key(high - low))


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−") if math.isfinite(value) else "–"


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else -1.0


def _value(value: object) -> str:
    return number(value, ".5g") if isinstance(value, float) else str(value).removesuffix(" 00:00:00")
