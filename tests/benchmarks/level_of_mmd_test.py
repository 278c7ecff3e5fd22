"""Level of the noise-aware two-sample test: how often a true hypothesis is rejected, over sizes, budgets and methods.

    python tests/benchmarks/level_of_mmd_test.py [--releases 500] [--methods random-features subspace]
                        [--tables numeric mixed | margins simulated independent adult] [--rows 1000 10000]
                        [--samples 30 300 3000] [--workers 2]

Tables are those of `populations.py` (adult reads ../shared; adaptive margins are published in all their rounds). So many fresh
tables go through `release_side.publish` (a rehearsal: noise of the same distribution from a seed), and each is tested against a
fresh sample of each size. Points are drawn from the population and not fitted, which takes long; nor are intervals made, for the
p-value does not need them. The same statistic that ignores the noise (fifty repetitions) is last; below the table, how many cells
are beyond three standard errors of the nominal level, or under half of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
from harness import command_line, show
from populations import population

import kmeanalyst as ka
import release_side
from kmeanalyst.inference.two_sample import noise_aware, sides
from kmeanalyst.kernels.base import Array
from kmeanalyst.representation import represent

LEVELS = (0.05, 0.01)
METHODS = ("random-features", "subspace")
_POINTS = 1000
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
    ignored: int  # repetitions that ignore the noise


def pvalues(setting: Setting, releases: range) -> Array:
    """(releases, sizes, 2): p-values of the test, and of the same test that ignores the noise."""
    domain, draw, options = population(setting.table)
    fit_nothing(domain.encode(draw(_POINTS, np.random.default_rng(0))))
    random_features = setting.method == "random-features"
    sizes = {"features": 500} if random_features and setting.table in ("numeric", "mixed") else {}
    found = np.full((len(releases), len(setting.samples), 2), np.nan)
    for i, number in enumerate(releases):
        rng = np.random.default_rng([number, int(setting.epsilon * 10), setting.rows])
        release = release_side.publish(
            draw(setting.rows, rng), domain, epsilon=setting.epsilon, delta=1e-6, method=setting.method,
            points=300 if random_features else 100, rehearsal=int(rng.integers(2**62)), workers=1, **options, **sizes,
        )  # fmt: skip
        for j, n in enumerate(setting.samples):
            sample = draw(n, rng)
            found[i, j, 0] = ka.mmd_test(release, sample).pvalue
            if number < setting.ignored:
                found[i, j, 1] = _told_no_noise(release, sample)
    return found


def fit_nothing(points: Array) -> None:
    """From now on releases have even weights, these points, and tests no size of a difference."""
    represent.REPRESENT["random-features"] = lambda *_: (points, np.full(len(points), 1 / len(points)))
    represent.weights_for = lambda view, encoded, *_, **__: np.full(len(encoded), 1 / len(encoded))
    noise_aware.size_of_difference = lambda *_, **__: {}


def _told_no_noise(release: ka.Release, sample: pd.DataFrame) -> float:
    measurement = release.measurement
    assert measurement is not None
    rows = release.domain.encode(sample)
    directions = sides.directions_of(release, measurement.feature_map, rows)
    moments = sides.sample_side(sides.measured_side(release), directions, [rows])
    shrink = 1 / measurement.n_rows + 1 / moments.n_rows
    no_noise = replace(measurement, noise_scale=1e-300, noise_law="discrete gaussian")
    difference = measurement.vector - moments.mean
    return noise_aware.noise_aware_test(difference, directions, moments.draws.of_a_row, shrink, no_noise)[1]


def all_pvalues(setting: Setting, releases: int, pool: ProcessPoolExecutor) -> Array:
    """The same over several processes."""
    chunks = [range(start, min(start + _CHUNK, releases)) for start in range(0, releases, _CHUNK)]
    return np.concatenate(list(pool.map(pvalues, [setting] * len(chunks), chunks)))


def main() -> None:
    choice = command_line(
        __doc__, releases=500, tables=("numeric", "mixed"), methods=METHODS, epsilon=(0.1, 1.0, 10.0), rows=(1000, 10_000),
        samples=(30, 300, 3000), workers=2,
    )  # fmt: skip
    level, n = np.array(LEVELS), choice.releases
    print(f"{n} releases; rejections of a true hypothesis, standard errors {np.sqrt(level * (1 - level) / n)}")
    rates = []
    with ProcessPoolExecutor(choice.workers) as pool:
        for table, method, epsilon, rows in product(choice.tables, choice.methods, choice.epsilon, choice.rows):
            found = all_pvalues(Setting(table, method, epsilon, rows, choice.samples, _TOLD_NO_NOISE), n, pool)
            rates += [(found[:, j, :1] <= level).mean(axis=0) for j in range(len(choice.samples))]
            naive = (found[:_TOLD_NO_NOISE, :, 1] <= LEVELS[0]).mean(axis=0)
            setting = {"table": table, "method": method, "ε": epsilon, "N": rows}
            show(
                setting | {"L": size, "5 %": five, "1 %": one, "noise ignored, 5 %": ignored}
                for size, (five, one), ignored in zip(choice.samples, rates[-len(naive) :], naive, strict=True)
            )
    errors = np.sqrt(level * (1 - level) / n)
    high, low = (np.array(rates) > level + 3 * errors).sum(), (np.array(rates) < level / 2).sum()
    print(f"of {2 * len(rates)} cells {high} lie beyond three standard errors above, {low} under half of the level")


if __name__ == "__main__":
    main()
