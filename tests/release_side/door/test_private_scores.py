"""Scores of a release that meet noise: neighbours move them by no more than is claimed, whatever the release's shares are.

On small tables all neighbours are compared, rows and units; on larger ones an optimiser looks for the worst. Exact numbers are
compared without noise. The noise itself is tested through the whole door.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest
from door_cases import HOSTILE, Recorder, grouped, record_lines

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.quality.parts import (
    COLUMNS,
    GROUPS,
    K_MARGINAL,
    PARTS,
    QUESTIONS,
    SIZES,
    ScorePart,
    score_sensitivity_of,
)
from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from kmeanalyst.representation.tables.score_tables import ScoreTables
from release_side.door import private_scores as door
from release_side.door.mechanism import GaussianNoise, LaplaceNoise, Noise, PublishError
from release_side.door.private_scores import QuestionValues, ScoreCells, ScoreQuery, private_scores
from release_side.publishing.scores import whole_shares

TINY = Domain((Boolean(name="g"), Boolean(name="a"), Boolean(name="b")))
ASKED = (("a", 0.0, 1.0), ("a and b", 0.0, 1.0), ("where(g, 3, 5)", 3.0, 5.0))
ROWS = np.array(list(product([0.0, 1.0], repeat=3)))  # every row of the domain
LAWS = (GAUSSIAN, LAPLACE)
MULTIPLIERS = {K_MARGINAL: 1000, COLUMNS: 700, GROUPS: 300, SIZES: 900, QUESTIONS: 1}


def query_of(
    rng: np.random.Generator | None = None,
    *,
    domain: Domain = TINY,
    n_rows: int = 4,
    height: int = 1,
    names: tuple[str, ...] = PARTS,
    shares: Array | None = None,
    multipliers: dict[str, int] = MULTIPLIERS,
    asked: tuple[tuple[str, float, float], ...] = ASKED,
) -> ScoreQuery:
    """A query of these parts; the release's shares are given, or drawn: few cells have mass, and some groups none."""
    cells = ScoreCells(ScoreTables(domain, 0))
    n_columns, pairs = cells.n_columns, len(cells.pairs)
    counts = {K_MARGINAL: 1, COLUMNS: n_columns, GROUPS: cells.n_groups, SIZES: cells.n_groups, QUESTIONS: len(asked)}
    parts = tuple(
        ScorePart(name, multipliers[name], counts[name], pairs if name in (K_MARGINAL, GROUPS) else 1)
        for name in PARTS
        if name in names
    )
    if shares is None:
        assert rng is not None
        shares = random_shares(cells, rng)
    first = int(cells.starts[n_columns])
    guesses = {
        K_MARGINAL: np.floor(shares[first:] * multipliers[K_MARGINAL] * height * n_rows).astype(np.int64),
        COLUMNS: np.floor(shares[:first] * multipliers[COLUMNS] * height * n_rows).astype(np.int64),
        GROUPS: np.concatenate([whole_shares(own, multipliers[GROUPS]).ravel() for own in cells.by_group(shares)]),
    }
    values = QuestionValues(domain, asked) if QUESTIONS in names else None
    return ScoreQuery(cells, height, parts, guesses, n_rows, values)


def random_shares(cells: ScoreCells, rng: np.random.Generator) -> Array:
    """Shares of the cells of each table, most of them 0."""
    weights = rng.exponential(size=cells.dimension) * (rng.random(cells.dimension) < 0.4)
    starts = cells.starts
    for a, b in pairwise(starts):
        weights[a:b] /= max(weights[a:b].sum(), 1e-9)
    return weights


def exact(query: ScoreQuery, rows: Any) -> Array:
    return query.numbers(query.sums.of_block()(rows))


def beyond(query: ScoreQuery, differences: Array) -> list[str]:
    """What moves by more than is claimed: parts, and all of them together, in both distances. differences (·, numbers)."""
    found, start = [], 0
    whole = [(query.parts, slice(0, differences.shape[1]))]
    for part in query.parts:
        whole.append(((part,), slice(start, start + part.count)))
        start += part.count
    for parts, own in whole:
        moved = differences[:, own].astype(object)
        l1, l2 = np.abs(moved).sum(axis=1).max(), (moved**2).sum(axis=1).max()
        if l1 > score_sensitivity_of(parts, query.height, LAPLACE):
            found.append(f"L1 of {[part.name for part in parts]}")
        if l2 > score_sensitivity_of(parts, query.height, GAUSSIAN) ** 2:
            found.append(f"L2 of {[part.name for part in parts]}")
    return found


def all_tables(n_rows: int) -> Iterator[Array]:
    for chosen in combinations_with_replacement(range(len(ROWS)), n_rows):
        yield ROWS[list(chosen)]


def all_differences(query: ScoreQuery) -> Array:
    """The numbers of every table of n_rows − 1 rows and one more, less those with another row in its place."""
    of_rows = np.array([query.sums.of_block()(row[None]) for row in ROWS])
    found = []
    for others in all_tables(query.n_rows - 1) if query.n_rows > 1 else [np.zeros((0, 3))]:
        rest = query.sums.of_block()(others) if len(others) else np.zeros_like(of_rows[0])
        numbers = np.array([query.numbers(rest + own) for own in of_rows])
        found.append((numbers[:, None] - numbers[None]).reshape(-1, numbers.shape[1]))
    return np.concatenate(found)


# ---------------------------------------------------------------------- every neighbour of small tables


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4])
def test_no_neighbour_of_any_small_table_moves_the_numbers_by_more_than_claimed(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    for _ in range(6):
        query = query_of(rng, n_rows=n_rows)
        assert beyond(query, all_differences(query)) == []


@pytest.mark.parametrize("name", PARTS)
def test_every_claim_is_reached_and_a_smaller_one_is_found_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With half of the claimed sensitivity the test above fails, and with what is a hundredth less too (of groups in L1 and L2)."""
    rng = np.random.default_rng(7)
    queries = [query_of(rng, names=(GROUPS, SIZES) if name in (GROUPS, SIZES) else (name,)) for _ in range(12)]
    names = tuple(part.name for part in queries[0].parts)
    queries.append(query_of(shares=np.zeros(queries[0].cells.dimension), names=names))
    differences = [all_differences(query) for query in queries]
    honest = ScorePart.step
    for factor in (0.5, 0.99):
        monkeypatch.setattr(ScorePart, "step", lambda self, height, f=factor: math.ceil(honest(self, height) * f))
        found = {each for query, own in zip(queries, differences, strict=True) for each in beyond(query, own)}
        if name != COLUMNS or factor == 0.5:
            assert f"L1 of {[name]}" in found and f"L2 of {[name]}" in found
        else:  # one row is in three columns: all move at once
            assert f"L1 of {[name]}" in found


def all_units(most: int) -> list[Array]:
    """Units of 1 to `most` rows of four rows of the domain."""
    rows = ROWS[[0, 3, 5, 6]]
    return [
        rows[list(chosen)] for size in range(1, most + 1) for chosen in combinations_with_replacement(range(4), size)
    ]


@pytest.mark.parametrize("height", [1, 7, 2**13])
def test_no_other_rows_of_a_unit_move_the_numbers_by_more_than_claimed(height: int) -> None:
    """All tables of two units of one to three rows, and all replacements of one of them. At height 1 most shares round to 0."""
    units = all_units(3)
    for seed in range(3):
        query = query_of(np.random.default_rng(seed), n_rows=2, height=height)
        add = query.sums.of_block()
        sums = np.array([add(grouped(np.zeros(len(unit)), unit)) for unit in units])
        for other in sums:
            numbers = np.array([query.numbers(own + other) for own in sums])
            assert beyond(query, (numbers[:, None] - numbers[None]).reshape(-1, numbers.shape[1])) == []


# ---------------------------------------------------------------------- an optimiser on larger tables


LARGER = Domain((
    Categorical(name="g", levels=tuple("uvwxyz")), Categorical(name="a", levels=tuple("abcde")), Boolean(name="b"),
    Integer(name="c", lower=0, upper=9),
    Real(name="d", lower=0.0, upper=1.0, missing=True, edges=(0.0, 0.2, 0.7, 1.0), atoms=(0.0,)),
))  # fmt: skip
LARGE_ASKED = (("c", 0.0, 9.0), ("c > 4 and b", 0.0, 1.0))


def climbed(name: str, rng: np.random.Generator, steps: int = 250) -> float:
    """How far a greedy search over release, table and replacement moves a part, as a share of the claim in L1."""

    def worth(shares: Array, table: Array, row: Array) -> tuple[float, ScoreQuery]:
        names = (GROUPS, SIZES) if name in (GROUPS, SIZES) else (name,)
        query = query_of(domain=LARGER, n_rows=len(table), shares=shares, names=names, asked=LARGE_ASKED)
        difference = exact(query, table) - exact(query, np.vstack([row, table[1:]]))
        assert beyond(query, difference[None]) == []
        part = next(part for part in query.parts if part.name == name)
        start = sum(other.count for other in query.parts[: query.parts.index(part)])
        claimed = score_sensitivity_of((part,), query.height, LAPLACE)
        return float(np.abs(difference[start : start + part.count]).sum()) / claimed, query

    cells = ScoreCells(ScoreTables(LARGER, 0))
    shares, table, row = random_shares(cells, rng), LARGER.draw(60, rng), LARGER.draw(1, rng)
    best, _ = worth(shares, table, row)
    for _ in range(steps):
        kind, new = rng.integers(3), (shares, table, row)
        if kind == 0:  # the release: the shares of one table anew, or those of the table itself
            new_shares, other = shares.copy(), random_shares(cells, rng)
            if rng.random() < 0.5:
                other = cells.mean(table, np.full(len(table), 1 / len(table)))
            t = rng.integers(len(cells.heights))
            own = slice(cells.starts[t], cells.starts[t + 1])
            new_shares[own] = other[own]
            new = (new_shares, table, row)
        elif kind == 1:
            changed = table.copy()
            changed[rng.integers(len(table))] = LARGER.draw(1, rng)[0]
            new = (shares, changed, row)
        else:
            new = (shares, table, LARGER.draw(1, rng))
        if (found := worth(*new)[0]) >= best:
            best, (shares, table, row) = found, new
    return best


@pytest.mark.parametrize(
    ("name", "least"), [(K_MARGINAL, 0.8), (COLUMNS, 0.8), (GROUPS, 0.7), (SIZES, 1.0), (QUESTIONS, 0.8)]
)
def test_a_search_for_the_worst_neighbours_comes_near_the_claims_and_not_beyond(name: str, least: float) -> None:
    assert climbed(name, np.random.default_rng(3)) >= least


def test_hostile_rows_move_the_numbers_by_no_more_than_claimed() -> None:
    rng = np.random.default_rng(5)
    rows = rng.choice(HOSTILE, size=(40, len(LARGER)))
    for seed in range(10):
        query = query_of(np.random.default_rng(seed), domain=LARGER, n_rows=3, asked=LARGE_ASKED)
        add = query.sums.of_block()
        with np.errstate(all="ignore"):
            sums = np.array([add(row[None]) for row in rows])
            rest = sums[0] + sums[1]
            assert np.array_equal(add(rows), sums.sum(axis=0))  # each row as if it were alone
        numbers = np.array([query.numbers(rest + own) for own in sums])
        assert beyond(query, (numbers[:, None] - numbers[None]).reshape(-1, numbers.shape[1])) == []


@pytest.mark.parametrize(
    "values",
    [
        lambda rows: np.full((len(rows), 3), np.nan), lambda rows: np.full((len(rows), 3), 1e300),
        lambda rows: np.full((len(rows), 3), -np.inf), lambda rows: np.zeros((len(rows), 7)), lambda rows: np.zeros(3),
    ],
)  # fmt: skip
def test_values_of_questions_are_whole_numbers_of_their_range_whatever_they_are(
    values: Callable[[Array], Array], monkeypatch: Any
) -> None:
    monkeypatch.setattr(QuestionValues, "__call__", lambda self, rows: values(rows))
    found = query_of(np.random.default_rng(0)).sums.whole_values(ROWS)
    assert found.shape == (8, 3) and found.dtype == np.int64 and found.min() >= 0 and found.max() <= 2**20


# ---------------------------------------------------------------------- the numbers are what they say


@pytest.mark.parametrize("units", [False, True])
def test_the_numbers_are_those_of_plain_counting(units: bool) -> None:
    """Distances, sizes and sums by hand, from rows counted one by one; a unit's rows count 1 in all."""
    rng = np.random.default_rng(1)
    rows = LARGER.draw(90, rng)
    codes = np.arange(90) // 3 if units else np.arange(90)
    n_rows, height = len(np.unique(codes)), 2**13 if units else 1
    query = query_of(rng, domain=LARGER, n_rows=n_rows, height=height, asked=LARGE_ASKED)
    cells, tables = query.cells, query.cells.tables
    own = tables.cells(rows)
    count = np.zeros(cells.dimension)
    for row in range(90):
        size = int((codes == codes[row]).sum())
        for t, columns in enumerate([*((j,) for j in tables.columns), *((0, *pair) for pair in tables.crossed)]):
            place = 0
            for j in columns:
                place = place * tables.sizes[j] + int(own[row, j])
            count[cells.starts[t] + place] += 1 / size
    first = cells.starts[cells.n_columns]
    frame = LARGER.decode(rows)
    values = np.stack([frame["c"].to_numpy(float) / 9, (frame["c"].to_numpy(float) > 4) & frame["b"].to_numpy(bool)])
    sizes = np.array([(codes == code).sum() for code in codes])
    steps = {part.name: part.step(height) for part in query.parts}
    one_way = query.guesses[COLUMNS] / (MULTIPLIERS[COLUMNS] * height)
    t = query.guesses[K_MARGINAL] / (MULTIPLIERS[K_MARGINAL] * height)
    w = [each / MULTIPLIERS[GROUPS] for each in cells.by_group(query._padded(query.guesses[GROUPS]))]
    by_group = cells.by_group(count)
    expected = {
        K_MARGINAL: [np.abs(count[first:] - t).sum() / 2 / len(w)],
        COLUMNS: np.add.reduceat(np.abs(count[:first] - one_way), cells.starts[:5]) / 2,
        GROUPS: sum(
            np.abs(n - n.sum(axis=1)[:, None] * q).sum(axis=1) + n.sum(axis=1) * (1 - q.sum(axis=1))
            for n, q in zip(by_group, w, strict=True)
        ) / 2 / len(w),
        SIZES: count[:6],
        QUESTIONS: (values / sizes).sum(axis=1),
    }  # fmt: skip
    units_of = grouped(codes, rows) if units else rows
    found = door._by_part(query.parts, exact(query, units_of))
    for name, numbers in expected.items():
        np.testing.assert_allclose(
            np.array(found[name]) / steps[name], numbers, atol=0.01 * n_rows / 30 if units else 1e-4
        )


def test_a_group_of_which_the_release_has_no_row_is_wholly_misplaced() -> None:
    """D_g is then n_g, so that TV_g is 1: what the shares lack is a cell of its own."""
    query = query_of(shares=np.zeros(ScoreCells(ScoreTables(TINY, 0)).dimension), names=(GROUPS, SIZES), n_rows=4)
    found = door._by_part(query.parts, exact(query, ROWS[[0, 1, 2, 7]]))
    steps = [part.step(1) for part in query.parts]
    assert [number / steps[0] for number in found[GROUPS]] == [number / steps[1] for number in found[SIZES]] == [3, 1]


def test_distances_of_the_tables_own_shares_are_nought() -> None:
    rows = LARGER.draw(64, 4)
    cells = ScoreCells(ScoreTables(LARGER, 0))
    shares = cells.mean(rows, np.full(64, 1 / 64))
    query = query_of(domain=LARGER, n_rows=64, shares=shares, names=(K_MARGINAL, COLUMNS))
    np.testing.assert_array_equal(exact(query, rows), 0)


def test_without_a_group_the_pairs_are_all_pairs() -> None:
    assert ScoreCells(ScoreTables(TINY, None)).pairs == ((0, 1), (0, 2), (1, 2))
    assert ScoreCells(ScoreTables(TINY, 0)).pairs == ((1, 2),)


# ---------------------------------------------------------------------- refusals, from public facts alone


def refused(message: str, **changes: Any) -> None:
    query = query_of(np.random.default_rng(0))
    with pytest.raises(PublishError, match=message):
        replace(query, **changes)


def test_a_query_that_is_not_what_it_claims_is_refused() -> None:
    query = query_of(np.random.default_rng(0))
    guesses = query.guesses
    k_marginal, columns, _, sizes, questions = query.parts
    refused("not of the tables that are counted", parts=(replace(k_marginal, tables=2), *query.parts[1:]))
    refused("not of the tables that are counted", parts=(k_marginal, replace(columns, count=2)))
    refused("not of the tables that are counted", parts=(k_marginal, replace(questions, count=2)))
    refused("each part once", parts=(columns, columns))
    refused("each part once", parts=())
    refused("from 1 to", height=0)
    refused("from 1 to", height=GRID + 1)
    refused("more than 64 bits hold", parts=(replace(k_marginal, multiplier=2**59),))
    refused("whole number of at least 0", guesses=guesses | {COLUMNS: -guesses[COLUMNS] - 1})
    refused("whole number of at least 0", guesses=guesses | {COLUMNS: guesses[COLUMNS].astype(float)})
    refused("whole number of at least 0", guesses=guesses | {COLUMNS: guesses[COLUMNS][1:]})
    refused("no more than the table", guesses=guesses | {K_MARGINAL: np.full(8, 1000, dtype=np.int64)})
    refused("no more than the table", guesses=guesses | {GROUPS: np.full(8, 76, dtype=np.int64)})
    refused("no more than the table", guesses=guesses | {GROUPS: np.full(8, 2**62, dtype=np.int64)})  # whose sums wrap
    cells = ScoreCells(ScoreTables(TINY, None))
    with pytest.raises(PublishError, match="need the column of the group"):
        ScoreQuery(cells, 1, (replace(sizes, count=1),), {}, 4)


def large_query(rng: np.random.Generator, noise: Noise, n_rows: int = 4) -> ScoreQuery:
    """Multipliers as large as the door needs."""
    multipliers = {name: 2**28 for name in MULTIPLIERS} | {QUESTIONS: 2**9}
    return query_of(rng, n_rows=n_rows, multipliers=multipliers)


def test_numbers_that_move_too_little_for_discrete_noise_are_refused() -> None:
    noise, query = GaussianNoise(1.0, 1e-6), query_of(np.random.default_rng(0))
    with pytest.raises(PublishError, match="too little for discrete noise"):
        private_scores([ROWS[:4]], query, noise)
    private_scores([ROWS[:4]], query, LaplaceNoise(1.0, 0.0))  # which needs no such thing


def test_a_table_of_another_size_is_refused_and_nothing_is_spent() -> None:
    spent: list[str] = []
    query = large_query(np.random.default_rng(0), GaussianNoise(1.0, 1e-6))
    with pytest.raises(PublishError, match="the table has 3 rows, not the 4"):
        private_scores([ROWS[:3]], query, GaussianNoise(1.0, 1e-6), record_spend=lambda: spent.append("spent"))
    assert spent == []


# ---------------------------------------------------------------------- the noise


@pytest.mark.parametrize("noise", [GaussianNoise(1.0, 1e-6), LaplaceNoise(1.0, 0.0)], ids=["gaussian", "laplace"])
def test_the_spend_is_recorded_once_before_the_noise_which_is_drawn_once_for_the_whole_sensitivity(
    noise: Noise, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[Any] = []
    honest = type(noise).add_to

    def watched(self: Noise, vector: Array, *, sensitivity: float) -> Array:
        happened.append((len(vector), sensitivity))
        return honest(self, vector, sensitivity=sensitivity)

    monkeypatch.setattr(type(noise), "add_to", watched)
    query = large_query(np.random.default_rng(0), noise)
    found = private_scores([ROWS[:2], ROWS[2:4]], query, noise, record_spend=lambda: happened.append("spent"))
    claimed = query.sensitivity(noise.name)
    assert happened == ["spent", (sum(part.count for part in query.parts), claimed)]
    assert found.noise_scale == noise.deviation(claimed)
    assert [len(found.noisy[name]) for name in PARTS] == [1, 3, 2, 2, 3]


def test_no_noise_is_drawn_where_the_spend_cannot_be_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise PublishError("over budget. Nothing was spent. Spend less.")

    monkeypatch.setattr(GaussianNoise, "add_to", lambda *_, **__: pytest.fail("noise was drawn"))
    query = large_query(np.random.default_rng(0), GaussianNoise(1.0, 1e-6))
    with pytest.raises(PublishError, match="over budget"):
        private_scores([ROWS[:4]], query, GaussianNoise(1.0, 1e-6), record_spend=fails)


def test_hostile_neighbours_take_the_same_path() -> None:
    """Every line of the door runs in the same order, whatever the rows are."""
    query = query_of(np.random.default_rng(2), domain=LARGER, n_rows=5, asked=LARGE_ASKED)
    private_scores([LARGER.draw(5, 1)], query, Recorder(LAPLACE))  # type: ignore[arg-type]  # what is computed once is there
    paths = []
    for table in (LARGER.draw(5, 1), np.full((5, 5), np.nan), np.full((5, 5), 1e308)):
        with record_lines([door.__file__]) as lines:
            private_scores([table], query, Recorder(LAPLACE))  # type: ignore[arg-type]
        paths.append(list(lines))
    assert paths[0] == paths[1] == paths[2] != []


WORST = (ROWS[[0, 0, 0, 0]], ROWS[[7, 0, 0, 0]])  # neighbours


def farthest() -> tuple[ScoreQuery, Array]:
    """A release of which `WORST` differ much, and the difference of their numbers."""
    cells = ScoreCells(ScoreTables(TINY, 0))
    shares = cells.mean(WORST[0], np.full(4, 0.25))
    query = query_of(shares=shares, multipliers={name: 2**28 for name in MULTIPLIERS} | {QUESTIONS: 2**9})
    return query, exact(query, WORST[1]) - exact(query, WORST[0])


def above(noise: Noise, query: ScoreQuery, direction: Array, table: Array, threshold: float, n: int) -> float:
    """How often the numbers of n releases lie beyond a threshold along the difference of the two tables."""
    hits = 0
    for _ in range(n):
        noisy = private_scores([table], query, noise).noisy
        hits += float(direction @ np.concatenate([noisy[part.name] for part in query.parts]).astype(float)) > threshold
    return hits / n


def empirical_delta(noise: Noise, n: int) -> float:
    """P′(A) − e^ε P(A), A the set of outputs that tells `WORST` apart best: a half-space beyond the loss ε."""
    query, difference = farthest()
    length = float(np.linalg.norm(difference.astype(float)))
    direction = difference / length
    middle = float(direction @ (exact(query, WORST[0]) + exact(query, WORST[1])).astype(float)) / 2
    scale = noise.deviation(query.sensitivity(noise.name))
    threshold = middle + noise.epsilon * scale**2 / length
    far, near = (above(noise, query, direction, table, threshold, n) for table in WORST[::-1])
    return far - math.exp(noise.epsilon) * near


LOOSE = GaussianNoise(0.5, 0.2)


def test_noisy_scores_alone_tell_neighbours_apart_by_no_more_than_epsilon_and_delta() -> None:
    """1,500 releases of each table; δ ± .016, the bound is 4 standard errors. The neighbours reach .85 of the claim or more."""
    query, difference = farthest()
    assert np.linalg.norm(difference.astype(float)) > 0.85 * query.sensitivity(GAUSSIAN)
    assert 0.1 < empirical_delta(LOOSE, 1500) < 0.2 + 0.064


def test_the_attack_finds_half_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = score_sensitivity_of
    monkeypatch.setattr(door, "score_sensitivity_of", lambda *facts: honest(*facts) // 2)
    assert empirical_delta(LOOSE, 400) > 0.2 + 0.064


def test_noisy_scores_under_laplace_noise_stay_below_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ratio of the set where the loss is most: all coordinates beyond the second table's. ± .1 of at most 1."""
    noise = LaplaceNoise(1.0, 0.0)
    query, difference = farthest()
    sign = np.sign(difference).astype(float)
    threshold = float(sign @ exact(query, WORST[1]).astype(float))

    def log_ratio(n: int) -> float:
        far, near = (above(noise, query, sign, table, threshold, n) for table in WORST[::-1])
        return math.log(far / near)

    assert 0.1 < log_ratio(1500) < 1.0
