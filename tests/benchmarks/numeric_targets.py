"""Models of numbers: regressors trained on releases with a number as target, compared with the private rows and samples of them.

    python tests/benchmarks/numeric_targets.py [--tables linear skewed spiked interactions date housing]
        [--epsilon 1 0.1] [--draws 2]

linear        20,000 rows of `learning.py`: a cost that depends on five columns by slopes, a step and noise.
skewed        an income: the exponential of the like, on a logarithmic scale that the domain declares.
spiked        the cost, 0 of those with few visits: two fifths of the rows, an atom that the domain declares.
interactions  slopes that change sign with a boolean, and a product of two numbers: tables of pairs do not show them.
date          a day, predicted in days since 1970-01-01.
housing       the value of Californian houses (../shared; left out, and said, without it).

Each line is a table, a source of rows and R² on real test rows by regressor: private rows, a tenth and a hundredth of them, and
releases at δ = 1e-6, means over draws (noise from the operating system). R² of skewed targets is of logarithms.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import synthesis
from harness import DATA, command_line, is_there, read_text, show
from learning import DOMAIN, private_rows, simulated
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor

import kmeanalyst as ka
from kmeanalyst.learning.rows.training_rows import target_of
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Date, Real
from release_side import publish

ROWS, TEST_ROWS = 20_000, 10_000
REGRESSORS: dict[str, Callable[[], Any]] = {
    "linear": LinearRegression, "forest": lambda: RandomForestRegressor(50, random_state=0),
    "boosting": lambda: HistGradientBoostingRegressor(random_state=0), "neighbours": lambda: KNeighborsRegressor(20),
}  # fmt: skip
DAY = np.datetime64("2010-01-01")


@dataclass(frozen=True)
class Task:
    """Private rows and test rows, their domain, and the column that is predicted."""

    domain: Domain
    train: pd.DataFrame
    test: pd.DataFrame
    target: str
    logged: bool = False


def made(target: Any, column: Any, **options: Any) -> Task:
    """A table of `learning.py` with another target, computed from its rows and the noise of its cost."""
    rng = np.random.default_rng(0)
    rows = simulated(ROWS + TEST_ROWS, rng)
    rows[column.name] = target(rows, rng)
    domain = Domain((*(DOMAIN[name] for name in ("age", "score", "visits", "city", "smokes")), column))
    rows = rows[list(domain.names)]
    return Task(domain, rows[:ROWS], rows[ROWS:], column.name, **options)


def income(rows: pd.DataFrame, rng: np.random.Generator) -> Any:
    return np.exp(np.clip(7 + rows["cost"] / 15, 6, 14)).clip(400, 1e6)


def interacting(rows: pd.DataFrame, rng: np.random.Generator) -> Any:
    sign = np.where(rows["smokes"], 1.0, -0.5)
    own = 50 + 8 * sign * rows["score"] + 0.25 * (rows["age"] - 45) * rows["score"]
    return np.clip(own + 6 * rng.normal(size=len(rows)), 0, 100)


def housing() -> Task:
    frame = read_text("housing/housing.csv.gz").replace({r"\.0$": ""}, regex=True)
    value = Real(name="median_house_value", lower=10_000, upper=510_000, edges=tuple(range(75_000, 400_000, 25_000)))
    others = [column for column in synthesis.housing().domain.columns if column.name != "high_value"]
    train, test = train_test_split(frame, test_size=0.25, random_state=0)
    return Task(Domain((*others, value)), train, test, value.name)


INCOME = {"lower": 400, "upper": 1e6, "scale": "log", "edges": (2e3, 5e3, 1e4, 2e4, 3e4, 5e4, 1e5, 2e5)}
TASKS: dict[str, Callable[[], Task]] = {
    "linear": lambda: made(lambda rows, rng: rows["cost"], DOMAIN["cost"]),
    "skewed": lambda: made(income, Real(name="income", **INCOME), logged=True),
    "spiked": lambda: made(
        lambda rows, rng: np.where(rows["visits"] <= 2, 0.0, rows["cost"]),
        Real(name="spent", lower=0, upper=100, edges=(10, 20, 30, 40, 50, 60, 80), atoms=(0,)),
    ),
    "interactions": lambda: made(interacting, Real(name="pay", lower=0, upper=100, edges=tuple(range(10, 100, 10)))),
    "date": lambda: made(
        lambda rows, rng: np.datetime_as_string(DAY + (30 * rows["cost"]).to_numpy().astype("timedelta64[D]")),
        Date(name="seen", lower="2010-01-01", upper="2018-12-31"),
    ),
    "housing": housing,
}


def lines(name: str, task: Task, epsilons: list[float], draws: int) -> Iterator[dict[str, Any]]:
    for rows, part in {"private rows": 1, "a tenth of them": 10, "a hundredth": 100}.items():
        found = scores(task, private_rows(task.train.iloc[::part], task.domain), "cells")
        yield {"table": name, "rows": rows} | found
    for epsilon in epsilons:
        made = [publish(task.train, task.domain, epsilon=epsilon, delta=1e-6, target=task.target) for _ in range(draws)]
        found = pd.DataFrame([scores(task, release) for release in made]).mean().to_dict()
        yield {"table": name, "rows": f"release, ε = {epsilon:g}"} | found


def scores(task: Task, release: Any, encoding: Any = None) -> dict[str, float]:
    """R² on the test rows by regressor."""
    target, test = task.target, private_rows(task.test, task.domain)
    truth, logged = target_of(test, target, "regression").cells(test.frame), np.log if task.logged else np.asarray
    columns = [name for name in task.domain.names if name != target]
    found = {}
    for name, make in REGRESSORS.items():
        regressor = TransformedTargetRegressor(make(), func=np.log, inverse_func=np.exp) if task.logged else make()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = ka.fit(regressor, release, target, columns=columns, encoding=encoding)
        found[name] = float(r2_score(logged(truth), logged(model.predict(test.frame))))
    return found


def main() -> None:
    asked = command_line(__doc__, tables=TASKS, epsilon=(1.0, 0.1), draws=2)
    logging.disable(logging.WARNING)
    for name in (name for name in asked.tables if name != "housing" or is_there(DATA)):
        show(lines(name, TASKS[name](), asked.epsilon, asked.draws))


if __name__ == "__main__":
    main()
