"""Level of the noise-aware two-sample test: how often a true hypothesis is rejected, over sizes, budgets and methods.

    python tests/benchmarks/level_of_mmd_test.py [--releases 500] [--each 1] [--fit] [--methods random-features subspace]
                        [--tables numeric mixed | margins simulated independent adult] [--rows 1000 10000]
                        [--samples 30 300 3000] [--workers 2]

Numbers (a mixture in five dimensions) and a mixed table (numbers, levels, missing cells), both methods; 250 feature
pairs, 100 points of a subspace, or margins. Simulated (eight columns, most of them dependent), independent (the same,
each column shuffled) and Adult (../shared/data, both files are the population) are published by adaptive margins, in all
their rounds; only random features are asked for. So many fresh tables go through `release_side.publish` (a rehearsal: noise of
the same distribution from a seed), and each is tested against so many fresh samples of each size. By default no two repetitions
of a cell share anything; samples of one release would share its noise, and where that dominates fifty releases are
hardly more than fifty repetitions. The points are not fitted, for the test does not look at them, unless --fit is given;
nor are intervals made, for the p-value does not need them.
The same statistic that ignores the noise (fifty repetitions) is last; below the table, how many cells are beyond
three standard errors of the nominal level, or under half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from harness import command_line
from populations import population

import kmeanalyst as ka
import release_side
from kmeanalyst.inference.two_sample import noise_aware, sides
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation import represent

LEVELS = (0.05, 0.01)
METHODS = ("random-features", "subspace")
_TOLD_NO_NOISE = 50  # repetitions
_CHUNK = 5  # releases that a process takes at a time


@dataclass(frozen=True)
class Setting:
    """What a table of results has one block for."""

    table: str
    method: str
    epsilon: float
    rows: int
    samples: Sequence[int]
    each: int
    fit: bool
    noise: str
    told_no_noise: int  # repetitions


def pvalues(setting: Setting, releases: range) -> Array:
    """(releases, samples of each, sizes, 2): p-values of the test, and of the same test that ignores the noise."""
    if not setting.fit:
        represent.REPRESENT["random-features"], represent.weights_for = _no_fit, _even  # type: ignore[assignment]
    noise_aware.size_of_difference = lambda *_, **__: {}  # type: ignore[assignment]
    domain, draw, options = population(setting.table)
    features = setting.method == "random-features" and setting.table in ("numeric", "mixed")
    sizes = {"features": 500} if features else {}
    found = np.full((len(releases), setting.each, len(setting.samples), 2), np.nan)
    for i, number in enumerate(releases):
        rng = np.random.default_rng([number, int(setting.epsilon * 10), setting.rows])
        release = release_side.publish(
            draw(setting.rows, rng), domain, epsilon=setting.epsilon, delta=1e-6 if setting.noise == "gaussian" else 0,
            noise=setting.noise, method=setting.method, points=300 if setting.method == "random-features" else 100,
            rehearsal=int(rng.integers(2**62)), workers=1, **options, **sizes,
        )  # fmt: skip
        for k, (j, n) in product(range(setting.each), enumerate(setting.samples)):
            sample = draw(n, rng)
            found[i, k, j, 0] = ka.mmd_test(release, sample).pvalue
            if number * setting.each < setting.told_no_noise:
                found[i, k, j, 1] = _told_no_noise(release, sample)
    return found


def _no_fit(measurement: Measurement, domain: Domain, *_: object) -> tuple[Array, Array]:
    return domain.draw(10, 0), np.full(10, 0.1)


def _even(view: str, encoded: Array, measurement: Measurement, **_: object) -> Array:
    return np.full(len(encoded), 1 / len(encoded))


def _told_no_noise(release: ka.Release, sample: pd.DataFrame) -> float:
    measurement = release.measurement
    assert measurement is not None
    rows = release.domain.encode(sample)
    directions = sides.directions_of(release, measurement.feature_map, rows)
    moments = sides.sample_side(sides.measured_side(release, beforehand=True), directions, [rows])
    shrink = 1 / measurement.n_rows + 1 / moments.n_rows
    no_noise = replace(measurement, noise_scale=1e-300, noise_law="discrete gaussian")
    difference = measurement.vector - moments.mean
    return noise_aware.noise_aware_test(difference, directions, moments.covariance, shrink, [no_noise])[1]


def all_pvalues(setting: Setting, releases: int, pool: ProcessPoolExecutor) -> Array:
    """The same over several processes."""
    chunks = [range(start, min(start + _CHUNK, releases)) for start in range(0, releases, _CHUNK)]
    return np.concatenate(list(pool.map(pvalues, [setting] * len(chunks), chunks)))


def main() -> None:
    """Print the table."""
    choice = command_line(
        __doc__,
        releases=500,
        each=1,
        fit=False,
        tables=("numeric", "mixed"),
        methods=METHODS,
        epsilon=(0.1, 1.0, 10.0),
        rows=(1000, 10_000),
        samples=(30, 300, 3000),
        ignored=_TOLD_NO_NOISE,
        noise="gaussian",
        workers=2,
    )
    n = choice.releases * choice.each
    print(f"{choice.noise} noise, {choice.releases} releases × {choice.each} samples; rejections of a true hypothesis")
    print(f"{'table':11} {'method':16} {'ε':>4} {'N':>6} {'L':>5}  {'5 %':>15} {'1 %':>15}  {'noise ignored 5 %':>17}")
    rates = []
    with ProcessPoolExecutor(choice.workers) as pool:
        for table, method, epsilon, rows in product(choice.tables, choice.methods, choice.epsilon, choice.rows):
            setting = Setting(
                table, method, epsilon, rows, choice.samples, choice.each, choice.fit, choice.noise, choice.ignored
            )
            found = all_pvalues(setting, choice.releases, pool)
            for j, size in enumerate(choice.samples):
                cells = [_rate(found[:, :, j, 0] <= level) for level in LEVELS]
                rates.append([rate for rate, _ in cells])
                ignored = found[:, :, j, 1][np.isfinite(found[:, :, j, 1])]
                naive = (ignored <= LEVELS[0]).mean() if len(ignored) else np.nan
                columns = " ".join(f"{rate:6.3f} (±{error:.3f})" for rate, error in cells)
                print(f"{table:11} {method:16} {epsilon:4g} {rows:6} {size:5}  {columns}  {naive:17.3f}", flush=True)
    level = np.array(LEVELS)
    errors = np.sqrt(level * (1 - level) / n)
    high, low = (np.array(rates) > level + 3 * errors).sum(), (np.array(rates) < level / 2).sum()
    print(f"of {2 * len(rates)} cells {high} lie beyond three standard errors above, {low} under half of the level")


def _rate(rejected: Array) -> tuple[float, float]:
    """Mean of (releases, samples of each), and its standard error, between releases."""
    by_release = rejected.mean(axis=1)
    return float(by_release.mean()), float(by_release.std(ddof=1) / np.sqrt(len(by_release)))


if __name__ == "__main__":
    main()
