"""One pass over rows: quantiles, correlations and digests against numpy and pandas; default keys."""

from __future__ import annotations

import numpy as np
import pytest

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.representation.tables.score_tables import ScoreTables
from release_side.quality.summary import Summary, TableSummary, ordered_columns

DOMAIN = Domain(
    (
        Real(name="x", lower=0, upper=1000),
        Integer(name="n", lower=-5, upper=20, missing=True),
        Ordinal(name="o", levels=("low", "middle", "high"), missing=True),
        Categorical(name="c", levels=("a", "b")),
        Real(name="y", lower=1, upper=1000, scale="log"),
    )
)
PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


def rows(n: int = 500) -> Array:
    rng = np.random.default_rng(3)
    z = rng.normal(size=n)
    x = np.where(rng.random(n) < 0.4, 0, np.clip(400 + 150 * z, 0, 1000))
    count = np.where(rng.random(n) < 0.1, np.nan, np.rint(5 + 3 * z))
    order = np.where(rng.random(n) < 0.1, np.nan, (z > 0.2).astype(float) + (z > 1))
    return np.column_stack([x, np.clip(count, -5, 20), order, rng.integers(0, 2, n), np.clip(3 + z, 0, np.log(1000))])


def summary_of(X: Array, weights: Array | None = None, pieces: int = 1) -> Summary:
    summary = Summary(ScoreTables(DOMAIN))
    for k in range(pieces):
        summary.add(X[k::pieces], None if weights is None else weights[k::pieces])
    return summary


@pytest.mark.parametrize("pieces", [1, 7])
def test_quantiles_and_correlations_are_those_of_all_rows(pieces: int):
    X = rows()
    summary = summary_of(X, pieces=pieces)
    for j, tolerance in ((0, 1000 / 2**16), (1, 0), (4, np.log(1000) / 2**16)):
        present = X[~np.isnan(X[:, j]), j]
        expected = np.quantile(present, PROBABILITIES, method="inverted_cdf")
        assert np.abs(summary.quantiles(j, PROBABILITIES) - expected).max() <= tolerance
    assert summary.quantiles(0, [0.2])[0] == 0  # a value that 40 % of the rows have is found itself
    ordered = ordered_columns(DOMAIN)
    assert ordered == [0, 1, 2, 4]
    for a, i in enumerate(ordered):
        for b, j in enumerate(ordered):
            both = ~np.isnan(X[:, i]) & ~np.isnan(X[:, j])
            assert summary.correlations[a, b] == pytest.approx(np.corrcoef(X[both, i], X[both, j])[0, 1], abs=1e-9)
    assert (summary.n_rows, summary.weight) == (500, 500)


def test_weights_count_as_repeated_rows():
    X, weights = rows(60), np.random.default_rng(0).integers(0, 4, 60)
    weighted, repeated = summary_of(X, weights / 4), summary_of(np.repeat(X, weights, axis=0))
    assert np.allclose(4 * weighted.counts, repeated.counts)
    assert weighted.correlations == pytest.approx(repeated.correlations, abs=1e-9)
    for j in (0, 1, 4):
        assert weighted.quantiles(j, PROBABILITIES) == pytest.approx(repeated.quantiles(j, PROBABILITIES), abs=1e-9)


def test_without_values_or_variance_there_is_no_number():
    X = rows(20)
    X[:, 1], X[:, 0] = np.nan, 7
    summary = summary_of(X)
    assert np.isnan(summary.quantiles(1, PROBABILITIES)).all()
    assert np.isnan(summary.correlations[0]).all()
    assert np.isnan(summary.correlations[1]).all()
    assert not np.isnan(summary.correlations[2, 2])


def test_digests_are_equal_for_equal_rows_alone():
    domain = Domain((Integer(name="n", lower=-5, upper=5, missing=True), Text(name="t", length=20), Boolean(name="b")))
    summary = TableSummary(domain)
    cells = {"n": ["0", "-0", "", "", "1"], "t": ["abcdefghijklmnop", "abcdefghijklmnop", "u", "u", "abcdefghijklmnoq"]}
    X = domain.encode(cells | {"b": ["true"] * 5})
    X[1, 0] = -0.0
    summary.add(X[:2])
    summary.add(X[2:])
    whole, keys, target = summary.digests
    assert (whole[0], whole[2]) == (whole[1], whole[3])
    assert len(set(whole.tolist())) == 3
    assert (summary.keys, summary.target) == (("n", "b"), ("t",))
    assert len(set(keys.tolist())) == 3
    assert len(set(target.tolist())) == 3
    swapped = TableSummary(Domain((Boolean(name="a"), Boolean(name="b")))).digests_of(np.array([[0.0, 1], [1, 0]]))
    assert swapped[0, 0] != swapped[0, 1]


def test_the_keys_are_the_first_four_columns_with_values_that_repeat():
    columns = (
        *DOMAIN.columns,
        Date(name="d", lower="2020-01-01", upper="2020-12-31"),
        Boolean(name="e"),
        Boolean(name="f"),
    )
    domain = Domain(columns)
    default = TableSummary(domain)
    assert (default.keys, default.target) == (("n", "o", "c", "d"), ("f",))
    assert TableSummary(domain, target="n").keys == ("o", "c", "d", "e")
    named = TableSummary(domain, keys=["x", "f"])
    assert (named.keys, named.target) == (("x", "f"), ("e",))
    alone = TableSummary(Domain((Boolean(name="a"),)))
    assert (alone.keys, alone.target) == (("a",), ())
    continua = TableSummary(Domain((Real(name="a", lower=0, upper=1), Real(name="b", lower=0, upper=1))))
    assert (continua.keys, continua.target) == (("a",), ("b",))


def test_keys_and_target_are_different_columns_of_the_domain():
    with pytest.raises(ValueError, match=r"different columns, and not the target.*known already.*Name other columns"):
        TableSummary(DOMAIN, keys=["n", "o"], target="o")
    with pytest.raises(ValueError, match="different columns"):
        TableSummary(DOMAIN, keys=["n", "n"])
    for wrong in ({"keys": ["z"]}, {"target": "z"}, {"group": "z"}):
        with pytest.raises(KeyError, match="no column 'z'"):
            TableSummary(DOMAIN, **wrong)  # type: ignore[arg-type]
