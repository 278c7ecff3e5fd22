"""Permutation importance: a case worked by hand, its error, and columns without information."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from evaluation_cases import SICK, SIGNED, High, measured, points, weighted
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression

from kmeanalyst.learning.scoring.importance import feature_importance
from kmeanalyst.representation.weights.views import systematic_indices

PLAIN = weighted(np.abs(SIGNED) / np.abs(SIGNED).sum())


def test_a_linear_models_drop_of_squared_error_is_twice_the_variance_it_uses():
    """y = 3a + b + noise, fitted: permuting a adds 2·9·Var a to the squared error, c adds nothing (Fisher et al. 2019)."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(4000, 3)), columns=["a", "b", "c"])
    frame["y"] = 3 * frame["a"] + frame["b"] + rng.normal(size=4000)
    model = LinearRegression().fit(frame[["a", "b", "c"]], frame["y"])
    found = feature_importance(model, frame, "mean_squared_error", target="y")
    assert list(found.index) == ["a", "b", "c"]
    assert found["value"].tolist() == pytest.approx([18, 2, 0], rel=0.1, abs=0.02)
    assert (found["low"] < [18, 2, 0.02]).all() and (found["high"] > [18, 2, -0.02]).all()
    ours = permutation_importance(
        model, frame[["a", "b", "c"]], frame["y"], scoring="neg_mean_squared_error", random_state=0
    )
    assert found["value"].to_numpy() == pytest.approx(ours.importances_mean, rel=0.1, abs=0.02)


def test_the_error_is_the_spread_of_drops_between_samples():
    """40 samples: their spread is known to 11 %; without the error of the column's own distribution, 0.6 of it would be stated."""
    model = LinearRegression().fit(_linear(50, 0)[["a", "b"]], _linear(50, 0)["y"])
    rows = [
        feature_importance(model, _linear(200, k), "mean_squared_error", target="y", repeats=5, rng=k, columns=["a"])
        for k in range(40)
    ]
    stated = np.mean([np.hypot(row["standard_error"], row["shuffling"]) for row in rows])
    assert np.std([row["value"] for row in rows]) == pytest.approx(stated, rel=0.33)


def _linear(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng([seed, 2])
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(y=3 * frame["a"] + frame["b"] + rng.normal(size=n))


def test_a_column_that_the_model_does_not_use_has_no_importance_and_no_error():
    found = feature_importance(SICK, PLAIN, "accuracy")
    assert set(found.index) == {"x", "n", "job", "wage"}
    unused = found.loc[["job", "wage"], ["value", "standard_error", "shuffling"]]
    assert (unused == 0).all(axis=None)
    assert found["value"].iloc[0] > 0.05 and found["value"].is_monotonic_decreasing


def test_a_seed_gives_one_answer_and_more_repeats_a_smaller_spread():
    once, again = (feature_importance(SICK, PLAIN, rng=3) for _ in range(2))
    pd.testing.assert_frame_equal(once, again)
    many = feature_importance(SICK, PLAIN, repeats=60, rng=3, columns=["x"])
    assert many.loc["x", "shuffling"] < 0.6 * once.loc["x", "shuffling"]
    assert np.isnan(feature_importance(SICK, PLAIN, repeats=1)["shuffling"]).all()


def test_the_error_is_that_of_the_difference_and_not_of_two_independent_scores():
    release = measured(0)
    found = feature_importance(High(), release, "accuracy", repeats=20).loc["x0"]
    parts = found[["privacy", "sampling", "resolution"]].to_numpy(dtype=float)
    assert found["standard_error"] == pytest.approx(np.sqrt((parts**2).sum())) and (parts > 0).all()
    frame = points(300, 1)
    drop = feature_importance(SICK, frame, "accuracy", repeats=1, columns=["n"]).loc["n"]
    assert drop["low"] == pytest.approx(drop["value"] - 1.959964 * drop["standard_error"])
    accuracy = 0.5 / np.sqrt(300)
    assert 0 < drop["standard_error"] < 1.5 * accuracy


def test_cells_are_drawn_from_the_weighted_column_each_by_its_weight():
    weights = np.array([0.5, 0.0, 0.3, 0.2, 0.0])
    counts = np.bincount(systematic_indices(weights, 10, np.random.default_rng(0)), minlength=5)
    assert counts.tolist() == [5, 0, 3, 2, 0]
    equal = systematic_indices(np.full(7, 1 / 7), 7, np.random.default_rng(1))
    assert sorted(equal) == list(range(7))  # shuffled, a permutation


def test_signed_weights_are_scored_as_they_are_with_cells_of_the_probability_view():
    found = feature_importance(SICK, weighted(SIGNED), "accuracy")
    assert set(found["view"]) == {"signed"}
    assert found.loc["x", "value"] > 0 and np.isfinite(found["standard_error"]).all()
