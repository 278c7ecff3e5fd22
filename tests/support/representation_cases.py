"""Simulated measurements, a small mixed population, and mixtures, for tests of representation."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import Measurement, feature_mean, mean_unit
from kmeanalyst.releases.statement import GAUSSIAN
from kmeanalyst.representation.mixture.component_laws import NormalOrSpecial, Normals
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit
from kmeanalyst.representation.mixture.reduced_set import reduced_set
from kmeanalyst.representation.wanted import Wanted


def measured(feature_map: FeatureMap, rows: Array, *, noise_scale: float, n_rows: int | None = None, seed: int = 0) -> Measurement:
    """A simulated measurement: the mean features of the rows, plus noise from a seed. It has no privacy guarantee."""
    mean = feature_mean(feature_map, rows)
    return measured_mean(feature_map, mean, noise_scale=noise_scale, n_rows=n_rows or len(rows), seed=seed)


def measured_mean(feature_map: FeatureMap, mean: Array, *, noise_scale: float, n_rows: int, seed: int = 0) -> Measurement:
    """A simulated measurement of a mean feature (F,)."""
    noisy = mean + noise_scale * np.random.default_rng(seed).standard_normal(len(mean))
    unit = mean_unit(n_rows=n_rows, feature_map=feature_map)
    integers = np.rint(noisy / unit).astype(np.int64)
    return Measurement.from_sum(integers, grid_scale=noise_scale / unit, n_rows=n_rows, feature_map=feature_map, noise_law=GAUSSIAN)


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
    wanted = Wanted(n_points=n_points, **{name: options.pop(name) for name in ("view", "public") if name in options})
    return reduced_set(measurement.feature_map, measurement.vector, domain, wanted, **{"enough": measurement.noise_scale} | options)


TOGETHER = Domain((
    Real(name="a", lower=-50, upper=50), Real(name="b", lower=0, upper=1e6, scale="log1p", atoms=(0,), missing=True),
    Categorical(name="c", levels=("x", "y", "z"), missing=True), Real(name="d", lower=-5, upper=5),
    Integer(name="e", lower=0, upper=4),
))  # fmt: skip


def table_features(domain: Domain, *, pairs: int) -> RandomFourier:
    return RandomFourier.draw(
        table_kernel(domain), n_columns=len(domain), dimension=2 * pairs, missing_columns=domain.missing_columns, rng=0
    )


def search_in(domain: Domain, *, pairs: int = 60, noise: float = 0.01) -> MixtureFit:
    """A search whose target is any vector of the size of a mean phasor."""
    target = np.random.default_rng(1).normal(0, 0.3, (2, pairs))
    return MixtureFit(table_features(domain, pairs=pairs), domain, target[0] + 1j * target[1], noise)


def some_mixture(search: MixtureFit, size: int, seed: int = 2) -> Mixture:
    """Components inside the domain: means in its middle third, spreads of 2 to 6 % of its extent, any probabilities."""
    rng, parts = np.random.default_rng(seed), []
    for law in search.laws:
        low, high = np.array(law.bounds).T
        part = rng.normal(0, 1, (size, law.width))
        n_means = law.width // 2 if isinstance(law, Normals) else int(isinstance(law, NormalOrSpecial))
        middle = rng.uniform(0.35, 0.65, (size, n_means))
        part[:, :n_means] = low[:n_means] + middle * (high - low)[:n_means]
        part[:, law.log_sds] = np.log(law.extents * rng.uniform(0.02, 0.06, (size, n_means)))
        parts.append(np.clip(part, low, high))
    return Mixture(search.laws, len(search.domain), rng.dirichlet(np.ones(size)), np.hstack(parts))


PLANE = Domain((Real(name="x", lower=-6, upper=6), Real(name="y", lower=-6, upper=6)))


PLANTED = (np.array([0.5, 0.3, 0.2]), np.array([[-2.0, 0], [2, 2], [1, -3]]), np.array([0.7, 0.5, 0.9]))


def planted(noise: float, *, pairs: int = 150, seed: int = 0) -> tuple[MixtureFit, Array]:
    """A search for three round clusters in the plane, and their exact mean phasor."""
    features = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=2 * pairs, rng=0)
    shares, means, sds = PLANTED
    truth = shares @ np.exp(1j * means @ features.linear - 0.5 * np.outer(sds**2, (features.linear**2).sum(axis=0)))
    rng = np.random.default_rng(1000 + seed)  # not the features' own seed
    y = truth + noise * np.sqrt(pairs) * (rng.standard_normal(pairs) + 1j * rng.standard_normal(pairs))
    return MixtureFit(features, PLANE, y, noise), truth
