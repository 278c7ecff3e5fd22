"""Domains, kernels and features with parts for numbers and for levels, for tests of margins and composed features."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels import Gaussian, Kernel, Margins, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import composed_features
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

CELL = Margins(((0.5,),), ((),), (False,), (1.0, 0, 0))


PEOPLE = Domain((
    Real(name="x", lower=-2.0, upper=2.0, missing=True), Integer(name="n", lower=0, upper=9, atoms=(0,)),
    Categorical(name="city", levels=("Basel", "Genf", "Zug")), Categorical(name="rich", levels=("no", "yes")),
))  # fmt: skip


LABELLED = Sum((
    Scaled(0.1, OnColumns(CELL, (3,))),
    Product((
        OnColumns(CELL, (3,)),
        Sum((
            Scaled(0.5, OnColumns(Gaussian(1.0), (0, 1))),
            Scaled(0.4, OnColumns(Margins(((0.5, 1.5), ()), ((), (0.0,)), (False, False), (1.0, 0, 0)), (2, 1))),
        )),
    )),
))  # fmt: skip


def drawn(kernel: Kernel, domain: Domain, dimension: int = 40) -> FeatureMap:
    """Composed features whose random parts have `dimension` coordinates."""

    def leaf(part: Kernel, columns: tuple[int, ...], name: str) -> FeatureMap:
        missing = [i for i, j in enumerate(columns) if domain.columns[j].missing]
        return RandomFourier.draw(part, n_columns=len(columns), dimension=dimension, missing_columns=missing, rng=len(name))

    return composed_features(kernel, tuple(range(len(domain))), leaf)


WORKERS = Domain((
    Integer(name="hours", lower=1, upper=99, edges=(20, 40, 41), atoms=(40,)),
    Real(name="gain", lower=0.0, upper=100.0, missing=True),
    Categorical(name="city", levels=("Basel", "Genf", "Zug")),
    Categorical(name="rich", levels=("no", "yes")),
))  # fmt: skip


def workers(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Who works long and in Zug is rich; the gain of many is missing."""
    hours = np.where(rng.random(n) < 0.4, 40, rng.integers(1, 100, n))
    city = rng.choice(["Basel", "Genf", "Zug"], n, p=[0.5, 0.3, 0.2])
    rich = np.where((hours > 40) & (city == "Zug"), rng.random(n) < 0.9, rng.random(n) < 0.1)
    gain = np.where(rng.random(n) < 0.5, np.nan, rng.uniform(0, 100, n) ** (1 + rich) / 100**rich)
    return pd.DataFrame({"hours": hours, "gain": gain, "city": city, "rich": np.where(rich, "yes", "no")})
