"""The domain of tests of expressions, and random rows of it."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real

DOMAIN = Domain(
    (
        Integer(name="age", lower=0, upper=99),
        Real(name="wage", lower=-5, upper=5, missing=True),
        Real(name="hours-per-week", lower=0, upper=80),
        Integer(name="children", lower=0, upper=9, missing=True),
        Categorical(name="sex", levels=("Female", "Male"), missing=True),
        Categorical(name="old sex", levels=("Male", "Other", "Female")),
        Ordinal(name="grade", levels=("low", "mid", "high"), missing=True),
        Ordinal(name="former_grade", levels=("low", "mid", "high"), missing=True),
        Ordinal(name="size", levels=("s", "m")),
        Boolean(name="married", missing=True),
        Boolean(name="veteran"),
        Date(name="joined", lower="1960-01-01", upper="2025-01-01", missing=True),
        Date(name="born", lower="1900-01-01", upper="2025-01-01"),
        Categorical(name="unordered", levels=("low", "mid", "high")),
        Categorical(name="code", levels=("1", "1.0", "13", "-4", "it's", "True")),
    )
)
GRADES = ("low", "mid", "high")


def random_frame(seed: int, n: int) -> pd.DataFrame:
    return DOMAIN.decode(DOMAIN.draw(n, np.random.default_rng(seed)))
