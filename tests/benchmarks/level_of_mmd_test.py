"""Level of the noise-aware two-sample test: how often a true hypothesis is rejected, small releases.

    python tests/benchmarks/level_of_mmd_test.py [--repetitions 500] [--noise gaussian | laplace] [--tables margins]

Numbers (a mixture in five dimensions) and a mixed table (numbers, levels, missing cells), both methods,
ε = 1 and 0.1; N = 1000 private rows, L = 200 sample rows, 250 feature pairs, 100 points, or margins. A test that
leaves the privacy noise out is shown beside it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
from populations import POPULATIONS

import kmeanalyst as ka
import release_side
from kmeanalyst.inference import noise_aware
from kmeanalyst.inference.samples import SampleRows
from kmeanalyst.representation import latent_classes

N, L = 1000, 200


def pvalues(table: str, method: str, epsilon: float, noise: str, repetitions: int) -> tuple[np.ndarray, np.ndarray]:
    """p-values of the noise-aware test, and of the same test told that there is no noise."""
    domain, draw, options = POPULATIONS[table]
    sizes = {"features": 500} if method == "random-features" and table != "margins" else {}
    aware, naive = [], []
    for i in range(repetitions):  # a fresh table, release and sample each time: independent repetitions
        rng = np.random.default_rng([i, int(epsilon * 10)])
        release = release_side.publish(
            draw(N, rng), domain, epsilon=epsilon, delta=1e-6 if noise == "gaussian" else 0, noise=noise, method=method,
            points=100, **options, **sizes,
        )  # fmt: skip
        sample = draw(L, rng)
        aware.append(ka.mmd_test(release, sample).pvalue)
        naive.append(_told_no_noise(release, sample))
    return np.array(aware), np.array(naive)


def _told_no_noise(release: ka.Release, sample: pd.DataFrame) -> float:
    measurement = release.measurement
    assert measurement is not None
    directions = noise_aware.directions_of(release, measurement)
    moments = noise_aware.sample_moments(measurement.feature_map, directions, SampleRows(release, sample))
    shrink = 1 / measurement.n_rows + 1 / moments.n_rows
    no_noise = replace(measurement, noise_scale=1e-300, noise_law="discrete gaussian")
    difference = measurement.vector - moments.mean
    return noise_aware.noise_aware_law(difference, directions, moments.covariance, shrink, [no_noise])[1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--tables", nargs="+", choices=list(POPULATIONS), default=list(POPULATIONS))
    parser.add_argument("--noise", default="gaussian", choices=["gaussian", "laplace"])
    choice = parser.parse_args()
    repetitions = choice.repetitions
    print(
        f"N = {N}, L = {L}, {choice.noise} noise, {repetitions} repetitions; rejections of a true hypothesis at 5 % and 1 %"
    )
    print(f"{'table':8} {'method':16} {'ε':>4}  {'aware 5 %':>9} {'1 %':>6}  {'noise ignored 5 %':>17}")
    latent_classes._FITS, latent_classes._STEPS = 1, 5  # the test looks at the measurement, not at the points
    for table, method, epsilon in product(choice.tables, ("random-features", "subspace"), (1.0, 0.1)):
        aware, naive = pvalues(table, method, epsilon, choice.noise, repetitions)
        rates = (aware <= 0.05).mean(), (aware <= 0.01).mean(), (naive <= 0.05).mean()
        print(f"{table:8} {method:16} {epsilon:4g}  {rates[0]:9.3f} {rates[1]:6.3f}  {rates[2]:17.3f}", flush=True)


if __name__ == "__main__":
    main()
