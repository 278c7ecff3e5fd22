"""A hospital's table with a rule of each kind, and rows that keep them all, or of which a share does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import Rule

CITIES = tuple(f"{state}{i}" for state in "ABCD" for i in range(3))
EDUCATION = ("none", "school", "college", "doctorate")
NEVER = Rule("never", "age < 15 and education == 'doctorate'")
CHILDREN = Rule("never", "age < 15 and employed == 'yes'")
HOURS = Rule("always", "hours == 0 or employed == 'yes'")
ORDER = Rule("always", "discharged >= admitted")
WAGE = Rule("missing", "employed == 'no'", ("wage",))
PLACES = Rule("combinations", columns=("city", "state"), rows=tuple((city, city[0]) for city in CITIES))
STAY = Rule("derive", "discharged - admitted", ("stay",))
RULES = (NEVER, CHILDREN, HOURS, ORDER, WAGE, PLACES, STAY)
HOSPITAL = Domain(
    (
        Integer(name="age", lower=0, upper=99),
        Categorical(name="education", levels=EDUCATION),
        Categorical(name="employed", levels=("no", "yes")),
        Real(name="wage", lower=0.0, upper=100_000.0, missing=True),
        Integer(name="hours", lower=0, upper=80, atoms=(0,)),
        Categorical(name="city", levels=CITIES),
        Categorical(name="state", levels=tuple("ABCD")),
        Date(name="admitted", lower="2020-01-01", upper="2022-12-31"),
        Date(name="discharged", lower="2020-01-01", upper="2023-12-31"),
        Integer(name="stay", lower=0, upper=1500, edges=(1, 3, 7, 14, 30, 90)),
    ),
    rules=RULES,
)


def with_rules(*rules: Rule) -> Domain:
    """The hospital's domain with these rules alone; without the derived column, unless its rule is among them."""
    columns = HOSPITAL.columns if STAY in rules else HOSPITAL.columns[:-1]
    return Domain(columns, rules=rules)


def hospital(n: int, seed: int = 0, *, breaking: float = 0.0) -> pd.DataFrame:
    """n rows that keep all rules; of a share of them the employed are children."""
    rng = np.random.default_rng(seed)
    age = np.minimum(rng.gamma(3.0, 14.0, n), 99).astype(int)
    skill = rng.normal(size=n) + (age - 40) / 60
    learned = np.clip(np.digitize(skill, [-0.8, 0.5, 1.6]), 0, np.where(age < 15, 1, 3))
    employed = (rng.random(n) < 0.2 + 0.18 * learned) & (age >= 15)
    hours = np.where(employed, np.clip(rng.normal(38, 8, n), 0, 80).astype(int), 0)
    wage = np.where(employed, np.clip(hours * (300 + 250 * learned + rng.normal(0, 200, n)), 0, 100_000), np.nan)
    place = rng.choice(len(CITIES), n, p=np.arange(1, 13) / 78)
    first = np.datetime64("2020-01-01") + rng.integers(0, 1095, n)
    stay = np.minimum(rng.geometric(0.15, n) - 1 + (age > 70) * rng.integers(0, 30, n), 365)
    age = np.where(employed & (rng.random(n) < breaking / 0.45), rng.integers(0, 15, n), age)
    frame = pd.DataFrame({
        "age": age, "education": np.array(EDUCATION)[learned], "employed": np.where(employed, "yes", "no"), "wage": wage,
        "hours": hours, "city": np.array(CITIES)[place], "state": [CITIES[i][0] for i in place],
        "admitted": first.astype(str), "discharged": (first + stay).astype(str), "stay": stay,
    })  # fmt: skip
    return frame


def share_broken(domain: Domain, frame: pd.DataFrame) -> float:
    """The share of rows that break a rule of the domain, derived columns as the frame has them."""
    plain = replace(domain, rules=())
    rows: Array = plain.encode(frame)
    return float(rules_of(domain).broken(rows).mean())
