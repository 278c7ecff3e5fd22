"""Which rows and columns a model learns from, and with what weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every
from learning_cases import DOMAIN, measured, table, weighted
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

import kmeanalyst as ka
from kmeanalyst.learning.rows.training_rows import effective_size, target_of, training_rows
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real


def test_weights_sum_to_the_effective_size_of_the_points():
    weights = np.concatenate([np.full(100, 3.0), np.full(100, 1.0)])
    release = weighted(table(200, 0), weights)
    model = ka.fit(Ridge(), release, "cost")
    assert model.report.effective_rows == pytest.approx(400**2 / (100 * 9 + 100))
    assert ka.fit(Ridge(), release, "cost", effective_rows=50).report.effective_rows == 50
    data = release.to_sklearn("cost")
    assert data.sample_weight.sum() == pytest.approx(effective_size(weights))
    assert len(ka.fit(KNeighborsClassifier(), release, "risk", effective_rows=30)["model"]._fit_X) == 30


@every("view", ["signed", "probability"])
def test_a_constant_factor_and_rows_of_weight_zero_change_no_bit_of_the_weights(view: Any):
    frame, weights = table(120, 0), np.random.default_rng(1).normal(1, 0.6, 120)
    first = weighted(frame, weights).to_sklearn("risk", view=view).sample_weight
    more = pd.concat([frame.iloc[:7], frame], ignore_index=True)
    for factor in (-3.0, 1e12, 1e-12, 0.1):
        release = weighted(more, np.concatenate([np.zeros(7), factor * weights]))
        assert (release.to_sklearn("risk", view=view).sample_weight == first).all()


def test_rows_too_light_to_count_are_left_out():
    i = np.arange(120)
    release = weighted(table(120, 0), np.where(i == 0, 1e14, np.where(i < 40, 1e13, 1.0)))
    data = release.to_sklearn("risk", view="signed")
    assert len(data.X) == len(data.y) == len(data.sample_weight) == 40 and data.sample_weight.min() > 0


def test_counts_as_weights_have_the_probability_view_of_their_shares():
    counts = np.arange(1, 301)
    np.testing.assert_allclose(weighted(table(300, 0), counts).view_weights("probability"), counts / counts.sum())


def test_rows_without_a_target_are_left_out_with_a_note():
    domain = Domain((DOMAIN["a"], Real(name="y", lower=-10, upper=10, missing=True)))
    rows = pd.DataFrame({"a": np.linspace(-3, 3, 100)})
    rows["y"] = np.where(np.arange(100) < 25, np.nan, 2 * rows["a"])
    model = ka.fit(LinearRegression(), weighted(rows, domain=domain), "y")
    assert model.report.rows == 75 and "0.25 of the population" in model.report.notes[0]
    np.testing.assert_allclose(model.predict(rows), 2 * rows["a"], atol=1e-9)


def test_to_sklearn_gives_features_target_and_weights():
    release = measured()
    X, y, weight = release.to_sklearn("risk")
    assert list(X) == ["a", "n", "city=Zug", "city=Bern", "city=Basel", "smokes", "cost"]
    assert set(y) == {"low", "high"} and weight.min() > 0 and weight.sum() == pytest.approx(200)
    LogisticRegression().fit(X, y, sample_weight=weight)
    assert list(release.to_sklearn("cost", columns=["city"], encoding="natural").X) == ["city"]
    assert len(release.to_sklearn("risk", view="resampled", effective_rows=50).y) == 50
    goal = target_of(release, "cost")
    assert training_rows(release, goal, "fitted").frame.shape[0] > 1000


def test_a_column_is_not_predicted_from_its_sources_or_from_what_is_computed_from_them():
    release = weighted(table(200, 0)).transform(
        {
            "dear": "cost > 8",
            "double": "2 * a",
            "very": "cost + 1",
            "bern": "city == 'Bern'",
            "hint": "a * (bern == true)",
        }
    )
    for estimator, target in ((LogisticRegression(), "dear"), (Ridge(), "cost")):
        assert ka.fit(estimator, release, target).report.columns == (
            "a", "n", "city", "smokes", "risk", "double", "bern", "hint",
        )  # fmt: skip
    for columns, message in ((["a", "cost"], "is the target"), (["a", "colour"], "columns must be a list")):
        with pytest.raises(ValueError, match=message):
            ka.fit(Ridge(), release, "cost", columns=columns)
    for name in ("bern", "hint"):
        with pytest.raises(ValueError, match=f"{name} is computed from city, the target"):
            ka.fit(LogisticRegression(), release, "city", columns=["a", name])
