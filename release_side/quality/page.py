"""The page from top to bottom: the stamp, one line, what fits on a screen, and below it each part with its numbers.

It and its JSON are files of their owner alone, written whole or not at all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from kmeanalyst import __version__
from kmeanalyst.cli.terminal import json_text
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.report.charts import ROW, WIDTH, drawing, line_between, rectangle, text_at
from kmeanalyst.report.markup import Markup, document, element, key, name_of, sections, short, table
from release_side.choices.internal_files import STAMP
from release_side.quality.cells_read import CellsRead, alarms
from release_side.quality.quality import Quality
from release_side.quality.questions import Compared
from release_side.quality.table_scores import ColumnScore

_STYLE = files("release_side.quality").joinpath("quality.css").read_text(encoding="utf-8")
_OWNER_ALONE = 0o600
_NAME = 60  # characters of a name in running text
_MOST_CARDS = 60
_MOST_PAIRS = 100
_MOST_CELLS = 12  # of a column that are drawn
_LABEL, _RIGHT = 112.0, 92.0  # of a drawing: how wide names and numbers are


def write_quality(quality: Quality, output: str | Path, json_output: str | Path | None = None) -> None:
    """Write the page, and its numbers as JSON; each file appears whole or not at all, with mode 0600."""
    _write_internal(quality_html(quality), quality.to_dict(), output, json_output)


def write_cells(cells: Sequence[CellsRead], source: str, output: str | Path, json_output: str | Path) -> None:
    """Write the page of a table's cells before any release, and its numbers as JSON, in the same way."""
    numbers = {"not_for_publication": STAMP, "source": source, "cells": [own.to_dict() for own in cells]}
    _write_internal(cells_html(cells, source), numbers, output, json_output)


def _write_internal(page: str, numbers: dict[str, Any], output: str | Path, json_output: str | Path | None) -> None:
    for path, text in ((output, page), (json_output, json_text(numbers) + "\n")):
        if path is not None:
            with atomic_write(path, mode=_OWNER_ALONE) as temporary:  # who opened it before a chmod could read on
                os.chmod(temporary, _OWNER_ALONE)  # whatever the umask takes away
                temporary.write_bytes(text.encode())


def quality_html(quality: Quality) -> str:
    """The page as text; it holds no address, and a browser may use its own script and style alone."""
    parts = sections(
        ("groups", "Groups, the worst first", _groups(quality)), ("columns", "Columns, the worst first", _columns(quality)),
        ("pairs", "Pairs of columns, the worst first", _pairs(quality)),
        ("questions", "What the release answers", _questions(quality)), ("models", "Models", _models(quality)),
        ("cells", "How cells were read", _cells(quality.cells)), ("equal", "Equal rows", _equal_rows(quality)),
        ("made", "How this was made", _made(quality)),
    )  # fmt: skip
    return _internal(f"quality of {quality.source or 'a release'}", _header(quality), parts)


def cells_html(cells: Sequence[CellsRead], source: str) -> str:
    """The page of a table's cells as text, stamped as that of a release."""
    told = alarms(cells)
    heading = element("h1", "How the cells of ", name_of(source, 100), " are read")
    lead = "Some columns are hardly read as they stand." if told else "Nearly every cell is read as it stands."
    header = element("header", heading, element("p", lead, class_="lead"), _bad(told))
    return _internal(f"cells of {source}", header, element("section", _cells(cells)))


def _internal(title: str, *content: object) -> str:
    first, rest = STAMP.split(":", 1)
    banner = element("p", element("strong", first), f":{rest}", class_="banner", role="note")
    whole = f"NOT FOR PUBLICATION: {title}"
    return document(whole, banner, element("main", content), description=STAMP, more_style=_STYLE, kind="internal")


# ------------------------------------------------------------------ the first screen


def _header(quality: Quality) -> Markup:
    scores, statement = quality.tables, quality.release.statement
    facts = [
        (number(scores.k_marginal, ".0f"), "k-marginal, of 1000"),
        *([] if scores.group is None else [(number(scores.worst_group, ".0f"), "worst group")]),
        (f"{quality.questions.held} of {quality.questions.known}", "noise intervals hold the table’s answer"),
        (f"{scores.n_rows:,}", "private rows"),
        (f"{scores.n_points:,}", "released points"),
        *([] if statement is None else [(f"{statement.epsilon:g}, {statement.delta:g}", "ε, δ")]),
    ]
    items = [element("li", element("b", value), element("span", label)) for value, label in facts]
    rehearsal = "The release is a rehearsal, and not private either." if quality.release.is_rehearsal else None
    return element(
        "header",
        element("h1", "Quality of ", name_of(quality.source or "a release", 100), ", compared with its private table"),
        [] if scores.pairs else element("p", "There are no two columns with cells to compare.", class_="lead"),
        element("ul", items, class_="facts"),
        _bad([*quality.notes, *alarms(quality.cells or ()), rehearsal]),
    )


def _bad(notes: Sequence[str | None]) -> list[Markup]:
    return [element("p", name_of(note, 400), class_="bad") for note in notes if note]


# ------------------------------------------------------------------ groups, columns, pairs


def _groups(quality: Quality) -> list[object]:
    words = "The k-marginal is 1000·(1 − mean total variation) over pairs of columns, as SDNist computes it. "
    notes = [_soft(note) for note in quality.tables.notes]
    if quality.tables.group is None:
        words += "The table was not divided into groups: name a column with --group."
        return [element("p", words), notes]
    words += (
        "The pairs are of the other columns, crossed with the group. Within a group the score is 1000·(1 − Σ|p − q| / share of the "
        "group), each term at most 1, mean over pairs: 0 where the release lacks the group. It is not on the whole table’s scale."
    )
    heads = [("group", "text"), ("rows", ""), ("score of 1000", "")]
    rows = [_row([group.name], [group.rows, group.score], ",.0f") for group in quality.tables.groups]
    caption = element("span", "Groups of ", name_of(quality.tables.group, _NAME), ".")
    return [element("p", words), table(heads, rows, caption, "sortable"), notes]


def _columns(quality: Quality) -> list[object]:
    columns = quality.tables.columns
    legend = element(
        "p", element("span", class_="key own"), "the table", element("span", class_="key released"), "the release "
        "(numbers: table | release)", class_="soft",
    )  # fmt: skip
    cards = [_card(column, f"c{k}") for k, column in enumerate(columns[:_MOST_CARDS])]
    return [legend, element("div", cards, class_="cards"), _nearer(len(columns) - len(cards), "columns")]


def _card(column: ColumnScore, name: str) -> Markup:
    score = "" if column.total_variation is None else f"; TV {number(column.total_variation)}"
    return element(
        "article", element("h3", name_of(column.name, _NAME)), element("p", f"{column.kind}{score}", class_="soft"),
        column_picture(column, name), class_="card", id=name,
    )  # fmt: skip


def column_picture(column: ColumnScore, name: str) -> Markup | None:
    """Shares of a column's cells, those that differ most: bars are the table's, blue marks the release's. None without cells."""
    farthest = sorted(range(len(column.cells)), key=lambda k: -abs(column.release[k] - column.table[k]))
    kept = sorted(farthest[:_MOST_CELLS])
    if not kept:
        return None
    most = max(max(column.table[k], column.release[k]) for k in kept) or 1.0
    scale, start, parts = (WIDTH - _LABEL - _RIGHT - 6) / most, _LABEL + 6, []
    for i, k in enumerate(kept):
        middle, mark = i * ROW + ROW / 2, start + scale * column.release[k]
        shares = percent(column.table[k]), percent(column.release[k])
        parts += [
            element("title", f"{short(column.cells[k], 200)}: table {shares[0]}, release {shares[1]}"),
            text_at(short(column.cells[k], 17), _LABEL, middle + 4, "label end"),
            rectangle(start, middle - 5, scale * column.table[k], 10, "own"),
            line_between(mark, middle - 7, mark, middle + 7, "released"),
            text_at(" | ".join(shares), WIDTH, middle + 4, "number end"),
        ]
    height, left = len(kept) * ROW, len(column.cells) - len(kept)
    if left:
        parts.append(text_at(f"and {left} cells that differ less", 0, height + 14, "label"))
    words = "; ".join(f"{short(column.cells[k], 60)}: {percent(column.table[k])}, {percent(column.release[k])}" for k in kept)
    return drawing(f"{short(column.name, 60)}: table and release", name, height + 18 * bool(left), words, parts)


def _pairs(quality: Quality) -> list[object]:
    pairs = quality.tables.pairs
    rows = [_row([a, b], [tv]) for a, b, tv in pairs[:_MOST_PAIRS]]
    words = f"Total variation of the table of each pair: 0 is best, 1 the largest; {number(quality.tables.two_way)} in the mean."
    heads = [("column", "text"), ("and column", "text"), ("TV", "")]
    worst = table(heads, rows, "The worst pairs.", "sortable")
    return [element("p", words), worst, _nearer(len(pairs) - len(rows), "pairs")]


def _nearer(left: int, what: str) -> Markup | None:
    return _soft(f"and {left} {what} that are nearer; their numbers are in the JSON.") if left else None


# ------------------------------------------------------------------ questions and models


def _questions(quality: Quality) -> list[object]:
    asked = quality.questions
    words = (
        f"Questions {asked.source}. {asked.held} of {asked.known} noise intervals of 95 % hold the table’s own answer. This is a "
        "count and no test: the questions share the release’s noise, so that it varies far more than if they were independent."
    )
    heads = [("question", "text"), ("table", ""), ("release", ""), ("95 % noise interval", ""), ("distance", "")]
    caption = "The farthest off first, in standard errors of the noise. Shaded: not held by the interval."
    unanswered = [_soft(f"{one.question}: {one.note}") for one in asked.compared if one.note]
    rows = [_question(one) for one in asked.compared]
    return [element("p", words), table(heads, rows, caption, "sortable"), unanswered]


def _question(asked: Compared) -> Markup:
    ends = f"{number(asked.low, '.4g')} to {number(asked.high, '.4g')}" if math.isfinite(asked.low) else "not known"
    return element(
        "tr", element("td", name_of(asked.question, 160), class_="text"), _cell(asked.table, ".4g"), _cell(asked.release, ".4g"),
        element("td", ends, data_v=key(asked.high - asked.low)), _cell(asked.distance, ".2f"),
        class_="off" if asked.held is False else None,
    )  # fmt: skip


def _models(quality: Quality) -> list[object]:
    models = quality.models
    if models.target is None:
        return [element("p", "No column of few levels or of numbers can be predicted from others.")]
    metric = {"roc_auc": "area under the ROC curve; .5 is guessing, 1 best", "r2": "r²; 0 is guessing the mean, 1 best"}
    words = [
        "Models of ", name_of(models.target, _NAME), f" on {models.rows:,} rows of the table: {metric[models.metric]}. Trained on "
        "the release, compared with the mean of five folds of models that the table trains, which no release should beat by much.",
    ]  # fmt: skip
    heads = [
        ("estimator", "text"), ("trained on the release", ""), ("on the table", ""), ("deviation of folds", ""), ("difference", ""),
    ]  # fmt: skip
    rows = [_row([m.estimator], [m.release, m.table, m.table_deviation, m.release - m.table], ".3f") for m in models.models]
    notes = [_soft(f"{model.estimator}: {model.note}") for model in models.models if model.note]
    return [element("p", words), table(heads, rows, "Scores on the table’s rows.", "plain"), notes]


# ------------------------------------------------------------------ cells, equal rows, and how it was made


def _cells(cells: Sequence[CellsRead] | None) -> list[object]:
    if cells is None:
        return [element("p", "The rows of this table can be read once only, so that its cells were not counted.")]
    words = (
        "A cell that is not a value of its column is unread: in a release it becomes the column's default, silently. Empty ones "
        "are missing values that the domain does not declare. Where many are unread, correct the table, or the domain by its code "
        "book: levels, bounds and codes that are copied from this page would be a leak that no ε covers."
    )
    heads = [("column", "text"), ("unread", ""), ("of them empty", ""), ("become", "text"), ("out of bounds", ""),
             ("missing", ""), ("the commonest texts unread or out of bounds", "text")]  # fmt: skip
    rows = [
        element(
            "tr", element("td", name_of(own.name, _NAME), class_="text"), _cell(own.unread, ",.0f"), _cell(own.empty, ",.0f"),
            element("td", name_of(own.becomes if own.unread else "–", _NAME), class_="text"), _cell(own.clamped, ",.0f"),
            _cell(own.missing, ",.0f"),
            element("td", name_of(", ".join(f"{short(repr(text), 40)} ({n:,})" for text, n in own.texts), 300), class_="text"),
            class_="off" if own.is_alarming else None,
        )
        for own in cells
    ]  # fmt: skip
    rows_read = cells[0].rows if cells else 0
    return [element("p", words), table(heads, rows, f"Cells of {rows_read:,} rows, the worst columns first.", "sortable")]


def _equal_rows(quality: Quality) -> Markup:
    equal = quality.tables.equal_rows
    words = (
        f"{equal.equal:,} of {equal.points:,} released points are equal to a private row; {equal.expected:,.4g} are expected by "
        "chance: as many rows of one half of the table, found in the other half. Where columns have few values, equal rows are no "
        "copies: chance makes them. What protects the rows is the guarantee, and not this number."
    )
    return element("p", words)


def _made(quality: Quality) -> Markup:
    words = (
        f"Made with kmeanalyst {__version__} from {quality.tables.n_rows:,} rows of the table, in one reading; in the scores of "
        "tables the release’s points have their nearest probability weights. Models are from "
        f"{quality.sampled:,} {quality.counted} that a public seed draws; everything else is from all rows."
    )
    return element("p", words)


# ------------------------------------------------------------------ numbers


def number(value: float | None, style: str = ".3g") -> str:
    """A number as the page shows it; a dash where there is none.

    >>> number(-0.12345), number(12345.6), number(None), number(float("inf"))
    ('−0.123', '12,346', '–', '∞')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    return f"{value:{',.0f' if abs(value) >= 1000 else style}}".replace("-", "−")


def percent(share: float) -> str:
    """A share in per cent, with three digits.

    >>> percent(0.14159), percent(0.00021)
    ('14.2 %', '0.021 %')
    """
    return f"{100 * share:.3g} %"


def _row(names: Sequence[str], numbers: Sequence[float | None], style: str = ".3g") -> Markup:
    texts = [element("td", name_of(name, _NAME), class_="text") for name in names]
    return element("tr", texts, [_cell(value, style) for value in numbers])


def _cell(value: float | None, style: str) -> Markup:
    return element("td", number(value, style), data_v="" if value is None else key(value))


def _soft(text: str) -> Markup:
    return element("p", name_of(text, 400), class_="soft")
