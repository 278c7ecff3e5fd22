"""Which rounds there are, and the share of the budget that each one has: from public facts alone.

Usually there are five: all one-way tables; scores of all pairs, their distance from independence; a tree of pairs; scores
again, the distance from what the tree implies; further pairs. Three more look for larger sets of columns: the exponential
mechanism draws twelve whose small tables are far from what their pairs say, noisy scores follow, and the tables of those that
exceed their noise are measured; as far as there are none, all tables are measured once more. Where noise is large, there are no
noisy scores of all pairs: the exponential mechanism draws three pairs by their exact ones, or no pair is measured where the
noise of a usual table exceeds any distance. Of 30 columns or more it draws a tree, unless noise is small: first pairs of all,
then pairs that lead from one part of what was drawn to another; and then further pairs, by what the tree implies. Of three
columns or fewer all pairs are measured.

A workload names questions that will be asked. Three tenths of what tables have go to the tables that hold their answers, the
one-way tables of one column or the table of two, with squared heights ∝ (questions · √cells) ** ⅔. This minimises the sum over
questions of √cells / height: the noise of an answer, in standard errors of sampling, whatever of an even table is asked.
(Three tenths is about what makes the mean of these noises as small as that of all others, for one pair as for thirty.) Pairs
that are named are measured in the first round, before any score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from types import MappingProxyType

import numpy as np

from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import GRID, SHRINK, cells_of_all_pairs
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.tables.estimates import NOISE_IN_DISTANCE
from release_side.choices.workload import Workload
from release_side.door.mechanism import Noise, RehearsalNoise
from release_side.publishing.methods.adaptive.choice_of_pairs import MOST_DISTANCE

_FEW_COLUMNS = 3  # other than the target: all pairs are measured
_FEW_LEFT = 7  # pairs for each column that are left where all pairs of a column are named: with fewer all are measured
_SMALL_NOISE, _LARGE_NOISE = 0.006, 0.04  # noise on a share if all pairs were measured alike
# shares of the budget: one-way tables, scores, tree, scores, further pairs
_SHARES = {"small": (0.20, 0.03, 0.27, 0.05, 0.45), "middle": (0.35, 0.05, 0.30, 0.05, 0.25)}
# where larger sets of columns are looked for, three rounds more: draws of some sets, their scores, the tables of those worth it
_SHARES_SETS = (0.01, 0.01, 0.06)
_WITH_SETS = {
    name: (*((1 - sum(_SHARES_SETS)) * part for part in parts), *_SHARES_SETS) for name, parts in _SHARES.items()
}
SETS_DRAWN = 12
_MOST_IN_SET, _MOST_SETS = 512, 2000  # cells of a set's table; sets that are drawn from
_SHARES_LARGE = (0.80, 0.03, 0.17)
PAIRS_LARGE = 3
_MANY_COLUMNS = 30  # from which pairs are drawn
# of many columns, where noise is not small: draws of pairs, their tables, a further draw, its tables. Each of the first draws
# takes this part of the pairs that a tree still lacks
PARTS_OF_TREE = (0.5, 0.5, 0.5, 0.5, 1.0)
_SHARES_MANY, _DRAWS_MANY = (0.35, 0.04, 0.02, 0.01, 0.005, 0.005, 0.28, 0.05, 0.24), (1, 2, 3, 4, 5, 7)
_SHARES_FEW = (0.5, 0.5)
_SHARES_TARGET = (0.3, 0.7)  # where a workload names all pairs of a column
# times √columns, the largest noise: a tree's tables then have as much as those of 20 columns at `_LARGE_NOISE`
_LARGE_NOISE_OF_MANY = 0.009
_SEEN_WELL = 0.01  # noise, as above, up to which scores of many columns' pairs are seen well enough all the same
# squared heights ∝ cells ** ⅔, which minimises the sum over tables of cells / height, the distances of tables; where noise is
# small ∝ √cells: half way to cells ** ⅓, which minimises that of √cells / height, the noise of answers (as with workloads, above)
_POWER, _POWER_SMALL = 2 / 3, 1 / 2
_ASKED = 0.3  # of what tables have: for those that a workload names
MOST_CELLS = 10**6  # of the tables that are measured
MOST_REPEATED = MOST_CELLS // 8  # of the tables that a later round measures again
_TINY = 1e-15


@dataclass(frozen=True)
class Shares:
    """The budget: each round's part of 1/m², and whether it is of tables or of scores.

    asked   of what tables have, the parts of the first rounds for tables that a workload names; all others make room for them.
    """

    parts: tuple[float, ...]
    scores: tuple[int, ...]  # or of a choice by scores
    asked: tuple[float, ...] = ()

    @property
    def are_scored(self) -> bool:
        """Whether there are noisy scores of all pairs."""
        return self.parts in (*_SHARES.values(), *_WITH_SETS.values())

    @property
    def have_sets(self) -> bool:
        """Whether the last three rounds look for larger sets of columns than pairs."""
        return self.parts in _WITH_SETS.values()

    @property
    def noise_is_small(self) -> bool:
        """Whether pairs are scored and noise is small, so that more of the budget goes to further pairs."""
        return self.parts in (_SHARES["small"], _WITH_SETS["small"])

    @property
    def are_all_measured(self) -> bool:
        """Whether the second round, which is the last one, measures all pairs."""
        return len(self.parts) == len(_SHARES_FEW)

    @property
    def are_few_drawn(self) -> bool:
        """Whether a few pairs are drawn by their exact scores, all at once."""
        return len(self.parts) == len(_SHARES_LARGE)

    @property
    def is_tree_drawn(self) -> bool:
        """Whether a tree of pairs is drawn, and then further pairs."""
        return self.parts == _SHARES_MANY

    @property
    def power(self) -> float:
        """Of a table's cells, to which its squared height is proportional."""
        return _POWER_SMALL if self.noise_is_small else _POWER

    @property
    def of_tables(self) -> float:
        return sum(part for r, part in enumerate(self.parts) if r not in self.scores)

    def squares(self, number: int) -> float:
        """The part of k(x, x) that the tables of a round have, what they have for a workload left out."""
        return self.parts[number] / self.of_tables * (1 - sum(self.asked))

    def allowances(self) -> list[float]:
        """How far a row may move each round, in steps of the grid: tables move by √2 of their norm."""
        asked = (*self.asked, *[0.0] * len(self.parts))
        squares = [
            part / self.of_tables if r in self.scores else self.squares(r) + asked[r]
            for r, part in enumerate(self.parts)
        ]
        return [math.sqrt(2 * square) * GRID for square in squares]


def shares_of_rounds(
    kernel: MarginsKernel,
    size: PopulationSize,
    noise: Noise | RehearsalNoise,
    asked: Mapping[tuple[int, ...], float] = MappingProxyType({}),
) -> Shares:
    """The rounds and their budget, from public facts: the domain, N, ε, δ, and what a workload asks for.

    asked   squared heights for columns and pairs of columns. Where fewer other pairs are left than there are columns, all pairs
            are measured, and none is scored; where all pairs of a column are named, and noise is not large, up to seven times
            as many.
    """
    columns = len(kernel.others)
    alone, together = (sum(square for own, square in asked.items() if len(own) == n) for n in (1, 2))
    if columns < 2:
        return Shares((1.0,), (), (alone,))
    named = sum(len(own) == 2 for own in asked)
    left = kernel.n_pairs - named
    if columns <= _FEW_COLUMNS or left < columns:
        return Shares(_SHARES_FEW, (), (alone, together))
    spread = noise_of_all_pairs(kernel, size, noise)
    small = sum(cells <= most_of_a_pair(kernel) for cells in cells_of_all_pairs(kernel))
    enough = small - named > most_drawn(columns)
    if columns >= _MANY_COLUMNS and enough and _SEEN_WELL < spread <= _LARGE_NOISE_OF_MANY * math.sqrt(columns):
        return Shares(_SHARES_MANY, _DRAWS_MANY, (alone + together,))
    if spread > _LARGE_NOISE:
        if _worth_drawing(kernel, size, noise):
            return Shares(_SHARES_LARGE, (1,), (alone + together,))
        return Shares((1.0,), (), (alone + together,))
    if left < _FEW_LEFT * columns and is_about_one(kernel, asked) and kernel.n_cells <= MOST_REPEATED:
        return Shares(_SHARES_TARGET, (), (alone, together))
    level = "small" if spread <= _SMALL_NOISE else "middle"
    if kernel.n_pairs <= MOST_REPEATED and candidate_sets(kernel):
        return Shares(_WITH_SETS[level], (1, 3, 5, 6), (alone + together,))
    return Shares(_SHARES[level], (1, 3), (alone + together,))


def candidate_sets(kernel: MarginsKernel) -> list[tuple[int, ...]]:
    """Sets of three columns or more whose tables are small, from public facts: those of fewest columns and then cells first.

    None where there is a target. Of many columns those of fewest cells alone, so that all triples of them could be listed.
    """
    if kernel.target >= 0:
        return []
    several = sorted((j for j in kernel.others if kernel.sizes[j] > 1), key=lambda j: kernel.sizes[j])
    few = sorted(several[: next(n for n in count(1) if math.comb(n + 1, 3) > _MOST_SETS)])
    sets: list[tuple[int, ...]] = []
    larger: list[tuple[tuple[int, ...], int]] = [((j,), kernel.sizes[j]) for j in few]
    while larger and len(sets) < _MOST_SETS:
        larger = [
            ((*own, j), cells * kernel.sizes[j])
            for own, cells in larger
            for j in few
            if j > own[-1] and cells * kernel.sizes[j] <= _MOST_IN_SET
        ]
        sets += [own for own, _ in sorted(larger, key=lambda one: one[1]) if len(own) > 2]
    return sets[:_MOST_SETS]


def with_sets(kernel: MarginsKernel, sets: list[tuple[int, ...]]) -> MarginsKernel:
    """The same tables and those of these sets of columns; heights mean nothing until tables are chosen."""
    if not sets:
        return kernel
    own = (kernel.shares[2] / (len(kernel.pairs) + len(sets)),) * (len(kernel.pairs) + len(sets))
    squares = (*kernel.squared_heights[:2], own, *kernel.squared_heights[3:])
    given = {each.name: getattr(kernel, each.name) for each in fields(kernel)}
    return ChosenMargins(**given, chosen=(*kernel.pairs, *sets), squares=squares)


def without_sets(kernel: MarginsKernel) -> MarginsKernel:
    """What `with_sets` was given."""
    return MarginsKernel(**{each.name: getattr(kernel, each.name) for each in fields(MarginsKernel)})


def asked_squares(kernel: MarginsKernel, workload: Workload | None) -> dict[tuple[int, ...], float]:
    """Squared heights for each column and pair of columns that a workload names, none without one; of sum `_ASKED`.

    With a target all tables are crossed with it, and it is left out of names.
    """
    if workload is None:
        return {}
    questions = workload.by_columns(kernel.target).items()
    cells = {columns: math.prod(kernel.sizes[j] for j in columns) for columns, _ in questions if len(columns) < 3}
    worth = {columns: (n * math.sqrt(cells[columns])) ** _POWER for columns, n in questions if columns in cells}
    return {columns: _ASKED * own / sum(worth.values()) for columns, own in worth.items()}


def is_about_one(kernel: MarginsKernel, asked: Mapping[tuple[int, ...], float]) -> bool:
    """Whether all pairs of some column are named, as those of a target that is a number are."""
    return any(all((min(i, j), max(i, j)) in asked for i in kernel.others if i != j) for j in kernel.others)


def noise_of_all_pairs(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> float:
    """On a share, if the tables of all pairs were measured alike; from public facts."""
    return math.sqrt(2) * noise.deviation(1.0) / size.count * math.sqrt(max(kernel.n_pairs, 1))


def _worth_drawing(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> bool:
    """Where noise is large: whether a usual table, one of those that are drawn, has less noise than two tables can differ."""
    cells = np.array(cells_of_all_pairs(kernel), dtype=float)
    unit = math.sqrt(2 / _SHARES_LARGE[2]) * noise.deviation(1.0) / size.count
    return bool(np.median(NOISE_IN_DISTANCE * unit * noise_by_cells(cells, PAIRS_LARGE, _POWER)) <= MOST_DISTANCE)


def noise_by_cells(cells: Array, count: int, power: float) -> Array:
    """Σ|noise| of tables with so many cells, if `count` of them share a round by the power of their cells."""
    return math.sqrt(count) * np.median(cells) ** (power / 2) * cells ** (1 - power / 2)


def most_drawn(columns: int) -> int:
    """How many pairs the draws of a tree take at most: the first ones may connect few columns, each with each."""
    drawn = 0
    for part in PARTS_OF_TREE:
        connected = math.ceil((math.sqrt(8 * drawn + 1) - 1) / 2)  # n with n(n + 1)/2 ≥ drawn: fewest further columns
        drawn += max(math.ceil(part * (columns - 1 - connected)), 1)
    return drawn


# ---------------------------------------------------------------------- how many numbers rounds may draw

# A file holds at most a million cells of tables. Scores are sums of 64 bits, and a row may not move them by more than their round's
# allowance. Where units are protected, the allowance has to cover the rounding of averages as well.


def most_of_a_pair(kernel: MarginsKernel) -> float:
    """The largest number of cells of a pair in the tree, so that a file can hold all of them."""
    return MOST_CELLS / (4 * len(kernel.edges))


def most_cells(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> float:
    """How many cells a round of tables may have, so that its allowance covers their rounding, as it must where units are protected.

    Replacing a unit moves each cell by less than 1 more, and a height is off by half a step: √cells + √(tables/2) in all.
    """
    if size.unit is None:
        return math.inf
    room = (1 - SHRINK) * allowance
    tables_at_most = max(room - math.sqrt(kernel.n_tables / 2), 0.0)
    return max(tables_at_most, room / (1 + math.sqrt(0.5))) ** 2  # a table has one cell at least


def most_again(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> int:
    """Cells of tables that are measured once more in the round of larger sets, so that there is room for these."""
    return max(math.floor(min(MOST_REPEATED, most_cells(kernel, allowance, size))) - SETS_DRAWN * _MOST_IN_SET, 0)


def cells_of_sets(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> int:
    """How many cells that round may have at most."""
    return SETS_DRAWN * _MOST_IN_SET + most_again(kernel, allowance, size)


def score_step(allowance: float, cells: Sequence[int], size: PopulationSize) -> int:
    """What a row adds to scores of tables with so many cells: the most that their allowance and 64 bits let it; 0 if nothing."""
    within = math.floor((allowance / math.sqrt(len(cells)) - max(cells)) / 2)
    return min(max(within, 0), largest_step(size))


def largest_step(size: PopulationSize) -> int:
    """Of scores, so that 64 bits hold them."""
    return min(GRID, 2**60 // size.count)


# ---------------------------------------------------------------------- the first round: which part each one-way table has

# There are coarse tables; with a target the same tables crossed with it, and the target's own; and finer tables. Those of numbers
# have a small part, those of a tree one that depends on how many nodes it has at their depth. Where tables of pairs have merged
# some of a number's declared ranges, the table of the declared ranges has as much as if it were a coarse one.

_FINER, _FINER_SMALL = 0.05, 0.20  # of a finer table, relative to the power of its cells; where noise is small
# of a tree's table at a depth below that of pairs, with squared heights ∝ √nodes, relative to that depth's
_NODES = 0.5
_MOST_FINER = 0.06  # of the one-way round for finer tables, unless noise is small
_ALONE = 0.2  # of one-way tables where they are crossed with the target as well
_OF_TARGET = 0.07  # the target's own table, relative to the other one-way tables


def one_way_tables(everything: MarginFeatures, domain: Domain, shares: Shares) -> list[tuple[str, int, float]]:
    """Each one-way table by its kind and its number there, with its part of the round."""
    groups = [group for group in everything.groups if not group.is_of_sets]
    cells = {group.kind: [stop - start for start, stop in group.ranges] for group in groups}
    worth = {kind: [each**shares.power for each in own] for kind, own in cells.items()}
    if "finer" in worth:
        worth["finer"] = _worth_of_finer(cells["finer"], everything.kernel, domain, shares)
    if "target" in worth:
        worth["one-way"] = [_ALONE * each for each in worth["one-way"]]
        worth["target"] = [_OF_TARGET * sum(sum(each) for kind, each in worth.items() if kind != "target")]
    if "finer" in worth and not shares.noise_is_small:
        worth["finer"] = _limited(worth["finer"], sum(map(sum, worth.values())), everything.kernel, domain)
    total = sum(map(sum, worth.values()))
    return [(kind, t, each / total) for kind, own in worth.items() for t, each in enumerate(own)]


def _worth_of_finer(cells: list[int], kernel: MarginsKernel, domain: Domain, shares: Shares) -> list[float]:
    """The squared heights of finer tables, relative to others': of a depth of a tree, as nodes are asked for."""
    finer, power = _FINER_SMALL if shares.noise_is_small else _FINER, shares.power
    worth = []
    for t, (j, own) in enumerate(zip(kernel.finer, cells, strict=True)):
        if _is_of_declared_ranges(t, kernel, domain):
            worth.append(own**power)
        elif isinstance(domain.columns[j], Tree):
            coarse = kernel.sizes[j]
            worth.append(_NODES * coarse**power * math.sqrt(own / coarse))
        else:
            worth.append(finer * own**power)
    return worth


def _is_of_declared_ranges(t: int, kernel: MarginsKernel, domain: Domain) -> bool:
    """Whether a finer table is that of a number's declared ranges, of which other tables have merged some."""
    j = kernel.finer[t]
    column = domain.columns[j]
    merged = isinstance(column, Number) and not set(column.cuts(column.edges)) <= {*kernel.edges[j], *column.ends}
    return merged and j not in kernel.finer[:t]


def _limited(finer: list[float], total: float, kernel: MarginsKernel, domain: Domain) -> list[float]:
    """The worth of finer tables, at most a fixed part of the round for those of numbers that are finer than declared."""
    kept = [
        isinstance(domain.columns[j], Tree) or _is_of_declared_ranges(t, kernel, domain)
        for t, j in enumerate(kernel.finer)
    ]
    limited = sum(own for stays, own in zip(kept, finer, strict=True) if not stays)
    scale = min(1.0, _MOST_FINER / (1 - _MOST_FINER) * (total - limited) / max(limited, _TINY))
    return [own if stays else scale * own for stays, own in zip(kept, finer, strict=True)]
