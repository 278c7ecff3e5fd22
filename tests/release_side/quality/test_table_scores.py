"""The scores of a small release together: what they are made of, their order, and whose rows are equal."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.representation.weights.views import view_weights
from release_side.quality.score_tables import ScoreTables, k_marginal, shares_of
from release_side.quality.table_scores import CountedRows, TableScores, digests_of, equal_rows, table_scores

DOMAIN = Domain((
    Categorical(name="town", levels=("A", "B", "C", "empty")),
    Integer(name="age", lower=0, upper=99, edges=(18, 65)),
    Boolean(name="ill", missing=True),
    Date(name="day", lower="2020-01-01", upper="2020-12-31"),
    Ordinal(name="school", levels=("none", "some", "all")),
    Real(name="pay", lower=0, upper=1000, atoms=(0,)),
))  # fmt: skip


def rows(n: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    town, age = rng.integers(0, 3, n), rng.integers(0, 100, n)
    ill = np.where(rng.random(n) < 0.1, np.nan, rng.random(n) < age / 150)
    school = np.minimum(age // 12, rng.integers(0, 3, n))
    pay = np.where(age < 18, 0.0, rng.uniform(0, 1000, n))
    return np.column_stack([town, age, ill, 18262 + rng.integers(0, 366, n), school, pay]).astype(float)


def counted(table: Array, domain: Domain = DOMAIN, group: str | None = None) -> CountedRows:
    of_table = CountedRows(ScoreTables(domain, None if group is None else domain.position(group)))
    for piece in np.array_split(table, 3):
        of_table.add(piece)
    return of_table


def scores_of(points: Array, table: Array, domain: Domain = DOMAIN, group: str | None = None) -> TableScores:
    release = ka.from_frame(domain.decode(points).assign(weight=1.0), domain=domain)
    return table_scores(release, counted(table, domain, group))


def test_the_worst_comes_first():
    points = rows(600)
    points[:, 1] = np.random.default_rng(9).permutation(points[:, 1])  # age no longer depends on anything
    scores = scores_of(points, rows(600), group="town")
    by_group = [group.score for group in scores.groups]
    assert by_group == sorted(by_group) and scores.worst_group == by_group[0]
    assert sum(group.rows for group in scores.groups) == scores.n_rows == 600
    distances = [column.total_variation for column in scores.columns]
    assert distances == sorted(distances, reverse=True)
    of_pairs = [pair[2] for pair in scores.pairs]
    assert len(of_pairs) == 15 and of_pairs == sorted(of_pairs, reverse=True)
    assert "age" in scores.pairs[0][:2]  # pairs with age are those that broke
    columns = {column.name: column for column in scores.columns}
    assert columns["age"].cells == ("0 to 17", "18 to 64", "65 to 99") and sum(columns["pay"].table) == pytest.approx(1)


def test_a_release_that_is_the_table_is_perfect():
    scores = scores_of(rows(300), rows(300), group="town")
    assert (scores.k_marginal, scores.worst_group, scores.one_way, scores.two_way) == pytest.approx((1000, 1000, 0, 0))
    assert scores.equal_rows.equal == scores.equal_rows.points == 300


@pytest.mark.parametrize("signed", [False, True])
def test_scores_are_those_of_the_probability_view(signed: bool):
    points, table = rows(50, 1), rows(600)
    weights = np.where(np.arange(50) % 5 == 0, -0.5, 1.0) / 35 if signed else np.arange(50.0)
    release = ka.from_frame(DOMAIN.decode(points).assign(weight=weights), domain=DOMAIN)
    of_table = counted(table)
    scores, tables, view = table_scores(release, of_table), of_table.tables, view_weights(release, "probability")
    p = shares_of(tables, tables.counts(table))
    assert scores.k_marginal == pytest.approx(k_marginal(tables, p, shares_of(tables, tables.counts(points, view))))
    assert scores.k_marginal != pytest.approx(k_marginal(tables, p, shares_of(tables, tables.counts(points))))
    town = next(column for column in scores.columns if column.name == "town")
    assert town.release == pytest.approx(np.bincount(points[:, 0].astype(int), view, minlength=4) / view.sum())


def test_rows_that_weigh_half_count_half():
    """Under a unit of two rows each, the table of units is that of all rows."""
    table, of_units = rows(200), counted(rows(0), group="town")
    of_units.add(np.repeat(table, 2, axis=0), np.full(400, 0.5))
    release = ka.from_frame(DOMAIN.decode(rows(80, 1)).assign(weight=1.0), domain=DOMAIN)
    units, plain = table_scores(release, of_units), table_scores(release, counted(table, group="town"))
    assert units.k_marginal == pytest.approx(plain.k_marginal)
    assert units.groups == plain.groups
    assert (units.n_rows, plain.n_rows) == (400, 200)


def test_a_narrow_domain_has_what_it_can_have():
    text = Domain((Text(name="note", length=30), Boolean(name="x")))
    points = text.encode({"note": ["a", "b", "c"], "x": [True, False, True]})
    scores = scores_of(points, points, text)
    assert (scores.k_marginal, scores.two_way) == (None, None)
    assert (scores.columns[-1].name, scores.columns[-1].total_variation) == ("note", None)
    assert "note" in scores.notes[0] and scores.equal_rows.equal == 3
    json.dumps(asdict(scores), allow_nan=False)


@pytest.mark.parametrize("value", [None, "3"])
def test_columns_of_missing_cells_alone_raise_and_warn_of_nothing(value: str | None):
    number = Integer(name="n", lower=0, upper=9, missing=True)
    domain = Domain((number, Real(name="x", lower=1, upper=9, missing=True, scale="log"), Boolean(name="b", missing=True)))
    nothing = np.full((3, 3), np.nan)
    table = nothing if value is None else domain.encode({"n": [value], "x": [value], "b": ["true"]})
    for group in (None, "n"):
        scores = scores_of(nothing, table, domain, group)
        assert scores.k_marginal == (1000 if value is None else 0)
        json.dumps(asdict(scores), allow_nan=False)


def test_texts_divide_no_rows_into_groups():
    with pytest.raises(ValueError, match=r"note holds texts.*no cells.*Name a column of levels"):
        ScoreTables(Domain((Text(name="note", length=3), Boolean(name="x"))), 0)


def test_digests_are_equal_for_equal_rows_alone():
    domain = Domain((Integer(name="n", lower=-5, upper=5, missing=True), Text(name="t", length=20), Boolean(name="b")))
    cells = {"n": ["0", "-0", "", "", "1"], "t": ["abcdefghijklmnop", "abcdefghijklmnop", "u", "u", "abcdefghijklmnoq"]}
    X = domain.encode(cells | {"b": ["true"] * 5})
    X[1, 0], X[3, 0] = -0.0, np.copysign(np.nan, -1)  # other bits of the same cell
    digests = digests_of(X)
    assert (digests[0], digests[2]) == (digests[1], digests[3]) and len(set(digests.tolist())) == 3
    assert len(set(digests_of(np.array([[0.0, 1], [1, 0]])).tolist())) == 2


def test_equal_rows_are_counted_for_each_point_and_compared_with_halves_of_the_table():
    table = np.repeat(np.arange(50, dtype=np.uint64), 2)  # each row twice
    found = equal_rows(table, np.array([1, 1, 2, 99, 100, 101], dtype=np.uint64))
    assert (found.points, found.equal) == (6, 3)
    # a row's twin is in the other half with probability 50/99: the mean of 50 rows, of deviation .05 or less
    assert found.expected == pytest.approx(6 * 50 / 99, abs=6 * 0.25)
    assert equal_rows(table, table).equal == 100
    assert equal_rows(np.arange(100, dtype=np.uint64), table).expected == 0
    assert equal_rows(table, table) == equal_rows(table, table)  # the seed is fixed
