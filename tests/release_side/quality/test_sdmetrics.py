"""SDMetrics' scores against numbers that its version 0.32.0 gave on the same rows, and its definitions by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from release_side.quality.sdmetrics import sdmetrics_scores

DOMAIN = Domain(
    (
        Integer(name="age", lower=0, upper=90),
        Real(name="income", lower=1, upper=1000, scale="log"),
        Integer(name="children", lower=0, upper=9, missing=True),
        Categorical(name="sex", levels=("F", "M")),
        Ordinal(name="job", levels=("a", "b", "c")),
        Boolean(name="ill", missing=True),
        Date(name="day", lower="2020-01-01", upper="2020-12-31"),
    )
)


def frame(n: int, step: int, shift: int) -> pd.DataFrame:
    """Rows without randomness, so that every version of numpy gives the same; other shifts depend otherwise."""
    k = np.arange(n) * step
    age, job = (k * 37 + shift) % 71 + 10, (k // 3) % 3
    return pd.DataFrame(
        {
            "age": age,
            "income": 2.0 + (age * 11 + k * 7) % 400,
            "children": np.where(k % 10 == 0, np.nan, (age // 9 + k % 3) % 10),
            "sex": np.where((age + k) % 3 == 0, "F", "M"),
            "job": np.array(["a", "b", "c"])[np.where(age > 50, job, (age // 20 + shift) % 3)],
            "ill": np.where(k % 7 == 0, None, (age > 45 + shift).astype(object)),
            "day": pd.Timestamp("2020-01-01") + pd.to_timedelta((age * 4 + k % 9) % 365, unit="D"),
        }
    )


def test_scores_are_those_of_the_package():
    X, Y = DOMAIN.encode(frame(300, 1, 0)), DOMAIN.encode(frame(200, 3, 5))
    found = sdmetrics_scores(DOMAIN, X, Y, np.full(len(Y), 0.25))
    SHAPES, TRENDS, OVERALL, PAIRS = EXPECTED
    assert found.columns == pytest.approx(SHAPES, abs=1e-9)
    assert (found.column_pair_trends, found.overall) == pytest.approx((TRENDS, OVERALL), abs=1e-9)
    own = {pair[:2]: pair[2] for pair in found.pairs}
    assert {pair: own[pair] for pair in PAIRS} == pytest.approx(PAIRS, abs=1e-9)
    assert len(own) == 21
    assert list(own.values()) == sorted(own.values())
    assert found.rows == 300


# of sdmetrics 0.32.0, reports.single_table.QualityReport, on the two frames above as the domain decodes them
EXPECTED = (
    {
        "age": 0.99, "income": 0.9833333333333333, "children": 0.912962962962963, "sex": 0.9983333333333333,
        "job": 0.8566666666666667, "ill": 0.9210412542380595, "day": 0.9866666666666667,
    },
    0.7475245952861042,
    0.848691170300268,
    {
        ("age", "children"): 0.8343614919336616, ("age", "job"): 0.46166666666666667, ("age", "ill"): 0.8933333333333333,
        ("age", "day"): 0.9999732105902113, ("children", "job"): 0.6166666666666667, ("children", "ill"): 0.7233333333333334,
        ("children", "day"): 0.8350533217177316, ("job", "day"): 0.47, ("ill", "day"): 0.8933333333333333,
    },
)  # fmt: skip


def test_weights_count_as_repeated_rows():
    X, Y = DOMAIN.encode(frame(300, 1, 0)), DOMAIN.encode(frame(80, 3, 5))
    weights = np.arange(80) % 3
    weighted = sdmetrics_scores(DOMAIN, X, Y, weights / 7)
    repeated = sdmetrics_scores(DOMAIN, X, np.repeat(Y, weights, axis=0), np.ones(weights.sum()))
    assert weighted.columns == pytest.approx(repeated.columns)
    assert weighted.column_pair_trends == pytest.approx(repeated.column_pair_trends)
    assert {pair[:2]: pair[2] for pair in weighted.pairs} == pytest.approx(
        {pair[:2]: pair[2] for pair in repeated.pairs}
    )


def test_the_table_itself_is_best():
    X = DOMAIN.encode(frame(300, 1, 0))
    found = sdmetrics_scores(DOMAIN, X, X, np.ones(300))
    assert (found.overall, found.column_shapes, found.column_pair_trends) == pytest.approx((1, 1, 1))


def test_what_cannot_be_compared_is_nan_and_counts_in_no_mean():
    domain = Domain(
        (
            Integer(name="n", lower=0, upper=9, missing=True),
            Integer(name="m", lower=0, upper=9),
            Text(name="t", length=30),
            Boolean(name="b", missing=True),
        )
    )
    cells = {"n": [1, 2, 3, 4], "m": [5, 5, 5, 5], "t": list("abcd"), "b": ["", "", "", ""]}
    X = domain.encode(pd.DataFrame(cells))
    Y = X.copy()
    Y[:, 0] = np.nan
    found = sdmetrics_scores(domain, X, Y, np.ones(4))
    assert set(found.columns) == {"n", "m", "b"}
    assert np.isnan([found.columns["n"], found.columns["b"]]).all()
    assert found.column_shapes == 1  # m alone
    assert np.isnan(found.column_pair_trends)
    assert found.overall == 1
    scores = {pair[:2]: pair[2] for pair in found.pairs}
    assert np.isnan(scores["n", "m"])  # a constant has no correlation
    assert len(scores) == 3
