"""What tests of margins share with others."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

PEOPLE = Domain((
    Integer(name="hours", lower=1, upper=99, edges=(20, 40, 41), atoms=(40,)),
    Real(name="gain", lower=0.0, upper=100.0, missing=True),
    Categorical(name="city", levels=("Basel", "Genf", "Zug")),
    Categorical(name="rich", levels=("no", "yes")),
))  # fmt: skip


def people(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Who works long and in Zug is rich; the gain of many is missing."""
    hours = np.where(rng.random(n) < 0.4, 40, rng.integers(1, 100, n))
    city = rng.choice(["Basel", "Genf", "Zug"], n, p=[0.5, 0.3, 0.2])
    rich = np.where((hours > 40) & (city == "Zug"), rng.random(n) < 0.9, rng.random(n) < 0.1)
    gain = np.where(rng.random(n) < 0.5, np.nan, rng.uniform(0, 100, n) ** (1 + rich) / 100**rich)
    return pd.DataFrame({"hours": hours, "gain": gain, "city": city, "rich": np.where(rich, "yes", "no")})
