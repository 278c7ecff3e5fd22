"""Tests of two groups on a release: how often they reject, with no effect and with one, next to naive tests of synthetic rows.

    python tests/benchmarks/two_group_tests.py [--releases 40] [--epsilon 0.1 1 10] [--rows 1000 10000] [--effect 0.5]

The protocol of Montoya Perez, Movahedi, Nieminen, Airola & Pahikkala 2024 (Does differentially private synthetic data lead to
synthetic discoveries?) with tests of this package: a group, a number, which in the second group is larger by `effect` standard
deviations, and a level with four values, which follows the number loosely; two more columns that have nothing to do with them. The
release has margins with the group as target. At 5 %, for each test the share rejected

    ours      t: the difference of means over its standard error; Mann–Whitney: that of the means of F, the pooled distribution
              function with half of ties (the difference is P(X < Y) + P(X = Y)/2 − 1/2); median: that of the shares up to the
              pooled median; χ²: `independence_test`
    naive     the textbook's tests on as many rows as the table has, drawn from the release
    private   the textbook's tests on the private rows
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product

import numpy as np
import pandas as pd
from harness import command_line, show
from scipy.stats import chi2_contingency, mannwhitneyu, median_test, norm, ttest_ind

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

TESTS = ("t", "Mann–Whitney", "median", "χ²")
FIRST, SECOND = "group == 'one'", "group == 'two'"
DOMAIN = Domain((
    Categorical(name="group", levels=("one", "two")), Real(name="x", lower=-4, upper=5),
    Categorical(name="level", levels=("a", "b", "c", "d")), Integer(name="age", lower=18, upper=90),
    Categorical(name="site", levels=("north", "south", "east")),
))  # fmt: skip


def rows(n: int, effect: float, rng: np.random.Generator) -> pd.DataFrame:
    """The table: without an effect the group is independent of all."""
    two = rng.random(n) < 0.5
    x = rng.normal(size=n) + effect * two
    level = np.digitize((x + 1.5 * rng.normal(size=n)) / 2, [-0.8, 0.0, 0.8])
    return pd.DataFrame({
        "group": np.where(two, "two", "one"), "x": np.clip(x, -4, 5), "level": np.array(list("abcd"))[level],
        "age": rng.integers(18, 91, n), "site": rng.choice(["north", "south", "east"], n),
    })  # fmt: skip


def of_release(release: Release) -> list[float]:
    """The p-values of our tests."""
    grid = np.linspace(-4, 5, 200)
    F = np.array([e.value for e in release.cdf("x", grid.tolist())])  # type: ignore[union-attr]
    centre = float(release.quantile("x", 0.5).value)  # type: ignore[union-attr]

    def middle(frame: pd.DataFrame) -> Array:
        return np.interp(frame["x"].to_numpy(dtype=float), grid, F)

    questions: list[str | Callable[[pd.DataFrame], Array]] = ["x", middle, f"x <= {centre!r}"]
    found = []
    for question in questions:
        difference = release.expectation(question, where=SECOND) - release.expectation(question, where=FIRST)
        found.append(float(2 * norm.sf(abs(difference.value) / difference.standard_error)))
    return [*found, ka.independence_test(release, "group", "level").pvalue]


def of_rows(frame: pd.DataFrame) -> list[float]:
    """The p-values of the textbook's tests."""
    one, two = (frame.loc[frame["group"] == group, "x"].to_numpy(dtype=float) for group in ("one", "two"))
    if min(len(one), len(two)) < 2:
        return [1.0] * len(TESTS)
    table = pd.crosstab(frame["group"], frame["level"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ties without end, of values that were drawn several times
        tests = ttest_ind(one, two, equal_var=False), mannwhitneyu(one, two), median_test(one, two, correction=False)
    return [*(float(test.pvalue) for test in tests), float(chi2_contingency(table.to_numpy(), correction=False).pvalue)]


def pvalues(n: int, epsilon: float, effect: float, releases: int) -> Array:
    """(releases, 3, tests): ours, naive, private."""
    found = []
    for i in range(releases):
        rng = np.random.default_rng([i, n, int(10 * epsilon), int(100 * effect)])
        table = rows(n, effect, rng)
        release = release_side.publish(
            table, DOMAIN, epsilon=epsilon, delta=1e-6, kernel="margins", target="group", workers=1, uncounted=True,
            rehearsal=int(rng.integers(2**62)),
        )  # fmt: skip
        synthetic = release.resample(n, rng=rng)
        found.append([of_release(release), of_rows(synthetic), of_rows(table)])
    return np.array(found)


def main() -> None:
    asked = command_line(__doc__, releases=40, epsilon=(0.1, 1.0, 10.0), rows=(1000, 10_000), effect=0.5)
    for n, epsilon, effect in product(asked.rows, asked.epsilon, (0.0, asked.effect)):
        rejected = (pvalues(n, epsilon, effect, asked.releases) <= 0.05).mean(axis=0)
        setting = {"N": n, "ε": epsilon, "effect": effect}
        show(
            setting | {"rejected at 5 %": way} | dict(zip(TESTS, shares, strict=True))
            for way, shares in zip(("ours", "naive", "private"), rejected, strict=True)
        )


if __name__ == "__main__":
    main()
