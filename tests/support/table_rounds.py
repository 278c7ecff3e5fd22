"""Rounds of tables for tests of the door: tables of any size, a recorder of every round, and the exact vectors before the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from door_cases import HOSTILE, Recorder, grouped

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import PopulationSize
from release_side.door.door import Door
from release_side.door.private_tables import TableRounds

DOMAIN = Domain((
    Categorical(name="a", levels=("u", "v", "w")), Categorical(name="b", levels=("1", "2", "3", "4")),
    Categorical(name="c", levels=("x", "y")), Categorical(name="d", levels=("k", "l", "m")), Boolean(name="flag"),
))  # fmt: skip
ROOM = 4.0 * GRID  # the allowance of a last round, which most tests leave unused
SIZES = (2, 3, 5)
HEIGHTS = np.array([GRID, GRID // 2 + 12345, GRID // 4 + 1])
LARGEST = 2**60  # of step · N


@dataclass(frozen=True, eq=False)
class Tables(CellFeatures):
    """Tables with these numbers of cells. A row's value in column t is its cell in table t, counted from 0.

    says   if given, the function of the rows that takes the place of `cell_indices`, whatever it returns.
    """

    sizes: tuple[int, ...] = SIZES
    says: Callable[[Array], Array] | None = None
    begin: tuple[int, ...] | None = None
    name = "tables"
    kernel = Gaussian(1.0)

    @cached_property
    def starts(self) -> Array:
        return np.cumsum([0, *self.sizes]) if self.begin is None else np.array(self.begin)

    @cached_property
    def heights(self) -> Array:
        return np.full(len(self.sizes), 0.1)

    def arrays(self) -> dict[str, Array]:
        return {}

    def cell_indices(self, X: Array) -> Array:
        return self.says(X) if self.says else self.starts[:-1, None] + np.ascontiguousarray(X.T).astype(np.int64)


@dataclass
class RoundRecorder(Recorder):
    """A recorder of every round: the exact vectors, the sensitivities, and the numbers of the rounds."""

    vectors: list[Array] = field(default_factory=list)
    sensitivities: list[float] = field(default_factory=list)
    draws: list[tuple[Array, int, float]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    def of_round(self, number: int) -> RoundRecorder:
        self.numbers.append(number)
        return self

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        self.vectors.append(exact_sum.copy())
        self.sensitivities.append(sensitivity)
        self.events.append("noise")
        return super().add_to(exact_sum, sensitivity=sensitivity)

    def largest(self, scores: Array, *, count: int, scale: float) -> Array:
        self.draws.append((scores.copy(), count, scale))
        self.events.append("draw")
        return np.argsort(-scores, kind="stable")[:count]

    def record_spend(self) -> None:
        self.events.append("spend")


def door_to(rows: Any, size: PopulationSize, noise: Any, **more: Any) -> Door[Any]:
    """A door with any double of the noise."""
    return Door([rows], noise, size, **more)


def opened(
    rows: Array, *allowances: float, tables: CellFeatures | None = None, codes: Any = None, noise: Any = None,
    **more: Any,
) -> TableRounds:  # fmt: skip
    """Rounds on these rows, or on their units; the allowances, and one that most tests leave unused."""
    piece: Any = rows if codes is None else grouped(codes, rows)
    size = PopulationSize(len(piece), None if codes is None else "who")
    door = door_to(piece, size, noise or RoundRecorder(), **more)
    return door.rounds(tables or Tables(), [*allowances, ROOM])


def recorder_of(rounds: TableRounds) -> RoundRecorder:
    assert isinstance(rounds.noise, RoundRecorder)
    return rounds.noise


def allowance_of_tables(heights: Array, cells: int, *, units: bool) -> float:
    """√(2 Σ h²), and √cells more where averages of units are rounded."""
    return math.sqrt(2 * sum(int(h) ** 2 for h in heights)) + (math.sqrt(cells) if units else 0.0)


def allowance_of_scores(sizes: tuple[int, ...], step: int) -> float:
    return math.sqrt(sum((2 * step + size) ** 2 for size in sizes))


def exact_tables(rows: Array, heights: Array = HEIGHTS, *, codes: Any = None, tables: CellFeatures | None = None) -> Array:
    """The exact vector of all tables, in a round whose allowance is exactly what the heights need."""
    tables = tables or Tables()
    rounds = opened(
        rows, allowance_of_tables(heights, tables.dimension, units=codes is not None), tables=tables, codes=codes
    )  # fmt: skip
    rounds.measure(np.arange(len(heights)), heights)
    return recorder_of(rounds).vectors[0]


def exact_scores(rows: Array, guesses: Array, step: int, *, codes: Any = None, tables: CellFeatures | None = None) -> Array:
    """The exact scores of all tables, in a round whose allowance is exactly what they need."""
    tables = tables or Tables()
    sizes = tuple(np.diff(tables.starts).tolist())
    rounds = opened(rows, allowance_of_scores(sizes, step), tables=tables, codes=codes)
    rounds.scores(np.arange(len(sizes)), guesses, step)
    return recorder_of(rounds).vectors[0]


def rows_of_cells(*cells: tuple[int, ...]) -> Array:
    return np.array(cells, dtype=float)


def hostile_rows(rng: np.random.Generator, many: int, columns: int = len(SIZES)) -> Array:
    """Cells of the tables, cells of other tables, and anything a float64 can be."""
    rows = rng.integers(-2, 7, (many, columns)).astype(float)
    rows[rng.random(rows.shape) < 0.3] = rng.choice(HOSTILE)
    return rows


def replaced(rows: Array, first: Array) -> Array:
    """The rows with these in place of the first ones."""
    return np.vstack([first, rows[len(first) :]])


FIRST, LAST = rows_of_cells((0, 0, 0)), rows_of_cells((1, 2, 4))  # two rows that share no cell
ALL, NO_GUESS = np.arange(3), np.zeros(10, dtype=np.int64)


def some_rounds(**more: Any) -> TableRounds:
    """A round that allows exactly HEIGHTS, and one of scores with a step of 1000; their spend is recorded."""
    noise = RoundRecorder()
    allowances = allowance_of_tables(HEIGHTS, 10, units=False), allowance_of_scores(SIZES, 1000)
    return opened(np.vstack([FIRST, LAST]), *allowances, noise=noise, record_spend=noise.record_spend, **more)
