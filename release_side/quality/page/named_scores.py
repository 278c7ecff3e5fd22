"""The scores by the names that users of other tools know, each with its best value and its source."""

from __future__ import annotations

import math
from collections.abc import Iterator

from release_side.quality.page.pictures import percent
from release_side.quality.quality import Quality

Line = tuple[str, str, str, str]  # name, value, the best value, source and meaning


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


def per_cent(value: float | None) -> str:
    """Of a number that is in per cent already."""
    return "–" if value is None else percent(value / 100)


def named_scores(found: Quality) -> list[Line]:
    """All of them, those of SDNist first."""
    return [*_of_sdnist(found), *_of_others(found), *_of_synthpop(found)]


def _of_sdnist(found: Quality) -> Iterator[Line]:
    scores, sample = found.tables, found.tables.sub_sample
    over = "pairs of columns, crossed with the group" if scores.group else "pairs of columns"
    yield (
        "k-marginal",
        number(scores.k_marginal, ".0f"),
        "1000",
        f"SDNist: 1000·(1 − mean TV) over {over}; groups by size",
    )
    if scores.group is not None:
        yield "k-marginal of pairs alone", number(scores.two_way_score, ".0f"), "1000", "the same, not crossed with it"
        yield (
            "within groups",
            number(scores.within_groups, ".0f"),
            "1000",
            "SDNist: each group by itself, all weighing the same",
        )
        yield "worst group", number(scores.worst_group, ".0f"), "1000", "SDNist: the least of these"
    if sample is not None:
        meaning = f"SDNist: a random sample of {sample.rows:,.0f} of the {found.counted} has this k-marginal"
        yield "sub-sampling equivalent", sample.text, "100 %", meaning


def _of_others(found: Quality) -> Iterator[Line]:
    scores, metrics = found.tables, found.tables.sdmetrics
    yield "mean TV of columns", number(scores.one_way), "0", "½Σ|p − q| over the cells of a column"
    yield "mean TV of pairs", number(scores.two_way), "0", "the same over the cells of a pair"
    yield "column shapes", number(metrics.column_shapes), "1", f"SDMetrics, on {metrics.rows:,} rows"
    yield "column pair trends", number(metrics.column_pair_trends), "1", "SDMetrics, on the same rows"


def _of_synthpop(found: Quality) -> Iterator[Line]:
    scores, other = found.propensity, found.tables.synthpop
    yield "pMSE, tree", number(scores.tree_pmse), "0", f"a tree of depth 6, on {scores.table_rows:,} rows of the table"
    yield "pMSE, logistic", number(scores.logistic_pmse), "0", "synthpop: logistic regression with main effects"
    yield "S_pMSE", number(scores.S_pMSE), "1", "synthpop: its ratio to the expectation under the null; see below"
    recur = f"synthpop: unique combinations of keys that recur; unique in the table (UiO): {per_cent(other.UiO)}"
    yield "repU", per_cent(other.repU), "0", recur
    disclosed = (
        f"values of {other.target or 'a target'} that keys disclose; in the table (Dorig): {per_cent(other.Dorig)}"
    )
    yield "DiSCO", per_cent(other.DiSCO), "0", f"synthpop: {disclosed}"
