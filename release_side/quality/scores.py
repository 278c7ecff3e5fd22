"""What the internal page says about tables, columns, pairs and rows: values, computed by `table_scores`.

Every number here is exact and private. Shares and total variations (TV) are from 0 to 1, scores from 0 to 1000 (SDNist) or from 0
to 1 (SDMetrics), and those of synthpop are percentages of the table's rows, as in their sources.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np


class Result:
    """Base class of the results: one plain dictionary of JSON's types for each."""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them: numbers, texts, lists; None for what is undefined."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class GroupScore(Result):
    """One group of rows.

    name    its cell of the group's column.
    rows    of the table; of rows under a unit the sum of their weights.
    score   1000·(1 − mean over pairs of min(Σ|p − q| / p_g, 1)); SDNist.
    """

    name: str
    rows: float
    score: float


@dataclass(frozen=True)
class SubSample(Result):
    """The unit that everybody understands: which simple random sample of the table's rows is as near to it as the release.

    share   of the table's N rows, n / N, whose expected k-marginal is that of the release.
    rows    n.
    text    "14 %", "below 1 %" or "above 90 %".
    curve   (share, expected k-marginal) of samples of 1 to 90 % of the rows, for a picture.
    """

    share: float
    rows: float
    text: str
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class ColumnScore(Result):
    """One column of the table and of the release.

    total_variation   ½Σ|p − q| over its cells; None for a text.
    cells             names of the cells: levels, ranges, atoms, "missing". Empty for a text.
    table, release    shares of the rows in each cell.
    quantiles         of a number: probability → (table's, release's) quantile in natural units, missing cells left out.
    """

    name: str
    kind: str
    total_variation: float | None
    cells: tuple[str, ...]
    table: tuple[float, ...]
    release: tuple[float, ...]
    quantiles: Mapping[str, tuple[Any, Any]] | None


@dataclass(frozen=True)
class PairScores(Result):
    """All pairs of columns, as matrices for heat maps.

    names             of the columns with cells; rows and columns of `total_variation`.
    total_variation   of the tables of pairs, of the column's own table on the diagonal; NaN for a pair that was not counted.
    ordered           names of numbers and ordinals; rows and columns of the correlations.
    table, release    Pearson's correlations of encoded values, of the rows in which neither is missing; NaN without variance.
    worst             (name, name, total variation), the five worst pairs first.
    """

    names: tuple[str, ...]
    total_variation: tuple[tuple[float, ...], ...]
    ordered: tuple[str, ...]
    table: tuple[tuple[float, ...], ...]
    release: tuple[tuple[float, ...], ...]
    worst: tuple[tuple[str, str, float], ...]


@dataclass(frozen=True)
class SdmetricsScores(Result):
    """The quality report of SDMetrics, 1 best.

    overall              mean of the two properties.
    column_shapes        mean over columns of KSComplement (numbers, dates) or TVComplement (levels).
    column_pair_trends   mean over pairs of CorrelationSimilarity or ContingencySimilarity.
    columns              name → score.
    pairs                (name, name, score), the worst first.
    rows                 of the table that were compared; all, or that many drawn with a fixed public seed.
    """

    overall: float
    column_shapes: float
    column_pair_trends: float
    columns: Mapping[str, float]
    pairs: tuple[tuple[str, str, float], ...]
    rows: int


@dataclass(frozen=True)
class SynthpopScores(Result):
    """The disclosure measures of synthpop, in per cent of the table's rows; the released points count as rows, one each.

    keys    columns that an attacker is thought to know.
    target  the column he wants to learn; None without one, and then what needs it.
    repU    rows with combinations of keys that are unique in the table and in the release.
    UiO     rows with combinations of keys that are unique in the table: what repU is compared with.
    DiSCO   rows whose combination of keys has one value of the target in the release, and that have this value.
    Dorig   rows whose combination of keys has one value of the target in the table: what DiSCO is compared with.
    """

    keys: tuple[str, ...]
    target: str | None
    repU: float  # the source's names
    UiO: float
    DiSCO: float | None
    Dorig: float | None


@dataclass(frozen=True)
class Copies(Result):
    """Points of the release that are equal to a private row, and how many would be if the points were other rows of the table.

    points     of the release.
    equal      of them, with every cell equal to that of some private row.
    expected   the same for as many rows of one random half of the table, compared with the other half.
    """

    points: int
    equal: int
    expected: float


@dataclass(frozen=True)
class RuleScore(Result):
    """How much of the table and of the release breaks a rule of the domain.

    rule     in a line; "any rule" for rows that break one at least.
    table    share of the table's rows.
    release  share of the release, by the points' weights.
    points   how many points.
    """

    rule: str
    table: float
    release: float
    points: int


@dataclass(frozen=True)
class TableScores(Result):
    """Everything of the internal page that follows from tables and rows.

    n_rows, n_points   rows of the table, points of the release.
    view               the weights that the points have here.
    group              the column that groups are of; None for none.
    k_marginal         SDNist's score: 1000·(1 − mean TV) over pairs of columns crossed with the group (groups by size).
    two_way_score      the same over pairs without the group and not crossed with it.
    within_groups      mean of the groups' scores, each weighing the same; None without a group.
    worst_group        the least of them.
    groups             the worst first.
    one_way, two_way   mean total variation of all columns, and of all pairs of columns.
    rules              the domain's rules in its order, then all together; empty without rules.
    """

    n_rows: int
    n_points: int
    view: str
    group: str | None
    k_marginal: float | None
    two_way_score: float | None
    within_groups: float | None
    worst_group: float | None
    groups: tuple[GroupScore, ...]
    one_way: float | None
    two_way: float | None
    sub_sample: SubSample | None
    columns: tuple[ColumnScore, ...]
    pairs: PairScores
    sdmetrics: SdmetricsScores
    synthpop: SynthpopScores
    copies: Copies
    rules: tuple[RuleScore, ...]
    notes: tuple[str, ...]
