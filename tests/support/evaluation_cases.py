"""Models, rows and releases of the tests of evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import simulated_releases as sim

from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.weights.reweight import weights_for

DOMAIN = Domain((
    Real(name="x", lower=-5, upper=5),
    Integer(name="n", lower=0, upper=9),
    Categorical(name="job", levels=("clerk", "baker", "abbot")),
    Boolean(name="ill", missing=True),
    Real(name="wage", lower=0, upper=10),
))  # fmt: skip


class Classifier:
    """A fixed rule: the probability of the second class, or of each of several, grows with x and n; it counts its calls."""

    def __init__(self, target: str, classes: list[Any], **more: Any) -> None:
        self.target, self.classes_ = target, np.array(classes)
        self.calls: list[str] = []
        self.__dict__.update(more)

    def predict_proba(self, frame: pd.DataFrame) -> np.ndarray:
        assert self.target not in frame.columns
        self.calls.append("predict_proba")
        slope = np.linspace(-0.4, 0.4, len(self.classes_))
        push = np.exp(np.outer(np.round(frame["x"].to_numpy(dtype=float)) + frame["n"].to_numpy(dtype=float) - 4, slope))
        return push / push.sum(axis=1, keepdims=True)

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        said = self.classes_[self.predict_proba(frame).argmax(axis=1)]
        self.calls[-1] = "predict"
        return said


class Regressor:
    target = "wage"

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return 5.0 + 0.3 * frame["x"].to_numpy(dtype=float)


SICK = Classifier("ill", [False, True])


JOBS = Classifier("job", ["abbot", "baker", "clerk"])


def points(n: int, seed: int, missing: bool = False) -> pd.DataFrame:
    """Rows whose columns go with each other, of which some have no `ill`."""
    rng = np.random.default_rng(seed)
    frame = DOMAIN.decode(DOMAIN.draw(n, rng))
    push = frame["x"] + frame["n"] - 4 + 2 * rng.normal(size=n)
    ill = pd.Series(push > 0, dtype="boolean")
    if missing:
        ill[:: n // 5] = pd.NA
    job = pd.Categorical.from_codes(np.digitize(push, [1.5, -1.5]), DOMAIN["job"].levels)  # type: ignore[attr-defined]
    return frame.assign(ill=ill, job=job, wage=np.clip(5 + push / 3, 0, 10))


POINTS = points(60, 3)


SIGNED = np.random.default_rng(4).normal(0.02, 0.02, 60)


def weighted(weights: np.ndarray, frame: pd.DataFrame = POINTS) -> Release:
    return Release(points=frame, weights=weights, measurement=None, kernel=Gaussian(1.0), domain=DOMAIN, statement=None)


def measured(seed: int, view: str = "signed", epsilon: float = 1.0) -> Release:
    """A simulated release of 150 points, with a derived column to predict."""
    rng = np.random.default_rng([seed, 5])
    rows, feature_map = sim.population(sim.N, rng), sim.MAPS["random-features"]
    vector = feature_map.mean(rows, np.full(sim.N, 1 / sim.N))
    made = sim.noisy(feature_map, vector, sim.NOISE_SCALE[epsilon], rng, n_points=150)
    assert made.measurement is not None
    release = Release(
        points=made.to_frame().drop(columns="weight"), weights=weights_for(view, made.encoded_points, made.measurement),
        measurement=made.measurement, kernel=made.kernel, domain=made.domain, statement=made.statement,
    )  # fmt: skip
    return release.transform({"high": "x1 > 0"})


class High:
    """Whether x1 is above 0, guessed from x0."""

    target, classes_ = "high", np.array([False, True])

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return frame["x0"].to_numpy() > 0

    def predict_proba(self, frame: pd.DataFrame) -> np.ndarray:
        probability = 1 / (1 + np.exp(-frame["x0"].to_numpy()))
        return np.column_stack([1 - probability, probability])
