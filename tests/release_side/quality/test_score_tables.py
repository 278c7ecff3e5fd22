"""Tables for scores against loops over rows, scores against the arithmetic of the ACS scorer."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from release_side.quality import score_tables
from release_side.quality.score_tables import ScoreTables, group_scores, k_marginal, names_of_cells, shares_of, total_variations

DOMAIN = Domain((
    Integer(name="age", lower=0, upper=99, edges=(18, 65), atoms=(40,), missing=True),
    Categorical(name="town", levels=("A", "B", "C")),
    Boolean(name="ill", missing=True),
    Ordinal(name="school", levels=("none", "some", "all")),
))  # fmt: skip
TOWN = DOMAIN.position("town")


def rows(n: int, seed: int) -> Array:
    """Rows with all kinds of cells; other seeds depend otherwise."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 3 if seed else 2, n).astype(float)
    age = np.where(rng.random(n) < 0.3, 40, rng.integers(0, 100, n)).astype(float)
    ill = np.where(rng.random(n) < 0.2, np.nan, age > 50 + 10 * seed)
    age[rng.random(n) < 0.1] = np.nan
    return np.column_stack([age, town, ill, np.minimum(rng.integers(0, 3, n), 2 - (town > 1))])


def acs_scores(R: Array, S: Array, v: Array, group: int | None) -> dict[str, float]:
    """The arithmetic of the ACS scorer, in its order, on codes; rows of S have weights v that sum to 1."""
    sizes = [int(max(R[:, j].max(), S[:, j].max())) + 1 for j in range(R.shape[1])]

    def shares(X: Array, weights: Array, columns: list[int]) -> Array:
        table = np.zeros([sizes[j] for j in columns])
        np.add.at(table, tuple(X[:, j] for j in columns), weights)
        return table

    def difference(*columns: int) -> Array:
        even = np.full(len(R), 1 / len(R))
        return np.abs(shares(R, even, list(columns)) - shares(S, v, list(columns)))

    every = range(R.shape[1])
    pairs = list(combinations([j for j in every if j != group], 2))
    out = {
        "one_way": np.mean([difference(j).sum() / 2 for j in every]),
        "two_way": np.mean([difference(*pair).sum() / 2 for pair in combinations(every, 2)]),
        "k_marginal": 500 * (2 - np.mean([difference(*pair).sum() for pair in pairs])),
    }
    if group is not None:
        share = shares(R, np.full(len(R), 1 / len(R)), [group])
        keep = share > 0
        total, by_group = 0.0, np.zeros(keep.sum())
        for pair in pairs:
            d = difference(group, *pair).reshape(sizes[group], -1).sum(axis=1)
            total += d.sum()
            by_group += np.minimum(d[keep] / share[keep], 1)
        out["k_marginal"] = 500 * (2 - total / len(pairs))
        out["worst_group"] = 1000 * (1 - by_group.max() / len(pairs))
    return out


@pytest.mark.parametrize("group", [None, TOWN])
def test_scores_are_those_of_the_acs_scorer(group: int | None):
    tables = ScoreTables(DOMAIN, group)
    R, S = rows(400, 0), rows(300, 1)
    weights = np.random.default_rng(5).random(300)
    p, q = shares_of(tables, tables.counts(R)), shares_of(tables, tables.counts(S, weights))
    expected = acs_scores(tables.cells(R), tables.cells(S), weights / weights.sum(), group)
    tv, scores = total_variations(tables, p, q), group_scores(tables, p, q)
    assert tv[tables.one_way].mean() == pytest.approx(expected["one_way"], abs=1e-12)
    assert tv[tables.two_way].mean() == pytest.approx(expected["two_way"], abs=1e-12)
    assert k_marginal(tables, p, q) == pytest.approx(expected["k_marginal"], abs=1e-9)
    if group is None:
        assert scores == {}
    else:
        assert min(scores.values()) == pytest.approx(expected["worst_group"], abs=1e-9)
        assert sorted(scores) == [0, 1]  # no row of the table is in town C


def test_counts_of_pieces_add_up_and_weights_of_one_count_rows(monkeypatch: pytest.MonkeyPatch):
    tables, X = ScoreTables(DOMAIN, TOWN), rows(101, 1)
    whole = tables.counts(X)
    assert whole.dtype == np.int64
    assert np.array_equal(whole, tables.counts(X[:40]) + tables.counts(X[40:]))
    assert np.array_equal(whole, tables.counts(X, np.ones(101)))
    monkeypatch.setattr(score_tables, "_BLOCK_ROWS", 7)
    assert np.array_equal(whole, tables.counts(X))
    assert not tables.counts(X[:0]).any()
    assert not shares_of(tables, tables.counts(X[:0])).any()


def test_every_table_is_that_of_its_columns():
    every_table_is_that_of_its_columns(ScoreTables(DOMAIN, TOWN), rows(200, 1))


def every_table_is_that_of_its_columns(tables: ScoreTables, X: Array) -> None:
    counts, cells = tables.counts(X), tables.cells(X)
    of = [*((j,) for j in tables.columns), *tables.pairs, *((TOWN, *pair) for pair in tables.crossed)]
    assert len(of) == len(tables.shapes)
    for index, columns in enumerate(of):
        expected = np.zeros(tables.shapes[index])
        np.add.at(expected, tuple(cells[:, j] for j in columns), 1)
        assert np.array_equal(tables.table(counts, index), expected), columns


def test_with_too_many_cells_some_pairs_are_taken_and_a_note_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(score_tables, "_MOST_CELLS", 50)
    tables, again = ScoreTables(DOMAIN, TOWN), ScoreTables(DOMAIN, TOWN)
    assert tables.pairs == again.pairs
    sizes = tables.sizes
    assert 0 < sum(sizes[i] * sizes[j] for i, j in tables.pairs) <= 50
    assert set(tables.crossed) <= set(tables.pairs) and not any(TOWN in pair for pair in tables.crossed)
    assert sum(3 * sizes[i] * sizes[j] for i, j in tables.crossed) <= 50
    others = [pair for pair in tables.pairs if TOWN not in pair]
    said = [f"{len(tables.pairs)} of 6", f"{len(tables.crossed)} of {len(others)}"]
    assert [note.split(" pairs")[0] for note in tables.notes] == said
    every_table_is_that_of_its_columns(tables, X := rows(50, 1))
    monkeypatch.setattr(score_tables, "_MOST_CELLS", 10**7)
    monkeypatch.setattr(score_tables, "_MOST_PAIRS", 2)
    assert len(ScoreTables(DOMAIN).pairs) == 2
    assert "2 of 6 pairs" in ScoreTables(DOMAIN).notes[0]
    monkeypatch.setattr(score_tables, "_MOST_CELLS", 1)
    none = ScoreTables(DOMAIN, TOWN)
    p = shares_of(none, none.counts(X))
    assert (k_marginal(none, p, p), group_scores(none, p, p)) == (None, {})


def test_texts_are_left_out_and_divide_no_groups():
    domain = Domain((Text(name="note", alphabet="ab", length=40), Boolean(name="x"), Boolean(name="y")))
    tables = ScoreTables(domain)
    assert (tables.columns, tables.pairs) == ((1, 2), ((1, 2),))
    assert "note" in tables.notes[0]
    X = domain.encode({"note": ["ab", "b" * 37], "x": [True, False], "y": [False, False]})
    assert tables.counts(X).tolist() == [1, 1, 2, 0, 1, 0, 1, 0]
    alone = ScoreTables(Domain((domain.columns[0],)))
    empty = alone.counts(X[:, : domain.columns[0].width])
    assert (len(empty), total_variations(alone, empty, empty).tolist()) == (0, [])
    assert shares_of(alone, empty).tolist() == []


def test_cells_have_names():
    named = [
        (DOMAIN["age"], ["0 to 17", "18 to 64", "65 to 99", "40", "missing"]),
        (DOMAIN["school"], ["none", "some", "all"]),
        (DOMAIN["ill"], ["False", "True", "missing"]),
        (Real(name="x", lower=1, upper=100, edges=(10,), scale="log"), ["1 to 10", "10 to 100"]),
        (Integer(name="n", lower=0, upper=3, edges=(1, 2, 3)), ["0", "1", "2", "3"]),
        (Date(name="d", lower="2020-01-01", upper="2020-12-31", edges=("2020-07-01",)),
         ["2020-01-01 to 2020-06-30", "2020-07-01 to 2020-12-31"]),
        (Tree(name="t", parents={"a1": "a", "a2": "a", "b": ""}), ["a1", "a2", "b"]),
    ]  # fmt: skip
    for column, names in named:
        assert names_of_cells(Domain((column,)), 0) == names, column
        assert ScoreTables(Domain((column,))).sizes == {0: len(names)}, column
