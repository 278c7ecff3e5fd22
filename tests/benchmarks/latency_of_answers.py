"""How long an answer takes: the first of a release, which prepares its error bars, and further ones.

    python tests/benchmarks/latency_of_answers.py [--points 5000] [--features 500 2000 10000] [--rows 20000]

A mixed table of five columns (that of `coverage_of_intervals.py`), its measurement, and points of equal weight drawn from
the same population (publishing takes longer than the answers, and changes nothing here). Further answers: the median of a
hundred. A thousand at once. Last, the two-sample test of a release of ten numbers (1,000 points, 4,000 features) and 5,000 rows.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from coverage_of_intervals import TABLES
from harness import command_line, seconds, show
from simulated_releases import measured_release

import kmeanalyst as ka
from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.numbers import Real
from release_side import publish
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


def release_of_numbers(rng: np.random.Generator) -> tuple[Release, pd.DataFrame]:
    """A published release of ten numbers, of 1,000 points and 4,000 features, and 5,000 other rows."""
    domain = Domain(tuple(Real(name=f"x{j}", lower=-4, upper=4) for j in range(10)))
    table, sample = (pd.DataFrame(rng.normal(size=(n, 10)).clip(-4, 4), columns=domain.names) for n in (10_000, 5000))
    options = {"kernel": Gaussian(float(np.sqrt(20))), "points": 1000, "features": 4000, "rehearsal": 1}
    return publish(table, domain, epsilon=1, delta=1e-6, **options), sample


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
    release, sample = release_of_numbers(np.random.default_rng(0))
    show(
        {"two-sample test": which, "s": seconds(lambda: ka.mmd_test(release, sample))}
        for which in ("first", "one more")
    )


if __name__ == "__main__":
    main()
