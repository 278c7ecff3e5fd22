"""Answers on a real table: are intervals of the released answers honest, and how wide are they?

    python tests/benchmarks/real_answers.py [--table adult] [--releases 10] [--epsilon 1 0.1]
        [--kernels margins target default] [--workers 2] [--workload QUESTIONS.txt]

Reads ../shared/data/adult or ../shared/data/housing, and says so when it is not there. The population is all rows (of both
files of Adult, 48,842; of housing 20,640); for each release N = 20,000 rows are drawn from it with replacement, so that
sampling varies as it does for a table drawn from a large population. The domain is drafted from the population (it is
public here); δ = 1e-6; the target is income, or the value of a house. Questions, thirty for Adult and fourteen for housing,
were fixed before the first run. A line for each question and a summary for each configuration:

    held        share of releases whose 95 % interval holds the population's value
    bias, rmse  of the answers, in standard errors of sampling alone
    price       width of the interval over the width that sampling alone would give; for questions without a standard error
                of their own (quantiles, correlations, slopes) sampling alone is measured on 200 tables without privacy
    privacy, resolution  median standard errors of these parts in the same units
    seconds     to the first answer of a release, and of a further one (medians)

and what was held of questions on one column, on two that were counted together, on two that were not, and on more.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from harness import DATA, command_line, read_text, require, show

from kmeanalyst.release import Release
from release_side import draft_domain, publish

N, DELTA = 20_000, 1e-6
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
KERNELS = ("margins", "target", "default", "adaptive", "adaptive-target")
SAMPLES = 200


@dataclass(frozen=True)
class Asked:
    """A question of a release, and its value on a table."""

    name: str
    of_release: Callable[[Release], Any]
    of_table: Callable[[pd.DataFrame], float]


def mean(expression: str, where: str | None = None) -> Asked:
    """The mean of an expression, given a condition; on a table as pandas evaluates both."""

    def of_table(table: pd.DataFrame) -> float:
        return float(np.mean((table if where is None else table.query(where)).eval(expression)))

    name = expression if where is None else f"{expression} | {where}"
    return Asked(name, lambda release: release.expectation(expression, where=where), of_table)


def _quantile(column: str, level: float) -> Asked:
    return Asked(
        f"quantile {level} of {column}", lambda r: r.quantile(column, level),
        lambda t: float(np.quantile(t[column], level, method="inverted_cdf")),
    )  # fmt: skip


def _correlation(x: str, y: str) -> Asked:
    return Asked(f"corr {x}, {y}", lambda r: r.corr([x, y])[x, y], lambda t: float(t[x].corr(t[y])))


def _both(a: str, x: str, b: str, y: str) -> Asked:
    return mean(f"`{a}` == '{x}' and `{b}` == '{y}'")


OF_ADULT = (
    mean("age"), mean("age > 50"), mean("`hours-per-week` == 40"), mean("`capital-gain` > 0"),
    _both("sex", "Female", "income", ">50K"), _both("education", "Bachelors", "income", ">50K"),
    _both("race", "Black", "sex", "Female"), mean("occupation == 'Sales' and age < 30"),
    mean("`marital-status` == 'Never-married' and age < 25"), mean("age * `hours-per-week`"),
    mean("education == 'HS-grad' and sex == 'Male' and income == '>50K'"), mean("`hours-per-week`"),
    mean("`hours-per-week` > 45"), mean("race == 'White'"), mean("occupation == 'Exec-managerial'"),
    _both("workclass", "Private", "education", "HS-grad"), mean("relationship == 'Husband' and age > 50"),
    mean("`education-num` * age"), _quantile("age", 0.5), _quantile("hours-per-week", 0.9),
    _correlation("age", "hours-per-week"), _correlation("education-num", "hours-per-week"),
    mean("age", "income == '>50K'"), mean("`hours-per-week`", "sex == 'Female'"),
    mean("income == '>50K'", "education == 'Masters'"), mean("income == '>50K'", "age > 40"),
    mean("`native-country` == 'Mexico'"), mean("`capital-loss` > 0 and income == '>50K'"),
    mean("age >= 30 and age < 40"), mean("`marital-status` == 'Divorced'"),
)  # fmt: skip


OF_HOUSING = (
    mean("median_income"), mean("median_house_value"), mean("median_house_value > 300000"), mean("housing_median_age >= 50"),
    mean("ocean_proximity == 'INLAND'"), mean("ocean_proximity == 'INLAND' and median_house_value < 100000"),
    mean("latitude > 36 and longitude < -120"), mean("median_income > 6"), mean("population > 2000"),
    _quantile("median_income", 0.5), _quantile("median_house_value", 0.25),
    _correlation("median_income", "median_house_value"), _correlation("latitude", "longitude"),
    mean("median_house_value", "ocean_proximity == 'NEAR BAY'"),
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """A population and what is asked of it."""

    files: tuple[str, ...]
    numbers: tuple[str, ...]
    target: str
    questions: tuple[Asked, ...]

    @cached_property
    def population(self) -> pd.DataFrame:
        """All files; numbers as numbers, rows with a missing number left out."""
        table = read_text(*self.files).apply(lambda column: column.str.rstrip("."))
        table[list(self.numbers)] = table[list(self.numbers)].apply(pd.to_numeric, errors="coerce")
        return table.dropna().reset_index(drop=True)

    def drawn(self, seed: int) -> pd.DataFrame:
        return self.population.sample(N, replace=True, random_state=seed).reset_index(drop=True)

    def as_text(self, table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(**{name: table[name].map("{:.10g}".format) for name in self.numbers})

    def sampling(self) -> tuple[np.ndarray, np.ndarray]:
        """Values of all questions on the population, and their standard deviation over tables of N rows."""
        truth = np.array([asked.of_table(self.population) for asked in self.questions])
        drawn = (self.drawn(10_000 + i) for i in range(SAMPLES))
        values = np.array([[asked.of_table(table) for asked in self.questions] for table in drawn])
        return truth, values.std(axis=0, ddof=1)

    def options(self, kernel: str) -> dict[str, Any]:
        target = {"target": self.target} if kernel.endswith("target") else {}
        return target | ({} if kernel in ("default", "target") else {"kernel": kernel.removesuffix("-target")})


TABLES = {
    "adult": Table(("adult/adult_train.csv.gz", "adult/adult_test.csv.gz"), NUMBERS, "income", OF_ADULT),
    "housing": Table(
        ("housing/housing.csv.gz",),
        ("longitude", "latitude", "housing_median_age", "total_rooms", "total_bedrooms", "population", "households",
         "median_income", "median_house_value"),
        "median_house_value", OF_HOUSING,
    ),
}  # fmt: skip


def answers(setting: tuple[str, str, float, int, str | None]) -> dict[str, Any]:
    """What one release answers to all questions."""
    name, kernel, epsilon, seed, workload = setting
    warnings.simplefilter("ignore")
    table = TABLES[name]
    domain = draft_domain(table.as_text(table.population), this_sample_is_public=True).domain
    private, options = table.as_text(table.drawn(seed)), table.options(kernel)
    release = publish(private, domain, epsilon=epsilon, delta=DELTA, uncounted=True, workload=workload, **options)
    rows, seconds, kinds = [], [], []
    for asked in table.questions:
        kinds.append(_kind(release, asked.name))
        start = time.perf_counter()
        found = asked.of_release(release)
        low, high = found.interval()
        seconds.append(time.perf_counter() - start)
        parts = [np.nan if found.parts[name] is None else found.parts[name] for name in ("privacy", "resolution")]
        rows.append([found.value, low, high, *parts])
    return {"rows": np.array(rows, dtype=float), "seconds": seconds, "kinds": kinds}


def _kind(release: Release, question: str) -> str:
    """Of a question, by how many columns it names, and whether two of them were counted together."""
    assert release.measurement is not None
    names = enumerate(release.domain.names)
    named = [j for j, name in names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", question)]
    if len(named) != 2:
        return "one column" if len(named) < 2 else "more columns"
    return "a chosen pair" if release.measurement.counted_together(*named) else "another pair"


def summarised(setting: Any, found: list[dict[str, Any]], truth: np.ndarray, error: np.ndarray) -> None:
    rows = np.array([one["rows"] for one in found])
    value, low, high = rows[..., 0], rows[..., 1], rows[..., 2]
    held = (low <= truth) & (truth <= high)
    error = np.where(error > 0, error, np.nan)  # the median of whole numbers may be the same in every table
    away, price = (value - truth) / error, np.median((high - low) / (2 * 1.96 * error), axis=0)
    rmse, (privacy, resolution) = np.sqrt((away**2).mean(axis=0)), np.nanmedian(rows[..., 3:], axis=0).T / error
    table = pd.DataFrame({
        "question": [asked.name for asked in TABLES[setting[0]].questions], "held": held.mean(axis=0),
        "bias": away.mean(axis=0), "rmse": rmse, "price": price, "privacy": privacy, "resolution": resolution,
    })  # fmt: skip
    print(f"\n{setting[0]}, {setting[1]}, epsilon {setting[2]:g}, {len(found)} releases")
    show(table.to_dict("records"))
    kinds = np.array([one["kinds"] for one in found])
    show({"kind": kind, "answers": (kinds == kind).sum(), "held": held[kinds == kind].mean()} for kind in np.unique(kinds))
    show([{
        "held": held.mean(), "worst": held.mean(axis=0).min(), "median price": np.nanmedian(price),
        "largest": np.nanmax(price), "median rmse": np.nanmedian(rmse),
        "first answer, s": np.median([one["seconds"][0] for one in found]),
        "further, s": np.median([second for one in found for second in one["seconds"][1:]]),
    }])  # fmt: skip


def main() -> None:
    options = command_line(__doc__, table="adult", releases=10, epsilon=(1.0, 0.1), kernels=KERNELS, workers=2, workload=None)
    table = TABLES[options.table]
    require(*(DATA / file for file in table.files))
    truth, error = table.sampling()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("forkserver")) as pool:
        for kernel in options.kernels:
            for epsilon in options.epsilon:
                settings = [(options.table, kernel, epsilon, i, options.workload) for i in range(options.releases)]
                summarised(settings[0], list(pool.map(answers, settings)), truth, error)


if __name__ == "__main__":
    main()
