"""Level of the noise-aware two-sample test: how often a true hypothesis is rejected, over sizes, budgets and methods.

    python tests/benchmarks/level_of_mmd_test.py [--repetitions 500] [--workers 2] [--tables numeric mixed | margins]
                                                 [--rows 1000 10000] [--samples 30 300 3000] [--noise laplace]

Numbers (a mixture in five dimensions) and a mixed table (numbers, levels, missing cells), both methods; 250 feature
pairs, 100 points of a subspace, or margins. Each repetition is a fresh table, published by `release_side.publish` but
for the fit of its points, which the test does not look at, and a fresh sample of each size: no two repetitions of a
cell share anything. The same statistic told that there is no noise stands beside it; below the table, how many cells
lie beyond three standard errors of the nominal level, or under half of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from populations import POPULATIONS

import kmeanalyst as ka
import release_side
from kmeanalyst.inference import noise_aware
from kmeanalyst.inference.samples import SampleRows
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from release_side import publishing

LEVELS = (0.05, 0.01)
_CHUNK = 25


@dataclass(frozen=True)
class Setting:
    """What a table of results has one block for."""

    table: str
    method: str
    epsilon: float
    rows: int
    samples: Sequence[int]
    noise: str


def pvalues(setting: Setting, repetitions: range) -> Array:
    """(repetitions, sample sizes, 2): p-values of the test, and of the same test told that there is no noise."""
    publishing.represent, publishing.weights_for = _no_fit, _even  # type: ignore[assignment]
    domain, draw, options = POPULATIONS[setting.table]
    sizes = {"features": 500} if setting.method == "random-features" and setting.table != "margins" else {}
    found, directions = np.empty((len(repetitions), len(setting.samples), 2)), None
    for i, repetition in enumerate(repetitions):
        rng = np.random.default_rng([repetition, int(setting.epsilon * 10), setting.rows])
        release = release_side.publish(
            draw(setting.rows, rng), domain, epsilon=setting.epsilon, delta=1e-6 if setting.noise == "gaussian" else 0,
            noise=setting.noise, method=setting.method, points=100, rehearsal=int(rng.integers(2**62)), workers=1,
            **options, **sizes,
        )  # fmt: skip
        if directions is not None and _same_arrays(*directions, release):  # they depend on the map alone
            release.cache["directions"] = directions[0].cache["directions"]
        for j, n in enumerate(setting.samples):
            sample = draw(n, rng)
            found[i, j] = ka.mmd_test(release, sample).pvalue, _told_no_noise(release, sample)
        directions = (release,)
    return found


def _same_arrays(before: ka.Release, release: ka.Release) -> bool:
    one, other = (r.measurement.feature_map.arrays() for r in (before, release) if r.measurement)
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k], equal_nan=True) for k in one)


def _no_fit(measurement: Measurement, domain: Domain, **_: object) -> tuple[Array, Array]:
    return domain.draw(10, 0), np.full(10, 0.1)


def _even(view: str, encoded: Array, measurement: Measurement, **_: object) -> Array:
    return np.full(len(encoded), 1 / len(encoded))


def _told_no_noise(release: ka.Release, sample: pd.DataFrame) -> float:
    measurement = release.measurement
    assert measurement is not None
    directions = noise_aware.directions_of(release, measurement)
    moments = noise_aware.sample_moments(measurement.feature_map, directions, SampleRows(release, sample))
    shrink = 1 / measurement.n_rows + 1 / moments.n_rows
    no_noise = replace(measurement, noise_scale=1e-300, noise_law="discrete gaussian")
    difference = measurement.vector - moments.mean
    return noise_aware.noise_aware_law(difference, directions, moments.covariance, shrink, [no_noise])[1]


def all_pvalues(setting: Setting, repetitions: int, pool: ProcessPoolExecutor) -> Array:
    """The same over several processes."""
    chunks = [range(start, min(start + _CHUNK, repetitions)) for start in range(0, repetitions, _CHUNK)]
    return np.concatenate(list(pool.map(pvalues, [setting] * len(chunks), chunks)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--tables", nargs="+", choices=list(POPULATIONS), default=["numeric", "mixed"])
    parser.add_argument("--epsilon", nargs="+", type=float, default=[0.1, 1, 10])
    parser.add_argument("--rows", nargs="+", type=int, default=[1000, 10_000])
    parser.add_argument("--samples", nargs="+", type=int, default=[30, 300, 3000])
    parser.add_argument("--noise", default="gaussian", choices=["gaussian", "laplace"])
    parser.add_argument("--workers", type=int, default=2)
    choice = parser.parse_args()
    n = choice.repetitions
    print(f"{choice.noise} noise, {n} repetitions; rejections of a true hypothesis at 5 % and 1 %")
    print(f"{'table':8} {'method':16} {'ε':>4} {'N':>6} {'L':>5}  {'5 %':>6} {'1 %':>6}  {'noise ignored 5 %':>17}")
    rates = []
    with ProcessPoolExecutor(choice.workers) as pool:
        for table, method, epsilon, rows in product(
            choice.tables, ("random-features", "subspace"), choice.epsilon, choice.rows
        ):
            found = all_pvalues(Setting(table, method, epsilon, rows, choice.samples, choice.noise), n, pool)
            for j, size in enumerate(choice.samples):
                rates.append([(found[:, j, 0] <= level).mean() for level in LEVELS])
                naive = (found[:, j, 1] <= LEVELS[0]).mean()
                print(
                    f"{table:8} {method:16} {epsilon:4g} {rows:6} {size:5}  {rates[-1][0]:6.3f} {rates[-1][1]:6.3f}  "
                    f"{naive:17.3f}", flush=True,
                )  # fmt: skip
    level = np.array(LEVELS)
    errors = np.sqrt(level * (1 - level) / n)
    high, low = (np.array(rates) > level + 3 * errors).sum(), (np.array(rates) < level / 2).sum()
    print(f"of {2 * len(rates)} cells {high} lie beyond three standard errors above, {low} under half of the level")


if __name__ == "__main__":
    main()
