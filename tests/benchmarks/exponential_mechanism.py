"""The exponential mechanism over small databases compared with Algorithms 1 and 2 at the same ε, on a domain of 18 rows.

    python tests/benchmarks/exponential_mechanism.py

Prints the root mean square of ‖μ_D − μ_R‖, in the kernel's space, over draws of the mechanism and of the noise: the
exponential mechanism at each M (δ = 0), Algorithm 1 (all 18 rows as points) and Algorithm 2 (random features), both with
Laplace noise (δ = 0) and with Gaussian noise (δ = 1e-6). "best" is the nearest database of M rows, "bound" what the 95 % of
McSherry & Talwar 2007, Theorem 8, add to it. Simulated tables; every draw is a rehearsal, from a seed.
"""

from __future__ import annotations

import argparse
import logging
import time

import numpy as np
import pandas as pd

from kmeanalyst.kernels import KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import publish
from release_side.door.exponential_mechanism import (
    ExponentialMechanism,
    MultisetSampler,
    RehearsedExponential,
    default_size,
    small_databases,
)

DOMAIN = Domain((Integer(name="age", lower=0, upper=8), Categorical(name="sex", levels=("F", "M"))))
KERNEL = table_kernel(DOMAIN)
SIZES = (1, 2, 3, 4, 5, 6, 7)
METHODS = (("subspace", {}), ("random-features", {"points": 100, "features": 400}))


def table(n_rows: int) -> pd.DataFrame:
    """A population that leans to the young, and in which women are older."""
    rng = np.random.default_rng(n_rows)
    sex = rng.random(n_rows) < 0.4
    age = np.clip(np.rint(rng.gamma(2.0, 1.2, n_rows) + 1.5 * sex), 0, 8)
    return DOMAIN.decode(np.column_stack([age, sex.astype(float)]))


def distances_of_draws(
    databases: MultisetSampler, rows: Array, epsilon: float, repetitions: int
) -> tuple[float, float]:
    """(root mean square distance of draws, distance of the best database)."""
    counts = np.bincount(databases.indices(rows), minlength=len(databases.rows))
    scores = databases.scores(counts)
    unit = databases.size * len(rows) * 2**20 / databases.diameter
    mechanism = ExponentialMechanism(epsilon)
    drawn = [
        scores[RehearsedExponential(mechanism, seed).draw(scores, sensitivity=databases.sensitivity)] / unit
        for seed in range(repetitions)
    ]
    return float(np.sqrt(np.mean(np.square(drawn)))), float(scores.min() / unit)


def measured(frame: pd.DataFrame, truth: KernelMean, epsilon: float, noise: str, repetitions: int) -> list[float]:
    """Root mean square distances of Algorithms 1 and 2."""
    found = []
    for method, sizes in METHODS:
        points = {"public_points": DOMAIN.decode(DOMAIN.enumerate_rows(18))} if method == "subspace" else {}
        releases = (
            publish(
                frame, DOMAIN, epsilon=epsilon, delta=0.0 if noise == "laplace" else 1e-6, method=method, noise=noise,
                kernel=KERNEL, rehearsal=seed, workers=1, **points, **sizes,
            )
            for seed in range(repetitions)
        )  # fmt: skip
        found.append(float(np.sqrt(np.mean([release.embedding.distance(truth) ** 2 for release in releases]))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--releases", type=int, default=10, help="of Algorithms 1 and 2 at each setting")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    for n_rows in options.rows:
        frame = table(n_rows)
        rows = DOMAIN.encode(frame)
        truth = KernelMean(KERNEL, rows, np.full(n_rows, 1 / n_rows))
        for epsilon in options.epsilon:
            print(f"\nN = {n_rows:,}, epsilon = {epsilon:g}; M by default {default_size(18, n_rows, epsilon)}")
            print("exponential, by M:   M  databases   rms    best   bound  seconds")
            for size in SIZES:
                started = time.perf_counter()
                databases = small_databases(KERNEL, DOMAIN, None, size, n_rows=n_rows, epsilon=epsilon)
                repetitions = max(20, min(options.repetitions, 10**7 // databases.count))
                rms, best = distances_of_draws(databases, rows, epsilon, repetitions)
                excess = 2 * databases.diameter / n_rows / epsilon * np.log(databases.count / 0.05)
                seconds = time.perf_counter() - started
                print(f"{size:22d} {databases.count:10,d} {rms:6.3f} {best:6.3f} {best + excess:7.3f} {seconds:7.1f}")
            for noise in ("laplace", "gaussian"):
                one, two = measured(frame, truth, epsilon, noise, options.releases)
                print(f"{noise}: Algorithm 1 {one:.3f}, Algorithm 2 {two:.3f}")


if __name__ == "__main__":
    main()
