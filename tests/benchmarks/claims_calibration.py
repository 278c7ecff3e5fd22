"""Whether claims hold as often as their stated probabilities say, and how many kept claims are false.

    python tests/benchmarks/claims_calibration.py [--releases 16] [--rows 5000] [--epsilon 1 0.1] [--claims 8] [--first 0]

Tables of Adult (../shared/data/adult) drawn with replacement, so that its 48,842 rows are the population. Of each statistic some
claims "statistic - c > 0", c drawn evenly from truth ± 3 standard errors: half of them hold, and a probability p states that of
all such claims a share p does. The table gives the mean stated probability of claims by range and the share that holds; a claim
whose probability is below .5 counts as its opposite. Below: of all claims kept by the Bayesian rule at a rate of .05, the share
that is false, which the rule promises to be at most .05, and the same of Benjamini–Yekutieli's.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import draws_coverage
import numpy as np
import pandas as pd
from harness import command_line, show

import kmeanalyst as ka
from kmeanalyst.inference.estimate.estimate import Estimate
from release_side import publish

STATISTICS: tuple[Callable[[ka.Release], Estimate], ...] = (
    lambda r: r.mean("age"), lambda r: r.mean("hours-per-week"), lambda r: r.probability("sex == 'Female'"),
    lambda r: r.probability("income == '>50K'"), lambda r: r.std("age"), lambda r: r.probability("age > 50"),
    lambda r: r.mean("age", where="sex == 'Male'") - r.mean("age", where="sex == 'Female'"),
    lambda r: r.probability("income == '>50K'", where="sex == 'Male'"),
    lambda r: r.probability("income == '>50K'", where="sex == 'Female'"),
    lambda r: r.probability("income == '>50K'", where="education == 'Bachelors'"),
    lambda r: r.corr(["age", "education-num"])["age", "education-num"],
    lambda r: r.mean("education-num", where="income == '>50K'") - r.mean("education-num", where="income == '<=50K'"),
    lambda r: r.mean("hours-per-week", where="relationship == 'Husband'"),
    lambda r: r.quantile("age", 0.5, where="income == '>50K'"),
)  # fmt: skip
RANGES = (0.5, 0.7, 0.9, 0.95, 0.99, 1.0)


@cache
def population() -> ka.Release:
    table = draws_coverage.TABLES["adult"]()
    return ka.from_frame(table.population.assign(w=1 / len(table.population)), weight="w")


def of_release(number: int, epsilon: float, options: argparse.Namespace, truths: list[float]) -> pd.DataFrame:
    table = draws_coverage.TABLES["adult"]()
    release = publish(table.draw(options.rows, 1000 + number), table.domain, epsilon=epsilon, delta=1e-6, uncounted=True, workers=1)
    rng = np.random.default_rng([number, 77])
    differences, hold = [], []
    for statistic, truth in zip(STATISTICS, truths, strict=True):
        estimate = statistic(release)
        if not np.isfinite(estimate.standard_error):  # a correlation where a variance is not positive
            continue
        for bound in truth + estimate.standard_error * rng.uniform(-3, 3, options.claims):
            differences.append(estimate - bound)
            hold.append(truth > bound)
    found = release.claims(differences)
    return pd.DataFrame({
        "release": number, "probability": [claim.probability for claim in found], "holds": hold,
        "bayes": [claim.kept for claim in found], "yekutieli": [claim.adjusted_pvalue <= 0.05 for claim in found],
    })  # fmt: skip


def summary(found: pd.DataFrame) -> None:
    """Print stated and true shares by range, and what the two rules keep."""
    opposite = found["probability"] < 0.5
    stated = np.where(opposite, 1 - found["probability"], found["probability"])
    holds = np.where(opposite, ~found["holds"], found["holds"])
    lines = []
    for low, high in [*pairwise(RANGES), (RANGES[0], RANGES[-1])]:
        used = (stated >= low) & ((stated < high) | (high == 1.0))
        lines.append({"from": low, "to": high, "claims": used.sum(), "stated": stated[used].mean(), "holds": holds[used].mean()})
    show(lines)
    kept = {rule: found[found[rule]] for rule in ("bayes", "yekutieli")}
    by_release = {rule: 1 - some.groupby("release")["holds"].mean() for rule, some in kept.items()}
    show(
        {"rule": rule, "kept": len(some), "false": 1 - some["holds"].mean(),
         "s.e. by release": by_release[rule].std() / np.sqrt(len(by_release[rule]))}
        for rule, some in kept.items()
    )  # fmt: skip


def main() -> None:
    options = command_line(__doc__, releases=16, rows=5000, epsilon=(1.0, 0.1), claims=8, first=0)
    warnings.filterwarnings("ignore")
    truths = [float(statistic(population()).value) for statistic in STATISTICS]
    numbers = range(options.first, options.first + options.releases)
    for epsilon in options.epsilon:
        print(f"\nAdult, epsilon {epsilon:g}, {options.rows} rows, {options.releases} releases", flush=True)
        summary(pd.concat([of_release(number, epsilon, options, truths) for number in numbers]))


if __name__ == "__main__":
    main()
