"""What tests of representation share with others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import Measurement, feature_mean, mean_unit
from kmeanalyst.releases.statement import GAUSSIAN
from kmeanalyst.representation.points.reduced_set import reduced_set


def measured(
    feature_map: FeatureMap, rows: Array, *, noise_scale: float, n_rows: int | None = None, seed: int = 0
) -> Measurement:
    """A simulated measurement: the mean features of the rows, plus noise from a seed. It has no privacy guarantee."""
    mean = feature_mean(feature_map, rows)
    return measured_mean(feature_map, mean, noise_scale=noise_scale, n_rows=n_rows or len(rows), seed=seed)


def measured_mean(
    feature_map: FeatureMap, mean: Array, *, noise_scale: float, n_rows: int, seed: int = 0
) -> Measurement:
    """A simulated measurement of a mean feature (F,)."""
    noisy = mean + noise_scale * np.random.default_rng(seed).standard_normal(len(mean))
    unit = mean_unit(n_rows=n_rows, feature_map=feature_map)
    integers = np.rint(noisy / unit).astype(np.int64)
    return Measurement.from_sum(
        integers, grid_scale=noise_scale / unit, n_rows=n_rows, feature_map=feature_map, noise_law=GAUSSIAN
    )


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """A small mixed population with missing cells, a spike at zero, ordinals, dates and booleans."""
    school = rng.choice(3, n, p=[0.2, 0.5, 0.3])
    married = rng.random(n) < np.where(school == 2, 0.8, 0.4)
    return pd.DataFrame({
        "age": np.clip(rng.normal(40 + 8 * school, 10), 0, 99).round(),
        "gain": np.where(rng.random(n) < 0.7, 0.0, np.exp(rng.normal(6, 1, n))),
        "height": np.where(rng.random(n) < 0.25, np.nan, rng.normal(170, 8, n)),
        "school": np.array(["none", "some", "degree"], dtype=object)[school],
        "married": married,
        "city": np.where(rng.random(n) < 0.1, "", rng.choice(["A", "B", "C"], n, p=[0.6, 0.3, 0.1])),
        "day": np.datetime64("2020-01-01") + rng.integers(0, 300, n).astype("timedelta64[D]"),
    })  # fmt: skip


PEOPLE = Domain((
    Integer(name="age", lower=0, upper=100), Real(name="gain", lower=0, upper=1e5, scale="log1p", atoms=(0,)),
    Real(name="height", lower=120, upper=220, missing=True), Ordinal(name="school", levels=("none", "some", "degree")),
    Boolean(name="married"), Categorical(name="city", levels=("A", "B", "C"), missing=True),
    Date(name="day", lower="2019-12-01", upper="2020-12-31"),
))  # fmt: skip


def simulated(domain: Domain, rows: Array, *, noise_scale: float, dimension: int) -> Measurement:
    """A simulated measurement of the rows in random features of the domain's own kernel."""
    feature_map = RandomFourier.draw(
        table_kernel(domain), n_columns=len(domain), dimension=dimension, missing_columns=domain.missing_columns, rng=0
    )
    return measured(feature_map, rows, noise_scale=noise_scale)


def place_points(measurement: Measurement, domain: Domain, *, n_points: int, **options) -> tuple[Array, Array]:
    """Points and probability weights as near to the measurement itself as they get: nothing is denoised."""
    options = {"enough": measurement.noise_scale, "rng": 0} | options
    return reduced_set(measurement.feature_map, measurement.vector, domain, n_points=n_points, **options)
