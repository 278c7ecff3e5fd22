"""The rounds of one release: what has been measured, and what is measured next.

As far as pairs are not worth their noise (`choice_of_pairs`), the rounds of pairs measure the tables of the first round once
more. Where the domain has rules, independent tables are 0 in cells that rules exclude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from kmeanalyst.kernels import ChosenMargins
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import KINDS, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import GRID, SHRINK, Choice, DrawnSets, Measurement, Scores
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.representation.tables.allowed_cells import AllowedCells, allowed_cells
from kmeanalyst.representation.tables.estimates import (
    NOISE_IN_DISTANCE,
    allowed_tables,
    estimate_tables,
    free_cells,
    implied_by_pairs,
)
from kmeanalyst.representation.tables.tree import Pair, connected_parts, spanning_tree
from release_side.choices.workload import Workload
from release_side.door.door import Door
from release_side.door.mechanism import Noise, RehearsalNoise
from release_side.door.private_tables import TableRounds
from release_side.publishing.methods.adaptive import shares_of_rounds as sharing
from release_side.publishing.methods.adaptive.choice_of_pairs import MOST_DISTANCE, Distances, Prospect, largest_distance

_COST_LARGE = 0.5  # of the noise in a table, against its score: where few pairs are drawn, the strongest ones count
_CHEAP = 0.1  # share of the last round for tables that are measured because they are small
_WORTH_MEASURING = 0.3  # where noise is small, least distance of a further pair relative to the noise of its table
_USUAL_PAIRS = 15  # further pairs, when their noise is first guessed
_USUAL_SETS = 3  # larger sets that use the whole last round
_WORTH_SET, _FAR_SET = 1.5, 3.0  # least distance of a larger set, relative to its table's noise and to its score's
_RARE = 4.5  # of a sum of squares' root beyond its mean, what no one of some thousand reaches
_TINY = 1e-15


@dataclass(eq=False)
class Rounds:
    """The rounds of one release: what has been measured, and what is asked next. Tables are named by their index in `everything`.

    asked     squared heights for the columns and pairs of columns that a workload names.
    allowed   the cells that the domain's rules allow together: what they exclude is not worth measuring. None without rules.
    domain    of the rows: what columns have an order.
    found     of each table that was measured the squared height and the noisy cells.
    first     the one-way tables, and their parts of the first round.
    """

    door: TableRounds
    everything: MarginFeatures
    kernel: MarginsKernel
    size: PopulationSize
    noise: Noise | RehearsalNoise
    shares: sharing.Shares
    asked: dict[tuple[int, ...], float]
    allowed: AllowedCells | None
    domain: Domain
    found: dict[int, tuple[float, Array]] = field(default_factory=dict)
    first: dict[int, float] = field(default_factory=dict)
    scores: list[Scores] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    drawn: DrawnSets | None = None

    @classmethod
    def of(
        cls, door: Door[Noise | RehearsalNoise], everything: MarginFeatures, domain: Domain, size: PopulationSize,
        workload: Workload | None,
    ) -> Rounds:  # fmt: skip
        kernel = sharing.without_sets(everything.kernel)
        asked = sharing.asked_squares(kernel, workload, size, door.noise)
        shares = sharing.shares_of_rounds(kernel, size, door.noise, asked)
        rounds, allowed = door.rounds(everything, shares.allowances()), allowed_cells(domain, kernel)
        return cls(rounds, everything, kernel, size, door.noise, shares, asked, allowed, domain)

    @cached_property
    def tables(self) -> list[tuple[str, tuple[int, ...]]]:
        """The kind and the columns of each table."""
        return [(group.kind, columns) for group in self.everything.groups for columns in group.tables]

    @cached_property
    def cells(self) -> Array:
        """How many cells each table has."""
        return np.diff(self.everything.starts)

    @cached_property
    def of_kind(self) -> dict[str, Array]:
        """The tables of each kind."""
        kinds = np.array([kind for kind, _ in self.tables])
        return {kind: np.flatnonzero(kinds == kind) for kind in (*KINDS, "sets")}

    @property
    def n_pairs(self) -> int:
        return self.kernel.n_pairs

    @property
    def unit(self) -> float:
        """Standard deviation of the noise on a share that is measured with height 1."""
        return self.door.deviation / (GRID * SHRINK * self.size.count)

    def measure_one_way(self) -> None:
        """All one-way tables, coarse and finer; and pairs that a workload names."""
        alone = [*self.of_kind["one-way"].tolist(), *self.of_kind["finer"].tolist()]
        parts = sharing.parts_of_one_way(self.everything, self.domain, self.shares)
        self.first = dict(zip(alone, parts, strict=True))
        heights = self._with_asked(alone, [self.shares.squares(0) * part for part in parts])
        named = self._named_pairs()
        self._measure([*alone, *self.of_kind["pairs"][list(named)].tolist()], [*heights, *named.values()])

    def measure_pairs(self) -> None:
        """The rounds after the first one."""
        if self.shares.are_all_measured:
            self._measure_pairs(list(range(self.n_pairs)))
            return
        estimates = estimate_tables(self.measurement(), self.allowed, self.domain)
        tables = {(i, j): np.outer(estimates.ones[i], estimates.ones[j]) for i, j in self._pairs()}
        independent = list(allowed_tables(tables, estimates.ones, self.allowed).values())
        named = list(self._named_pairs())
        small = self._cells_of_pairs() <= sharing.most_of_a_pair(self.kernel)
        allowed = [p for p in range(self.n_pairs) if small[p] and p not in named]
        if self.shares.are_few_drawn:
            self._measure_pairs(self._draw(allowed, independent, sharing.PAIRS_LARGE))
        elif self.shares.is_tree_drawn:
            self._measure_drawn(independent, named, allowed)
        else:
            self._measure_chosen(self._score(independent), independent, named, allowed)

    def measure_sets(self) -> None:
        """The last three rounds: larger sets: draws by their distances from what pairs say, scores with others, and tables."""
        tables, pairs = self.of_kind["sets"], estimate_tables(self.measurement(), self.allowed, self.domain).pairs
        sets = [self.tables[t][1] for t in tables]
        guesses = [implied_by_pairs(columns, pairs) for columns in sets]
        if self.allowed is not None:
            guesses = [guess * self.allowed.together(*own) for own, guess in zip(sets, guesses, strict=True)]
        cells = np.array([guess.size for guess in guesses])
        by_chance = [NOISE_IN_DISTANCE * np.sqrt(guess / self.size.count).sum() for guess in guesses]
        square = self.shares.squares(len(self.shares.parts) - 1)
        noise = NOISE_IN_DISTANCE * self.unit * cells * math.sqrt(_USUAL_SETS / square)
        costs = np.array(by_chance) + _WORTH_SET * noise
        step, count = sharing.largest_step(self.size), min(sharing.SETS_DRAWN, len(sets))
        whole = np.rint(np.minimum(costs, MOST_DISTANCE) * (step * self.size.count)).astype(np.int64)
        chosen, scale = self.door.choose(tables, self._whole(guesses, step), step, costs=whole, count=count)
        draws = Choice(count, step, scale)
        left = np.setdiff1d(np.arange(len(sets)), chosen)
        evenly = np.linspace(0, len(left) - 1, sharing.SETS_SCORED - count) if len(left) else np.zeros(0)
        others = left[np.unique(evenly.astype(int))]
        scored = np.concatenate([chosen, others])
        step = sharing.score_step(self.shares.allowances()[self.door.made], cells[scored].tolist(), self.size)
        noisy = self.door.scores(tables[scored], self._whole([guesses[t] for t in scored], step), step)
        self.drawn = DrawnSets(tuple(sets[t] for t in scored), int(cells.max()), draws, Scores(noisy, step))
        distances = dict(zip(scored.tolist(), noisy / (step * self.size.count), strict=True))
        beyond = {t: math.sqrt(max(u**2 - by_chance[t] ** 2, 0.0)) / noise[t] for t, u in distances.items()}
        of_score = _FAR_SET * self.door.deviation / (step * self.size.count)
        # what no candidate reaches by chance: of a sum of |normals| of so many degrees of freedom, in as many cells
        free = {t: free_cells(guesses[t].shape) for t in beyond}
        largest = {t: by_chance[t] * (math.sqrt(free[t]) + _RARE) / math.sqrt(cells[t]) for t in beyond}
        worth_it: list[int] = []
        for t in sorted(beyond, key=lambda t: -beyond[t]):
            nested = any(set(sets[t]) <= set(sets[k]) or set(sets[k]) <= set(sets[t]) for k in worth_it)
            least = max(by_chance[t] + of_score, largest[t])
            if not nested and beyond[t] > _WORTH_SET and distances[t] > least:
                worth_it.append(t)
        self._measure_with_all(worth_it, cells)

    def _measure_with_all(self, sets: list[int], cells: Array) -> None:
        """The last round: these larger sets, and as far as they leave something all tables once more, smallest first."""
        square, part = self.shares.squares(self.door.made), min(len(sets) / _USUAL_SETS, 1.0)
        powers = cells[sets] ** self.shares.power
        known = sorted(self.found, key=lambda t: self.cells[t]) if part < 1 else []
        most = sharing.most_again(self.kernel, self.shares.allowances()[self.door.made], self.size)
        again = [t for t, cells_so_far in zip(known, np.cumsum(self.cells[known]), strict=True) if cells_so_far <= most]
        heights = [self.found[t][0] for t in again]
        total = sum(heights)
        self._measure(
            [*self.of_kind["sets"][sets].tolist(), *again],
            [*(part * square * powers / powers.sum()), *((1 - part) * square * own / total for own in heights)],
        )

    def _measure_drawn(self, independent: list[Array], named: list[int], allowed: list[int]) -> None:
        """Drawn pairs that lead from every column to every other, nearly; then half as many by what these imply.

        A draw of d pairs has √d times the noise of one, and noisy scores of all d²/2 pairs have d times as much. Pairs are left
        out whose columns allow no distance that is worth the noise, as those of a constant column.
        """
        pairs, d = self._pairs(), len(self.kernel.edges)
        costs = _COST_LARGE * self._noise_of_pairs(d - 1)
        worth_it = [p for p in allowed if largest_distance(independent[p]) > costs[p]]
        allowed = worth_it if len(worth_it) > sharing.most_drawn(d) else allowed
        drawn: list[int] = []
        for part_of_missing in sharing.PARTS_OF_TREE:
            part = connected_parts([pairs[p] for p in (*named, *drawn)], d)
            linking = [p for p in allowed if part[pairs[p][0]] != part[pairs[p][1]]]
            missing = len({part[j] for p in linking for j in pairs[p]}) - 1
            further = linking or [p for p in allowed if p not in drawn]
            count = min(max(math.ceil(part_of_missing * missing), 1), len(further))
            drawn += self._choose(further, independent, count, costs)
        self._measure_pairs(drawn)
        implied = estimate_tables(self.measurement(), self.allowed, self.domain).pairs
        left = [p for p in allowed if p not in drawn]
        self._measure_pairs(self._draw(left, [implied[pair] for pair in pairs], d // 2))

    def _draw(self, pairs: list[int], guesses: list[Array], most: int) -> list[int]:
        """At most so many of these pairs, drawn by their distances from guesses less part of the noise that they will have."""
        count = min(most, len(pairs))
        return self._choose(pairs, guesses, count, _COST_LARGE * self._noise_of_pairs(count))

    def _measure_chosen(self, distances: Array, independent: list[Array], named: list[int], allowed: list[int]) -> None:
        """A tree of pairs and, by further scores, further pairs; single columns again as far as pairs are not worth it.

        distances     (P,) noisy ones from independent tables.
        named         the pairs that a workload names, which have been measured.
        allowed       the other pairs whose tables may be in the tree.
        """
        pairs, d = self._pairs(), len(self.kernel.edges)
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
        if self.shares.noise_is_small and not again:
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
        measured = [(self.cells[t], self.found[t][0]) for t in self.of_kind["one-way"]]
        columns = np.array([(NOISE_IN_DISTANCE * self.unit * cells) ** 2 / square for cells, square in measured])
        first, second = np.array(self._pairs()).T
        sampling = NOISE_IN_DISTANCE / math.sqrt(self.size.count)
        distances = Distances.of_scores(
            scores, self._noise_of_scores(), largest=np.array(list(map(largest_distance, guesses))),
            by_chance=sampling * np.array([np.sqrt(guess).sum() for guess in guesses]),
            of_guesses=np.sqrt(columns[first] + columns[second]),
        )  # fmt: skip
        spent = sum(self.found[t][0] for t in self.first)
        powers = self._cells_of_pairs() ** self.shares.power
        return Prospect(distances, self._pairs(), powers, self.unit, columns, spent)

    def _cheap(self, chosen: list[int], measured: set[int]) -> list[int]:
        """Further pairs that cost the chosen ones little, whatever their scores: the smallest tables left, if there is room."""
        cells = self._cells_of_pairs()
        powers, room = cells**self.shares.power, self._room() - cells[chosen].sum()
        left = [p for p in range(self.n_pairs) if p not in measured and p not in chosen]
        left.sort(key=lambda p: powers[p])
        few = (np.cumsum(powers[left]) <= _CHEAP * powers[chosen].sum()) & (np.cumsum(cells[left]) <= room)
        return [p for p, fits in zip(left, few, strict=True) if fits]

    # ------------------------------------------------------------------ rounds

    def _measure(self, tables: Sequence[int], squares: Sequence[float]) -> None:
        heights = np.rint(np.sqrt(np.array(squares)) * (GRID * SHRINK)).astype(np.int64)
        noisy = self.door.measure(np.array(tables), heights)
        ends = np.cumsum(self.cells[tables])
        for t, square, own in zip(tables, squares, np.split(noisy, ends[:-1]), strict=True):
            self.found[t] = _together(*self.found[t], square, own) if t in self.found else (square, own)

    def _measure_pairs(self, pairs: list[int]) -> None:
        self._measure(self.of_kind["pairs"][pairs].tolist(), self._squares_of_pairs(pairs))

    def _measure_with_columns(self, pairs: list[int], again: float) -> None:
        """A round of these pairs that spends a part `again` on the tables of the first round: all of it without pairs."""
        again = again if pairs else 1.0
        repeated = self._repeated() if again else []
        square = again * self.shares.squares(self.door.made) / max(sum(self.first[t] for t in repeated), _TINY)
        squares_of_pairs = [(1 - again) * own for own in self._squares_of_pairs(pairs)]
        self._measure(
            [*repeated, *self.of_kind["pairs"][pairs].tolist()], [*(square * self.first[t] for t in repeated), *squares_of_pairs]
        )

    def _repeated(self) -> list[int]:
        """The tables of the first round, smallest first while they have few enough cells."""
        smallest = sorted(self.first, key=lambda t: self.cells[t])
        n_few = int((np.cumsum(self.cells[smallest]) <= sharing.MOST_REPEATED).sum())
        return sorted(smallest[:n_few])

    def _score(self, guesses: list[Array]) -> Array:
        step = sharing.score_step(self.shares.allowances()[self.door.made], self._cells_of_pairs().tolist(), self.size)
        noisy = self.door.scores(self.of_kind["pairs"], self._whole(guesses, step), step)
        self.scores.append(Scores(noisy, step))
        return noisy / (step * self.size.count)

    def _choose(self, pairs: list[int], guesses: list[Array], count: int, costs: Array) -> list[int]:
        """Some of these pairs, drawn by the exponential mechanism: by their tables' distances from guesses, less public costs.

        guesses, costs   of all pairs: tables (a, b), and (P,).
        """
        step = sharing.largest_step(self.size)
        whole = np.rint(np.minimum(costs[pairs], MOST_DISTANCE) * (step * self.size.count)).astype(np.int64)
        chosen, scale = self.door.choose(
            self.of_kind["pairs"][pairs], self._whole([guesses[p] for p in pairs], step), step, costs=whole, count=count
        )  # fmt: skip
        self.choices.append(Choice(count, step, scale))
        return [pairs[t] for t in chosen]

    def _whole(self, guesses: list[Array], step: int) -> Array:
        """Guesses (a, b) of shares in whole numbers, one after the other: step times the number of rows."""
        most = step * self.size.count  # as a float64 it may be more
        shares = np.nan_to_num(np.concatenate([guess.ravel() for guess in guesses]))
        return np.minimum(np.floor(np.clip(shares, 0.0, 1.0) * most).astype(np.int64), most)

    def _room(self) -> int:
        """How many cells further tables of pairs may have, so that a file can hold them and the round's allowance covers them."""
        allowance = self.shares.allowances()[self.door.made]
        most = min(sharing.MOST_CELLS - self.door.drawn, sharing.most_cells(self.kernel, allowance, self.size))
        later = sharing.SETS_SCORED + sharing.cells_of_sets(self.kernel, self.shares.allowances()[-1], self.size)
        return math.floor(most) - sharing.MOST_REPEATED - (later if self.shares.sets else 0)

    def _noise_of_scores(self) -> float:
        return self.door.deviation / (self.scores[-1].step * self.size.count)

    # ------------------------------------------------------------------ tables

    def _pairs(self) -> list[Pair]:
        return list(combinations(range(len(self.kernel.edges)), 2))

    def _cells_of_pairs(self) -> Array:
        return self.cells[self.of_kind["pairs"]]

    def _with_asked(self, tables: list[int], squares: list[float]) -> list[float]:
        """Squared heights of one-way tables, raised for the columns that a workload names alone."""
        columns = [self.tables[t][1][-1] for t in tables]
        columns = [self.kernel.finer[j - len(self.kernel.edges)] if j >= len(self.kernel.edges) else j for j in columns]
        own = dict.fromkeys(columns, 0.0)
        for j, square in zip(columns, squares, strict=True):
            own[j] += square
        return [square * (1 + self.asked.get((j,), 0.0) / own[j]) for j, square in zip(columns, squares, strict=True)]

    def _named_pairs(self) -> dict[int, float]:
        """The pairs that a workload names, with their squared heights, by their index; none if all pairs are measured later."""
        if self.shares.are_all_measured:
            return {}
        return {p: self.asked[pair] for p, pair in enumerate(self._pairs()) if pair in self.asked}

    def _squares_of_pairs(self, pairs: list[int]) -> list[float]:
        powers = self._cells_of_pairs()[pairs] ** self.shares.power
        squares = self.shares.squares(self.door.made) * powers / powers.sum()
        named = self._pairs()
        return [square + self.asked.get(named[p], 0.0) for p, square in zip(pairs, squares.tolist(), strict=True)]

    def _noise_of_pairs(self, count: int) -> Array:
        """For each pair the |noise| to expect, summed over its table, if that many pairs are measured in a later round."""
        cells = self._cells_of_pairs().astype(float)
        coming = range(self.door.made, len(self.shares.parts))
        share = self.shares.squares(next(r for r in coming if r not in self.shares.scores))
        relative = sharing.noise_by_cells(cells, count, self.shares.power)
        return NOISE_IN_DISTANCE * self.unit / math.sqrt(share) * relative

    def measurement(self) -> Measurement:
        """All rounds so far as one measurement, of margins with a height for each table."""
        by_kind: dict[str, list[int]] = {kind: [] for kind in KINDS}
        for t in sorted(self.found, key=lambda t: (len(self.tables[t][1]), self.tables[t][1])):
            by_kind["pairs" if self.tables[t][0] == "sets" else self.tables[t][0]].append(t)
        squares = [[self.found[t][0] for t in by_kind[kind]] for kind in KINDS]
        made_all = self.door.made >= len(self.shares.parts)
        total = 1.0 if made_all else sum(map(sum, squares))  # once all rounds are made it is 1 but for rounding
        chosen = tuple(self.tables[t][1] for t in by_kind["pairs"])
        parts = tuple(tuple(square / total for square in own) for own in squares)
        kernel = ChosenMargins(
            edges=self.kernel.edges, atoms=self.kernel.atoms, missing=self.kernel.missing, shares=tuple(map(sum, parts)),  # type: ignore[arg-type]
            fine=self.kernel.fine, deeper=self.kernel.deeper, chosen=chosen, squares=parts,
        )  # fmt: skip
        features = MarginFeatures(kernel)
        noisy_sum = np.concatenate([self.found[t][1] for kind in KINDS for t in by_kind[kind]])
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
        pairs, by_rows = self._pairs(), self.scores or self.choices or self.drawn
        named = range(self.n_pairs) if self.shares.are_all_measured else self._named_pairs()
        beforehand = tuple(pairs[p] for p in named) if by_rows else ()
        return replace(measured, scores=tuple(self.scores), choices=tuple(self.choices), beforehand=beforehand, drawn=self.drawn)


def _together(first: float, cells: Array, second: float, others: Array) -> tuple[float, Array]:
    """A table measured twice as if once: squared heights add up, and the noise is as large as before (PROOF.md §12)."""
    mean = (math.sqrt(first) * cells + math.sqrt(second) * others) / math.sqrt(first + second)
    return first + second, np.rint(mean).astype(np.int64)
