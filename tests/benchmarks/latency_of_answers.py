"""How long an answer takes: the first of a release, which prepares its error bars, and further ones.

    python tests/benchmarks/latency_of_answers.py [--points 5000] [--features 500 2000 10000] [--rows 20000]

A mixed table of five columns (that of `coverage_of_intervals.py`), its measurement, and points of equal weight drawn from
the same population (publishing takes longer than the answers, and changes nothing here). Further answers: the median of a
hundred. A thousand at once.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from coverage_of_intervals import TABLES
from harness import command_line, show
from simulated_releases import measured_release

from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from release_side.door.mechanism import GaussianNoise
from release_side.door.private_mean import private_mean


def release_of(points: int, features: int, rows: int) -> Release:
    """A release of the mixed table at ε = 1, its points other rows of the population."""
    domain, draw = TABLES["mixed"]
    rng = np.random.default_rng(0)
    kernel = table_kernel(domain)
    feature_map = RandomFourier.draw(
        kernel, n_columns=len(domain), dimension=features, missing_columns=domain.missing_columns, rng=1
    )
    encoded = domain.encode(draw(rows, rng))
    measurement = private_mean([encoded], feature_map, GaussianNoise(1.0, 1e-6), n_rows=rows)
    return measured_release(measurement, domain, domain.encode(draw(points, rng)), kernel=kernel)


def seconds(work: Callable[[], object]) -> float:
    """The time it takes, once."""
    start = perf_counter()
    work()
    return perf_counter() - start


def main() -> None:
    choice = command_line(__doc__, points=5000, features=(500, 2000, 10_000), rows=20_000)
    release_of(50, 100, 500).mean("age")  # imports
    for features in choice.features:
        release = release_of(choice.points, features, choice.rows)
        first = seconds(lambda: release.mean("age"))  # noqa: B023
        release.probability("age > 50")
        further = [seconds(lambda: release.probability(f"gain > {k} and age > 50")) for k in range(100)]  # noqa: B023
        many = seconds(lambda: release.expectations([f"age > {20 + k / 20}" for k in range(1000)]))  # noqa: B023
        show([{
            "points": choice.points, "features": features, "first answer, s": first,
            "further one, ms": 1000 * np.median(further), "thousand at once, s": many,
        }])  # fmt: skip


if __name__ == "__main__":
    main()
