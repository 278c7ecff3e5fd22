"""Calibration tables: shares by hand, errors of shares, bins of predicted values, and the note on bias."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from evaluation_cases import JOBS, POINTS, SICK, SIGNED, High, Regressor, measured, weighted
from every import every
from sklearn.calibration import calibration_curve

from kmeanalyst.learning.scoring.calibration import calibration, expected_calibration_error

PLAIN = weighted(np.abs(SIGNED) / np.abs(SIGNED).sum())


class Stated:
    """A probability that is a column; the truth is a coin with that probability, shifted by `off`."""

    target, classes_ = "hit", np.array([0, 1])

    def predict_proba(self, frame: pd.DataFrame) -> np.ndarray:
        probability = frame["probability"].to_numpy()
        return np.column_stack([1 - probability, probability])


def coins(n: int, seed: int, off: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    probability = rng.uniform(0.1, 0.8, n)
    return pd.DataFrame({"probability": probability, "hit": (rng.random(n) < probability + off).astype(int)})


@every("strategy", ["quantile", "uniform"])
def test_bins_of_a_sample_are_scikit_learns(strategy):
    frame = coins(500, 1)
    observed, predicted = calibration_curve(frame["hit"], frame["probability"], n_bins=5, strategy=strategy)
    found = calibration(Stated(), frame, bins=5, strategy=strategy)
    near = 0.02 if strategy == "quantile" else 1e-9  # its quantiles lie between rows: one can be in either bin
    assert found["predicted"].to_numpy() == pytest.approx(predicted, abs=near)
    assert found["observed"].to_numpy() == pytest.approx(observed, abs=near)
    assert found["share"].sum() == pytest.approx(1)


def test_the_error_of_a_share_is_the_binomial_one_on_a_sample():
    found = calibration(Stated(), coins(1000, 2), bins=4)
    n, p = 1000 * found["share"], found["observed"]
    assert found["standard_error"].to_numpy() == pytest.approx(np.sqrt(p * (1 - p) / n).to_numpy())
    wide = calibration(Stated(), coins(1000, 2), bins=4, level=0.99)
    assert ((wide["high"] - wide["low"]) > (found["high"] - found["low"])).all()
    assert (found["low"] < found["observed"]).all()


def test_shares_of_a_release_are_weighted_and_of_the_probability_view():
    release = weighted(SIGNED)
    found = calibration(SICK, release, bins=3)
    shares = weighted(SIGNED / SIGNED.sum())  # the sum of the weights does not matter
    w, probability = shares.view_weights("probability"), SICK.predict_proba(POINTS.drop(columns="ill"))[:, 1]
    assert set(found["view"]) == {"probability"}
    assert found["share"].sum() == pytest.approx(1)
    assert (found["share"] * found["predicted"]).sum() == pytest.approx(w @ probability)
    assert (found["share"] * found["observed"]).sum() == pytest.approx(w @ POINTS["ill"].to_numpy(dtype=float))
    assert found["observed"].between(-1e-12, 1 + 1e-12).all()


def test_each_bin_of_a_measured_release_has_its_error_in_parts():
    found = calibration(High(), measured(0), bins=3, view="fitted")
    assert len(found) == 3 and (found[["privacy", "sampling", "resolution"]] > 0).all(axis=None)
    assert found["observed"].iloc[2] > found["observed"].iloc[:2].max() + 0.2  # x0 and x1 go together


def test_one_class_of_several_is_named():
    found = calibration(JOBS, PLAIN, positive="clerk", bins=2)
    clerks = float(PLAIN.weights @ (POINTS["job"] == "clerk"))
    assert (found["share"] * found["observed"]).sum() == pytest.approx(clerks)


@every("strategy", ["quantile", "uniform"])
def test_means_of_a_number_stand_beside_its_predictions(strategy: str):
    """A model that adds 1 and halves the rest is 1 - y/2 away from the mean of every bin."""

    class Halved:
        target = "y"

        def predict(self, X: pd.DataFrame) -> np.ndarray:
            return 1 + X["x"].to_numpy() / 2

    x = np.arange(400) / 10
    found = calibration(Halved(), pd.DataFrame({"x": x, "y": x}), bins=4, strategy=strategy)  # type: ignore[arg-type]
    np.testing.assert_allclose(found["observed"], 2 * (found["predicted"] - 1))
    np.testing.assert_allclose(found["observed"], x.reshape(4, 100).mean(axis=1))
    spread = np.sqrt((10**2 - 0.1**2) / 12 / 100)  # of the mean of a hundred of evenly spaced numbers
    np.testing.assert_allclose(found["standard_error"], spread, rtol=0.02)
    gap = expected_calibration_error(Halved(), pd.DataFrame({"x": x, "y": x}), bins=4, strategy=strategy)  # type: ignore[arg-type]
    assert gap.value == pytest.approx(np.mean(np.abs(x.reshape(4, 100).mean(axis=1) / 2 - 1)))
    assert calibration(Regressor(), PLAIN, bins=3) is not None


def test_a_note_gives_the_error_of_a_calibrated_model_and_a_miscalibrated_one_is_above():
    """60 samples of 500 coins: the mean error, known to 5 %, is what the note says; with 0.1 off it is far above."""
    fair = [expected_calibration_error(Stated(), coins(500, seed)) for seed in range(60)]
    noted = [float(e.notes[0].split("about ")[1].split(" ")[0]) for e in fair]
    assert "biased upwards" in fair[0].notes[0]
    assert np.mean([e.value for e in fair]) == pytest.approx(np.mean(noted), rel=0.15)
    off = [expected_calibration_error(Stated(), coins(500, seed, 0.1)).value for seed in range(20)]
    assert np.mean(off) == pytest.approx(0.1, rel=0.2) and np.mean(off) > 1.8 * np.mean(noted)


def test_the_error_of_the_calibration_error_takes_each_gap_by_its_sign():
    frame = coins(400, 5).assign(hit=lambda f: (f["probability"] < 0.45).astype(int))
    gap = (frame["hit"] - frame["probability"]) * np.where(frame["probability"] <= 0.5, 1, -1)
    found = expected_calibration_error(Stated(), frame, bins=2, strategy="uniform")
    assert found.value == pytest.approx(gap.mean())
    assert found.standard_error == pytest.approx(gap.std(ddof=0) / 20)
