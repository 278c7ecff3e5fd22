"""Coverage of standard errors from exported files, each under its own rule and under rules of synthetic data.

    python tests/benchmarks/draws_coverage.py [--table mixed adult] [--releases 40] [--rows 5000] [--epsilon 1 0.1]
                        [--draws 20] [--replicates 100] [--first 0]

Tables: `mixed` of coverage_of_intervals.py, drawn from its population, and Adult (../shared/data/adult; said if it is not
there), drawn from its 48,842 rows with replacement. For each release, questions of one column, of two, of three, and the slopes
of a logistic regression (statsmodels' GLM). Of each rule: how often intervals hold the population's value, and their median width
in units of the width that the table's own rows would have with no privacy.

    ours          intervals of Release.expectation (no slopes)
    draws         release.draws(m): Rubin's U + (1 + 1/m) B, t with Rubin's degrees of freedom
    named         release.draws(m, columns=…) of the regression's columns alone, by the same rule; questions that they can answer
    pool.syn      of the same draws: U + B/m (mice::pool.syn; Reiter 2003), t with Reiter's degrees of freedom
    lm.synds      of the same draws: U (synthpop, population.inference = FALSE), normal
    one draw      one draw as if it were the table, normal
    replicates    release.replicates(R): the mean squared deviation, t with R - 1 degrees of freedom
    named repl.   release.replicates(R, columns=…) of the regression's columns alone, by the same rule
    table         the private rows themselves: what a perfect release would hold

One release's questions are correlated: a share of releases × questions has a larger standard error than a binomial one; the
last line of a block is that of the shares by release.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import coverage_of_intervals
import numpy as np
import pandas as pd
import real_answers
import statsmodels.api as sm
from harness import DATA, command_line, require, show
from scipy.stats import norm, t

from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import parse
from release_side import draft_domain, publish

_POPULATION = 400_000
ABOVE = 0.975  # of 95 % intervals: the quantile of their upper end
RULES = ("ours", "draws", "named", "pool.syn", "lm.synds", "one draw", "replicates", "named repl.", "table")


@dataclass(frozen=True)
class Table:
    """A population, questions by their number of columns, and a logistic regression: an outcome and its predictors."""

    domain: Domain
    population: pd.DataFrame
    draw: Callable[[int, int], pd.DataFrame]
    questions: dict[str, tuple[str, ...]]
    outcome: str
    predictors: tuple[str, ...]

    @cached_property
    def truth(self) -> Array:
        return estimates(self, self.population)[0]

    @property
    def all_questions(self) -> list[str]:
        return [question for some in self.questions.values() for question in some]

    def kinds(self) -> list[str]:
        each = [kind for kind, some in self.questions.items() for _ in some]
        return [*each, *["slopes"] * len(self.predictors)]

    @property
    def of_regression(self) -> list[str]:
        return list(dict.fromkeys(name for text in (self.outcome, *self.predictors) for name in parse(text).columns))

    def values(self, frame: pd.DataFrame, questions: list[str] | tuple[str, ...]) -> Array:
        """(n, q), NaN where the frame lacks a column of the question."""
        asked = [parse(question) for question in questions]
        return np.column_stack([
            np.asarray(one.evaluate(frame, self.domain), dtype=float)
            if set(one.columns) <= set(frame) else np.full(len(frame), np.nan)
            for one in asked
        ])  # fmt: skip


def mixed() -> Table:
    domain, draw = coverage_of_intervals.TABLES["mixed"]
    questions = {
        "one column": ("age", "gain", "sex == 'F'", "job == 'd'", "age > 50", "gain > 0", "missing(wage)"),
        "two columns": ("age * (sex == 'F')", "sex == 'F' and job == 'b'", "sex == 'F' and age > 50", "gain > 0 and age > 50"),
        "three columns": (
            "age > 40 and sex == 'F' and job == 'a'", "gain > 0 and sex == 'F' and job == 'b'",
            "gain > 0 and sex == 'M' and age < 40",
        ),
    }  # fmt: skip
    population = domain.decode(domain.encode(draw(_POPULATION, np.random.default_rng(99))))
    return Table(
        domain, population, lambda n, seed: draw(n, np.random.default_rng([seed, n])), questions,
        "sex == 'F'", ("age", "job == 'b'", "gain > 0"),
    )  # fmt: skip


def adult() -> Table:
    require(DATA / "adult")
    own = real_answers.TABLES["adult"]
    texts = own.as_text(own.population)
    domain = draft_domain(texts, this_sample_is_public=True).domain
    questions = {
        "one column": ("age", "`hours-per-week`", "sex == 'Female'", "income == '>50K'", "age > 50", "race == 'White'"),
        "two columns": (
            "sex == 'Female' and income == '>50K'", "education == 'Bachelors' and income == '>50K'",
            "age > 50 and income == '>50K'",
            "relationship == 'Husband' and age > 50", "`education-num` * age",
        ),
        "three columns": (
            "education == 'HS-grad' and sex == 'Male' and income == '>50K'", "age > 40 and sex == 'Female' and income == '>50K'",
        ),
    }  # fmt: skip
    return Table(
        domain, domain.decode(domain.encode(texts)),
        lambda n, seed: texts.sample(n, replace=True, random_state=seed).reset_index(drop=True), questions,
        "income == '>50K'", ("age", "`education-num`", "sex == 'Male'"),
    )  # fmt: skip


TABLES = {"mixed": cache(mixed), "adult": cache(adult)}


def estimates(table: Table, frame: pd.DataFrame, weights: Array | None = None) -> tuple[Array, Array]:
    """Answers (q,) under weights of the rows, and their usual standard errors: means, then slopes of the logistic regression."""
    w = np.ones(len(frame)) if weights is None else weights
    used = w > 0
    frame, w = frame[used], w[used]
    values = table.values(frame, table.all_questions)
    means = w @ values / w.sum()
    errors = np.sqrt(w @ (values - means) ** 2 / w.sum() / w.sum())
    X = sm.add_constant(table.values(frame, table.predictors))
    y = table.values(frame, [table.outcome])[:, 0]
    fitted = sm.GLM(y, X, family=sm.families.Binomial(), freq_weights=w).fit()
    return np.append(means, fitted.params[1:]), np.append(errors, fitted.bse[1:])


def intervals(table: Table, release: Release, options: Any, seed: int) -> dict[str, tuple[Array, Array]]:
    """Centres and half-widths of each rule."""
    m, R, z = options.draws, options.replicates, float(norm.ppf(ABOVE))
    ours = release.expectations(table.all_questions)
    missing = np.full(len(table.predictors), np.nan)
    centres, errors = (np.append([getattr(e, name) for e in ours], missing) for name in ("value", "standard_error"))
    values, usual = _of_tables(table, release.draws(m, rng=seed))
    mean, U, B = values.mean(axis=0), (usual**2).mean(axis=0), values.var(axis=0, ddof=1)
    named = _of_tables(table, release.draws(m, columns=table.of_regression, rng=seed))
    found = {
        "ours": (centres, z * errors), "draws": _by_rubin(values, usual), "named": _by_rubin(*named),
        "pool.syn": (mean, t.ppf(ABOVE, (m - 1) * (1 + m * U / B) ** 2) * np.sqrt(U + B / m)),  # degrees by Reiter
        "lm.synds": (mean, z * np.sqrt(U)), "one draw": (values[0], z * usual[0]),
    }  # fmt: skip
    for rule, columns in (("replicates", None), ("named repl.", table.of_regression)) if R else ():
        found[rule] = _by_replicates(table, release.replicates(R, columns=columns, rng=seed), R)
    return found


def _of_tables(table: Table, drawn: list[pd.DataFrame]) -> tuple[Array, Array]:
    """Answers and usual standard errors (m, q) of each table."""
    each = [estimates(table, one) for one in drawn]
    return np.array([value for value, _ in each]), np.array([error for _, error in each])


def _by_rubin(values: Array, usual: Array) -> tuple[Array, Array]:
    m = len(values)
    U, B = (usual**2).mean(axis=0), values.var(axis=0, ddof=1)
    freedom = (m - 1) * (1 + U / ((1 + 1 / m) * B)) ** 2
    return values.mean(axis=0), t.ppf(ABOVE, freedom) * np.sqrt(U + (1 + 1 / m) * B)


def _by_replicates(table: Table, frame: pd.DataFrame, R: int) -> tuple[Array, Array]:
    full = estimates(table, frame, frame["weight"].to_numpy())[0]
    again = np.array([estimates(table, frame, frame[f"replicate_{r + 1}"].to_numpy())[0] for r in range(R)])
    return full, t.ppf(ABOVE, R - 1) * np.sqrt(((again - full) ** 2).mean(axis=0))


def one_release(table: Table, options: Any, epsilon: float, number: int) -> pd.DataFrame:
    """Held and width by rule (rows) and question (columns), as one long frame."""
    private = table.draw(options.rows, 1000 + number)
    release = publish(private, table.domain, epsilon=epsilon, delta=1e-6, uncounted=True, workers=1)
    decoded = table.domain.decode(table.domain.encode(private))
    of_table, usual = estimates(table, decoded)
    z = float(norm.ppf(ABOVE))
    found = intervals(table, release, options, number) | {"table": (of_table, z * usual)}
    truth = table.truth
    rows = [
        {"rule": rule, "kind": kind, "held": abs(centre[i] - truth[i]) <= half[i], "width": half[i] / (z * usual[i])}
        for rule, (centre, half) in found.items()
        for i, kind in enumerate(table.kinds())
        if np.isfinite(half[i])
    ]
    return pd.DataFrame(rows).assign(release=number)


def summary(found: pd.DataFrame) -> None:
    """Print a line for each rule: held and median width for each kind of question, and its standard error by release."""
    lines = []
    for rule in [rule for rule in RULES if rule in set(found["rule"])]:
        own = found[found["rule"] == rule]
        parts = {kind: own[own["kind"] == kind] for kind in dict.fromkeys(found["kind"])} | {"all": own}
        cells = {
            kind: f"{part['held'].mean():.3f} ({part['width'].median():.2f})" if len(part) else "-" for kind, part in parts.items()
        }
        shares = own.groupby("release")["held"].mean()
        lines.append({"rule": rule} | cells | {"s.e. of all": shares.std() / np.sqrt(len(shares))})
    show(lines)


def main() -> None:
    options = command_line(__doc__, table=TABLES, releases=40, rows=5000, epsilon=(1.0, 0.1), draws=20, replicates=100, first=0)
    warnings.filterwarnings("ignore")
    for name, epsilon in product(options.table, options.epsilon):
        parts = []
        for number in range(options.first, options.first + options.releases):
            parts.append(one_release(TABLES[name](), options, epsilon, number))
            if len(parts) % 10 == 0 or len(parts) == options.releases:
                print(f"\n{name}, epsilon {epsilon:g}, {options.rows} rows, {len(parts)} releases")
                summary(pd.concat(parts))


if __name__ == "__main__":
    main()
