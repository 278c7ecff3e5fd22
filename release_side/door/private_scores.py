"""Private rows + the shares of a release → noisy distances between them: scores that can be published.

The rows are read once, into counts of the cells of tables and into sums of questions' values. From these whole numbers and from
public ones follow the numbers of `kmeanalyst.releases.quality.parts`: distances Σ |M n_c − t_c|, which one row moves by at most 2M
by the triangle inequality, whatever the release's numbers t are; the same within groups; the groups' sizes; and sums. One row moves
all together by at most `score_sensitivity_of`, and noise for this is drawn once, on all numbers. The proof is in PROOF.md §13.

No ratio is formed here: a distance within a group over the group's size has no useful sensitivity, and neither has a
share of questions that hold. Both are computed from the noisy numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.features.base import CellFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.quality.parts import (
    COLUMNS,
    GROUPS,
    K_MARGINAL,
    QUESTIONS,
    SIZES,
    VALUE_STEPS,
    ScorePart,
    score_sensitivity_of,
)
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.tables.score_tables import ScoreTables
from release_side.door.exact_sums import PrivateRows, SumOfBlock, sum_over_rows
from release_side.door.mechanism import Noise, PublishError, RehearsalNoise, check_int64_range
from release_side.door.private_mean import ExactSums
from release_side.private_rows.unit_rows import UnitRows

MOST_IN_SUMS = 2**61  # a part's step times n_rows: no sum leaves 64 bits
_LEAST_SENSITIVITY = (
    2**0.5 * GRID
)  # of all numbers under Gaussian noise: its noise is then nearly continuous (PROOF.md §4)
_MOST_SENSITIVITY = 2**52  # whole numbers up to it are exact in float64
_ROUNDED = 1 + 2.0**-30  # room for rounding
_BLOCK_ROWS = 2**13  # rows whose questions are answered at a time


@dataclass(frozen=True, eq=False, repr=False)
class ScoreCells(CellFeatures):
    """The cells of the tables that are scored, one table after the other: of single columns, then of pairs.

    tables   `ScoreTables`. With a group its pairs are those crossed with it, the group first; otherwise all pairs.
    """

    tables: ScoreTables
    name = "score cells"

    @property
    def n_columns(self) -> int:
        """K, how many tables of single columns there are."""
        return len(self.tables.columns)

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of columns, by their index in the domain."""
        return self.tables.pairs if self.tables.group is None else self.tables.crossed

    @cached_property
    def starts(self) -> Array:
        sizes, group = self.tables.sizes, self.tables.group
        groups = 1 if group is None else sizes[group]
        cells = [sizes[j] for j in self.tables.columns] + [groups * sizes[i] * sizes[j] for i, j in self.pairs]
        return np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)

    @cached_property
    def heights(self) -> Array:
        return np.ones(len(self.starts) - 1)

    @property
    def n_groups(self) -> int:
        """G, the number of cells of the group; 1 without one."""
        return 1 if self.tables.group is None else self.tables.sizes[self.tables.group]

    def cell_indices(self, X: Array) -> Array:
        sizes, group = self.tables.sizes, self.tables.group
        codes = dict(zip(self.tables.columns, self.tables.cells(as_rows(X)).T, strict=True))
        indices = np.empty((len(self.heights), len(X)), dtype=np.int64)
        for place, j in enumerate(self.tables.columns):
            indices[place] = codes[j]
        for place, (i, j) in enumerate(self.pairs, self.n_columns):
            first = codes[i] if group is None else codes[group] * sizes[i] + codes[i]
            np.multiply(first, sizes[j], out=indices[place])
            indices[place] += codes[j]
        indices += self.starts[:-1, None]
        return indices

    def by_group(self, vector: Array) -> list[Array]:
        """The tables of pairs in a vector of cells, each (G, cells)."""
        starts = self.starts[self.n_columns :]
        return [vector[a:b].reshape(self.n_groups, -1) for a, b in pairwise(starts)]

    def arrays(self) -> dict[str, Array]:
        """None: the map follows from the domain and the group."""
        return {}


@dataclass(frozen=True)
class QuestionValues:
    """The values of questions on encoded rows, each taken to [0, 1] by its public range.

    domain      of the rows.
    questions   (text, low, high): an expression whose value is defined on every row, and its range.
    """

    domain: Domain
    questions: tuple[tuple[str, float, float], ...]

    @cached_property
    def _named(self) -> tuple[Domain, list[int]]:
        """The columns that the questions name, and their indices."""
        names = {name for text, _, _ in self.questions for name in parse(text).columns}
        indices = [j for j, column in enumerate(self.domain.columns) if column.name in names]
        return Domain(tuple(self.domain.columns[j] for j in indices)), indices

    def __call__(self, rows: Array) -> Array:
        """(n, J): a row's values depend on this row alone."""
        domain, indices = self._named
        frame = domain.decode(_inside(domain, rows[:, indices]))
        values = np.empty((len(rows), len(self.questions)))
        for column, (text, low, high) in zip(values.T, self.questions, strict=True):
            column[:] = (parse(text).evaluate(frame, domain) - low) / (high - low)
        return values


def _inside(domain: Domain, rows: Array) -> Array:
    """Encoded rows (n, d) with every number within the domain, so that none of them can fail to be decoded."""
    inside = np.empty(rows.shape)
    for own, values, column in zip(inside.T, rows.T, domain.columns, strict=True):
        low, high = (0.0, len(column.levels) - 1.0) if isinstance(column, Categorical) else column.bounds  # type: ignore[attr-defined]
        own[:] = np.clip(values, low, high)
        if isinstance(column, Categorical):
            np.rint(own, out=own)
        own[np.isnan(values)] = np.nan if column.missing else low
    return inside


@dataclass(frozen=True, eq=False, repr=False)
class ScoreSums:
    """Which whole numbers are added over rows, or units: cells, each `height` high, and then questions, each up to 2²⁰."""

    cells: ScoreCells
    height: int
    questions: QuestionValues | None = None

    @cached_property
    def _counts(self) -> ExactSums:
        return ExactSums(self.cells, np.full(len(self.cells.heights), self.height, dtype=np.int64))

    @property
    def n_questions(self) -> int:
        """J, how many questions there are."""
        return 0 if self.questions is None else len(self.questions.questions)

    @property
    def dimension(self) -> int:
        """How many numbers there are."""
        return self.cells.dimension + self.n_questions

    @property
    def step(self) -> int:
        """How many rows, or units, to add at a time."""
        return self._counts.step

    def of_block(self) -> SumOfBlock:
        """Rows, or units → the exact sum of their numbers."""
        counted = self._counts.of_block()

        def both(rows: Array | UnitRows) -> Array:
            return np.concatenate([counted(rows), self._answered(rows)])

        return both

    def _answered(self, rows: Array | UnitRows) -> Array:
        """(J,) the sum over rows of their whole values; over units of the rows' average, rounded down."""
        total = np.zeros(self.n_questions, dtype=np.int64)
        if not self.n_questions:
            return total
        if not isinstance(rows, UnitRows):
            for start in range(0, len(rows), _BLOCK_ROWS):
                total += self.whole_values(rows[start : start + _BLOCK_ROWS]).sum(axis=0)
            return total
        by_unit = np.zeros((len(rows), self.n_questions), dtype=np.int64)
        for owners, own in rows.chunks(_BLOCK_ROWS):
            first = np.flatnonzero(np.diff(owners, prepend=-1))
            by_unit[owners[first]] += np.add.reduceat(self.whole_values(own), first)
        return np.asarray((by_unit // rows.sizes[:, None]).sum(axis=0))

    def whole_values(self, rows: Array) -> Array:
        """(n, J) int64 from 0 to VALUE_STEPS, whatever the questions give."""
        assert self.questions is not None
        with np.errstate(all="ignore"):  # a warning by the value of a private row would be a release
            values = self.questions(rows)
            if values.shape != (len(rows), self.n_questions):  # one value for each row, whatever the questions return
                values = np.zeros((len(rows), self.n_questions))
            return np.rint(np.clip(np.nan_to_num(values, nan=0.0), 0.0, 1.0) * VALUE_STEPS).astype(np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class ScoreQuery:
    """What is asked of the rows, from public facts alone.

    cells      the tables.
    height     A: what a row counts in its cell of each table; under units what all rows of a unit count together.
    parts      which numbers, in this order; see `kmeanalyst.releases.quality.parts`.
    guesses    for the k-marginal (cells of pairs,) and for columns (cells of columns,) int64: M · A · N times the release's shares;
               for groups (cells of pairs,) its shares within each group, in steps of 1/M.
    questions  what the part of questions asks.

    PublishError unless 64 bits hold every number and no guess is more than its table.
    """

    cells: ScoreCells
    height: int
    parts: tuple[ScorePart, ...]
    guesses: Mapping[str, Array]
    n_rows: int
    questions: QuestionValues | None = None

    def __post_init__(self) -> None:
        check_int64_range(n_rows=self.n_rows, dimension=sum(part.count for part in self.parts), grid=1)
        if type(self.height) is not int or not 1 <= self.height <= GRID:
            raise PublishError(f"a row counts a whole number from 1 to {GRID} in its cell. Correct the height.")
        wanted = {
            K_MARGINAL: (1, len(self.cells.pairs)), COLUMNS: (self.cells.n_columns, 1),
            GROUPS: (self.cells.n_groups, len(self.cells.pairs)), SIZES: (self.cells.n_groups, 1),
            QUESTIONS: (self.sums.n_questions, 1),
        }  # fmt: skip
        for part in self.parts:
            if (part.count, part.tables) != wanted[part.name]:
                raise PublishError(f"the part {part.name} is not of the tables that are counted. Correct it.")
            if part.step(self.height) * self.n_rows > MOST_IN_SUMS:
                raise PublishError(f"{self.n_rows} rows are more than 64 bits hold of {part.name}. Make it smaller.")
        if len({part.name for part in self.parts}) < len(self.parts) or not self.parts:
            raise PublishError("a query has each part once, and one at least. Name different parts.")
        if self.cells.tables.group is None and {GROUPS, SIZES} & {part.name for part in self.parts}:
            raise PublishError("scores by group need the column of the group. Name it.")
        self._check_guesses()

    def _check_guesses(self) -> None:
        first = int(self.cells.starts[self.cells.n_columns])
        last = self.cells.dimension
        for part in self.parts:
            if part.name in (SIZES, QUESTIONS):
                continue
            found = self.guesses[part.name]
            size = first if part.name == COLUMNS else last - first
            if found.shape != (size,) or found.dtype != np.int64 or (size and found.min() < 0):
                raise PublishError(
                    f"the part {part.name} needs a whole number of at least 0 for each cell. Correct it."
                )
            shares = found.astype(np.float64)  # whose sums do not wrap
            if part.name == GROUPS:
                most = float(part.multiplier)
                sums = np.array([own.sum(axis=1).max() for own in self.cells.by_group(self._padded(shares))])
            else:
                most = part.multiplier * self.height * self.n_rows * _ROUNDED
                starts = self.cells.starts[:-1]
                chosen = (
                    starts[: self.cells.n_columns] if part.name == COLUMNS else starts[self.cells.n_columns :] - first
                )
                sums = np.add.reduceat(shares, chosen) - np.diff(np.append(chosen, size))
            if (sums > most).any():
                raise PublishError("the guesses of a table must add up to no more than the table. Correct them.")

    def _padded(self, of_pairs: Array) -> Array:
        """Numbers of the cells of pairs, in their place among all cells."""
        return np.concatenate([np.zeros(self.cells.dimension - len(of_pairs), dtype=of_pairs.dtype), of_pairs])

    @property
    def sums(self) -> ScoreSums:
        """What is added over the rows."""
        return ScoreSums(self.cells, self.height, self.questions)

    def sensitivity(self, law: str) -> int:
        """The most that replacing one row, or unit, moves `numbers`: in L1 for Laplace noise, else in L2."""
        return score_sensitivity_of(self.parts, self.height, law)

    def numbers(self, sums: Array) -> Array:
        """The exact numbers of all parts, one after the other, from the exact sums. Private."""
        answers: dict[str, Callable[[int, Array], Array]] = {
            K_MARGINAL: self._k_marginal, COLUMNS: self._columns, GROUPS: self._groups, SIZES: self._sizes,
            QUESTIONS: lambda multiplier, sums: multiplier * sums[self.cells.dimension :],
        }  # fmt: skip
        return np.concatenate([answers[part.name](part.multiplier, sums) for part in self.parts])

    def _k_marginal(self, multiplier: int, sums: Array) -> Array:
        counts = sums[self.cells.starts[self.cells.n_columns] : self.cells.dimension]
        return np.array([np.abs(multiplier * counts - self.guesses[K_MARGINAL]).sum()])

    def _columns(self, multiplier: int, sums: Array) -> Array:
        starts = self.cells.starts[: self.cells.n_columns]
        counts = sums[: self.cells.starts[self.cells.n_columns]]
        return np.asarray(np.add.reduceat(np.abs(multiplier * counts - self.guesses[COLUMNS]), starts))

    def _groups(self, multiplier: int, sums: Array) -> Array:
        """(G,) Σ |M n_gc − n_g w_gc|, n_g the rows of the group in this very table; what w lacks of M is a cell without rows."""
        total = np.zeros(self.cells.n_groups, dtype=np.int64)
        guesses = self.cells.by_group(self._padded(self.guesses[GROUPS]))
        for counts, shares in zip(self.cells.by_group(sums[: self.cells.dimension]), guesses, strict=True):
            sizes = counts.sum(axis=1)
            total += np.abs(multiplier * counts - sizes[:, None] * shares).sum(axis=1)
            total += sizes * (multiplier - shares.sum(axis=1))
        return total

    def _sizes(self, multiplier: int, sums: Array) -> Array:
        place = self.cells.tables.columns.index(self.cells.tables.group or 0)
        return multiplier * sums[self.cells.starts[place] : self.cells.starts[place + 1]]


@dataclass(frozen=True, eq=False)
class NoisyScores:
    """The result of `private_scores`: for each part its noisy whole numbers, and the standard deviation of the noise."""

    noisy: Mapping[str, tuple[int, ...]]
    noise_scale: float


def private_scores(
    private_rows: PrivateRows,
    query: ScoreQuery,
    mechanism: Noise | RehearsalNoise,
    *,
    workers: int = 1,
    record_spend: Callable[[], None] | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> NoisyScores:
    """Release the numbers of a query, once.

    private_rows  pieces (n_i, d) of the table, encoded and clamped by a Domain; or UnitRows, or Parts. query.n_rows, their total,
                  is public; of units it counts units.
    mechanism     the noise; its name says in which distance (L2 or L1) the sensitivity is.
    record_spend  called once, just before noise is drawn; an error there means that none is.

    Guarantee     (epsilon, delta)-differential privacy under replace-one, or replace-one-unit for UnitRows, for every table of
                  n_rows: `numbers` of two neighbours differ by at most `sensitivity`. PROOF.md §13.
    Edge cases    a value of a question that is not finite counts as the lower end of its range.
    """
    sensitivity = float(query.sensitivity(mechanism.name))
    if not is_pure(mechanism.name) and sensitivity < _LEAST_SENSITIVITY:
        raise PublishError("the numbers move too little for discrete noise, so nothing is released. Use a finer grid.")
    if sensitivity > _MOST_SENSITIVITY:
        raise PublishError("the numbers move too much for exact sensitivities. Use a coarser grid.")
    noise_scale = mechanism.deviation(sensitivity)
    sums = sum_over_rows(private_rows, query.sums, n_rows=query.n_rows, workers=workers, progress=progress)
    exact = query.numbers(sums)
    del sums
    if record_spend:
        record_spend()
    noisy = mechanism.add_to(exact, sensitivity=sensitivity)
    return NoisyScores(_by_part(query.parts, noisy), noise_scale)


def _by_part(parts: Sequence[ScorePart], noisy: Array) -> dict[str, tuple[int, ...]]:
    ends = np.cumsum([part.count for part in parts])
    return {part.name: tuple(own.tolist()) for part, own in zip(parts, np.split(noisy, ends[:-1]), strict=True)}
