"""A small private table, with markup in the place of a level, for tests of the internal page."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

EVIL = '"><script>alert(1)</script>'
DOMAIN = Domain((
    Categorical(name="town", levels=("A", "B", EVIL, "never")),
    Integer(name="age", lower=0, upper=99, edges=(18, 65)),
    Real(name="pay", lower=0, upper=1000, atoms=(0,), missing=True),
    Integer(name="hours-per-week", lower=0, upper=80),
    Boolean(name="ill"),
))  # fmt: skip


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """Rows of the domain as text, as a CSV file has them."""
    rng = np.random.default_rng(seed)
    age, town = rng.integers(0, 100, n), rng.choice(["A", "B", EVIL], n, p=[0.6, 0.3, 0.1])
    hours = np.clip(np.where(age < 18, 0, rng.normal(36, 8, n)), 0, 80).astype(int)
    pay = np.clip(20 * hours + rng.normal(0, 40, n), 0, 1000).round(2)
    frame = pd.DataFrame({"town": town, "age": age, "pay": pay, "hours-per-week": hours, "ill": rng.random(n) < age / 150})
    frame = frame.astype(str)
    frame.loc[rng.random(n) < 0.05, "pay"] = ""
    return frame
