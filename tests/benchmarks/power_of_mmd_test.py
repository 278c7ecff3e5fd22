"""Power of the noise-aware two-sample test beside the non-private one, and what naive routes do instead.

    python tests/benchmarks/power_of_mmd_test.py [--repetitions 150] [--shifts 0 0.03 0.3] [--naive 20] [--simulated]

Reads ../shared/anchors (the five-dimensional mixture of Balog, Tolstikhin & Schölkopf 2018) and says so when it is not
there; a simulated mixture takes its place. N = 10,000 rows are the table, L = 500 others the sample, shifted in its
first column by so many standard deviations; level 5 %, 4,000 features, δ = 1e-6. On the same rows: the permutation test
of table and sample (nothing private), the noise-aware test of releases at ε = 10, 1, 0.1, and the unweighted statistic
‖d‖² with its noise-aware law. Then, without any shift, the naive route: weights clipped at zero, as many rows resampled
as the table has, a permutation test against the sample; for releases as published (Algorithm 1, raw weights) and by
default (a fit takes some seconds: few repetitions).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from populations import NUMERIC, numeric_rows

import kmeanalyst as ka
import release_side
from kmeanalyst.inference import noise_aware
from kmeanalyst.inference.samples import SampleRows
from kmeanalyst.inference.weighted_chi_squared import weighted_chi_squared_sf
from kmeanalyst.kernels import Gaussian, Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import Real
from kmeanalyst.releases.domain import Domain
from release_side import publishing

ANCHOR = Path(__file__).resolve().parents[3] / "shared" / "anchors" / "mixture_of_Gaussians_N100000_D5.npz"
N, L, DELTA = 10_000, 500, 1e-6
EPSILONS = (10.0, 1.0, 0.1)


def population(simulated: bool) -> tuple[Domain, Kernel, Array]:
    """Domain, kernel and 100,000 rows."""
    if ANCHOR.exists() and not simulated:
        rows = np.load(ANCHOR)["X_private"]
        domain = Domain(tuple(Real(name=f"x{j}", lower=-700, upper=700) for j in range(rows.shape[1])))
        return domain, Gaussian(float(np.sqrt(1e4 * rows.shape[1] / 2))), rows
    if not simulated:
        print("../shared/anchors is not there: a simulated mixture takes its place")
    return NUMERIC, Gaussian(3.0), numeric_rows(100_000, np.random.default_rng(0)).to_numpy()


def pvalues(shifts: Sequence[float], repetitions: int, *, simulated: bool) -> dict[tuple[float, str], list[float]]:
    """p-values by shift and test."""
    domain, kernel, rows = population(simulated)
    found: dict[tuple[float, str], list[float]] = {}
    directions: dict[float, noise_aware.Directions] = {}
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        table, sample = _split(rows, rng)
        releases = {
            epsilon: _published(table, domain, epsilon, rng, kernel=kernel, directions=directions)
            for epsilon in EPSILONS
        }
        for shift in shifts:
            moved = sample + shift * rows[:, 0].std() * np.eye(rows.shape[1])[0]
            named = pd.DataFrame(np.clip(moved, domain.columns[0].lower, domain.columns[0].upper), columns=domain.names)
            plain = ka.mmd_test(table, moved, kernel=kernel, permutations=199, rng=repetition)
            found.setdefault((shift, "not private"), []).append(plain.pvalue)
            for epsilon, release in releases.items():
                found.setdefault((shift, f"ε = {epsilon:g}"), []).append(ka.mmd_test(release, named).pvalue)
                found.setdefault((shift, f"ε = {epsilon:g}, unweighted"), []).append(_unweighted(release, named))
    return found


def _published(
    table: Array,
    domain: Domain,
    epsilon: float,
    rng: np.random.Generator,
    *,
    kernel: Kernel,
    directions: dict[float, noise_aware.Directions],
) -> ka.Release:
    """A release whose points are not fitted: the test does not look at them."""
    with mock.patch.object(
        publishing, "represent", lambda measurement, domain, **_: (domain.draw(10, 0), np.full(10, 0.1))
    ):
        release = release_side.publish(
            pd.DataFrame(table, columns=domain.names), domain, epsilon=epsilon, delta=DELTA, kernel=kernel,
            rehearsal=int(rng.integers(2**62)),
        )  # fmt: skip
    assert release.measurement is not None
    if epsilon not in directions:  # the map, and so they, are the same each time
        directions[epsilon] = noise_aware.directions_of(release, release.measurement)
    release.cache["directions"] = directions[epsilon]
    return release


def _split(rows: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    chosen = rng.choice(len(rows), N + L, replace=False)
    return rows[chosen[:N]], rows[chosen[N:]].copy()


def _unweighted(release: ka.Release, sample: pd.DataFrame) -> float:
    """p-value of ‖d‖² by its own law: what the noise's flatness costs."""
    measurement = release.measurement
    assert measurement is not None
    directions = noise_aware.directions_of(release, measurement)
    moments = noise_aware.sample_moments(measurement.feature_map, directions, SampleRows(release, sample))
    shrink, tau2 = 1 / measurement.n_rows + 1 / moments.n_rows, measurement.noise_scale**2
    size, remaining = len(directions.variances), measurement.feature_map.dimension - len(directions.variances)
    left_over = shrink * (moments.variance - np.trace(moments.covariance)) / remaining + tau2
    coefficients = np.append(np.maximum(np.linalg.eigvalsh(shrink * moments.covariance), 0) + tau2, left_over)
    square = float(np.sum((measurement.vector - moments.mean) ** 2))
    return weighted_chi_squared_sf(square, coefficients, degrees=np.append(np.ones(size), remaining))


def naive_rejections(epsilon: float, repetitions: int, *, simulated: bool, **options: str) -> float:
    """How often clip, resample, permute rejects a true hypothesis."""
    domain, kernel, rows = population(simulated)
    rejected = 0
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        table, sample = _split(rows, rng)
        release = release_side.publish(
            pd.DataFrame(table, columns=domain.names), domain, epsilon=epsilon, delta=DELTA, kernel=kernel,
            rehearsal=int(rng.integers(2**62)), **options,
        )  # fmt: skip
        clipped = np.maximum(release.weights, 0)
        resampled = release.encoded_points[rng.choice(len(clipped), N, p=clipped / clipped.sum())]
        rejected += ka.mmd_test(resampled, sample, kernel=kernel, permutations=199, rng=repetition).pvalue <= 0.05
    return rejected / repetitions


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=150)
    parser.add_argument("--shifts", nargs="+", type=float, default=[0.0, 0.03, 0.3])
    parser.add_argument("--naive", type=int, default=20, help="Repetitions of the naive route.")
    parser.add_argument(
        "--simulated", action="store_true", help="The simulated mixture, even if the anchors are there."
    )
    choice = parser.parse_args()
    print(f"N = {N}, L = {L}, {choice.repetitions} repetitions; rejections at 5 %")
    for (shift, name), found in sorted(pvalues(choice.shifts, choice.repetitions, simulated=choice.simulated).items()):
        print(f"shift {shift:5g} sd  {name:24} {np.mean(np.array(found) <= 0.05):.3f}", flush=True)
    for epsilon in EPSILONS if choice.naive else ():
        for name, options in (("published weights", {"method": "subspace", "weights": "published"}), ("default", {})):
            rate = naive_rejections(epsilon, choice.naive, simulated=choice.simulated, **options)
            print(f"no shift, naive route, {name}, ε = {epsilon:g}: {rate:.2f}", flush=True)


if __name__ == "__main__":
    main()
