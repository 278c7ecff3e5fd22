"""Adaptive margins: one-way tables first, then tables of the pairs of columns that noisy scores show to be related.

Five rounds at most, of fixed shares of the budget: all one-way tables; scores of all pairs, their distance from independence;
a tree of pairs; scores again, the distance from what the tree implies; further pairs. As far as pairs are not worth their noise
(`choice_of_pairs`), the rounds of pairs measure the tables of the first round once more. With a target every table is crossed
with it, and scores are distances from independence given the target. Where the domain has rules, independent tables are 0 in
cells that rules exclude. Where noise is large, there are no noisy scores of all pairs:
the exponential mechanism draws three pairs by their exact ones, or no pair is measured where the noise of a usual table exceeds any
distance. Of 30 columns or more it draws a tree, unless noise is small: first pairs of all, then pairs that lead from one part of
what was drawn to another; and then further pairs, by what the tree implies. Of three columns or fewer all pairs are measured.

A workload names questions that will be asked. Three tenths of what tables have go to the tables that hold their answers, the
one-way tables of one column or the table of two, with squared heights ∝ (questions · √cells) ** ⅔. This minimises the sum over
questions of √cells / height: the noise of an answer, in standard errors of sampling, whatever of an even table is asked.
(Three tenths is about what makes the mean of these noises as small as that of all others, for one pair as for thirty.) Pairs
that are named are measured in the first round, before any score.

The rule follows MST and AIM (McKenna, Miklau & Sheldon 2021; McKenna, Mullins, Sheldon & Miklau 2022): score, then measure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from kmeanalyst.kernels import ChosenMargins, Kernel
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import KINDS, Group, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import GRID, SHRINK, Choice, Measurement, Scores, cells_of_all_pairs
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.tables.allowed_cells import AllowedCells, allowed_cells
from kmeanalyst.representation.tables.estimates import NOISE_IN_DISTANCE, allowed_tables, estimate_tables
from kmeanalyst.representation.tables.tree import Pair, connected_parts, independent_table, spanning_tree
from release_side.choices.options import check_readable, drawn_rows, fitting, most_rows
from release_side.choices.workload import Workload
from release_side.door.door import Door
from release_side.door.mechanism import Noise, RehearsalNoise, check_int64_range
from release_side.door.private_tables import TableRounds
from release_side.errors import PublishError
from release_side.publishing.methods.base import Measured
from release_side.publishing.methods.choice_of_pairs import Distances, Prospect, largest_distance
from release_side.publishing.methods.margins import Margins

_FEWEST_ROWS = 5000
_MOST_CELLS = 10**6  # of the tables that are measured
_MOST_REPEATED = _MOST_CELLS // 8  # of the tables that a later round measures again
_FEW_COLUMNS = 3  # other than the target: all pairs are measured
_FEW_LEFT = 7  # pairs for each column that are left where all pairs of a column are named: with fewer all are measured
_SMALL_NOISE, _LARGE_NOISE = 0.006, 0.04  # noise on a share if all pairs were measured alike
# shares of the budget: one-way tables, scores, tree, scores, further pairs
_SHARES = {"small": (0.20, 0.03, 0.27, 0.05, 0.45), "middle": (0.35, 0.05, 0.30, 0.05, 0.25)}
_SHARES_LARGE = (0.80, 0.03, 0.17)
# of many columns, where noise is not small: draws of pairs, their tables, a further draw, its tables. Each of the first draws
# takes this part of the pairs that a tree still lacks
_PARTS_OF_TREE = (0.5, 0.5, 0.5, 0.5, 1.0)
_SHARES_MANY, _DRAWS_MANY = (0.35, 0.04, 0.02, 0.01, 0.005, 0.005, 0.28, 0.05, 0.24), (1, 2, 3, 4, 5, 7)
_SHARES_FEW = (0.5, 0.5)
_SHARES_TARGET = (0.3, 0.7)  # where a workload names all pairs of a column
_PAIRS_LARGE = 3
_MANY_COLUMNS = 30  # from which pairs are drawn
# times √columns, the largest noise: a tree's tables then have as much as those of 20 columns at `_LARGE_NOISE`
_LARGE_NOISE_OF_MANY = 0.009
_SEEN_WELL = 0.01  # noise, as above, up to which scores of many columns' pairs are seen well enough all the same
_MOST_DISTANCE = 2.0  # of two tables, in L1
_COST_LARGE = 0.5  # of the noise in a table, against its score: where few pairs are drawn, the strongest ones count
# squared heights ∝ cells ** ⅔, which minimises the sum over tables of cells / height, the distances of tables; where noise is
# small ∝ √cells: half way to cells ** ⅓, which minimises that of √cells / height, the noise of answers (see workloads above)
_POWER, _POWER_SMALL = 2 / 3, 1 / 2
# ranges of a number in tables of pairs, where a column is a target: at most so many that the noise of a correlation, which is
# about the ranges times the noise of a share, is no more than this, if all pairs were measured alike; and never fewer
_NOISE_OF_RANGES, _FEWEST_RANGES = 0.02, 4
_FINER, _FINER_SMALL = 0.05, 0.20  # of a finer table, relative to the power of its cells; where noise is small
_NODES = (
    0.5  # of a tree's table at a depth below that of pairs, with squared heights ∝ √nodes, relative to that depth's
)
_MOST_FINER = 0.06  # of the one-way round for finer tables, unless noise is small
_ALONE = 0.2  # of one-way tables where they are crossed with the target as well
_OF_TARGET = 0.07  # the target's own table, relative to the other one-way tables
_CHEAP = 0.1  # share of the last round for tables that are measured because they are small
_WORTH_MEASURING = 0.3  # where noise is small, least distance of a further pair relative to the noise of its table
_TINY = 1e-15
_USUAL_PAIRS = 15  # further pairs, when their noise is first guessed
_ASKED = 0.3  # of what tables have: for those that a workload names


@dataclass(frozen=True)
class _Shares:
    """The budget: each round's part of 1/m², and whether it is of tables or of scores.

    asked   of what tables have, the parts of the first rounds for tables that a workload names; all others make room for them.
    """

    parts: tuple[float, ...]
    scores: tuple[int, ...]  # or of a choice by scores
    asked: tuple[float, ...] = ()

    @property
    def are_scored(self) -> bool:
        """Whether there are noisy scores of all pairs."""
        return self.parts in _SHARES.values()

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


class AdaptiveMargins(Margins):
    """Margins of chosen pairs. Files and ledgers know it as random features, as they do all margins."""

    def kernel(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> Kernel:
        """Of every table that a round could ask for; where all pairs of a column are named, of few enough ranges for the noise."""
        workload = self.choices.workload
        kernel = adaptive_kernel(domain, self.choices.target, *([workload.cuts] if workload else []))
        if workload is None or not _is_about_one(kernel, _asked_squares(kernel, workload)):
            return kernel
        most = max(_FEWEST_RANGES, math.floor(_NOISE_OF_RANGES / _noise_of_all_pairs(kernel, size, noise)))
        return adaptive_kernel(domain, self.choices.target, workload.cuts, most=most)

    def default_points(self, measurement: Measurement, domain: Domain) -> int:
        """As many rows as the table has, and enough for error bars, within limits."""
        return max(drawn_rows(measurement, domain), min(_FEWEST_ROWS, most_rows(domain)))

    def prepare(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> FeatureMap:
        """Every table that a round could ask for; PublishError if no release could be made."""
        if is_pure(noise.name):
            raise PublishError(
                "tables that are chosen in rounds have Gaussian noise. Choose it, with a small delta, or the kernel margins."
            )
        check_int64_range(n_rows=size.count, dimension=1, grid=GRID)
        with fitting():
            everything = self.features(self.kernel(domain, size, noise), domain)
        assert isinstance(everything, MarginFeatures)
        self._check_pairs(everything.kernel, size, noise)
        check_readable(self.most_points(everything.kernel, domain), domain, _largest(everything))
        return everything

    def measure(self, door: Door[Noise | RehearsalNoise], domain: Domain, size: PopulationSize) -> Measured:
        everything = self.prepare(domain, size, door.noise)
        assert isinstance(everything, MarginFeatures)
        rounds = _Rounds.of(door, everything, domain, size, self.choices.workload)
        rounds.measure_one_way()
        if rounds.n_pairs and len(rounds.shares.parts) > 1:
            rounds.measure_pairs()
        return Measured((rounds.measurement(),))

    def _check_pairs(self, kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> None:
        """PublishError if the tables that rounds may ask for have too many cells; from public facts, before anything is spent."""
        asked = _asked_squares(kernel, self.choices.workload)
        named: list[int] = []
        left: list[int] = []
        for pair, cells in zip(combinations(kernel.others, 2), cells_of_all_pairs(kernel), strict=True):
            (named if pair in asked else left).append(cells)
        if sum(named) > _MOST_CELLS // 4:
            raise PublishError(
                f"the tables of the pairs of columns that the workload names have {sum(named):,} cells, and at most "
                f"{_MOST_CELLS // 4:,} are measured before all others. Ask of fewer pairs, or name fewer levels or edges."
            )
        shares = shares_of_rounds(kernel, size, noise, asked)
        all_of_them = len(shares.parts) > 1 and not shares.scores
        if (shares.scores and min(left) > _most_of_a_pair(kernel)) or (all_of_them and kernel.n_cells > _MOST_CELLS):
            raise PublishError("the pairs of columns have too many cells to be measured. Name fewer levels or edges.")
        least = min((shares.allowances()[r] for r in shares.scores), default=0.0)
        if shares.are_scored and _score_step(least, [*named, *left], size) < 1:
            raise PublishError("the tables have too many cells to be scored. Name fewer levels or edges.")
        numbers = _most_numbers(kernel, shares, named, left)
        if not all_of_them and sum(numbers) > _MOST_CELLS:
            raise PublishError(
                f"rounds of these tables may need {sum(numbers):,} numbers with noise, and at most {_MOST_CELLS:,} are measured. "
                "Name fewer columns, levels or edges, no target, or one with fewer levels."
            )
        for r, allowance in enumerate(shares.allowances()):
            most = _most_cells(kernel, allowance, size)
            if r not in shares.scores and numbers[r] > most:
                raise PublishError(
                    f"a round of these tables may have {numbers[r]:,} cells, and at most {math.floor(most):,} are measured in it "
                    "where units are protected, whose averages are rounded. Name fewer columns, levels or edges."
                )

    def taken_as_public(self, measured: Measured, n_points: int) -> tuple[str, ...]:
        """With a workload: that there was one, and what it sets."""
        named = "a workload, the questions that will be asked: it sets ends of ranges, heights, and pairs of columns to measure"
        return (*super().taken_as_public(measured, n_points), *([named] if self.choices.workload else []))


def _asked_squares(kernel: MarginsKernel, workload: Workload | None) -> dict[tuple[int, ...], float]:
    """Squared heights for each column and pair of columns that a workload names, none without one; of sum `_ASKED`.

    With a target all tables are crossed with it, and it is left out of names.
    """
    if workload is None:
        return {}
    questions = workload.by_columns(kernel.target).items()
    cells = {columns: math.prod(kernel.sizes[j] for j in columns) for columns, _ in questions if len(columns) < 3}
    worth = {columns: (n * math.sqrt(cells[columns])) ** _POWER for columns, n in questions if columns in cells}
    return {columns: _ASKED * own / sum(worth.values()) for columns, own in worth.items()}


def _score_step(allowance: float, cells: Sequence[int], size: PopulationSize) -> int:
    """What a row adds to scores of tables with so many cells: the most that their allowance and 64 bits let it; 0 if nothing."""
    within = math.floor((allowance / math.sqrt(len(cells)) - max(cells)) / 2)
    return min(max(within, 0), _largest_step(size))


def _largest_step(size: PopulationSize) -> int:
    """Of scores, so that 64 bits hold them."""
    return min(GRID, 2**60 // size.count)


def _most_numbers(kernel: MarginsKernel, shares: _Shares, named: list[int], left: list[int]) -> list[int]:
    """How many numbers with noise each round can draw at most; `_further` keeps to what is left of them.

    named, left   cells of the pairs that a workload names, and of the others.
    """
    alone, columns = kernel.n_cells - sum(named) - sum(left), len(kernel.others)
    if len(shares.parts) == len(_SHARES_FEW):
        return [alone, sum(named) + sum(left)]
    small = sorted(cells for cells in left if cells <= _most_of_a_pair(kernel))
    if shares.are_scored:
        repeated = min(alone, _MOST_REPEATED)
        later = [kernel.n_pairs, sum(small[1 - columns :]) + repeated, kernel.n_pairs, repeated]
    elif shares.parts == _SHARES_MANY:
        later = [*[0] * len(_PARTS_OF_TREE), sum(small[-_most_drawn(columns) :]), 0, sum(small[-(columns // 2) :])]
    else:
        later = [0, sum(small[-_PAIRS_LARGE:])] if shares.scores else []
    return [alone + sum(named), *later]


def _most_drawn(columns: int) -> int:
    """How many pairs the draws of a tree take at most: the first ones may connect few columns, each with each."""
    drawn = 0
    for part in _PARTS_OF_TREE:
        connected = math.ceil((math.sqrt(8 * drawn + 1) - 1) / 2)  # n with n(n + 1)/2 ≥ drawn: fewest further columns
        drawn += max(math.ceil(part * (columns - 1 - connected)), 1)
    return drawn


def _most_cells(kernel: MarginsKernel, allowance: float, size: PopulationSize) -> float:
    """How many cells a round of tables may have, so that its allowance covers their rounding, as it must where units are protected.

    Replacing a unit moves each cell by less than 1 more, and a height is off by half a step: √cells + √(tables/2) in all.
    """
    if size.unit is None:
        return math.inf
    room = (1 - SHRINK) * allowance
    tables_at_most = max(room - math.sqrt(kernel.n_tables / 2), 0.0)
    return max(tables_at_most, room / (1 + math.sqrt(0.5))) ** 2  # a table has one cell at least


def _most_of_a_pair(kernel: Kernel) -> float:
    """The largest number of cells of a pair in the tree, so that a file can hold all of them."""
    assert isinstance(kernel, MarginsKernel)
    return _MOST_CELLS / (4 * len(kernel.edges))


def _largest(everything: FeatureMap) -> FeatureMap:
    """All one-way tables, and pairs as far as a release may choose them: no release has a larger map."""
    kernel = everything.kernel
    assert isinstance(kernel, MarginsKernel)
    if kernel.n_cells <= _MOST_CELLS:
        return everything
    return MarginFeatures(replace(kernel, shares=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)))


@dataclass(eq=False)
class _Rounds:
    """The rounds of one release: what has been measured, and what is asked next.

    asked     squared heights for the columns and pairs of columns that a workload names.
    allowed   the cells that the domain's rules allow together: what they exclude is not worth measuring. None without rules.
    domain    of the rows: what columns have an order.
    """

    door: TableRounds
    everything: MarginFeatures
    kernel: MarginsKernel
    size: PopulationSize
    noise: Noise | RehearsalNoise
    shares: _Shares
    asked: dict[tuple[int, ...], float]
    trees: frozenset[int]
    allowed: AllowedCells | None
    domain: Domain
    found: dict[str, list[tuple[tuple[int, ...], float, Array]]] = field(default_factory=dict)
    scores: list[Scores] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    first: list[tuple[str, int, float]] = field(default_factory=list)  # its tables: kind, number, part of the round

    @classmethod
    def of(
        cls,
        door: Door[Noise | RehearsalNoise],
        everything: MarginFeatures,
        domain: Domain,
        size: PopulationSize,
        workload: Workload | None,
    ) -> _Rounds:
        kernel = everything.kernel
        asked = _asked_squares(kernel, workload)
        shares = shares_of_rounds(kernel, size, door.noise, asked)
        trees = frozenset(j for j, column in enumerate(domain.columns) if isinstance(column, Tree))
        allowed = door.rounds(everything, shares.allowances())
        ruled = allowed_cells(domain, kernel)
        return cls(allowed, everything, kernel, size, door.noise, shares, asked, trees, ruled, domain)

    @property
    def n_pairs(self) -> int:
        return self.kernel.n_pairs

    @property
    def crossed(self) -> bool:
        return self.kernel.target >= 0

    @property
    def _noise_is_small(self) -> bool:
        return self.shares.parts == _SHARES["small"]

    @property
    def _power(self) -> float:
        return _POWER_SMALL if self._noise_is_small else _POWER

    @property
    def unit(self) -> float:
        """Standard deviation of the noise on a share that is measured with height 1."""
        return self.door.deviation / (GRID * SHRINK * self.size.count)

    def measure_one_way(self) -> None:
        """All one-way tables: coarse, crossed with the target, finer, and the target's own; and pairs that a workload names."""
        kinds = [kind for kind in KINDS if not kind.startswith("pairs")]
        groups = [group for group in self.everything.groups if group.kind in kinds]
        finer = _FINER_SMALL if self._noise_is_small else _FINER
        worth = {
            group.kind: [self._worth(group, t, stop - start, finer) for t, (start, stop) in enumerate(group.ranges)]
            for group in groups
        }
        if "target" in worth:
            worth["one-way"] = [_ALONE * each for each in worth["one-way"]]
            worth["target"] = [_OF_TARGET * sum(sum(each) for kind, each in worth.items() if kind != "target")]
        if "finer" in worth and not self._noise_is_small:
            worth["finer"] = self._limited(worth["finer"], sum(map(sum, worth.values())))
        total = sum(map(sum, worth.values()))
        self.first = [(kind, t, each / total) for kind, own in worth.items() for t, each in enumerate(own)]
        tables = [(kind, t) for kind, t, _ in self.first]
        heights = self._with_asked(tables, [self.shares.squares(0) * part for *_, part in self.first])
        named = self._named_pairs()
        self._measure([*tables, *[(self._kind_of_pairs, p) for p in named]], [*heights, *named.values()])

    def _worth(self, group: Group, t: int, cells: int, finer: float) -> float:
        """The squared height of a one-way table, relative to others': of a depth of a tree, as nodes are asked for."""
        if group.kind != "finer":
            return cells**self._power
        j = self.kernel.finer[t]
        if self._is_of_declared_ranges(t):
            return cells**self._power
        if j not in self.trees:
            return finer * cells**self._power
        coarse = self.kernel.sizes[j]
        return _NODES * coarse**self._power * math.sqrt(cells / coarse)

    def _is_of_declared_ranges(self, t: int) -> bool:
        """Whether a finer table is that of a number's declared ranges, of which other tables have merged some."""
        j = self.kernel.finer[t]
        column = self.domain.columns[j]
        merged = isinstance(column, Number) and not set(column.cuts(column.edges)) <= {
            *self.kernel.edges[j],
            *column.ends,
        }
        return merged and j not in self.kernel.finer[:t]

    def _limited(self, finer: list[float], total: float) -> list[float]:
        """The worth of finer tables, at most a fixed part of the round for those of numbers that are finer than declared."""
        kept = [j in self.trees or self._is_of_declared_ranges(t) for t, j in enumerate(self.kernel.finer)]
        limited = sum(own for stays, own in zip(kept, finer, strict=True) if not stays)
        scale = min(1.0, _MOST_FINER / (1 - _MOST_FINER) * (total - limited) / max(limited, _TINY))
        return [own if stays else scale * own for stays, own in zip(kept, finer, strict=True)]

    def measure_pairs(self) -> None:
        """The rounds after the first one."""
        if len(self.shares.parts) == len(_SHARES_FEW):
            self._measure_pairs(list(range(self.n_pairs)))
            return
        estimates = estimate_tables(self.measurement(), self.allowed, self.domain)
        tables = {
            (i, j): independent_table(estimates.ones[i], estimates.ones[j], estimates.target) for i, j in self._pairs()
        }
        independent = list(allowed_tables(tables, estimates.ones, self.allowed).values())
        named = list(self._named_pairs())
        small = self._cells_of_pairs() <= _most_of_a_pair(self.kernel)
        if len(self.shares.parts) == len(_SHARES_LARGE):
            candidates = [p for p in range(self.n_pairs) if small[p] and p not in named]
            count = min(_PAIRS_LARGE, len(candidates))
            self._measure_pairs(self._draw(candidates, independent, count, count))
            return
        allowed = [p for p in range(self.n_pairs) if small[p] and p not in named]
        if self.shares.parts == _SHARES_MANY:
            self._measure_drawn(independent, named, allowed)
        else:
            self._measure_chosen(self._score(independent), independent, named, allowed)

    def _measure_drawn(self, independent: list[Array], named: list[int], allowed: list[int]) -> None:
        """Drawn pairs that lead from every column to every other, nearly; then half as many by what these imply.

        A draw of d pairs has √d times the noise of one, and noisy scores of all d²/2 pairs have d times as much. Pairs are left
        out whose columns allow no distance that is worth the noise, as those of a constant column.
        """
        pairs, d = self._pairs(), len(self.kernel.others)
        costs = _COST_LARGE * self._noise_of_pairs(d - 1)
        worth_it = [p for p in allowed if largest_distance(independent[p]) > costs[p]]
        allowed = worth_it if len(worth_it) > _most_drawn(d) else allowed
        drawn: list[int] = []
        for part_of_missing in _PARTS_OF_TREE:
            part = connected_parts([pairs[p] for p in (*named, *drawn)], d)
            linking = [p for p in allowed if part[pairs[p][0]] != part[pairs[p][1]]]
            missing = len({part[j] for p in linking for j in pairs[p]}) - 1
            further = linking or [p for p in allowed if p not in drawn]
            count = min(max(math.ceil(part_of_missing * missing), 1), len(further))
            drawn += self._choose(further, independent, count, costs)
        self._measure_pairs(drawn)
        implied = estimate_tables(self.measurement(), self.allowed, self.domain).pairs
        left = [p for p in allowed if p not in drawn]
        count = min(d // 2, len(left))
        self._measure_pairs(self._draw(left, [implied[pair] for pair in pairs], count, count))

    def _draw(self, pairs: list[int], guesses: list[Array], count: int, measured: int) -> list[int]:
        """Some of these pairs, drawn by their distances from guesses less part of their noise, if that many are measured."""
        return self._choose(pairs, guesses, count, _COST_LARGE * self._noise_of_pairs(measured))

    def _measure_chosen(self, distances: Array, independent: list[Array], named: list[int], allowed: list[int]) -> None:
        """A tree of pairs and, by further scores, further pairs; single columns again as far as pairs are not worth it.

        distances     (P,) noisy ones from independent tables.
        named         the pairs that a workload names, which have been measured.
        allowed       the other pairs whose tables may be in the tree.
        """
        pairs, d = self._pairs(), len(self.kernel.others)
        prospect = self._prospect(distances, independent)
        left = self.shares.squares(2) + self.shares.squares(4)
        worth_it, again = prospect.best(allowed, left)
        noise = self._noise_of_pairs(d - 1)
        noise[named] = 0.0
        worth = prospect.distances.expected(prospect.distances.values) - noise
        square = np.full((d, d), -np.inf)
        for p in [*(allowed if worth_it else ()), *named]:
            i, j = pairs[p]
            square[i, j] = square[j, i] = worth[p]
        tree = {(i, j) for i, j in spanning_tree(square) if square[i, j] > -np.inf}
        wanted = [p for p in allowed if pairs[p] in tree]
        self._measure_with_columns(wanted, again)
        implied = estimate_tables(self.measurement(), self.allowed, self.domain).pairs
        guesses = [implied[pair] for pair in pairs]
        distances = self._score(guesses)
        chosen, again = self._further(self._prospect(distances, guesses), distances, {*wanted, *named})
        self._measure_with_columns(chosen + self._cheap(chosen, {*wanted, *named}), again)

    def _further(self, prospect: Prospect, distances: Array, measured: set[int]) -> tuple[list[int], float]:
        """The pairs to measure in the last round, and the part of it for single columns.

        Where noise is small and single columns need nothing, all pairs whose distance exceeds its noise: their tables are
        smoothed together, so that each improves the others.
        """
        room, cells = self._room() // 2, self._cells_of_pairs()
        allowed = [p for p in range(self.n_pairs) if p not in measured and cells[p] <= room]
        chosen, again = prospect.best(allowed, self.shares.squares(self.door.made))
        if self._noise_is_small and not again:
            chosen = self._beyond_noise(distances, allowed)
        within = np.cumsum(cells[chosen]) <= room
        return [p for p, fits in zip(chosen, within, strict=True) if fits], again

    def _beyond_noise(self, distances: Array, allowed: list[int]) -> list[int]:
        """Pairs, best first, until a distance is less than its own noise or a part of its table's; one at least."""
        noise, cells = self._noise_of_scores(), self._cells_of_pairs()
        worth = distances - self._noise_of_pairs(_USUAL_PAIRS)
        chosen: list[int] = []
        for p in sorted(allowed, key=lambda p: -worth[p]):
            of_table = self.unit / math.sqrt(self._squares_of_pairs([*chosen, p])[-1])
            if chosen and distances[p] < max(noise, _WORTH_MEASURING * NOISE_IN_DISTANCE * of_table * cells[p]):
                break
            chosen.append(p)
        return chosen

    def _prospect(self, scores: Array, guesses: list[Array]) -> Prospect:
        """What noisy distances from these guesses say of the pairs, with what is known of single columns."""
        kind = "one-way by target" if self.crossed else "one-way"
        measured = [
            (len(cells), square) for columns, square, cells in self.found[kind] if columns[-1] != self.kernel.target
        ]
        columns = np.array([(NOISE_IN_DISTANCE * self.unit * cells) ** 2 / square for cells, square in measured])
        first, second = np.array(self._pairs()).T
        sampling = NOISE_IN_DISTANCE / math.sqrt(self.size.count)
        distances = Distances.of_scores(
            scores,
            self._noise_of_scores(),
            largest=np.array(list(map(largest_distance, guesses))),
            by_chance=sampling * np.array([np.sqrt(guess).sum() for guess in guesses]),
            of_guesses=np.sqrt(columns[first] + columns[second]),
        )
        spent = sum(square for kind, tables in self.found.items() for _, square, _ in tables if "pairs" not in kind)
        return Prospect(distances, self._pairs(), self._cells_of_pairs() ** self._power, self.unit, columns, spent)

    def _cheap(self, chosen: list[int], measured: set[int]) -> list[int]:
        """Further pairs that cost the chosen ones little, whatever their scores: the smallest tables left, if there is room."""
        cells = self._cells_of_pairs()
        powers, room = cells**self._power, self._room() - cells[chosen].sum()
        left = [p for p in range(self.n_pairs) if p not in measured and p not in chosen]
        left.sort(key=lambda p: powers[p])
        few = (np.cumsum(powers[left]) <= _CHEAP * powers[chosen].sum()) & (np.cumsum(cells[left]) <= room)
        return [p for p, fits in zip(left, few, strict=True) if fits]

    # ------------------------------------------------------------------ rounds

    def _measure(self, tables: Sequence[tuple[str, int]], squares: Sequence[float]) -> None:
        """One round of tables, named by their kind and their number there, with these squared heights."""
        wanted = np.array([self._index(kind, t) for kind, t in tables])
        heights = np.rint(np.sqrt(np.array(squares)) * (GRID * SHRINK)).astype(np.int64)
        noisy = self.door.measure(wanted, heights)
        ends = np.cumsum(np.diff(self.everything.starts)[wanted])
        for (kind, t), square, own in zip(tables, squares, np.split(noisy, ends[:-1]), strict=True):
            found, columns = self.found.setdefault(kind, []), self._columns(kind, t)
            before = next((n for n, table in enumerate(found) if table[0] == columns), None)
            if before is None:
                found.append((columns, square, own))
            else:
                found[before] = (columns, *_together(found[before][1], found[before][2], square, own))

    def _measure_pairs(self, pairs: list[int]) -> None:
        self._measure([(self._kind_of_pairs, p) for p in pairs], self._squares_of_pairs(pairs))

    def _measure_with_columns(self, pairs: list[int], again: float) -> None:
        """A round of these pairs that spends a part `again` on the tables of the first round: all of it without pairs."""
        again = again if pairs else 1.0
        repeated = self._repeated() if again else []
        square = again * self.shares.squares(self.door.made) / max(sum(part for *_, part in repeated), _TINY)
        self._measure(
            [*((kind, t) for kind, t, _ in repeated), *((self._kind_of_pairs, p) for p in pairs)],
            [
                *(square * part for *_, part in repeated),
                *((1 - again) * each for each in self._squares_of_pairs(pairs)),
            ],
        )

    def _repeated(self) -> list[tuple[str, int, float]]:
        """The tables of the first round, smallest first while they have few enough cells."""
        cells = [self._cells_of(kind)[t] for kind, t, _ in self.first]
        order = np.argsort(cells, kind="stable")
        few = order[np.cumsum(np.array(cells)[order]) <= _MOST_REPEATED]
        return [self.first[n] for n in sorted(few)]

    def _score(self, guesses: list[Array]) -> Array:
        """The noisy distances Σ|share − guess| of all pairs' tables from guesses (Y, a, b)."""
        step = _score_step(self.shares.allowances()[self.door.made], self._cells_of_pairs().tolist(), self.size)
        noisy = self.door.scores(self._every_pair(), self._whole(guesses, step), step)
        self.scores.append(Scores(noisy, step))
        return noisy / (step * self.size.count)

    def _choose(self, pairs: list[int], guesses: list[Array], count: int, costs: Array) -> list[int]:
        """Some of these pairs, drawn by the exponential mechanism: by their tables' distances from guesses, less public costs.

        guesses, costs   of all pairs: tables (Y, a, b), and (P,).
        """
        step = _largest_step(self.size)
        whole = np.rint(np.minimum(costs[pairs], _MOST_DISTANCE) * (step * self.size.count)).astype(np.int64)
        chosen, scale = self.door.choose(
            self._every_pair()[pairs], self._whole([guesses[p] for p in pairs], step), step, costs=whole, count=count
        )  # fmt: skip
        self.choices.append(Choice(count, step, scale))
        return [pairs[t] for t in chosen]

    def _every_pair(self) -> Array:
        """The index among all tables of each pair's table."""
        return np.array([self._index(self._kind_of_pairs, p) for p in range(self.n_pairs)])

    def _whole(self, guesses: list[Array], step: int) -> Array:
        """Guesses (Y, a, b) of shares in whole numbers, one after the other: step times the number of rows."""
        most = step * self.size.count  # as a float64 it may be more
        shares = np.nan_to_num(np.concatenate([guess.ravel() for guess in guesses]))
        return np.minimum(np.floor(np.clip(shares, 0.0, 1.0) * most).astype(np.int64), most)

    def _room(self) -> int:
        """How many cells further tables of pairs may have, so that a file can hold them and the round's allowance covers them."""
        allowance = self.shares.allowances()[self.door.made]
        most = min(_MOST_CELLS - self.door.drawn, _most_cells(self.kernel, allowance, self.size))
        return math.floor(most) - _MOST_REPEATED

    def _noise_of_scores(self) -> float:
        return self.door.deviation / (self.scores[-1].step * self.size.count)

    # ------------------------------------------------------------------ tables

    @property
    def _kind_of_pairs(self) -> str:
        return "pairs by target" if self.crossed else "pairs"

    def _pairs(self) -> list[Pair]:
        """All pairs, by the columns' numbers without the target."""
        return list(combinations(range(len(self.kernel.others)), 2))

    def _group(self, kind: str) -> Any:
        return next(group for group in self.everything.groups if group.kind == kind)

    def _index(self, kind: str, t: int) -> int:
        """A table's index among all."""
        before = 0
        for group in self.everything.groups:
            if group.kind == kind:
                return before + t
            before += len(group.tables)
        raise AssertionError(kind)

    def _columns(self, kind: str, t: int) -> tuple[int, ...]:
        return self._group(kind).tables[t]

    def _cells_of_pairs(self) -> Array:
        return self._cells_of(self._kind_of_pairs)

    def _cells_of(self, kind: str) -> Array:
        return np.array([stop - start for start, stop in self._group(kind).ranges])

    def _with_asked(self, tables: list[tuple[str, int]], squares: list[float]) -> list[float]:
        """Squared heights of one-way tables, raised for the columns that a workload names alone."""
        columns = [self._columns(kind, t)[-1] for kind, t in tables]
        columns = [self.kernel.finer[j - len(self.kernel.edges)] if j >= len(self.kernel.edges) else j for j in columns]
        own = dict.fromkeys(columns, 0.0)
        for j, square in zip(columns, squares, strict=True):
            own[j] += square
        return [square * (1 + self.asked.get((j,), 0.0) / own[j]) for j, square in zip(columns, squares, strict=True)]

    def _named_pairs(self) -> dict[int, float]:
        """The pairs that a workload names, with their squared heights, by their index; none if all pairs are measured later."""
        if len(self.shares.parts) == len(_SHARES_FEW):
            return {}
        pairs = enumerate(combinations(self.kernel.others, 2))
        return {p: self.asked[pair] for p, pair in pairs if pair in self.asked}

    def _squares_of_pairs(self, pairs: list[int]) -> list[float]:
        """Squared heights of the tables of these pairs in the coming round."""
        powers = self._cells_of_pairs()[pairs] ** self._power
        squares = self.shares.squares(self.door.made) * powers / powers.sum()
        named = list(combinations(self.kernel.others, 2))
        return [square + self.asked.get(named[p], 0.0) for p, square in zip(pairs, squares.tolist(), strict=True)]

    def _noise_of_pairs(self, count: int) -> Array:
        """For each pair the |noise| to expect, summed over its table, if that many pairs are measured in a later round."""
        cells = self._cells_of_pairs().astype(float)
        coming = range(self.door.made, len(self.shares.parts))
        share = self.shares.squares(next(r for r in coming if r not in self.shares.scores))
        return NOISE_IN_DISTANCE * self.unit / math.sqrt(share) * _noise_by_cells(cells, count, self._power)

    def measurement(self) -> Measurement:
        """All rounds so far as one measurement, of margins with a height for each table."""
        tables: dict[str, list[tuple[tuple[int, ...], float, Array]]] = {
            kind: self.found.get(kind, []) for kind in KINDS
        }
        for kind in ("pairs", "pairs by target"):
            tables[kind].sort(key=lambda table: table[0])
        squares = [[square for _, square, _ in tables[kind]] for kind in KINDS]
        total = sum(map(sum, squares))  # 1 but for rounding, once all rounds are made
        chosen = tuple(columns[-2:] for kind in ("pairs", "pairs by target") for columns, _, _ in tables[kind])
        parts = (
            tuple(tuple(square / total for square in own) for own in squares)
            if self.door.made < len(self.shares.parts)
            else (tuple(tuple(own) for own in squares))
        )
        kernel = ChosenMargins(
            edges=self.kernel.edges, atoms=self.kernel.atoms, missing=self.kernel.missing, shares=tuple(map(sum, parts)),  # type: ignore[arg-type]
            target=self.kernel.target, fine=self.kernel.fine, deeper=self.kernel.deeper, chosen=chosen, squares=parts,  # type: ignore[arg-type]
        )  # fmt: skip
        features = MarginFeatures(kernel)
        noisy_sum = np.concatenate([cells for kind in KINDS for _, _, cells in tables[kind]])
        if self.door.made < len(self.shares.parts):
            unit = 1 / (GRID * SHRINK * self.size.count * math.sqrt(total))
            return Measurement(
                vector=noisy_sum * unit, noise_scale=self.door.deviation * unit, noise_law=self.noise.name,
                n_rows=self.size.count, feature_map=features, noisy_sum=noisy_sum,
            )  # fmt: skip
        measured = Measurement.from_sum(
            noisy_sum, grid_scale=self.door.deviation, n_rows=self.size.count, feature_map=features,
            noise_law=self.noise.name,
        )  # fmt: skip
        pairs = list(combinations(self.kernel.others, 2))
        by_rows = self.scores or self.choices  # else all pairs are those that were named
        beforehand = tuple(pairs[p] for p in self._named_pairs()) if by_rows else ()
        return replace(measured, scores=tuple(self.scores), choices=tuple(self.choices), beforehand=beforehand)


def _together(first: float, cells: Array, second: float, others: Array) -> tuple[float, Array]:
    """A table measured twice as if once: squared heights add up, and the noise is as large as before (PROOF.md §12)."""
    mean = (math.sqrt(first) * cells + math.sqrt(second) * others) / math.sqrt(first + second)
    return first + second, np.rint(mean).astype(np.int64)


def _worth_drawing(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> bool:
    """Where noise is large: whether a usual table, one of those that are drawn, has less noise than two tables can differ."""
    cells = np.array(cells_of_all_pairs(kernel), dtype=float)
    unit = math.sqrt(2 / _SHARES_LARGE[2]) * noise.deviation(1.0) / size.count
    return bool(np.median(NOISE_IN_DISTANCE * unit * _noise_by_cells(cells, _PAIRS_LARGE, _POWER)) <= _MOST_DISTANCE)


def _noise_by_cells(cells: Array, count: int, power: float) -> Array:
    """Σ|noise| of tables with so many cells, if `count` of them share a round by the power of their cells."""
    return math.sqrt(count) * np.median(cells) ** (power / 2) * cells ** (1 - power / 2)


def _noise_of_all_pairs(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> float:
    """On a share, if the tables of all pairs were measured alike; from public facts."""
    return math.sqrt(2) * noise.deviation(1.0) / size.count * math.sqrt(max(kernel.n_pairs, 1))


def _is_about_one(kernel: MarginsKernel, asked: Mapping[tuple[int, ...], float]) -> bool:
    """Whether all pairs of some column are named, as those of a target that is a number are."""
    return any(all((min(i, j), max(i, j)) in asked for i in kernel.others if i != j) for j in kernel.others)


def shares_of_rounds(
    kernel: MarginsKernel,
    size: PopulationSize,
    noise: Noise | RehearsalNoise,
    asked: Mapping[tuple[int, ...], float] = MappingProxyType({}),
) -> _Shares:
    """The rounds and their budget, from public facts: the domain, N, ε, δ, and what a workload asks for.

    asked   squared heights for columns and pairs of columns. Where fewer other pairs are left than there are columns, all pairs
            are measured, and none is scored; where all pairs of a column are named, and noise is not large, up to seven times
            as many.
    """
    columns = len(kernel.others)
    alone, together = (sum(square for own, square in asked.items() if len(own) == n) for n in (1, 2))
    if columns < 2:
        return _Shares((1.0,), (), (alone,))
    named = sum(len(own) == 2 for own in asked)
    left = kernel.n_pairs - named
    if columns <= _FEW_COLUMNS or left < columns:
        return _Shares(_SHARES_FEW, (), (alone, together))
    spread = _noise_of_all_pairs(kernel, size, noise)
    small = sum(cells <= _most_of_a_pair(kernel) for cells in cells_of_all_pairs(kernel))
    enough = small - named > _most_drawn(columns)
    if columns >= _MANY_COLUMNS and enough and _SEEN_WELL < spread <= _LARGE_NOISE_OF_MANY * math.sqrt(columns):
        return _Shares(_SHARES_MANY, _DRAWS_MANY, (alone + together,))
    if spread > _LARGE_NOISE:
        if _worth_drawing(kernel, size, noise):
            return _Shares(_SHARES_LARGE, (1,), (alone + together,))
        return _Shares((1.0,), (), (alone + together,))
    if left < _FEW_LEFT * columns and _is_about_one(kernel, asked) and kernel.n_cells <= _MOST_REPEATED:
        return _Shares(_SHARES_TARGET, (), (alone, together))
    return _Shares(_SHARES["small" if spread <= _SMALL_NOISE else "middle"], (1, 3), (alone + together,))


__all__ = ["AdaptiveMargins", "shares_of_rounds"]
