"""All scores of a small release together: what they are made of, their order, and their JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.representation.tables.score_tables import k_marginal, shares_of
from release_side.quality.scores import TableScores
from release_side.quality.summary import TableSummary
from release_side.quality.table_scores import table_scores

DOMAIN = Domain(
    (
        Categorical(name="town", levels=("A", "B", "C", "empty")),
        Integer(name="age", lower=0, upper=99, edges=(18, 65)),
        Boolean(name="ill", missing=True),
        Date(name="day", lower="2020-01-01", upper="2020-12-31"),
        Ordinal(name="school", levels=("none", "some", "all")),
        Real(name="pay", lower=0, upper=1000, atoms=(0,)),
    )
)


def rows(n: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    town, age = rng.integers(0, 3, n), rng.integers(0, 100, n)
    ill = np.where(rng.random(n) < 0.1, np.nan, rng.random(n) < age / 150)
    school = np.minimum(age // 12, rng.integers(0, 3, n))
    pay = np.where(age < 18, 0.0, rng.uniform(0, 1000, n))
    return np.column_stack([town, age, ill, 18262 + rng.integers(0, 366, n), school, pay]).astype(float)


def scores_of(points: Array, table: Array, domain: Domain = DOMAIN, **options: object) -> TableScores:
    frame = domain.decode(points).assign(weight=1.0)
    summary = TableSummary(domain, **options)  # type: ignore[arg-type]
    for piece in np.array_split(table, 3):
        summary.add(piece)
    return table_scores(ka.from_frame(frame, domain=domain), summary, table)


@pytest.fixture(scope="module")
def scores() -> TableScores:
    points = rows(600)
    points[:, 1] = np.random.default_rng(9).permutation(points[:, 1])  # age no longer depends on anything
    return scores_of(points, rows(600), group="town", target="ill")


def test_the_worst_comes_first(scores: TableScores):
    found = [group.score for group in scores.groups]
    assert found == sorted(found)
    assert scores.worst_group == found[0]
    assert scores.within_groups == pytest.approx(np.mean(found))
    assert sum(group.rows for group in scores.groups) == scores.n_rows == 600
    distances = [column.total_variation for column in scores.columns]
    assert distances == sorted(distances, reverse=True)
    assert "age" in scores.pairs.worst[0][:2]  # pairs with age are those that broke
    worst = [pair[2] for pair in scores.pairs.worst]
    assert (len(worst), worst) == (5, sorted(worst, reverse=True))


def test_a_release_that_is_the_table_is_perfect_and_above_ninety_per_cent():
    found = scores_of(rows(300), rows(300), group="town")
    assert (found.k_marginal, found.two_way_score, found.worst_group) == pytest.approx((1000, 1000, 1000))
    assert (found.one_way, found.two_way) == pytest.approx((0, 0), abs=1e-12)
    assert found.sub_sample is not None
    assert found.sub_sample.text == "above 90 %"
    assert found.sdmetrics.overall == pytest.approx(1)
    assert found.copies.equal == found.copies.points == 300
    assert found.synthpop.repU == found.synthpop.UiO > 0
    assert found.synthpop.DiSCO == found.synthpop.Dorig
    correlations = np.array(found.pairs.table)
    assert np.array(found.pairs.release) == pytest.approx(correlations)
    assert found.pairs.ordered == ("age", "day", "school", "pay")


def test_the_sub_sample_is_the_one_that_has_the_score():
    """A simple random sample of 150 of 600 rows as the release: it is as near as a sample of a quarter of the rows."""
    table = rows(600)
    drawn = table[np.random.default_rng(4).choice(600, 150, replace=False)]
    found = scores_of(drawn, table, group="town").sub_sample
    assert found is not None
    assert 0.2 < found.share < 0.3  # over seeds the share has a standard deviation of less than .02
    assert found.rows == pytest.approx(600 * found.share)
    assert found.text == f"{100 * found.share:.2g} %"
    shares, curve = np.array(found.curve).T
    assert (np.diff(shares) > 0).all()
    assert (np.diff(curve) > 0).all()


def test_a_release_of_nothing_that_is_in_the_table_is_below_one_per_cent():
    points = np.tile(rows(1, 5), (10, 1))
    points[:, 1], points[:, 4] = 99, 0
    found = scores_of(points, rows(600)).sub_sample
    assert found is not None
    assert found.text == "below 1 %"


def test_scores_are_those_of_the_probability_view():
    points, table = rows(50, 1), rows(600)
    weights = np.arange(50.0)
    summary = TableSummary(DOMAIN)
    summary.add(table)
    release = ka.from_frame(DOMAIN.decode(points).assign(weight=weights), domain=DOMAIN)
    found = table_scores(release, summary, table)
    tables = summary.tables
    p = shares_of(tables, tables.counts(table))
    assert found.view == "probability"
    assert found.k_marginal == pytest.approx(k_marginal(tables, p, shares_of(tables, tables.counts(points, weights))))
    assert found.k_marginal != pytest.approx(k_marginal(tables, p, shares_of(tables, tables.counts(points))))
    column = next(one for one in found.columns if one.name == "town")
    assert column.release == pytest.approx(np.bincount(points[:, 0].astype(int), weights, minlength=4) / weights.sum())


def test_rows_that_weigh_half_count_half():
    """Under a unit of two rows each, the table of units is that of all rows."""
    points, table = rows(80, 1), rows(200)
    summary, plain = TableSummary(DOMAIN, group="town"), TableSummary(DOMAIN, group="town")
    summary.add(np.repeat(table, 2, axis=0), np.full(400, 0.5))
    plain.add(table)
    release = ka.from_frame(DOMAIN.decode(points).assign(weight=1.0), domain=DOMAIN)
    of_units, of_rows = (table_scores(release, one, table) for one in (summary, plain))
    assert of_units.k_marginal == pytest.approx(of_rows.k_marginal)
    assert of_units.groups == of_rows.groups
    assert of_units.sub_sample == of_rows.sub_sample
    assert (of_units.n_rows, of_rows.n_rows) == (400, 200)


def test_rows_that_break_a_rule_are_counted_on_both_sides():
    rules = (Rule("never", "age < 15 and school == 'all'"), Rule("always", "pay == 0 or age >= 18"))
    domain = Domain(DOMAIN.columns, rules=rules)
    table, points = rows(400), rows(50, 1)
    table[:40, 1], table[:40, 4] = 10, 2
    points[:, 4] = np.minimum(points[:, 4], 1)
    points[:5, 1], points[:5, 5] = 9, 7.0
    points[5:, 5] = np.where(points[5:, 1] < 18, 0, points[5:, 5])
    table[:, 5] = np.where(table[:, 1] < 18, 0, table[:, 5])
    found = scores_of(points, table, domain).rules
    assert [one.rule for one in found] == [
        "never age < 15 and school == 'all'",
        "always pay == 0 or age >= 18",
        "any rule",
    ]
    assert [one.points for one in found] == [0, 5, 5]
    assert [one.release for one in found] == pytest.approx([0, 0.1, 0.1])
    broken = np.mean((table[:, 1] < 15) & (table[:, 4] == 2))
    assert broken >= 0.1
    assert [one.table for one in found] == pytest.approx([broken, 0, broken])
    assert scores_of(points, table).rules == ()


def test_a_wide_and_a_narrow_domain_have_what_they_can_have():
    text = Domain((Text(name="note", length=30), Boolean(name="x")))
    points = text.encode({"note": ["a", "b", "c"], "x": [True, False, True]})
    found = scores_of(points, points, text)
    assert (found.k_marginal, found.sub_sample, found.two_way) == (None, None, None)
    assert found.columns[-1].name == "note"
    assert found.columns[-1].total_variation is None
    assert "note" in found.notes[0]
    assert found.copies.equal == 3
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_dictionary_is_json_in_natural_units(scores: TableScores):
    found = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert set(found) == {
        "n_rows", "n_points", "view", "group", "k_marginal", "two_way_score", "within_groups", "worst_group", "groups",
        "one_way", "two_way", "sub_sample", "columns", "pairs", "sdmetrics", "synthpop", "copies", "rules", "notes",
    }  # fmt: skip
    columns = {column["name"]: column for column in found["columns"]}
    assert columns["day"]["quantiles"]["0.5"][0].startswith("2020-")
    assert columns["age"]["quantiles"]["0.5"][0] == float(np.quantile(rows(600)[:, 1], 0.5, method="inverted_cdf"))
    assert columns["town"]["quantiles"] is None
    assert columns["age"]["cells"] == ["0 to 17", "18 to 64", "65 to 99"]
    assert sum(columns["pay"]["table"]) == pytest.approx(1)
    matrix = np.array(found["pairs"]["total_variation"])
    assert matrix.shape == (6, 6)
    assert np.array_equal(matrix, matrix.T)
    assert found["synthpop"]["keys"] == ["town", "age", "day", "school"]
    assert found["synthpop"]["target"] == "ill"
