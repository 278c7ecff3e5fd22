"""Rounds of tables and scores: no request moves by more than its allowance, and the budget is spent once.

The noise is replaced by a recorder, so that exact vectors of neighbouring tables are compared in Python's integers. Where the
noise itself is tested, it is that of a rehearsal or of the door. What follows the door is tested on whole releases.
"""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import combinations, pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from door_cases import HOSTILE, Recorder, grouped, record_lines, squared_distance
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import expit
from scipy.stats import chi2, norm

import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.measurement import GRID, SHRINK, choice_constant
from kmeanalyst.releases.statement import PopulationSize
from release_side.budget.ledger import Ledger
from release_side.door.door import Door
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError, RehearsalNoise
from release_side.door.private_tables import TableRounds, count_tables
from release_side.errors import SPENT
from release_side.publishing.methods.adaptive.shares_of_rounds import shares_of_rounds

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
    rows: Array,
    *allowances: float,
    tables: CellFeatures | None = None,
    codes: Any = None,
    noise: Any = None,
    **more: Any,
) -> TableRounds:
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


def exact_tables(
    rows: Array, heights: Array = HEIGHTS, *, codes: Any = None, tables: CellFeatures | None = None
) -> Array:
    """The exact vector of all tables, in a round whose allowance is exactly what the heights need."""
    tables = tables or Tables()
    rounds = opened(
        rows, allowance_of_tables(heights, tables.dimension, units=codes is not None), tables=tables, codes=codes
    )  # fmt: skip
    rounds.measure(np.arange(len(heights)), heights)
    return recorder_of(rounds).vectors[0]


def exact_scores(
    rows: Array, guesses: Array, step: int, *, codes: Any = None, tables: CellFeatures | None = None
) -> Array:
    """The exact scores of all tables, in a round whose allowance is exactly what they need."""
    tables = tables or Tables()
    sizes = tuple(np.diff(tables.starts).tolist())
    rounds = opened(rows, allowance_of_scores(sizes, step), tables=tables, codes=codes)
    rounds.scores(np.arange(len(sizes)), guesses, step)
    return recorder_of(rounds).vectors[0]


def rows_of_cells(*cells: tuple[int, ...]) -> Array:
    return np.array(cells, dtype=float)


# ---------------------------------------------------------------- exact tables and scores

DOMAIN = Domain((
    Categorical(name="a", levels=("u", "v", "w")), Categorical(name="b", levels=("1", "2", "3", "4")),
    Categorical(name="c", levels=("x", "y")), Categorical(name="d", levels=("k", "l", "m")), Boolean(name="flag"),
))  # fmt: skip
WIDTHS = (3, 4, 2, 3, 2)


def columns_of_tables(target: int) -> list[tuple[int, ...]]:
    """The columns of every table, in the order of the coordinates; those of a crossed table with the target first."""
    others = [j for j in range(5) if j != target]
    pairs = list(combinations(others, 2))
    alone: list[tuple[int, ...]] = [(j,) for j in range(5)]
    if target < 0:
        return alone + [(i, j) for i, j in pairs]
    return alone + [(target, j) for j in others] + [(target, i, j) for i, j in pairs] + [(target,)]


def counted_by_numpy(rows: Array, codes: Array | None, columns: tuple[int, ...]) -> list[int]:
    """GRID times the share of each row, or unit, in each cell, in Python's integers."""
    shape = tuple(WIDTHS[j] for j in columns)
    cells = np.ravel_multi_index(tuple(rows[:, j].astype(int) for j in columns), shape)
    total = [0] * math.prod(shape)
    for unit in range(len(rows)) if codes is None else np.unique(codes):
        own = [int(cells[unit])] if codes is None else cells[codes == unit].tolist()
        for cell in set(own):
            total[cell] += GRID * own.count(cell) // len(own)
    return total


def test_tables_and_scores_before_the_noise_are_those_of_plain_counting() -> None:
    """Some of the tables in another order, with heights and steps that do not divide the grid."""
    for target in [None, "flag", "b"]:
        for units in [False, True]:
            rng, tables = np.random.default_rng(0), MarginFeatures(adaptive_kernel(DOMAIN, target))
            rows, codes = DOMAIN.draw(60, rng), rng.integers(0, 17, 60) if units else None
            columns = columns_of_tables(-1 if target is None else DOMAIN.names.index(target))
            assert (
                tables.starts.tolist()
                == np.cumsum([0] + [math.prod(WIDTHS[j] for j in own) for own in columns]).tolist()
            )
            expected = [counted_by_numpy(rows, codes, own) for own in columns]

            wanted = rng.permutation(len(columns))[:7]
            heights, step = rng.integers(0, GRID, 7), 1_234_577
            rounds = opened(rows, 1e12, 1e12, tables=tables, codes=codes)
            found = rounds.measure(wanted, heights).tolist()
            assert found == [
                count * int(h) // GRID for t, h in zip(wanted, heights, strict=True) for count in expected[t]
            ]

            guesses = [rng.dirichlet(np.ones(len(expected[t]))) * step * rounds.n_rows for t in wanted]
            whole = [np.floor(guess).astype(np.int64) for guess in guesses]
            found = rounds.scores(wanted, np.concatenate(whole), step).tolist()
            assert found == [
                sum(abs(count * step // GRID - int(g)) for count, g in zip(expected[t], own, strict=True))
                for t, own in zip(wanted, whole, strict=True)
            ]


def test_a_small_case_by_hand() -> None:
    """Three rows in tables of 2 and 3 cells; then one unit of two rows, which are in one cell and in two."""
    rows = rows_of_cells((0, 0), (1, 0), (1, 2))
    tables = Tables(sizes=(2, 3))
    assert exact_tables(rows, np.array([5, 7]), tables=tables).tolist() == [5, 10, 14, 0, 7]
    assert exact_scores(rows, np.array([10, 20, 24, 0, -4]), 10, tables=tables).tolist() == [0, 4 + 0 + 14]
    units = exact_tables(rows, np.array([5, 7]), codes=[0, 1, 1], tables=tables)
    assert units.tolist() == [5, 5, 10, 0, 3], "7/2 is rounded down"


# ---------------------------------------------------------------- sensitivity


def hostile_rows(rng: np.random.Generator, many: int, columns: int = len(SIZES)) -> Array:
    """Cells of the tables, cells of other tables, and anything a float64 can be."""
    rows = rng.integers(-2, 7, (many, columns)).astype(float)
    rows[rng.random(rows.shape) < 0.3] = rng.choice(HOSTILE)
    return rows


def replaced(rows: Array, first: Array) -> Array:
    """The rows with these in place of the first ones."""
    return np.vstack([first, rows[len(first) :]])


FIRST, LAST = rows_of_cells((0, 0, 0)), rows_of_cells((1, 2, 4))  # two rows that share no cell


def test_replacing_a_row_moves_tables_by_at_most_the_root_of_twice_the_squared_heights() -> None:
    """Hostile rows in a table of 20, exactly in whole numbers; the bound is reached by rows that share no cell."""
    rng = np.random.default_rng(1)
    table, bound = hostile_rows(rng, 20), 2 * sum(int(h) ** 2 for h in HEIGHTS)
    table[:1] = FIRST
    before, distances = exact_tables(table), []
    for other in [LAST, *hostile_rows(rng, 100)[:, None], *(np.full((1, 3), value) for value in HOSTILE)]:
        distances.append(squared_distance(before, exact_tables(np.vstack([other, table[1:]]))))
    assert max(distances) == distances[0] == bound


def test_replacing_a_unit_moves_tables_by_at_most_the_allowance() -> None:
    """All rows of a unit become 1, 2 or 1,000 hostile ones. Large heights reach the bound, but for the rounding, to 10⁻⁶."""
    rng = np.random.default_rng(2)
    table, codes = hostile_rows(rng, 30), np.repeat(np.arange(10), 3)
    table[:3] = FIRST
    allowance = allowance_of_tables(HEIGHTS, sum(SIZES), units=True)
    before, reached = exact_tables(table, codes=codes), 0.0
    others = [np.repeat(LAST, 40, axis=0), *(hostile_rows(rng, many) for many in (1, 2, 3, 1000) * 5)]
    for other in others:
        own = np.concatenate([np.zeros(len(other), dtype=int), codes[3:]])
        distance = math.sqrt(squared_distance(before, exact_tables(np.vstack([other, table[3:]]), codes=own)))
        assert distance <= allowance
        reached = max(reached, distance)
    assert reached >= (1 - 1e-6) * allowance


def spread_unit() -> tuple[Array, Array, Array, Array]:
    """Two tables of units of which one unit differs: counts of four cells all pass a whole number, and of a fifth as well."""
    quarters = rows_of_cells((0,), (1,), (2,), (3,))
    codes = np.repeat([1, 2, 3], 4)
    before, after = np.vstack([[[4.0]], *[quarters] * 3]), np.vstack([quarters] * 4)
    return before, np.append([0], codes), after, np.append([0] * 4, codes)


def test_the_rounding_of_units_needs_its_part_of_the_allowance() -> None:
    """With height 1 and step 1 a unit moves a table by √5 and a score by 5, where 2 and √2 would be without rounding."""
    before, own, after, others = spread_unit()
    tables, one = Tables(sizes=(5,)), np.array([1])
    distance = squared_distance(
        *(exact_tables(x, one, codes=c, tables=tables) for x, c in ((before, own), (after, others)))
    )
    assert 2 < distance == 5 <= allowance_of_tables(one, 5, units=True) ** 2
    guesses = np.array([0, 0, 0, 0, 1])
    first, second = (exact_scores(x, guesses, 1, codes=c, tables=tables) for x, c in ((before, own), (after, others)))
    assert 2 < second[0] - first[0] == 5 <= allowance_of_scores((5,), 1)
    for ask in (lambda r: r.measure(np.array([0]), one), lambda r: r.scores(np.array([0]), guesses, 1)):
        rounds = opened(before, 2.0, tables=tables, codes=own)
        with pytest.raises(PublishError, match="a row can move this round"):
            ask(rounds)


def test_a_neighbour_moves_a_score_by_at_most_twice_the_step_and_by_the_rounding() -> None:
    """Of rows exactly 2 · step, whatever the guesses; of units each cell may add 1. Reached to 10⁻⁶."""
    for units in [False, True]:
        rng, step = np.random.default_rng(3), 10**6
        table, codes = hostile_rows(rng, 24), np.repeat(np.arange(8), 3)
        table[:3] = FIRST
        replaced, n = (3, 8) if units else (1, 24)
        largest = np.zeros(3)
        for trial in range(60):
            many = int(rng.choice([1, 2, 500])) if units else 1
            other = np.repeat(LAST, many, axis=0) if trial % 3 == 0 else hostile_rows(rng, many)
            own = np.concatenate([np.zeros(many, dtype=int), codes[3:]])
            neighbour = np.vstack([other, table[replaced:]])
            # even trials: all in the cell the row leaves, so that leaving it and entering another cell both add
            weights = [np.eye(size)[0] if trial % 2 == 0 else rng.dirichlet(np.ones(size)) for size in SIZES]
            guesses = np.floor(np.concatenate(weights) * step * n).astype(np.int64) * rng.choice([1, 1, -1])
            one = exact_scores(table, guesses, step, codes=codes if units else None)
            two = exact_scores(neighbour, guesses, step, codes=own if units else None)
            moved = np.abs(one - two)
            assert (moved <= 2 * step + units * np.array(SIZES)).all()
            assert squared_distance(one, two) <= Fraction(allowance_of_scores(SIZES, step)) ** 2
            largest = np.maximum(largest, moved)
        assert (largest >= 2 * step * (1 - 1e-6)).all()


def neighbouring_scores(guesses: Array, counts: tuple[list[int], list[int]], step: int) -> tuple[int, ...]:
    """The exact score of one table with each of these counts; nothing if these guesses are refused."""
    found = []
    for each in counts:
        own = TableRounds(
            Tables(sizes=(len(each),)), np.array(each, dtype=np.int64) * GRID, RoundRecorder(), sum(each),  # type: ignore[arg-type]
            [allowance_of_scores((len(each),), step), ROOM],
        )  # fmt: skip
        try:
            found.append(int(own.scores(np.array([0]), guesses, step)[0]))
        except PublishError:
            return ()
    return tuple(found)


def neighbouring_counts(cells: int, n: int) -> tuple[list[int], list[int]]:
    """All rows in the first cell; one of them in the last."""
    return [n, *[0] * (cells - 1)], [n - 1, *[0] * (cells - 2), 1]


LEAST, MOST = -(2**63), 2**63 - 1
STARTS: dict[str, list[int]] = {
    "none": [0] * 16, "one": [LARGEST, *[0] * 15], "even": [LARGEST // 16] * 16, "below 0": [*[0] * 15, -LARGEST],
    "the least int64": [LEAST, *[0] * 15], "the greatest int64": [*[0] * 15, MOST], "a sum of 2⁶⁴": [LARGEST] * 16,
}  # fmt: skip


@pytest.mark.parametrize(
    "start",
    list(STARTS),
)
def test_no_search_over_guesses_moves_a_score_by_more_than_twice_the_step(start: str) -> None:
    """Hill climbing at the largest step · N that is allowed: first to a larger move, then to a larger score, which could wrap."""
    rng, step = np.random.default_rng(5), GRID
    counts = neighbouring_counts(16, LARGEST // GRID)

    def value(guesses: list[int]) -> tuple[int, int]:
        found = neighbouring_scores(np.array(guesses, dtype=np.int64), counts, step)
        return (abs(found[0] - found[1]), max(map(abs, found))) if found else (-1, 0)

    guesses = STARTS[start]
    best = value(guesses)
    for _ in range(600):
        other, at = list(guesses), rng.integers(0, 16)
        left = 2**63 - best[1] >> int(rng.integers(0, 4))  # about what the score is short of 2⁶³
        change = int(rng.choice([-1, 1])) * (left if rng.random() < 0.5 else 2 ** int(rng.integers(0, 63)))
        other[at] = 0 if rng.random() < 0.1 else min(max(other[at] + change, LEAST), MOST)
        if (found := value(other)) >= best:
            best, guesses = found, other
    assert best[0] <= 2 * step
    if start in ("none", "one"):
        assert best[0] == 2 * step, "the search is too weak to find the bound"


def test_guesses_that_overflow_are_refused() -> None:
    """Each of these moves a score by 2⁶⁴ − 2 · step if it is not refused."""
    for guesses, counts, step in [
        (np.array([-(2**63), 2000]), ([0, 3], [1, 2]), 1000),
        (np.array([2**63, 2000], dtype=np.uint64), ([0, 3], [1, 2]), 1000),
        (np.array([LARGEST] * 7 + [LARGEST - 1, LARGEST] + [0] * 7), neighbouring_counts(16, LARGEST // GRID), GRID),
    ]:
        assert not neighbouring_scores(guesses, counts, step)


def test_a_step_of_a_narrow_integer_type_is_refused_or_counted_in_full() -> None:
    """(2 · step + 4)² is 2³⁴, which is 0 in 32 bits, so that an allowance of 10 would cover it."""
    with np.errstate(over="ignore"):
        rounds = opened(np.zeros((4000, 1)), 10.0, tables=Tables(sizes=(4,)))
        with pytest.raises(PublishError):
            rounds.scores(np.array([0]), np.zeros(4, dtype=np.int64), np.int32(2**16 - 2))  # type: ignore[arg-type]


# ---------------------------------------------------------------- draws of tables


def chosen_scores(
    rows: Array, guesses: Array, step: int, *, allowance: float, count: int, codes: Any = None
) -> tuple[Array, float]:
    """The exact scores that tables are drawn by, and the scale of the noise, in a round with this allowance."""
    rounds = opened(rows, allowance, codes=codes)
    chosen, scale = rounds.choose(ALL, guesses, step, costs=np.array([0, 5, 7]), count=count)
    scores, drawn, used = recorder_of(rounds).draws[0]
    assert drawn == count == len(chosen) and used == scale and recorder_of(rounds).vectors == []
    return scores, scale


def law_of_draws(scores: Array, count: int, scale: float) -> Array:
    """The probability of each sequence of `count` tables, drawn one after the other by the exponential mechanism."""
    weights, found = np.exp((scores - scores.max()) / scale), []
    for sequence in permutations(range(len(scores)), count):
        left = np.ones(len(scores), dtype=bool)
        probability = 1.0
        for t in sequence:
            probability *= weights[t] / weights[left].sum()
            left[t] = False
        found.append(probability)
    return np.array(found)


def excess_over_gaussian(first: Array, second: Array, mu: float) -> float:
    """The largest Φ⁻¹(P(T)) − Φ⁻¹(Q(T)) − μ of any set T of outcomes; at most 0 if P and Q are as alike as N(0, 1) and N(μ, 1)."""
    order = np.argsort(second / first)
    powers, sizes = first[order].cumsum()[:-1], second[order].cumsum()[:-1]
    return float((norm.ppf(powers) - norm.ppf(sizes)).max() - mu)


def test_draws_from_hostile_neighbours_are_no_easier_to_tell_apart_than_gaussian_noise_of_the_allowance() -> None:
    """The recorder's noise has deviation 1, so that an allowance is μ. All sets of outcomes, by the Neyman–Pearson lemma."""
    for units in [False, True]:
        for count in [1, 2]:
            rng, step = np.random.default_rng(11), 10**6
            table, codes = hostile_rows(rng, 24), np.repeat(np.arange(8), 3)
            table[:3] = FIRST
            replaced_rows, n = (3, 8) if units else (1, 24)
            own_codes = codes if units else None
            nearest = -math.inf
            for trial in range(200):
                mu = float(rng.choice([0.05, 0.5, 2.0]))
                other = np.repeat(LAST, replaced_rows, axis=0) if trial % 2 else hostile_rows(rng, replaced_rows)
                # the guess of some tables is the cell that the row leaves, of others the one that it enters: scores rise and fall
                guesses = np.concatenate([np.eye(size)[rng.choice([0, size - 1])] for size in SIZES]) * step * n
                laws = []
                for rows in (table, np.vstack([other, table[replaced_rows:]])):
                    scores, scale = chosen_scores(
                        rows, guesses.astype(np.int64), step, allowance=mu, count=count, codes=own_codes
                    )  # fmt: skip
                    laws.append((scores, scale))
                assert laws[0][1] == laws[1][1], "the scale says nothing of a row"
                # scores near one another: the worst case for a draw
                shift = rng.normal(0, 2, 3) * laws[0][1] - laws[0][0]
                first, second = (law_of_draws(scores + shift, count, scale) for scores, scale in laws)
                for one, two in ((first, second), (second, first)):
                    nearest = max(nearest, excess_over_gaussian(one, two, mu) / mu)
            assert nearest <= 1e-9
            assert nearest > -0.2, "the attack is too weak to come near the bound"


def test_the_constant_of_a_draw_is_the_steepest_slope_and_is_reached() -> None:
    """Of Φ⁻¹ of the logistic function: √(2π)/4, at 0; with it a binary draw of small η has exactly μ."""
    logits = np.linspace(-30, 30, 60_001)
    slopes = np.gradient(norm.ppf(expit(-np.abs(logits))) * -np.sign(logits), logits)
    assert slopes.max() == pytest.approx(math.sqrt(2 * math.pi) / 4, rel=1e-4)
    scale = choice_constant([0], 1, 1, 1.0) / 0.01  # of two scores that each move by 2, against each other
    first, second = (np.array([p, 1 - p]) for p in (expit(2 / scale), expit(-2 / scale)))
    assert excess_over_gaussian(first, second, 0.01) == pytest.approx(0, abs=1e-6)


def test_a_draw_is_by_exact_scores_less_costs_and_its_scale_covers_rounding_of_units() -> None:
    rows = np.vstack([FIRST, LAST, FIRST])
    guesses = np.array([20, 10, 0, 0, 30, 30, 0, 0, 0, 0])
    scores, scale = chosen_scores(rows, guesses, 10, allowance=3.0, count=2)
    assert scores.tolist() == [0 + 0, 20 + 20 - 5, 10 + 10 - 7]
    assert scale == pytest.approx(math.sqrt(2 * math.pi * 2) / 2 * (20 + 5) / 3, rel=1e-8)


def test_tables_are_drawn_as_often_as_the_exponential_mechanism_draws_them() -> None:
    """6 sequences of 2 of 3 tables, 6,000 draws. χ² with 5 degrees of freedom; false alarm: 1e-6 each."""
    for seed in [None, 3]:
        scores, scale, many = np.array([10**9, 10**9 + 800, 10**9 - 500]), 700.0, 6000
        noise = GaussianNoise(1.0, 1e-6)
        rounds = RehearsalNoise(noise, seed or 0)
        drawn = [
            tuple((noise if seed is None else rounds.of_round(r)).largest(scores, count=2, scale=scale).tolist())
            for r in range(many)
        ]
        seen = np.array([drawn.count(sequence) for sequence in permutations(range(3), 2)])
        expected = law_of_draws(scores, 2, scale) * many
        assert seen.sum() == many and ((seen - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 5)


def test_a_refused_draw_spends_nothing() -> None:
    for costs, count, message in [
        (np.array([0, -1, 0]), 1, "a cost for each"),
        (np.array([0, 0]), 1, "a cost for each"),
        (np.array([0, 0, 2**61 + 1]), 1, "a cost for each"),
        (np.array([0.5, 0, 0]), 1, "whole numbers"),
        (np.zeros(3, dtype=int), 0, "one table at least"),
        (np.zeros(3, dtype=int), 4, "no more than there are"),
        (np.zeros(3, dtype=int), True, "one table at least"),
    ]:
        rounds = some_rounds()
        with pytest.raises(PublishError, match=message):
            rounds.choose(ALL, NO_GUESS, 1000, costs=costs, count=count)
        with pytest.raises(PublishError, match="a guess for each cell"):
            rounds.choose(ALL, NO_GUESS[1:], 1000, costs=np.zeros(3, dtype=int), count=1)
        assert recorder_of(rounds).events == [] and rounds.counts is not None


def test_a_draw_is_a_round_that_is_recorded_before_it() -> None:
    noise = RoundRecorder()
    rounds = opened(np.vstack([FIRST, LAST]), 1.0, noise=noise, record_spend=noise.record_spend)
    rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=2)
    rounds.measure(ALL, HEIGHTS)
    assert noise.events == ["spend", "draw", "noise"] and noise.numbers == [0, 1] and rounds.counts is None
    with pytest.raises(PublishError, match="all rounds were made"):
        rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=1)


# ---------------------------------------------------------------- whatever a map returns


@given(arrays(np.int64, (2, 3), elements=st.integers(-(2**62), 2**62)))
def test_a_row_is_in_one_cell_of_each_table_wherever_a_map_puts_it(asked: Array) -> None:
    tables = Tables(says=lambda X: np.ascontiguousarray(asked[X[:, 0].astype(int)].T))
    one, two = (exact_tables(np.full((1, 3), float(i)), tables=tables).astype(object) for i in (0, 1))
    for found in (one, two):
        parts = [sorted(found[a:b]) for a, b in pairwise(tables.starts)]
        assert [part[-1] for part in parts] == HEIGHTS.tolist() and sum(x != 0 for x in found) == 3
    assert squared_distance(one, two) <= 2 * sum(int(h) ** 2 for h in HEIGHTS)


def test_a_map_of_wrong_shapes_or_indices_does_not_break_the_bound() -> None:
    """Every row still counts once in each table, and a hostile neighbour stays within the allowance."""
    for units in [False, True]:
        for says in [
            lambda X: np.zeros((3, 2 * len(X)), dtype=np.int64),
            lambda X: np.zeros((2, len(X)), dtype=np.int64),
            lambda X: np.zeros((3, 3, 5), dtype=np.int64),
            lambda X: np.zeros(3, dtype=np.int64),
            lambda X: X.T.astype(np.int8),
            lambda X: np.nan_to_num(X.T * 1e300).astype(np.int64),
            lambda X: np.full((3, len(X)), np.nan).astype(np.int64),
            lambda X: X.T > 1,
        ]:
            rng, tables = np.random.default_rng(6), Tables(says=says)
            rows, codes = hostile_rows(rng, 12), np.arange(12) // 2
            allowance = allowance_of_tables(HEIGHTS, sum(SIZES), units=units)
            one = exact_tables(rows, codes=codes if units else None, tables=tables)
            counts = count_tables([rows], tables, n_rows=12)
            assert [part.sum() for part in np.split(counts, tables.starts[1:-1])] == [12 * GRID] * 3
            for _ in range(10):
                other = replaced(rows, hostile_rows(rng, 2 if units else 1))
                two = exact_tables(other, codes=codes if units else None, tables=tables)
                assert math.sqrt(squared_distance(one, two)) <= allowance


def test_a_map_that_returns_floats_fails_alike_for_every_table() -> None:
    """NaN among them or not: the error says nothing about a row."""
    for units in [False, True]:
        rng, messages = np.random.default_rng(7), set()
        tables = Tables(says=lambda X: np.ascontiguousarray(X.T))
        for rows in (np.zeros((6, 3)), np.full((6, 3), np.nan), hostile_rows(rng, 6)):
            with pytest.raises((TypeError, IndexError)) as caught:
                exact_tables(rows, codes=[0, 0, 1, 1, 2, 2] if units else None, tables=tables)
            messages.add(f"{caught.type} {caught.value}")
        assert len(messages) == 1


def test_tables_that_overlap_or_leave_cells_out_are_refused() -> None:
    """A row would count twice in a cell of another table, or an error of numpy would show the largest cell with a row."""
    for begin in [(1, 3, 5), (0, 3, 3), (0, 4, 3)]:
        with pytest.raises(PublishError):
            count_tables([np.zeros((2, 2))], Tables(sizes=(2, 2), begin=begin), n_rows=2)


# ---------------------------------------------------------------- refusals

ALL, NO_GUESS = np.arange(3), np.zeros(10, dtype=np.int64)


def guesses_of(*last: int) -> Array:
    """0 for each cell but the last ones."""
    return np.array([0] * (10 - len(last)) + list(last))


def some_rounds(**more: Any) -> TableRounds:
    """A round that allows exactly HEIGHTS, and one of scores with a step of 1000; their spend is recorded."""
    noise = RoundRecorder()
    allowances = allowance_of_tables(HEIGHTS, 10, units=False), allowance_of_scores(SIZES, 1000)
    return opened(np.vstack([FIRST, LAST]), *allowances, noise=noise, record_spend=noise.record_spend, **more)


REFUSED: dict[str, tuple[str, tuple[Any, ...], str]] = {
    "beyond the allowance": ("measure", (ALL, HEIGHTS + np.array([0, 0, 1])), "a row can move this round by .* Ask for less"),
    "a table twice": ("measure", (np.array([0, 1, 1]), HEIGHTS), "each table once"),
    "an unknown table": ("measure", (np.array([0, 1, 3]), HEIGHTS), "tables that were counted"),
    "a negative table": ("measure", (np.array([0, 1, -1]), HEIGHTS), "tables that were counted"),
    "no table": ("measure", (np.zeros(0, dtype=int), np.zeros(0, dtype=int)), "for one at least"),
    "tables in a square": ("measure", (np.zeros((1, 1), dtype=int), np.zeros((1, 1), dtype=int)), "for one at least"),
    "a negative height": ("measure", (ALL, np.array([1, -1, 1])), "a height from 0 to"),
    "a height above the grid": ("measure", (np.array([1]), np.array([GRID + 1])), "a height from 0 to"),
    "a height that wraps": ("measure", (np.array([1]), np.array([2**64 - 1], dtype=np.uint64)), "a height from 0 to|whole numbers"),
    "a height too few": ("measure", (ALL, HEIGHTS[:2]), "a height from 0 to"),
    "heights that are not whole": ("measure", (ALL, HEIGHTS * 0.5), "whole numbers. Round them"),
    "tables that are not whole": ("measure", (ALL * 1.0, HEIGHTS), "whole numbers. Round them"),
    "scores beyond the allowance": ("scores", (ALL, NO_GUESS, GRID), "a row can move this round by"),
    "scores of a table twice": ("scores", (np.array([0, 0]), NO_GUESS[:4], 1), "each table once"),
    "scores of an unknown table": ("scores", (np.array([7]), NO_GUESS[:4], 1), "tables that were counted"),
    "a guess too large": ("scores", (ALL, guesses_of(2001, 0), 1000), "add up to no more than"),
    "a guess too small": ("scores", (ALL, guesses_of(-2001, 0), 1000), "add up to no more than"),
    "guesses that add up to too much": ("scores", (ALL, guesses_of(1006, 1000), 1000), "add up to no more"),
    "guesses of both signs": ("scores", (ALL, guesses_of(-1006, 1000), 1000), "add up to no more"),
    "a guess that is not whole": ("scores", (ALL, NO_GUESS + 0.5, 1000), "whole numbers. Round them"),
    "a guess that is no number": ("scores", (ALL, np.full(10, np.nan), 1000), "whole numbers. Round them"),
    "a guess too few": ("scores", (ALL, NO_GUESS[:9], 1000), "a guess for each cell"),
    "a step of 0": ("scores", (ALL, NO_GUESS, 0), "a whole step that 64 bits can hold"),
    "a negative step": ("scores", (ALL, NO_GUESS, -1), "a whole step that 64 bits can hold"),
    "a step above the grid": ("scores", (ALL, NO_GUESS, GRID + 1), "a whole step that 64 bits can hold"),
    "a step that is no number": ("scores", (ALL, NO_GUESS, math.nan), "a whole step that 64 bits can hold"),
}  # fmt: skip


def test_a_refused_request_draws_nothing_spends_nothing_and_uses_up_no_round() -> None:
    for name in REFUSED:
        what, arguments, message = REFUSED[name]
        rounds = some_rounds()
        with pytest.raises(PublishError, match=message):
            getattr(rounds, what)(*arguments)
        noise = recorder_of(rounds)
        assert noise.events == [] and rounds.counts is not None
        rounds.measure(ALL, HEIGHTS)
        assert noise.events == ["spend", "noise"] and noise.numbers == [0]
        with pytest.raises(PublishError, match="a row can move this round"):
            rounds.measure(ALL, HEIGHTS)  # the second allowance is smaller
        rounds.scores(ALL, NO_GUESS + 1, 1000)
        assert noise.events == ["spend", "noise", "noise"] and noise.numbers == [0, 1]


def test_a_step_is_refused_that_64_bits_cannot_hold_for_so_many_rows() -> None:
    """step · N ≤ 2⁶⁰, in a table of 2³³ rows."""
    counts = np.array([2**33, 0]) * GRID
    rounds = TableRounds(Tables(sizes=(2,)), counts, RoundRecorder(), 2**33, [ROOM])  # type: ignore[arg-type]
    with pytest.raises(PublishError, match="a whole step that 64 bits can hold"):
        rounds.scores(np.array([0]), np.array([0, 0]), 2**27 + 1)
    assert rounds.scores(np.array([0]), np.array([0, LARGEST]), 2**27).tolist() == [2**61]


def test_rounds_are_made_as_often_as_was_declared_and_counts_are_gone_after_the_last() -> None:
    """Rounds made in any way count; a further one is refused whatever it asks."""
    rounds = some_rounds()
    rounds.measure(ALL, HEIGHTS)
    rounds.scores(ALL, NO_GUESS, 1000)
    assert rounds.counts is not None
    rounds.scores(ALL, NO_GUESS, 1)
    assert rounds.counts is None
    for ask in (lambda: rounds.measure(ALL, HEIGHTS * 0), lambda: rounds.scores(ALL, NO_GUESS, 1)):
        with pytest.raises(PublishError, match="all rounds were made"):
            ask()
    noise = recorder_of(rounds)
    assert noise.events == ["spend", "noise", "noise", "noise"] and noise.numbers == [0, 1, 2]


def test_threads_that_ask_at_once_get_one_round_each_and_record_one_spend() -> None:
    """Recording takes its time, and the other thread asks meanwhile: each round has noise and an allowance of its own."""
    recorder = RoundRecorder()

    def record_spend() -> None:
        time.sleep(0.1)
        recorder.record_spend()

    rounds = opened(np.vstack([FIRST, LAST]), ROOM, noise=recorder, record_spend=record_spend)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(rounds.measure, ALL, HEIGHTS) for _ in range(4)]
    refusals = [one.exception() for one in asked]
    assert recorder.events == ["spend", "noise", "noise"] and recorder.numbers == [0, 1]
    assert sum(error is None for error in refusals) == 2
    assert all(error is None or "all rounds were made" in str(error) for error in refusals)


LAPLACE = LaplaceNoise(1.0, 0.0)
NEVER_MADE: dict[str, tuple[Any, tuple[float, ...], str]] = {
    "Laplace noise": (LAPLACE, (ROOM,), "for Gaussian noise. Choose it"),
    "a rehearsal of Laplace noise": (RehearsalNoise(LAPLACE, 1), (ROOM,), "for Gaussian noise. Choose it"),
    "no allowances": (GaussianNoise(1.0, 1e-6), (), "a positive allowance"),
    "an allowance of 0": (GaussianNoise(1.0, 1e-6), (ROOM, 0.0), "a positive allowance"),
    "a negative allowance": (GaussianNoise(1.0, 1e-6), (ROOM, -1.0), "a positive allowance"),
    "an allowance without end": (GaussianNoise(1.0, 1e-6), (ROOM, math.inf), "a positive allowance"),
    "an allowance that is no number": (GaussianNoise(1.0, 1e-6), (math.nan, ROOM), "a positive allowance"),
    "noise too large": (GaussianNoise(1e-4, 1e-30), (ROOM, 2.0**50), "too large for 64-bit sums"),
}


def test_rounds_without_a_guarantee_are_never_made() -> None:
    for name in NEVER_MADE:
        noise, allowances, message = NEVER_MADE[name]
        with pytest.raises(PublishError, match=message):
            TableRounds(Tables(), NO_GUESS, noise, 1, list(allowances))


def test_rounds_without_a_guarantee_are_refused_before_a_row_is_read() -> None:
    for name in ["Laplace noise", "no allowances", "noise too large"]:

        def unread() -> Iterator[Array]:
            raise AssertionError("a row was read")
            yield

        noise, allowances, message = NEVER_MADE[name]
        with pytest.raises(PublishError, match=message):
            Door(unread(), noise, PopulationSize(3)).rounds(Tables(), allowances)


def test_allowances_of_numpy_are_compared_as_float64() -> None:
    """A height of 42,432 moves a table by 60,007.9, which is 60,000 in 16 bits; a scale in 32 bits may be too small."""
    for kind in [np.float16, np.float32]:
        rounds = opened(FIRST, kind(60_000), 1.6e9)
        with pytest.raises(PublishError, match=r"a row can move this round by 60007\.9"):
            rounds.measure(ALL[:1], np.array([42_432]))
        assert type(rounds.choose(ALL, NO_GUESS, 1000, costs=np.zeros(3, dtype=int), count=1)[1]) is float


def test_a_sensitivity_so_small_that_the_grid_matters_is_refused() -> None:
    """With one allowance of √2 steps and ε = 10, δ = 10⁻⁶, the exact δ of discrete noise is 1.9·10⁻⁶."""
    with pytest.raises(PublishError):
        TableRounds(Tables(), NO_GUESS, GaussianNoise(10.0, 1e-6), 1, [math.sqrt(2)])


def test_allowances_that_a_caller_changes_later_change_nothing() -> None:
    noise, allowances = RoundRecorder(), [allowance_of_tables(HEIGHTS, 10, units=False)]
    rounds = door_to(FIRST, PopulationSize(1), noise).rounds(Tables(), allowances)
    allowances.append(ROOM)
    rounds.measure(ALL, HEIGHTS)
    assert rounds.counts is None and noise.sensitivities == allowances[:1]


def test_the_rows_are_read_once_and_the_door_is_closed() -> None:
    reads = 0

    def rows() -> Iterator[Array]:
        nonlocal reads
        reads += 1
        yield np.vstack([FIRST, LAST])

    door: Door[Any] = Door(rows(), RoundRecorder(), PopulationSize(2))
    rounds = door.rounds(Tables(), [ROOM, ROOM])
    for _ in range(2):
        rounds.measure(ALL, HEIGHTS)
    assert reads == 1 and door.rows is None
    with pytest.raises(ValueError, match="a second spend"):
        door.rounds(Tables(), [ROOM])
    with pytest.raises(ValueError, match="a second spend"):
        door.mean(Tables())


def test_a_table_of_another_size_than_announced_is_refused_and_nothing_is_spent() -> None:
    noise = RoundRecorder()
    door: Door[Any] = Door([FIRST], noise, PopulationSize(2), noise.record_spend)
    with pytest.raises(PublishError, match="the table has 1 rows, not the 2"):
        door.rounds(Tables(), [ROOM])
    assert noise.events == []


# ---------------------------------------------------------------- the spend


def test_the_spend_is_recorded_once_just_before_the_first_noise() -> None:
    rounds = some_rounds()
    assert recorder_of(rounds).events == [], "reading the rows spends nothing"
    rounds.measure(ALL, HEIGHTS)
    rounds.scores(ALL, NO_GUESS, 1000)
    rounds.measure(ALL, HEIGHTS)
    assert recorder_of(rounds).events == ["spend", "noise", "noise", "noise"]


def test_no_noise_is_drawn_where_the_spend_cannot_be_recorded() -> None:
    """Nor by a second attempt, which tries to record it again."""
    attempts = []

    def fails() -> None:
        attempts.append(1)
        raise OSError("the disk is full")

    noise = RoundRecorder()
    rounds = opened(FIRST, ROOM, noise=noise, record_spend=fails)
    for number in (1, 2):
        with pytest.raises(OSError, match="the disk is full"):
            rounds.measure(ALL, HEIGHTS)
        assert len(attempts) == number and noise.events == []


# ---------------------------------------------------------------- the noise

MANY = Tables(sizes=(2,) * 10_000)


def test_all_rounds_have_noise_of_one_deviation_and_independent_of_each_other() -> None:
    """m · 5 GRID for allowances of 3, 4 and a small one.

    The tolerance of 5 % is 7 standard errors of 10,000 numbers, and 6 of a correlation. Noise for a round's own allowance would
    be 20 or 40 % less. False alarm: below 10⁻⁷.
    """
    for seed in [None, 0, 7]:
        fresh = GaussianNoise(1.0, 1e-6)
        noise: Noise | RehearsalNoise = fresh if seed is None else RehearsalNoise(fresh, seed)
        rows, every = np.zeros((3, 10_000)), np.arange(10_000)
        allowances = [3.0 * GRID, 4.0 * GRID, 100.0]
        rounds = Door([rows], noise, PopulationSize(3)).rounds(MANY, allowances)
        heights, step = np.full(10_000, GRID // 50), GRID // 51
        drawn = [
            rounds.measure(every, heights) - np.tile([3 * (GRID // 50), 0], 10_000),
            rounds.scores(every, np.zeros(20_000, dtype=np.int64), step) - 3 * step,
            rounds.measure(every, np.zeros(10_000, dtype=int)),
        ]
        deviation = fresh.multiplier() * math.hypot(*allowances)
        assert rounds.deviation == deviation and rounds.sensitivity == math.hypot(*allowances)
        for own in drawn:
            assert own.std() == pytest.approx(deviation, rel=0.05) and abs(own.mean()) < 7 * deviation / len(own) ** 0.5
        for one, two in combinations(drawn, 2):
            assert abs(np.corrcoef(one[:10_000], two[:10_000])[0, 1]) < 0.06


def test_a_rehearsal_gives_the_same_rounds_again() -> None:
    noise = RehearsalNoise(GaussianNoise(1.0, 1e-6), 3)
    first, second, other = (
        [rounds.measure(ALL, HEIGHTS).tolist(), rounds.measure(ALL, HEIGHTS).tolist()]
        for rounds in (opened(FIRST, ROOM, noise=each) for each in (noise, noise, dataclasses.replace(noise, seed=4)))
    )
    assert first == second and first[0] != first[1]
    assert all(a != b for a, b in zip(first, other, strict=True))


def test_every_round_asks_for_noise_of_the_whole_sensitivity() -> None:
    rounds = opened(FIRST, 1.5 * GRID, 3.0 * GRID)  # and ROOM
    for _ in range(3):
        rounds.measure(ALL[:1], HEIGHTS[:1])
    noise = recorder_of(rounds)
    assert noise.sensitivities == [math.hypot(1.5 * GRID, 3.0 * GRID, ROOM)] * 3 and noise.numbers == [0, 1, 2]


# ---------------------------------------------------------------- record and replay


def lines_of(rows: Array, codes: Array | None) -> tuple[list[tuple[str, int]], list[Array]]:
    """The lines of the door that run for four rounds, and what the rounds give."""
    files = {
        sys.modules[f"release_side.door.{name}"].__file__ for name in ("private_tables", "private_mean", "mechanism")
    }
    with record_lines(files) as lines:
        rounds = opened(rows, ROOM, ROOM, ROOM, codes=codes, noise=RehearsalNoise(GaussianNoise(1.0, 1e-6), 2))
        found = [rounds.measure(ALL, HEIGHTS), rounds.scores(ALL, NO_GUESS + 3, 1000), rounds.measure(ALL, HEIGHTS)]
        rounds.choose(ALL, NO_GUESS + 3, 1000, costs=ALL, count=2)
    return lines, found


def test_hostile_neighbours_take_the_same_path_and_differ_by_no_more_than_the_exact_vectors(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the same noise: the same lines in the same order, nothing printed or logged."""
    for units in [False, True]:
        rng = np.random.default_rng(8)
        rows, codes = hostile_rows(rng, 12), np.arange(12) // 3 if units else None
        lines_of(rows, codes)  # a calibration is computed once, and kept
        lines, found = lines_of(rows, codes)
        allowance = allowance_of_tables(HEIGHTS, 10, units=units)
        assert ("_noisy:line" in {name for name, _ in lines}) and len(found) == 3
        for _ in range(10):
            other, seen = lines_of(replaced(rows, hostile_rows(rng, 3 if units else 1)), codes)
            assert other == lines
            for one, two, allowed in zip(
                found, seen, (allowance, allowance_of_scores(SIZES, 1000), allowance), strict=True
            ):
                assert math.sqrt(squared_distance(one, two)) <= allowed
        assert capfd.readouterr() == ("", "") and caplog.text == ""


# ---------------------------------------------------------------- whole releases

FRAME = DOMAIN.decode(DOMAIN.draw(600, 1))
UNITS = FRAME.assign(who=[str(i // 2) for i in range(1200)][:600])
WORKLOAD = ["table(a, b)", "c == 'x'"]
RELEASES: dict[str, dict[str, Any]] = {
    "pairs": {}, "target": {"target": "flag"}, "zcdp": {"calibration": "zcdp"}, "units": {"unit": "who", "epsilon": 2.0},
    "workload": {"workload": WORKLOAD}, "workload of units": {"workload": WORKLOAD, "unit": "who", "epsilon": 2.0},
}  # fmt: skip
rough = pytest.mark.usefixtures("rough_representation")


def published(frame: pd.DataFrame = UNITS, **choice: Any) -> Release:
    usual: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "kernel": "adaptive", "points": 6, "workers": 1}
    return release_side.publish(frame, DOMAIN, **(usual | choice))


def facts(release: Release) -> dict[str, Any]:
    """Everything in a release that comes from the door or follows from it."""
    measurement = release.measurement
    assert measurement is not None and release.statement is not None
    return {
        "statement": dataclasses.asdict(release.statement),
        "kernel": release.kernel.to_dict(),
        "sum": measurement.noisy_sum.tolist(),
        "scores": [(score.noisy.tolist(), score.step) for score in measurement.scores],
        "points": release.points.to_dict(),
        "weights": release.weights.tolist(),
    }


@rough
def test_a_rehearsal_of_adaptive_margins_is_the_same_release_twice() -> None:
    for name in RELEASES:
        choice = RELEASES[name]
        one, two, other = (facts(published(rehearsal=seed, **choice)) for seed in (1, 1, 2))
        assert one == two
        assert one["sum"] != other["sum"] and one["scores"] != other["scores"] and one["scores"]


@rough
def test_statement_and_file_have_the_noise_that_the_door_drew() -> None:
    """The door's noise is m · √Σ allowances². The file's sensitivity is at most this root, and less by no more than 10⁻⁶."""
    for name in RELEASES:
        choice = RELEASES[name]
        release = published(rehearsal=1, **choice)
        measurement, statement = release.measurement, release.statement
        assert measurement is not None and statement is not None and statement.noise_scale is not None
        noise = GaussianNoise(choice.get("epsilon", 1.0), 1e-6, choice.get("calibration", ""))
        size = PopulationSize(300, "who") if "unit" in choice else PopulationSize(600)
        assert statement.n_rows == size.count and len(measurement.scores) == 2
        allowances = shares_of_rounds(adaptive_kernel(DOMAIN, choice.get("target")), size, noise).allowances()
        assert len(allowances) == 5
        drawn = noise.multiplier() * math.hypot(*allowances)
        assert statement.noise_scale * GRID * SHRINK * size.count == pytest.approx(drawn, rel=1e-12)
        assert statement.noise_scale == measurement.noise_scale and statement.sensitivity == measurement.sensitivity
        assert (
            (1 - 1e-6) * math.hypot(*allowances)
            <= measurement.grid_sensitivity
            <= (1 + 1e-12) * math.hypot(*allowances)
        )
        ratio = statement.noise_scale / statement.sensitivity
        assert noise.multiplier() * (1 - 1e-12) <= ratio <= noise.multiplier() * (1 + 1e-6)


@pytest.fixture
def counted(tmp_path: Path) -> dict[str, Any]:
    """A ledger in which the table "people" may spend (2, 1e-6)."""
    Ledger(tmp_path / "b.ledger").init("people", 2.0, 1e-6)
    return {"ledger": tmp_path / "b.ledger", "table": "people"}


def releases_in(counted: dict[str, Any]) -> tuple[Any, ...]:
    return Ledger(counted["ledger"]).account("people").releases


def spy_on_noise(patch: pytest.MonkeyPatch, seen: Callable[[], object], *, fails_at: int | None = None) -> list[object]:
    """What `seen` says each time that noise is drawn; the draw of this number fails."""
    drawn: list[object] = []
    honest = GaussianNoise.add_to

    def add_to(self: GaussianNoise, exact_sum: Array, *, sensitivity: float) -> Array:
        drawn.append(seen())
        if len(drawn) == fails_at:
            raise MemoryError
        return honest(self, exact_sum, sensitivity=sensitivity)

    patch.setattr(GaussianNoise, "add_to", add_to)
    return drawn


@rough
@pytest.mark.parametrize("unit", [None, "who"])
def test_five_rounds_are_one_entry_in_the_ledger_made_before_the_first(
    unit: str | None, counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = spy_on_noise(monkeypatch, lambda: len(releases_in(counted)))
    choice = {"epsilon": 2.0} if unit else {}
    release = published(unit=unit, **choice, **counted)
    assert drawn == [1] * 5 and release.statement is not None and release.statement.ledger_head is not None
    (entry,) = releases_in(counted)
    noise = GaussianNoise(choice.get("epsilon", 1.0), 1e-6)
    assert (entry.spend.epsilon, entry.spend.delta) == (noise.epsilon, noise.delta)
    assert entry.spend.noise_multiplier == noise.multiplier()
    with pytest.raises(PublishError, match="does not fit"):
        published(epsilon=1.9, unit=unit, **counted)
    assert len(drawn) == 5 and len(releases_in(counted)) == 1


@rough
def test_a_round_that_fails_leaves_the_budget_counted_as_spent(
    counted: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = spy_on_noise(monkeypatch, lambda: len(releases_in(counted)), fails_at=3)
    with pytest.raises(MemoryError) as caught:
        published(**counted)
    assert caught.value.__notes__ == [SPENT] and drawn == [1, 1, 1] and len(releases_in(counted)) == 1
