"""Two simulated populations that the benchmarks of this folder draw tables from, and what they are published with."""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

NUMERIC = Domain(tuple(Real(name=f"x{j}", lower=-6, upper=6) for j in range(5)))
MIXED = Domain(
    (
        Integer(name="age", lower=0, upper=100),
        Real(name="wage", lower=1, upper=1e5, scale="log", missing=True),
        Categorical(name="job", levels=("a", "b", "c", "d")),
        Categorical(name="sex", levels=("F", "M")),
    )
)


def numeric_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """A mixture of three normal clusters in five dimensions."""
    centres = np.array([[-2.0] * 5, [0.0, 2, 0, 2, 0], [3.0, -1, 1, 0, 2]])
    rows = centres[rng.integers(0, 3, n)] + rng.normal(size=(n, 5))
    return pd.DataFrame(rows, columns=list(NUMERIC.names))


def mixed_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Dependent columns, a heavy tail, and missing wages."""
    age = rng.integers(18, 90, n)
    job = np.array(list("abcd"))[np.minimum(rng.poisson(age / 40), 3)]
    wage = np.exp(rng.normal(7, 1, n) + age / 80)
    wage[rng.random(n) < 0.15] = np.nan
    return pd.DataFrame({"age": age, "wage": wage, "job": job, "sex": np.where(rng.random(n) < 0.4, "F", "M")})


POPULATIONS = {
    "numeric": (NUMERIC, numeric_rows, {"kernel": "gaussian:lengthscale=3"}),
    "mixed": (MIXED, mixed_rows, {"kernel": "table"}),
    "margins": (MIXED, mixed_rows, {"kernel": "margins"}),
}
