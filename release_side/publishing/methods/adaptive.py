"""Adaptive margins: one-way tables first, then tables of the pairs of columns that noisy scores show to be related.

Five rounds at most, of fixed shares of the budget: all one-way tables; scores of all pairs, their distance from independence;
a tree of pairs; scores again, the distance from what the tree implies; further pairs. As far as pairs are not worth their noise
(`choice_of_pairs`), the rounds of pairs measure the tables of the first round once more. With a target every table is
crossed with it, and scores are distances from independence given the target. Where noise is large, three pairs take the
place of tree and further pairs; where there are three columns or fewer, all pairs are measured.

The rule follows MST and AIM (McKenna, Miklau & Sheldon 2021; McKenna, Mullins, Sheldon & Miklau 2022): score, then measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from kmeanalyst.kernels import ChosenMargins, Kernel
from kmeanalyst.kernels import Margins as MarginsKernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.margins import KINDS, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.measurement import GRID, SHRINK, Measurement, Scores, cells_of_all_pairs
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.tables.estimates import NOISE_IN_DISTANCE, estimate_tables
from kmeanalyst.representation.tables.tree import Pair, independent_table, spanning_tree
from release_side.choices.options import check_readable, drawn_rows, fitting, most_rows
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
_SMALL_NOISE, _LARGE_NOISE = 0.006, 0.04  # noise on a share if all pairs were measured alike
# shares of the budget: one-way tables, scores, tree, scores, further pairs
_SHARES = {"small": (0.20, 0.03, 0.27, 0.05, 0.45), "middle": (0.35, 0.05, 0.30, 0.05, 0.25)}
_SHARES_LARGE = (0.75, 0.08, 0.17)
_SHARES_FEW = (0.5, 0.5)
_PAIRS_LARGE = 3
_POWER = 2 / 3  # squared heights ∝ cells ** ⅔, which minimises the sum over tables of cells / height
_FINER, _FINER_SMALL = 0.05, 0.12  # of a finer table, relative to the power of its cells; where noise is small
_MOST_FINER = 0.06  # of the one-way round for finer tables, unless noise is small
_ALONE = 0.2  # of one-way tables where they are crossed with the target as well
_OF_TARGET = 0.07  # the target's own table, relative to the other one-way tables
_CHEAP = 0.1  # share of the last round for tables that are measured because they are small
_WORTH_MEASURING = 0.3  # where noise is small, least distance of a further pair relative to the noise of its table
_TINY = 1e-15
_USUAL_PAIRS = 15  # further pairs, when their noise is first guessed


@dataclass(frozen=True)
class _Shares:
    """The budget: each round's part of 1/m², and whether it is of tables or of scores."""

    parts: tuple[float, ...]
    scores: tuple[int, ...]

    @property
    def of_tables(self) -> float:
        return sum(part for r, part in enumerate(self.parts) if r not in self.scores)

    def squares(self, number: int) -> float:
        """The part of k(x, x) that the tables of a round have."""
        return self.parts[number] / self.of_tables

    def allowances(self) -> list[float]:
        """How far a row may move each round, in steps of the grid: tables move by √2 of their norm."""
        return [math.sqrt(2 * part / self.of_tables) * GRID for part in self.parts]


class AdaptiveMargins(Margins):
    """Margins of chosen pairs. Files and ledgers know it as random features, as they do all margins."""

    def kernel(self, domain: Domain, size: PopulationSize, noise: Noise | RehearsalNoise) -> Kernel:
        """Of every table that a round could ask for."""
        return adaptive_kernel(domain, self.choices.target)

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
        _check_pairs(everything.kernel)
        check_readable(self.most_points(everything.kernel, domain), domain, _largest(everything))
        return everything

    def measure(self, door: Door[Noise | RehearsalNoise], domain: Domain, size: PopulationSize) -> Measured:
        everything = self.prepare(domain, size, door.noise)
        assert isinstance(everything, MarginFeatures)
        rounds = _Rounds.of(door, everything, size)
        rounds.measure_one_way()
        if rounds.n_pairs:
            rounds.measure_pairs()
        return Measured((rounds.measurement(),))


def _most_of_a_pair(kernel: Kernel) -> float:
    """The largest number of cells of a pair in the tree, so that a file can hold all of them."""
    assert isinstance(kernel, MarginsKernel)
    return _MOST_CELLS / (4 * len(kernel.edges))


def _check_pairs(kernel: Kernel) -> None:
    """PublishError if there are pairs, and all of them are too large to be measured."""
    assert isinstance(kernel, MarginsKernel)
    cells = cells_of_all_pairs(kernel)
    if cells and min(cells) > _most_of_a_pair(kernel):
        raise PublishError("every pair of columns has too many cells to be measured. Name fewer levels or edges.")


def _largest(everything: FeatureMap) -> FeatureMap:
    """All one-way tables, and pairs as far as a release may choose them: no release has a larger map."""
    kernel = everything.kernel
    assert isinstance(kernel, MarginsKernel)
    if kernel.n_cells <= _MOST_CELLS:
        return everything
    return MarginFeatures(replace(kernel, shares=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)))


@dataclass(eq=False)
class _Rounds:
    """The rounds of one release: what has been measured, and what is asked next."""

    door: TableRounds
    everything: MarginFeatures
    kernel: MarginsKernel
    size: PopulationSize
    noise: Noise | RehearsalNoise
    shares: _Shares
    found: dict[str, list[tuple[tuple[int, ...], float, Array]]] = field(default_factory=dict)
    scores: list[Scores] = field(default_factory=list)
    number: int = 0
    drawn: int = 0  # numbers with noise
    first: list[tuple[str, int, float]] = field(
        default_factory=list
    )  # tables of the first round: kind, number, part of it

    @classmethod
    def of(cls, door: Door[Noise | RehearsalNoise], everything: MarginFeatures, size: PopulationSize) -> _Rounds:
        kernel = everything.kernel
        shares = shares_of_rounds(kernel, size, door.noise)
        return cls(door.rounds(everything, shares.allowances()), everything, kernel, size, door.noise, shares)

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
    def unit(self) -> float:
        """Standard deviation of the noise on a share that is measured with height 1."""
        return self.door.deviation / (GRID * SHRINK * self.size.count)

    def measure_one_way(self) -> None:
        """All one-way tables: coarse, crossed with the target, finer, and the target's own."""
        kinds = [kind for kind in KINDS if not kind.startswith("pairs")]
        groups = [group for group in self.everything.groups if group.kind in kinds]
        finer = _FINER_SMALL if self._noise_is_small else _FINER
        worth = {
            group.kind: [
                (finer if group.kind == "finer" else 1.0) * (stop - start) ** _POWER for start, stop in group.ranges
            ]
            for group in groups
        }
        if "target" in worth:
            worth["one-way"] = [_ALONE * each for each in worth["one-way"]]
            worth["target"] = [_OF_TARGET * sum(sum(each) for kind, each in worth.items() if kind != "target")]
        if "finer" in worth and not self._noise_is_small:
            coarse = sum(sum(own) for kind, own in worth.items() if kind != "finer")
            scale = min(1.0, _MOST_FINER / (1 - _MOST_FINER) * coarse / sum(worth["finer"]))
            worth["finer"] = [scale * each for each in worth["finer"]]
        total = sum(map(sum, worth.values()))
        self.first = [(kind, t, each / total) for kind, own in worth.items() for t, each in enumerate(own)]
        square = self.shares.squares(0)
        self._measure([(kind, t) for kind, t, _ in self.first], [square * part for *_, part in self.first])

    def measure_pairs(self) -> None:
        """The rounds after the first one."""
        if len(self.shares.parts) == len(_SHARES_FEW):
            self._measure_pairs(list(range(self.n_pairs)))
            return
        estimates = estimate_tables(self.measurement())
        independent = [
            independent_table(estimates.ones[i], estimates.ones[j], estimates.target) for i, j in self._pairs()
        ]
        distances = self._score(independent)
        if len(self.shares.parts) == len(_SHARES_LARGE):
            count = min(_PAIRS_LARGE, self.n_pairs)
            worth = distances - self._noise_of_pairs(count)
            self._measure_pairs(np.argsort(-worth)[:count].tolist())
            return
        self._measure_chosen(distances, independent)

    def _measure_chosen(self, distances: Array, independent: list[Array]) -> None:
        """A tree of pairs and, by further scores, further pairs; single columns again as far as pairs are not worth it."""
        pairs, fits = self._pairs(), self._cells_of_pairs() <= _most_of_a_pair(self.kernel)
        prospect = self._prospect(distances, independent)
        left = self.shares.squares(2) + self.shares.squares(4)
        worth_it, again = prospect.best(np.flatnonzero(fits).tolist(), left)
        d = len(self.kernel.others)
        worth = prospect.distances.expected(prospect.distances.values) - self._noise_of_pairs(d - 1)
        square = np.full((d, d), -np.inf)
        for p in np.flatnonzero(fits) if worth_it else ():
            i, j = pairs[p]
            square[i, j] = square[j, i] = worth[p]
        tree = {(i, j) for i, j in spanning_tree(square) if square[i, j] > -np.inf}
        self._measure_with_columns([p for p, pair in enumerate(pairs) if pair in tree], again)
        implied = estimate_tables(self.measurement()).pairs
        guesses = [implied[pair] for pair in pairs]
        distances = self._score(guesses)
        chosen, again = self._further(self._prospect(distances, guesses), distances, tree)
        self._measure_with_columns(chosen + self._cheap(chosen, tree), again)

    def _further(self, prospect: Prospect, distances: Array, tree: set[Pair]) -> tuple[list[int], float]:
        """The pairs to measure in the last round, and the part of it for single columns.

        Where noise is small and single columns need nothing, all pairs whose distance exceeds its noise: their tables are
        smoothed together, so that each tells of others.
        """
        room, pairs, cells = self._room() // 2, self._pairs(), self._cells_of_pairs()
        allowed = [p for p, pair in enumerate(pairs) if pair not in tree and cells[p] <= room]
        chosen, again = prospect.best(allowed, self.shares.squares(self.number))
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
        return Prospect(distances, self._pairs(), self._cells_of_pairs() ** _POWER, self.unit, columns, spent)

    def _cheap(self, chosen: list[int], tree: set[Pair]) -> list[int]:
        """Further pairs that cost the chosen ones little, whatever their scores: the smallest tables of those left."""
        powers = self._cells_of_pairs() ** _POWER
        left = [p for p, pair in enumerate(self._pairs()) if pair not in tree and p not in chosen]
        left.sort(key=lambda p: powers[p])
        spent = np.cumsum(powers[left])
        return [p for p, total in zip(left, spent, strict=True) if total <= _CHEAP * powers[chosen].sum()]

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
        self.number += 1
        self.drawn += len(noisy)

    def _measure_pairs(self, pairs: list[int]) -> None:
        self._measure([(self._kind_of_pairs, p) for p in pairs], self._squares_of_pairs(pairs))

    def _measure_with_columns(self, pairs: list[int], again: float) -> None:
        """A round of these pairs that spends a part `again` on the tables of the first round: all of it without pairs."""
        again = again if pairs else 1.0
        repeated = self._repeated() if again else []
        square = again * self.shares.squares(self.number) / max(sum(part for *_, part in repeated), _TINY)
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
        allowance = self.shares.allowances()[self.number]
        cells = self._cells_of_pairs().tolist()
        step = math.floor((allowance / math.sqrt(self.n_pairs) - max(cells)) / 2)
        step = min(step, GRID, 2**60 // self.size.count)
        if step < 1:
            raise PublishError("the tables have too many cells to be scored. Name fewer levels or edges.")
        wanted = np.array([self._index(self._kind_of_pairs, p) for p in range(self.n_pairs)])
        whole = np.concatenate([np.floor(np.nan_to_num(guess).ravel() * (step * self.size.count)) for guess in guesses])
        noisy = self.door.scores(wanted, whole.astype(np.int64), step)
        self.scores.append(Scores(noisy, step))
        self.number += 1
        self.drawn += len(noisy)
        return noisy / (step * self.size.count)

    def _room(self) -> int:
        """How many cells further tables of pairs may have, so that a file can hold them."""
        return _MOST_CELLS - self.drawn - _MOST_REPEATED

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

    def _squares_of_pairs(self, pairs: list[int]) -> list[float]:
        """Squared heights of the tables of these pairs in the coming round."""
        powers = self._cells_of_pairs()[pairs] ** _POWER
        return (self.shares.squares(self.number) * powers / powers.sum()).tolist()

    def _noise_of_pairs(self, count: int) -> Array:
        """For each pair the |noise| to expect, summed over its table, if that many pairs are measured in a later round."""
        cells = self._cells_of_pairs().astype(float)
        share = self.shares.squares(self.number if self.number not in self.shares.scores else self.number + 1)
        return (
            NOISE_IN_DISTANCE * self.unit * math.sqrt(count / share) * np.median(cells) ** (_POWER / 2)
            * cells ** (1 - _POWER / 2)
        )  # fmt: skip

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
            if self.number < len(self.shares.parts)
            else (tuple(tuple(own) for own in squares))
        )
        kernel = ChosenMargins(
            edges=self.kernel.edges, atoms=self.kernel.atoms, missing=self.kernel.missing, shares=tuple(map(sum, parts)),  # type: ignore[arg-type]
            target=self.kernel.target, fine=self.kernel.fine, chosen=chosen, squares=parts,  # type: ignore[arg-type]
        )  # fmt: skip
        features = MarginFeatures(kernel)
        noisy_sum = np.concatenate([cells for kind in KINDS for _, _, cells in tables[kind]])
        if self.number < len(self.shares.parts):
            unit = 1 / (GRID * SHRINK * self.size.count * math.sqrt(total))
            return Measurement(
                vector=noisy_sum * unit, noise_scale=self.door.deviation * unit, noise_law=self.noise.name,
                n_rows=self.size.count, feature_map=features, noisy_sum=noisy_sum,
            )  # fmt: skip
        measured = Measurement.from_sum(
            noisy_sum, grid_scale=self.door.deviation, n_rows=self.size.count, feature_map=features,
            noise_law=self.noise.name,
        )  # fmt: skip
        return replace(measured, scores=tuple(self.scores))


def _together(first: float, cells: Array, second: float, others: Array) -> tuple[float, Array]:
    """A table measured twice as if once: squared heights add up, and the noise is as large as before (PROOF.md §12)."""
    mean = (math.sqrt(first) * cells + math.sqrt(second) * others) / math.sqrt(first + second)
    return first + second, np.rint(mean).astype(np.int64)


def shares_of_rounds(kernel: MarginsKernel, size: PopulationSize, noise: Noise | RehearsalNoise) -> _Shares:
    """The rounds and their budget, from public facts: the domain, N, ε and δ."""
    columns = len(kernel.others)
    if columns < 2:
        return _Shares((1.0,), ())
    if columns <= _FEW_COLUMNS:
        return _Shares(_SHARES_FEW, ())
    alone = math.sqrt(2) * noise.deviation(1.0) / size.count
    spread = alone * math.sqrt(kernel.n_pairs)
    if spread > _LARGE_NOISE:
        return _Shares(_SHARES_LARGE, (1,))
    return _Shares(_SHARES["small" if spread <= _SMALL_NOISE else "middle"], (1, 3))


__all__ = ["AdaptiveMargins", "shares_of_rounds"]
