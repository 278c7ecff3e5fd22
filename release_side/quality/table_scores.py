"""The scores of a release against its private table that follow from counts of cells, moments, and comparing rows.

Points of the release have the weights of its probability view, the nearest ones that are not negative and sum to 1, which is the
view that answers and rows come from by default. Counts, quantiles and correlations are of all rows of the table; SDMetrics'
scores of at most 20,000, which the caller draws with a fixed public seed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.tables.score_tables import (
    ScoreTables,
    group_scores,
    k_marginal,
    names_of_cells,
    shares_of,
    total_variations,
    two_way_score,
    within_groups,
    worst_group,
)
from kmeanalyst.representation.tables.sub_sample import SampleScores
from kmeanalyst.representation.weights.views import view_weights
from release_side.quality.disclosure import copies, synthpop_scores
from release_side.quality.scores import ColumnScore, GroupScore, PairScores, RuleScore, SubSample, TableScores
from release_side.quality.sdmetrics import sdmetrics_scores
from release_side.quality.summary import Summary, TableSummary, numbers_of, ordered_columns

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the picture of sub-samples
_WORST = 5


def table_scores(release: ReleaseData, summary: TableSummary, sample: Array) -> TableScores:
    """Every score of this room that is no model, no question and no slope.

    summary   of all rows of the private table, read by the release's domain.
    sample    (n, width) rows of it, encoded: all, or drawn evenly.

    Under a unit the rows weigh 1/rows of their unit, and the sub-sample is one of units. A cell then holds parts of units, rounded
    to whole ones: a sample of as many units is at least as near as that.
    """
    tables, points = summary.tables, release.encoded_points
    weights = np.clip(view_weights(release, "probability"), 0, None)
    of_release = Summary(tables)
    of_release.add(points, weights)
    p, q = shares_of(tables, summary.counts), shares_of(tables, of_release.counts)
    tv, by_group = total_variations(tables, p, q), group_scores(tables, p, q)
    score, domain = k_marginal(tables, p, q), tables.domain
    ours, theirs = summary.digests, summary.digests_of(points)
    return TableScores(
        n_rows=summary.n_rows,
        n_points=len(points),
        view="probability",
        group=None if tables.group is None else domain.names[tables.group],
        k_marginal=score,
        two_way_score=two_way_score(tables, p, q),
        within_groups=within_groups(by_group),
        worst_group=worst_group(by_group),
        groups=_groups(tables, summary.counts, by_group),
        one_way=_mean(tv[tables.one_way]),
        two_way=_mean(tv[tables.two_way]),
        sub_sample=None if score is None else _sub_sample(tables, summary.counts, score),
        columns=_columns(summary, of_release, p, q, tv),
        pairs=_pairs(summary, of_release, tv),
        sdmetrics=sdmetrics_scores(domain, sample, points, weights),
        synthpop=synthpop_scores(
            summary.keys, next(iter(summary.target), None), (ours[1], ours[2]), (theirs[1], theirs[2])
        ),
        copies=copies(ours[0], theirs[0]),
        rules=_rules(summary, of_release, points),
        notes=tuple(tables.notes),
    )


def _mean(values: Array) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _groups(tables: ScoreTables, counts: Array, scores: dict[int, float]) -> tuple[GroupScore, ...]:
    """The worst first."""
    if tables.group is None:
        return ()
    names, rows = names_of_cells(tables.domain, tables.group), tables.table(counts, tables.columns.index(tables.group))
    found = [GroupScore(names[cell], float(rows[cell]), score) for cell, score in scores.items()]
    return tuple(sorted(found, key=lambda one: one.score))


def _sub_sample(tables: ScoreTables, counts: Array, score: float) -> SubSample | None:
    """The simple random sample whose expected score this is."""
    samples = SampleScores.of(tables, np.rint(counts).astype(np.int64))
    if samples is None:
        return None
    rows = samples.rows_of(score)
    sizes = np.unique(np.maximum(np.rint(np.array(_SHARES) * samples.n_rows), 1))
    curve = zip(sizes / samples.n_rows, samples.score(sizes), strict=True)
    share = rows / samples.n_rows
    return SubSample(share, rows, _share_text(share), tuple((float(s), float(each)) for s, each in curve))


def _share_text(share: float) -> str:
    if share < 0.01:
        return "below 1 %"
    return "above 90 %" if share > 0.9 else f"{100 * share:.2g} %"


def _rules(table: Summary, release: Summary, points: Array) -> tuple[RuleScore, ...]:
    """Each rule, and all together."""
    if not (rules := table.tables.domain.rules):
        return ()
    names = [*(rule.describe() for rule in rules), "any rule"]
    shares = [side.broken / (side.weight or 1.0) for side in (table, release)]
    counts = release.breaks(points).sum(axis=0)
    return tuple(
        RuleScore(name, float(ours), float(theirs), int(count))
        for name, ours, theirs, count in zip(names, *shares, counts, strict=True)
    )


def _columns(table: Summary, release: Summary, p: Array, q: Array, tv: Array) -> tuple[ColumnScore, ...]:
    """The worst first, texts last."""
    tables, found = table.tables, []
    for j, column in enumerate(tables.domain.columns):
        index = tables.columns.index(j) if j in tables.columns else None
        found.append(
            ColumnScore(
                name=column.name,
                kind=column.kind,
                total_variation=None if index is None else float(tv[index]),
                cells=() if index is None else tuple(names_of_cells(tables.domain, j)),
                table=() if index is None else tuple(tables.table(p, index).tolist()),
                release=() if index is None else tuple(tables.table(q, index).tolist()),
                quantiles=_quantiles(table, release, j) if j in numbers_of(tables.domain) else None,
            )
        )
    return tuple(sorted(found, key=lambda one: -1.0 if one.total_variation is None else one.total_variation)[::-1])


def _quantiles(table: Summary, release: Summary, j: int) -> dict[str, tuple[Any, Any]]:
    """Probability → the table's and the release's quantile in natural units."""
    column = table.tables.domain.columns[j]
    sides = [column.decode(side.quantiles(j, _QUANTILES)) for side in (table, release)]
    both = zip(_QUANTILES, *(map(_plain, side) for side in sides), strict=True)
    return {f"{probability:g}": (ours, theirs) for probability, ours, theirs in both}


def _plain(value: Any) -> Any:
    """A number, or a date as text; None for a missing one."""
    if pd.isna(value):
        return None
    return str(value.date()) if isinstance(value, pd.Timestamp) else float(value)


def _pairs(table: Summary, release: Summary, tv: Array) -> PairScores:
    """Matrices of all pairs, and the worst five."""
    tables = table.tables
    names, place = tables.domain.names, {j: k for k, j in enumerate(tables.columns)}
    matrix = np.full((len(place), len(place)), np.nan)
    np.fill_diagonal(matrix, tv[tables.one_way])
    for (i, j), distance in zip(tables.pairs, tv[tables.two_way], strict=True):
        matrix[place[i], place[j]] = matrix[place[j], place[i]] = distance
    worst = np.argsort(-tv[tables.two_way], kind="stable")[:_WORST]
    return PairScores(
        names=tuple(names[j] for j in tables.columns),
        total_variation=_tuples(matrix),
        ordered=tuple(names[j] for j in ordered_columns(tables.domain)),
        table=_tuples(table.correlations),
        release=_tuples(release.correlations),
        worst=tuple((names[i], names[j], float(tv[tables.two_way][k])) for k in worst for i, j in [tables.pairs[k]]),
    )


def _tuples(matrix: Array) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(map(float, row)) for row in matrix)
