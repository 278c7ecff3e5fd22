"""How long an answer takes: the first of a release, which prepares its error bars, and further ones.

    python tests/benchmarks/latency_of_answers.py [--points 5000] [--features 500 2000 10000] [--rows 20000]

A mixed table of five columns (that of `coverage_of_intervals.py`), its measurement, and points of equal weight drawn from
the same population (publishing takes longer than the answers, and changes nothing here). Next to the first answer is its
physical limit in the same run: the features of as many rows as the error bars use, evaluated
once in the single precision they are needed in. Further answers: the median of a hundred. A thousand at once.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from coverage_of_intervals import TABLES
from harness import command_line

from kmeanalyst.inference.estimate.population_fit import fit_population
from kmeanalyst.kernels.embedding import in_threads, row_blocks
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.statement import PrivacyStatement
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
    noise = GaussianNoise(1.0, 1e-6)
    measurement = private_mean([domain.encode(draw(rows, rng))], feature_map, noise, n_rows=rows)
    return Release(
        points=domain.decode(domain.encode(draw(points, rng))), weights=np.full(points, 1 / points), kernel=kernel,
        measurement=measurement, domain=domain, method="random-features", weight_view="probability",
        statement=PrivacyStatement(
            epsilon=noise.epsilon, delta=noise.delta, neighbouring="replace-one", mechanism=noise.name,
            sensitivity=measurement.sensitivity, noise_scale=measurement.noise_scale, calibration=noise.calibration,
            rho=0.5 * (measurement.sensitivity / measurement.noise_scale) ** 2, n_rows=rows,
            taken_as_public=("the number of rows", "the domain"), versions={"kmeanalyst": "0.1.0"},
        ),
    )  # fmt: skip


def seconds(work: Callable[[], object]) -> float:
    """The time it takes, once."""
    start = perf_counter()
    work()
    return perf_counter() - start


def bare(release: Release) -> float:
    """The time of the features alone."""
    assert release.measurement is not None
    feature_map, rows = release.measurement.feature_map, fit_population(release, release.measurement).rows
    blocks = row_blocks(len(rows), feature_map.width)
    return seconds(lambda: list(in_threads(lambda i: len(feature_map.rough(rows[blocks[i]])), len(blocks))))


def main() -> None:
    """Print the table."""
    choice = command_line(__doc__, points=5000, features=(500, 2000, 10_000), rows=20_000)
    release_of(50, 100, 500).mean("age")  # imports
    print("points  features  first answer  its features alone  further one  thousand at once")
    for features in choice.features:
        release = release_of(choice.points, features, choice.rows)
        first = seconds(lambda release=release: release.mean("age"))  # type: ignore[misc]
        release.probability("age > 50")
        further = [seconds(lambda k=k: release.probability(f"gain > {k} and age > 50")) for k in range(100)]  # type: ignore[misc]  # noqa: B023
        many = seconds(lambda: release.expectations([f"age > {20 + k / 20}" for k in range(1000)]))  # noqa: B023
        print(
            f"{choice.points:6}  {features:8}  {first:10.2f} s  {bare(release):16.2f} s  {1000 * np.median(further):8.1f} ms"
            f"  {many:14.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
