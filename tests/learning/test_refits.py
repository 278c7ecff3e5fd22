"""Refits: models on noise that is drawn again, and the spread of their predictions and scores."""

from __future__ import annotations

import numpy as np
import pytest
from learning_cases import UNSEEN, measured, table, weighted
from sklearn.linear_model import LogisticRegression

import kmeanalyst as ka
from kmeanalyst.learning.training.refits import Refits
from kmeanalyst.release import Release
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.representation.redraw import redraw


@pytest.fixture(scope="module")
def release() -> Release:
    return measured()


@pytest.mark.slow
def test_a_redrawn_release_has_the_noise_of_the_first(release: Release):
    first = release.measurement
    mean = feature_mean(first.feature_map, release.encoded_points, release.weights)
    drawn = [redraw(release, rng=seed) for seed in range(3)]
    noise = np.concatenate([one.measurement.vector - mean for one in drawn])  # type: ignore[union-attr]
    assert noise.std() == pytest.approx(first.noise_scale, rel=0.06)
    assert abs(noise.mean()) < 4 * first.noise_scale / np.sqrt(noise.size)
    assert len(drawn[0]) == len(release) and drawn[0].statement == release.statement
    wider = redraw(release, sampling=True, rng=0).measurement
    assert np.linalg.norm(wider.vector - mean) > 1.1 * np.linalg.norm(drawn[0].measurement.vector - mean)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="no noise that could be drawn again"):
        redraw(weighted(table(50, 0)))


@pytest.mark.slow
def test_refits_spread_with_the_noise():
    errors = []
    for noise in (2e-4, 2e-2):
        one = measured(noise)
        model = ka.fit(LogisticRegression(), one, "risk")
        refits = ka.refit(model, one, redraws=4)
        found = refits.predict(UNSEEN)
        np.testing.assert_array_equal(found["prediction"], model.predict_proba(UNSEEN)[:, -1])
        assert ((found["low"] <= found["prediction"]) & (found["prediction"] <= found["high"])).all()
        assert found["low"].min() >= 0 and found["high"].max() <= 1
        errors.append(found["standard_error"].mean())
    assert errors[1] > 1.7 * errors[0]
    scores = refits.score(UNSEEN, ["accuracy", "roc_auc"])
    np.testing.assert_allclose(scores["standard_error"] ** 2, scores["of_evaluation"] ** 2 + scores["of_training"] ** 2)
    assert scores.loc["accuracy", "value"] == ka.score(model, UNSEEN, "accuracy").value


def test_a_refitted_score_has_students_t_for_the_share_of_the_refits_alone():
    """Power: with t for all of the error, an interval that the refits add nothing to would be 6.5 times as wide."""
    plain = weighted(table(120, 0))
    model = ka.fit(LogisticRegression(), plain, "smokes")
    refits = Refits(model, (model, model))
    found = refits.score(UNSEEN, "accuracy").loc["accuracy"]
    assert found["of_training"] == 0
    assert found["high"] - found["value"] == pytest.approx(1.959964 * found["of_evaluation"], rel=1e-5)
    assert refits._degrees_of_freedom(1.0) == 1
    with pytest.raises(ValueError, match="trained on this very release"):
        refits.score(plain, "accuracy")
