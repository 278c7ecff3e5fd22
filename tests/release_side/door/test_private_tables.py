"""Tables and scores at the door: no request moves by more than its allowance, whatever the rows and the map.

The noise is replaced by a recorder, so that exact vectors of neighbouring tables are compared in Python's integers.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from door_cases import HOSTILE, record_lines, squared_distance
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from table_rounds import (
    ALL,
    DOMAIN,
    FIRST,
    HEIGHTS,
    LARGEST,
    LAST,
    NO_GUESS,
    ROOM,
    SIZES,
    RoundRecorder,
    Tables,
    allowance_of_scores,
    allowance_of_tables,
    exact_scores,
    exact_tables,
    hostile_rows,
    opened,
    replaced,
    rows_of_cells,
)

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.measurement import GRID
from release_side.door.mechanism import GaussianNoise, PublishError, RehearsalNoise
from release_side.door.private_tables import TableRounds, count_tables
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

# ---------------------------------------------------------------- exact tables and scores

WIDTHS = (3, 4, 2, 3, 2)


SETS = [(0, 1, 3), (0, 2, 4), (1, 2, 3, 4)]
COLUMNS: list[tuple[int, ...]] = [*((j,) for j in range(5)), *combinations(range(5), 2), *SETS]  # of every table


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
    for units in [False, True]:
        rng, tables = np.random.default_rng(0), MarginFeatures(with_sets(adaptive_kernel(DOMAIN), SETS))
        rows, codes = DOMAIN.draw(60, rng), rng.integers(0, 17, 60) if units else None
        assert tables.starts.tolist() == np.cumsum([0] + [math.prod(WIDTHS[j] for j in own) for own in COLUMNS]).tolist()
        expected = [counted_by_numpy(rows, codes, own) for own in COLUMNS]

        wanted = rng.permutation(len(COLUMNS))[:7]
        heights, step = rng.integers(0, GRID, 7), 1_234_577
        rounds = opened(rows, 1e12, 1e12, tables=tables, codes=codes)
        found = rounds.measure(wanted, heights).tolist()
        assert found == [count * int(h) // GRID for t, h in zip(wanted, heights, strict=True) for count in expected[t]]

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
    distance = squared_distance(*(exact_tables(x, one, codes=c, tables=tables) for x, c in ((before, own), (after, others))))
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


@pytest.mark.parametrize("start", list(STARTS))
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


# ---------------------------------------------------------------- record and replay


def lines_of(rows: Array, codes: Array | None) -> tuple[list[tuple[str, int]], list[Array]]:
    """The lines of the door that run for four rounds, and what the rounds give."""
    files = {sys.modules[f"release_side.door.{name}"].__file__ for name in ("private_tables", "private_mean", "mechanism")}
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
            for one, two, allowed in zip(found, seen, (allowance, allowance_of_scores(SIZES, 1000), allowance), strict=True):
                assert math.sqrt(squared_distance(one, two)) <= allowed
        assert capfd.readouterr() == ("", "") and caplog.text == ""
