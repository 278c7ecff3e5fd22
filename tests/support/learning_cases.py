"""What tests of learning share: a small table, releases of its weighted rows, and releases around a measurement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from simulated_releases import measured_release, measurement_of

from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import feature_mean

DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3),
    Integer(name="n", lower=0, upper=9, edges=(3, 6), atoms=(0,)),
    Categorical(name="city", levels=("Zug", "Bern", "Basel")),
    Boolean(name="smokes"),
    Categorical(name="risk", levels=("low", "high")),
    Real(name="cost", lower=0, upper=40),
))  # fmt: skip
N = 5_000
NOT_ALONE = {
    "ClassifierChain", "FixedThresholdClassifier", "MultiOutputClassifier", "OneVsOneClassifier", "OneVsRestClassifier",
    "OutputCodeClassifier", "StackingClassifier", "TunedThresholdClassifierCV", "VotingClassifier", "MultiOutputRegressor",
    "RegressorChain", "StackingRegressor", "VotingRegressor", "SelfTrainingClassifier", "FrozenEstimator",
}  # fmt: skip  # they are made of others


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, count, city = rng.normal(size=n).clip(-3, 3), rng.integers(0, 10, n), rng.integers(0, 3, n)
    smokes = rng.random(n) < 0.4
    z = 1.5 * a + 0.3 * (count - 4.5) + np.where(city == 0, 1.0, -0.5)
    risk = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "high", "low")
    cost = (8 + 2 * a + count + 3 * smokes + rng.normal(size=n)).clip(0.1, 40)
    names = np.array(["Zug", "Bern", "Basel"])[city]
    return pd.DataFrame({"a": a, "n": count, "city": names, "smokes": smokes, "risk": risk, "cost": cost})


UNSEEN = table(300, 9)


def weighted(frame: pd.DataFrame, weights: Any = 1.0, domain: Domain = DOMAIN) -> Release:
    """A release of weighted rows, without a measurement."""
    return from_frame(frame.assign(weight=weights), domain=domain)


def release_around(
    vector: np.ndarray, feature_map: FeatureMap, domain: Domain, points: pd.DataFrame, *, noise: float, n_rows: int,
    weights: np.ndarray | None = None, method: str = "foreign",
) -> Release:  # fmt: skip
    """A release around a measurement of this vector, of equal weights unless given."""
    measurement = measurement_of(feature_map, vector, noise, n_rows)
    release = measured_release(measurement, domain, domain.encode(points))
    return release.replaced(weights=release.weights if weights is None else weights, method=method)


def measured(noise: float = 2e-4, method: str = "random-features") -> Release:
    """A release of random features around a measurement of N rows, its points unrelated to their labels."""
    rng = np.random.default_rng(0)
    feature_map = RandomFourier.draw(table_kernel(DOMAIN), n_columns=len(DOMAIN), dimension=400, rng=1)
    vector = feature_mean(feature_map, DOMAIN.encode(table(N, 10))) + noise * rng.normal(size=400)
    points = table(200, 20)
    for name in ("risk", "cost"):
        points[name] = rng.permutation(points[name].to_numpy())
    return release_around(vector, feature_map, DOMAIN, points, noise=noise, n_rows=N, method=method)
