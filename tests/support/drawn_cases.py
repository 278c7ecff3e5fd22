"""A release of a simulated table with its questions, which tests of draws and replicate weights share."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import kmeanalyst as ka
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation import wanted
from release_side.publishing.publish import publish

N = 5000


@cache
def of_tables() -> ka.Release:
    """A release whose answers go through the cells of tables."""
    rng = np.random.default_rng(4)
    job = rng.choice(list("abc"), N, p=[0.6, 0.3, 0.1])
    age = np.clip(rng.gamma(6, 6.5, N) + 8 + 5 * (job == "b"), 17, 90).astype(int)
    frame = pd.DataFrame({
        "age": age, "gain": np.where(rng.random(N) < 0.7, 0.0, rng.gamma(1.5, 15, N)), "job": job,
        "sex": np.where(rng.random(N) < 0.3 + 0.2 * (job == "b"), "F", "M"), "city": rng.choice(list("xyz"), N),
    })  # fmt: skip
    domain = Domain((
        Integer(name="age", lower=17, upper=90), Real(name="gain", lower=0, upper=100, atoms=(0,)),
        Categorical(name="job", levels=("a", "b", "c")), Categorical(name="sex", levels=("F", "M")),
        Categorical(name="city", levels=("x", "y", "z")),
    ))  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return publish(frame, domain, epsilon=1.0, delta=1e-6, rehearsal=5, workers=1, kernel="margins")


OF_TABLES = (
    "age", "sex == 'F'", "job == 'b'", "sex == 'F' and job == 'b'", "age * (sex == 'F')", "gain > 20",
    "job == 'b' and age > 40",
)  # fmt: skip
