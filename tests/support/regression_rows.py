"""Plain rows that regressions are tested on: numbers, levels, counts and costs that depend on one another."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import expit

from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

DOMAIN = Domain((
    Real(name="x", lower=-4, upper=4), Real(name="z", lower=0, upper=3),
    Categorical(name="g", levels=("a", "b", "c")), Categorical(name="answer", levels=("no", "yes")),
    Boolean(name="paid"), Integer(name="visits", lower=0, upper=40), Real(name="cost", lower=0, upper=100),
    Categorical(name="asked", levels=("n", "j"), missing=True),
))  # fmt: skip
N = 800


def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x, z, g = rng.normal(size=N).clip(-4, 4), rng.uniform(0, 3, N), rng.choice(list("abc"), N, p=[0.6, 0.3, 0.1])
    eta = 0.5 * x - 0.3 * z + 0.7 * (g == "b")
    rows = {
        "x": x, "z": z, "g": g, "answer": np.where(rng.random(N) < expit(eta), "yes", "no"),
        "paid": rng.random(N) < expit(-eta), "visits": rng.poisson(1.5 + 0.5 * z),
        "cost": rng.gamma(4, 0.25 * np.exp(0.3 * z + 0.2 * (g == "c"))) + 0.05,
        "asked": np.where(rng.random(N) < 0.1, None, np.where(x > 0, "j", "n")),
    }  # fmt: skip
    return pd.DataFrame(rows)


ROWS = table()


def released(weights: np.ndarray | None = None, rows: pd.DataFrame = ROWS, domain: Domain = DOMAIN) -> Release:
    return from_frame(rows.assign(weight=1 / len(rows) if weights is None else weights), domain=domain)
