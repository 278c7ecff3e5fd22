"""Populations that the benchmarks of this folder draw tables from, and what they are published with; all but Adult simulated."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from real_answers import TABLES

import release_side
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical, Ordinal
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


WIDE = Domain(
    (
        *MIXED.columns,
        Integer(name="hours", lower=0, upper=99, atoms=(0, 40)),
        Categorical(name="region", levels=tuple("abcdefghijkl")),
        Ordinal(name="grade", levels=("low", "middle", "high")),
        Integer(name="children", lower=0, upper=9),
    )
)


def wide_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """The mixed table with further columns: atoms, rare levels, an order, few values; most depend on those before."""
    rows = mixed_rows(n, rng)
    hours = np.clip(rng.normal(38, 10, n) + rows["age"] / 20, 0, 99).round().astype(int)
    usual = rng.random(n)
    region = np.array(list("abcdefghijkl"))[np.minimum(rng.geometric(0.35, n) - 1, 11)]
    grade = np.array(["low", "middle", "high"])[np.searchsorted([6.5, 8], np.log(rows["wage"].fillna(800)))]
    return rows.assign(
        hours=np.select([usual < 0.2, usual < 0.6], [0, 40], hours), region=region, grade=grade,
        children=np.minimum(rng.poisson(rows["age"] / 40), 9),
    )  # fmt: skip


def independent_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """The wide table with every column shuffled by itself."""
    return wide_rows(n, rng).apply(lambda column: rng.permutation(column))


@cache
def _adult() -> tuple[Domain, pd.DataFrame]:
    table = TABLES["adult"]
    texts = table.as_text(table.population)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return release_side.draft_domain(texts, this_sample_is_public=True).domain, texts


def adult_rows(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of both files of Adult, drawn with replacement: the files are the population."""
    return _adult()[1].sample(n, replace=True, random_state=rng).reset_index(drop=True)


Population: TypeAlias = tuple[Domain, Callable[[int, np.random.Generator], pd.DataFrame], dict[str, Any]]
_SIMULATED: dict[str, Population] = {
    "numeric": (NUMERIC, numeric_rows, {"kernel": "gaussian:lengthscale=3"}),
    "mixed": (MIXED, mixed_rows, {"kernel": "table"}), "margins": (MIXED, mixed_rows, {"kernel": "margins"}),
    "simulated": (WIDE, wide_rows, {"kernel": "adaptive"}), "independent": (WIDE, independent_rows, {"kernel": "adaptive"}),
}  # fmt: skip


def population(name: str) -> Population:
    """Its domain, how rows of it are drawn, and what `publish` is asked for; "adult" reads ../shared/data."""
    return (_adult()[0], adult_rows, {"kernel": "adaptive"}) if name == "adult" else _SIMULATED[name]
