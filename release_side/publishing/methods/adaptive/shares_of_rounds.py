"""Which rounds there are, and the share of the budget that each one has: from public facts alone.

Usually there are five: all one-way tables; scores of all pairs; a tree of pairs; scores again; further pairs. Three more look for
larger sets of columns. Three tenths of what tables have go to the tables that a workload names, with squared heights ∝
(questions · √cells) ** ⅔. The rules for few columns, many columns and much noise: tutorials/derivations.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
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

_FEW_COLUMNS = 3  # all pairs are measured
_FEW_LEFT = 7  # pairs for each column that are left where all pairs of a column are named: with fewer all are measured
_SMALL_NOISE, _LARGE_NOISE = 0.006, 0.04  # noise on a share if all pairs were measured alike
# by what rounds there are: each round's share of the budget, and which of them are of scores
_ROUNDS: dict[str, tuple[tuple[float, ...], tuple[int, ...]]] = {
    "one-way": ((1.0,), ()),
    "few": ((0.5, 0.5), ()),
    "target": ((0.3, 0.7), ()),  # where a workload names all pairs of a column, and others are few
    # one-way tables, scores, tree, scores, further pairs
    "small": ((0.20, 0.03, 0.27, 0.05, 0.45), (1, 3)),
    "middle": ((0.35, 0.05, 0.30, 0.05, 0.25), (1, 3)),
    "large": ((0.80, 0.03, 0.17), (1,)),
    # of many columns, where noise is not small: draws of pairs, their tables, a further draw, its tables
    "drawn": ((0.35, 0.04, 0.02, 0.01, 0.005, 0.005, 0.28, 0.05, 0.24), (1, 2, 3, 4, 5, 7)),
}
# where larger sets of columns are looked for, three rounds more: draws of some sets, their scores, the tables of those worth it
_OF_SETS = (0.01, 0.01, 0.06)
SETS_DRAWN, SETS_SCORED = 12, 24  # the others that are scored show what usual sets are like
_MOST_IN_SET, _MOST_SETS = 512, 2000  # cells of a set's table; sets that are drawn from
PAIRS_LARGE = 3
_MANY_COLUMNS = 30  # from which pairs are drawn
PARTS_OF_TREE = (0.5, 0.5, 0.5, 0.5, 1.0)  # of the pairs that a tree still lacks: what each of the first draws takes
# times √columns, the largest noise: a tree's tables then have as much as those of 20 columns at `_LARGE_NOISE`
_LARGE_NOISE_OF_MANY = 0.009
_SEEN_WELL = 0.01  # noise, as above, up to which scores of many columns' pairs are seen well enough all the same
# squared heights ∝ cells ** ⅔, which minimises the sum over tables of cells / height, the distances of tables; where noise is
# small ∝ √cells: half way to cells ** ⅓, which minimises that of √cells / height, the noise of answers (as with workloads, above)
_POWER, _POWER_SMALL = 2 / 3, 1 / 2
# of what tables have: for those that a workload names; for a target's, where others are few; and where noise is large
_ASKED, _OF_TARGETS, _OF_TARGETS_LARGE = 0.3, 0.5, 0.7
_CLEAR = 0.3  # of what two tables can differ: the most noise of a target's table where noise is large
MOST_CELLS = 10**6  # of the tables that are measured
MOST_REPEATED = MOST_CELLS // 8  # of the tables that a later round measures again
_TINY = 1e-15


@dataclass(frozen=True)
class Shares:
    """The budget: each round's part of 1/m², whether it is of tables or of scores, and what is looked for.

    kind    of `_ROUNDS`.
    asked   of what tables have, the parts of the first rounds for tables that a workload names; all others make room for them.
    sets    larger sets than pairs that three last rounds look at; none without these rounds.
    """

    kind: str
    asked: tuple[float, ...] = ()
    sets: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def parts(self) -> tuple[float, ...]:
        own, of_sets = _ROUNDS[self.kind][0], _OF_SETS if self.sets else ()
        return (*((1 - sum(of_sets)) * part for part in own), *of_sets)

    @property
    def scores(self) -> tuple[int, ...]:
        """The rounds of scores, or of a choice by scores."""
        pairs, own = _ROUNDS[self.kind]
        return (*own, len(pairs), len(pairs) + 1) if self.sets else own

    @property
    def are_scored(self) -> bool:
        """Whether there are noisy scores of all pairs."""
        return self.kind in ("small", "middle")

    @property
    def noise_is_small(self) -> bool:
        """Whether pairs are scored and noise is small, so that more of the budget goes to further pairs."""
        return self.kind == "small"

    @property
    def are_all_measured(self) -> bool:
        """Whether the second round measures all pairs."""
        return self.kind in ("few", "target")

    @property
    def are_few_drawn(self) -> bool:
        """Whether a few pairs are drawn by their exact scores, all at once."""
        return self.kind == "large"

    @property
    def is_tree_drawn(self) -> bool:
        """Whether a tree of pairs is drawn, and then further pairs."""
        return self.kind == "drawn"

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
        squares = [part / self.of_tables if r in self.scores else self.squares(r) + asked[r] for r, part in enumerate(self.parts)]
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
    columns = len(kernel.edges)
    alone, together = (sum(square for own, square in asked.items() if len(own) == n) for n in (1, 2))
    if columns < 2:
        return Shares("one-way", (alone,))
    named = sum(len(own) == 2 for own in asked)
    left = kernel.n_pairs - named
    spread, of_targets = noise_of_all_pairs(kernel, size, noise), targets(kernel, asked)
    sets = candidate_sets(kernel, of_targets) if spread <= _LARGE_NOISE and kernel.n_cells <= MOST_REPEATED else ()
    if columns <= _FEW_COLUMNS or left < columns:
        return Shares("few", (alone, together), sets)
    small = sum(cells <= most_of_a_pair(kernel) for cells in cells_of_all_pairs(kernel))
    enough = small - named > most_drawn(columns)
    if columns >= _MANY_COLUMNS and enough and _SEEN_WELL < spread <= _LARGE_NOISE_OF_MANY * math.sqrt(columns):
        return Shares("drawn", (alone + together,))
    if spread > _LARGE_NOISE:
        return Shares("large" if _worth_drawing(kernel, size, noise) else "one-way", (alone + together,))
    if are_few_left(kernel, asked) and kernel.n_cells <= MOST_REPEATED:
        return Shares("target", (alone, together), sets)
    sets = candidate_sets(kernel, of_targets) if kernel.n_pairs <= MOST_REPEATED else ()
    return Shares("small" if spread <= _SMALL_NOISE else "middle", (alone + together,), sets)


def candidate_sets(kernel: MarginsKernel, of_targets: Sequence[int] = ()) -> tuple[tuple[int, ...], ...]:
    """Sets of three columns or more whose tables are small, from public facts: fewest columns and then cells first.

    Of many columns those of fewest cells alone, so that all triples of them could be listed. With targets each has one of them.
    """
    several = sorted((j for j in range(len(kernel.sizes)) if kernel.sizes[j] > 1), key=lambda j: kernel.sizes[j])
    order = 2 if of_targets else 3
    few = sorted(several[: next(n for n in count(1) if math.comb(n + 1, order) > _MOST_SETS)])
    sets: dict[tuple[int, ...], None] = {}
    larger: list[tuple[tuple[int, ...], int]] = [((j,), kernel.sizes[j]) for j in of_targets or few]
    while larger and len(sets) < _MOST_SETS:
        larger = [
            ((*own, j), cells * kernel.sizes[j])
            for own, cells in larger
            for j in few
            if j not in own and (j > own[-1] or (of_targets and len(own) == 1)) and cells * kernel.sizes[j] <= _MOST_IN_SET
        ]
        sets |= {tuple(sorted(own)): None for own, _ in sorted(larger, key=lambda one: one[1]) if len(own) > 2}
    return tuple(sets)[:_MOST_SETS]


def with_sets(kernel: MarginsKernel, sets: Sequence[tuple[int, ...]]) -> MarginsKernel:
    """The same tables and those of these sets of columns; heights mean nothing until tables are chosen."""
    alone, pairs, finer = kernel.squared_heights
    own = (kernel.shares[1] / (len(pairs) + len(sets)),) * (len(pairs) + len(sets))
    given = {each.name: getattr(kernel, each.name) for each in fields(kernel)}
    return ChosenMargins(**given, chosen=(*kernel.pairs, *sets), squares=(alone, own, finer))


def without_sets(kernel: MarginsKernel) -> MarginsKernel:
    """What `with_sets` was given."""
    return MarginsKernel(**{each.name: getattr(kernel, each.name) for each in fields(MarginsKernel)})


def asked_squares(
    kernel: MarginsKernel, workload: Workload | None, size: PopulationSize, noise: Noise | RehearsalNoise
) -> dict[tuple[int, ...], float]:
    """Squared heights for each column and pair of columns that a workload names, none without one.

    Their sum is `_ASKED`, or more for a target. Where noise is large a target's tables that would hardly be seen in it are left
    out, and all others have what they leave.
    """
    if workload is None:
        return {}
    questions = workload.by_columns.items()
    cells = {columns: math.prod(kernel.sizes[j] for j in columns) for columns, _ in questions if len(columns) < 3}
    worth = {columns: (n * math.sqrt(cells[columns])) ** _POWER for columns, n in questions if columns in cells}
    least: dict[tuple[int, ...], float] = {}
    part = _OF_TARGETS if are_few_left(kernel, worth) else _ASKED
    if targets(kernel, worth) and noise_of_all_pairs(kernel, size, noise) > _LARGE_NOISE:
        part, unit = _OF_TARGETS_LARGE, NOISE_IN_DISTANCE * math.sqrt(2) * noise.deviation(1.0) / size.count
        least = {columns: (unit * cells[columns] / (_CLEAR * MOST_DISTANCE)) ** 2 for columns in worth}
    squares = {columns: part * own / sum(worth.values()) for columns, own in worth.items()}
    return {columns: square for columns, square in squares.items() if square >= least.get(columns, 0.0)}


def targets(kernel: MarginsKernel, asked: Mapping[tuple[int, ...], float]) -> list[int]:
    """The columns of which all pairs are named."""
    columns = range(len(kernel.edges))
    return [j for j in columns if all((min(i, j), max(i, j)) in asked for i in columns if i != j)]


def are_few_left(kernel: MarginsKernel, asked: Mapping[tuple[int, ...], float]) -> bool:
    """Whether all pairs of a column are named, and others are so few that they are measured too."""
    left = kernel.n_pairs - sum(len(own) == 2 for own in asked)
    return bool(targets(kernel, asked)) and left < _FEW_LEFT * len(kernel.edges)


def noise_of_all_pairs(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> float:
    """On a share, if the tables of all pairs were measured alike; from public facts."""
    return math.sqrt(2) * noise.deviation(1.0) / size.count * math.sqrt(max(kernel.n_pairs, 1))


def _worth_drawing(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> bool:
    """Where noise is large: whether a usual table, one of those that are drawn, has less noise than two tables can differ."""
    cells = np.array(cells_of_all_pairs(kernel), dtype=float)
    unit = math.sqrt(2 / _ROUNDS["large"][0][2]) * noise.deviation(1.0) / size.count
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
    return max(math.floor(min(MOST_REPEATED, most_cells(kernel, allowance, size))) - SETS_SCORED * _MOST_IN_SET, 0)


def cells_of_sets(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> int:
    """How many cells that round may have at most."""
    return SETS_SCORED * _MOST_IN_SET + most_again(kernel, allowance, size)


def score_step(allowance: float, cells: Sequence[int], size: PopulationSize) -> int:
    """What a row adds to scores of tables with so many cells: the most that their allowance and 64 bits let it; 0 if nothing."""
    within = math.floor((allowance / math.sqrt(len(cells)) - max(cells)) / 2)
    return min(max(within, 0), largest_step(size))


def largest_step(size: PopulationSize) -> int:
    """Of scores, so that 64 bits hold them."""
    return min(GRID, 2**60 // size.count)


# ---------------------------------------------------------------------- the first round: which part each one-way table has

# There are coarse tables and finer ones. Those of numbers have a small part, those of a tree one that depends on how many nodes it
# has at their depth. Where tables of pairs have merged some of a number's declared ranges, the table of the declared ranges has as
# much as if it were a coarse one.

_FINER, _FINER_SMALL = 0.05, 0.20  # of a finer table, relative to the power of its cells; where noise is small
# of a tree's table at a depth below that of pairs, with squared heights ∝ √nodes, relative to that depth's
_NODES = 0.5
_MOST_FINER = 0.06  # of the one-way round for finer tables, unless noise is small


def parts_of_one_way(everything: MarginFeatures, domain: Domain, shares: Shares) -> list[float]:
    """The part of the first round that each one-way table has: the coarse ones, and then the finer ones."""
    groups = [group for group in everything.groups if not group.is_of_sets]
    cells = {group.kind: [stop - start for start, stop in group.ranges] for group in groups}
    worth = {kind: [each**shares.power for each in own] for kind, own in cells.items()}
    if "finer" in worth:
        worth["finer"] = _worth_of_finer(cells["finer"], everything.kernel, domain, shares)
    if "finer" in worth and not shares.noise_is_small:
        worth["finer"] = _limited(worth["finer"], sum(map(sum, worth.values())), everything.kernel, domain)
    total = sum(map(sum, worth.values()))
    return [each / total for own in worth.values() for each in own]


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
    kept = [isinstance(domain.columns[j], Tree) or _is_of_declared_ranges(t, kernel, domain) for t, j in enumerate(kernel.finer)]
    limited = sum(own for stays, own in zip(kept, finer, strict=True) if not stays)
    scale = min(1.0, _MOST_FINER / (1 - _MOST_FINER) * (total - limited) / max(limited, _TINY))
    return [own if stays else scale * own for stays, own in zip(kept, finer, strict=True)]
