"""Answers on a real table: are intervals of the released answers honest, and how wide are they?

    python tests/benchmarks/real_answers.py [--releases 10] [--epsilon 1 0.1] [--kernels margins target default]
        [--workers 2] [--view VIEW]

Reads ../shared/data/adult, and says so when it is not there. The population is both files together, 48,842 rows; for each
release N = 20,000 rows are drawn from it with replacement, so that sampling varies as it does for a table drawn from a
large population. The domain is drafted from the population (it is public here); δ = 1e-6. Thirty questions were fixed
before the first run. A line for each question and a summary for each configuration:

    held        share of releases whose 95 % interval holds the population's value
    bias, rmse  of the answers, in standard errors of sampling alone
    price       width of the interval over the width that sampling alone would give; for questions without a standard error
                of their own (quantiles, correlations, slopes) sampling alone is measured on 200 tables without privacy
    parts       median standard errors in the same units: privacy, resolution
    seconds     to the first answer of a release, and of a further one (medians)
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.release import Release
from release_side import draft_domain, publish

ADULT = Path(__file__).resolve().parents[3] / "shared" / "data" / "adult"
N, DELTA = 20_000, 1e-6
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
KERNELS: dict[str, dict[str, Any]] = {"margins": {"kernel": "margins"}, "target": {"target": "income"}, "default": {}}
SAMPLES = 200


@dataclass(frozen=True)
class Asked:
    """A question of a release, and its value on a table."""

    name: str
    of_release: Callable[[Release, str | None], Any]
    of_table: Callable[[pd.DataFrame], float]


def expectation(expression: str, of_rows: Callable[[pd.DataFrame], Any]) -> Asked:
    """The mean of an expression."""
    return Asked(expression, lambda r, view: r.expectation(expression, view=view), lambda t: float(np.mean(of_rows(t))))


def conditional(expression: str, where: str, of_rows: Callable[[pd.DataFrame], Any]) -> Asked:
    """The mean of an expression given a condition; `of_rows` gives its values on the rows that meet it."""
    return Asked(
        f"{expression} | {where}",
        lambda r, view: r.expectation(expression, where=where, view=view),
        lambda t: float(np.mean(of_rows(t))),
    )


def _quantile(column: str, level: float) -> Asked:
    return Asked(
        f"quantile {level} of {column}",
        lambda r, view: r.quantile(column, level, view=view if view == "fitted" else None),
        lambda t: float(np.quantile(t[column], level, method="inverted_cdf")),
    )


def _correlation(x: str, y: str) -> Asked:
    return Asked(f"corr {x}, {y}", lambda r, view: r.corr([x, y], view=view)[x, y], lambda t: float(t[x].corr(t[y])))


def _both(a: str, x: str, b: str, y: str) -> Asked:
    return expectation(f"`{a}` == '{x}' and `{b}` == '{y}'", lambda t: (t[a] == x) & (t[b] == y))


QUESTIONS = (
    expectation("age", lambda t: t["age"]),
    expectation("age > 50", lambda t: t["age"] > 50),
    expectation("`hours-per-week` == 40", lambda t: t["hours-per-week"] == 40),
    expectation("`capital-gain` > 0", lambda t: t["capital-gain"] > 0),
    _both("sex", "Female", "income", ">50K"),
    _both("education", "Bachelors", "income", ">50K"),
    _both("race", "Black", "sex", "Female"),
    expectation("occupation == 'Sales' and age < 30", lambda t: (t["occupation"] == "Sales") & (t["age"] < 30)),
    expectation(
        "`marital-status` == 'Never-married' and age < 25",
        lambda t: (t["marital-status"] == "Never-married") & (t["age"] < 25),
    ),
    expectation("age * `hours-per-week`", lambda t: t["age"] * t["hours-per-week"]),
    expectation(
        "education == 'HS-grad' and sex == 'Male' and income == '>50K'",
        lambda t: (t["education"] == "HS-grad") & (t["sex"] == "Male") & (t["income"] == ">50K"),
    ),
    expectation("`hours-per-week`", lambda t: t["hours-per-week"]),
    expectation("`hours-per-week` > 45", lambda t: t["hours-per-week"] > 45),
    expectation("race == 'White'", lambda t: t["race"] == "White"),
    expectation("occupation == 'Exec-managerial'", lambda t: t["occupation"] == "Exec-managerial"),
    _both("workclass", "Private", "education", "HS-grad"),
    expectation("relationship == 'Husband' and age > 50", lambda t: (t["relationship"] == "Husband") & (t["age"] > 50)),
    expectation("`education-num` * age", lambda t: t["education-num"] * t["age"]),
    _quantile("age", 0.5),
    _quantile("hours-per-week", 0.9),
    _correlation("age", "hours-per-week"),
    _correlation("education-num", "hours-per-week"),
    conditional("age", "income == '>50K'", lambda t: t.loc[t["income"] == ">50K", "age"]),
    conditional("`hours-per-week`", "sex == 'Female'", lambda t: t.loc[t["sex"] == "Female", "hours-per-week"]),
    conditional("income == '>50K'", "education == 'Masters'", lambda t: t.loc[t["education"] == "Masters", "income"] == ">50K"),
    conditional("income == '>50K'", "age > 40", lambda t: t.loc[t["age"] > 40, "income"] == ">50K"),
    expectation("`native-country` == 'Mexico'", lambda t: t["native-country"] == "Mexico"),
    expectation("`capital-loss` > 0 and income == '>50K'", lambda t: (t["capital-loss"] > 0) & (t["income"] == ">50K")),
    expectation("age >= 30 and age < 40", lambda t: (t["age"] >= 30) & (t["age"] < 40)),
    expectation("`marital-status` == 'Divorced'", lambda t: t["marital-status"] == "Divorced"),
)  # fmt: skip


@cache
def population() -> pd.DataFrame:
    """Both files; numbers as numbers."""
    parts = [
        pd.read_csv(ADULT / f"adult_{part}.csv.gz", dtype=str, keep_default_na=False) for part in ("train", "test")
    ]
    table = pd.concat(parts, ignore_index=True).apply(lambda column: column.str.strip())
    table["income"] = table["income"].str.rstrip(".")
    return table.astype(dict.fromkeys(NUMBERS, float))


def drawn(seed: int) -> pd.DataFrame:
    return population().sample(N, replace=True, random_state=seed).reset_index(drop=True)


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Every cell as its text, as `publish` wants it."""
    return table.assign(**{column: table[column].astype(int).astype(str) for column in NUMBERS})


def sampling() -> tuple[np.ndarray, np.ndarray]:
    """Values of all questions on the population, and their standard deviation over tables of N rows."""
    truth = np.array([asked.of_table(population()) for asked in QUESTIONS])
    values = np.array([[asked.of_table(drawn(10_000 + i)) for asked in QUESTIONS] for i in range(SAMPLES)])
    return truth, values.std(axis=0, ddof=1)


def answers(setting: tuple[str, float, int, str | None]) -> dict[str, Any]:
    """What one release answers to all questions."""
    kernel, epsilon, seed, view = setting
    warnings.simplefilter("ignore")
    table = drawn(seed)
    domain = draft_domain(as_text(population()), this_sample_is_public=True).domain
    release = publish(as_text(table), domain, epsilon=epsilon, delta=DELTA, uncounted=True, **KERNELS[kernel])
    rows, seconds = [], []
    for asked in QUESTIONS:
        start = time.perf_counter()
        found = asked.of_release(release, view)
        low, high = found.interval()
        seconds.append(time.perf_counter() - start)
        parts = [np.nan if found.parts[name] is None else found.parts[name] for name in ("privacy", "resolution")]
        rows.append([found.value, low, high, *parts])
    return {"kernel": kernel, "epsilon": epsilon, "rows": np.array(rows, dtype=float), "seconds": seconds}


def summarised(found: list[dict[str, Any]], truth: np.ndarray, error: np.ndarray) -> None:
    rows = np.array([each["rows"] for each in found])
    value, low, high = rows[..., 0], rows[..., 1], rows[..., 2]
    held = (low <= truth) & (truth <= high)
    error = np.where(error > 0, error, np.nan)  # the median of whole numbers may be the same in every table
    price = (high - low) / (2 * 1.96 * error)
    away = (value - truth) / error
    print(f"\n{found[0]['kernel']}, epsilon {found[0]['epsilon']:g}, {len(found)} releases")
    print(f"{'question':58}  held   bias   rmse  price  privacy  resolution")
    for i, asked in enumerate(QUESTIONS):
        parts = np.nanmedian(rows[:, i, 3:], axis=0) / error[i]
        print(
            f"{asked.name:58} {held[:, i].mean():5.2f} {away[:, i].mean():6.2f} {np.sqrt((away[:, i] ** 2).mean()):6.2f} "
            f"{np.median(price[:, i]):6.2f} {parts[0]:8.2f} {parts[1]:8.2f}"
        )
    first = np.median([each["seconds"][0] for each in found])
    further = np.median([second for each in found for second in each["seconds"][1:]])
    prices, errors = np.median(price, axis=0), np.sqrt((away**2).mean(axis=0))
    print(
        f"held {held.mean():.3f}, worst question {held.mean(axis=0).min():.2f}; first answer {first:.1f} s, further {further:.3f} s"
    )
    print(
        f"median price {np.nanmedian(prices):.2f}, largest {np.nanmax(prices):.1f}; median rmse {np.nanmedian(errors):.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=10)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 0.1])
    parser.add_argument("--kernels", nargs="+", choices=list(KERNELS), default=list(KERNELS))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--view", choices=["signed", "probability", "fitted"])
    options = parser.parse_args()
    if not ADULT.exists():
        sys.exit(f"no Adult data at {ADULT}: nothing was measured. Put adult_train.csv.gz and adult_test.csv.gz there.")
    truth, error = sampling()
    with ProcessPoolExecutor(options.workers, mp_context=get_context("forkserver")) as pool:
        for kernel in options.kernels:
            for epsilon in options.epsilon:
                settings = [(kernel, epsilon, seed, options.view) for seed in range(options.releases)]
                summarised(list(pool.map(answers, settings)), truth, error)


if __name__ == "__main__":
    main()
