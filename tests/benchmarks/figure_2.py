"""Figure 2 of Balog, Tolstikhin & Schölkopf 2018: no public rows, points and random features free to choose.

    python tests/benchmarks/figure_2.py [--points 10 31 ...] [--draws 5] [--dimension 2 5]

Reads ../shared/anchors and says so when it is not there. Points and weights of random features as a release has them by default
(`represent`), and Algorithm 1 with probability weights on points drawn from the domain. Error is the RKHS distance to the
embedding of all rows; the line to compare with is the distance of that embedding to the population's. Last, at the default
number of points, how the errors stand to the targets and to the published Algorithms 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from figure_1 import DELTA, Setting, load
from harness import ANCHORS, command_line, require, show
from simulated_releases import measurement_of

from kmeanalyst.kernels import KernelMean
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement, feature_mean, grid_sensitivity, mean_unit
from kmeanalyst.representation.mixture import denoise
from kmeanalyst.representation.represent import place_points
from kmeanalyst.representation.wanted import Wanted
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.choices.choices import Choices
from release_side.door.mechanism import GaussianNoise
from release_side.door.private_mean import private_mean
from release_side.publishing.methods.random_features import RandomFeatures
from release_side.publishing.methods.subspace import Subspace

POINTS = (10, 31, 100, 316, 1000)  # among the published
SUBSPACE = (100, 316, 1000)
EPSILONS = (0.01, 0.1, 1.0)
TARGETS = {5: (0.080, 0.015, 0.0035), 2: (0.040, 0.0075, 0.0014)}  # at EPSILONS


@dataclass
class Results:
    """Of one dimension: errors and seconds, by (name, ε, M), one for each draw of the noise."""

    dimension: int
    finite_sample: float
    errors: dict[tuple[str, float, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    seconds: dict[tuple[str, float, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    default: dict[float, int] = field(default_factory=dict)  # ε → M

    def numbers(self, name: str, epsilon: float) -> list[int]:
        """The M at which there are errors."""
        return sorted(m for n, e, m in self.errors if (n, e) == (name, epsilon))


def domain_of(dimension: int) -> Domain:
    return Domain(tuple(Real(name=f"x{j}", lower=-700, upper=700) for j in range(dimension)))


def measure(feature_map: FeatureMap, exact: Any, n_rows: int, epsilon: float, draw: int) -> Measurement:
    """What the door would release: the exact mean feature, and noise of the scale that the guarantee needs."""
    sensitivity = grid_sensitivity(feature_map) * mean_unit(n_rows=n_rows, feature_map=feature_map)
    noise_scale = GaussianNoise(epsilon, DELTA).multiplier() * sensitivity
    rng = np.random.default_rng([draw, EPSILONS.index(epsilon)])
    noisy = exact + noise_scale * rng.standard_normal(len(exact))
    return measurement_of(feature_map, noisy, noise_scale, n_rows, "normal")


def distance(table: Setting, points: Any, weights: Any) -> float:
    """RKHS distance of weighted points to the embedding of all rows; points of weight zero cost nothing."""
    points, weights = points[weights != 0], weights[weights != 0]
    inner = KernelMean(table.kernel, table.rows).evaluate(points)
    return Setting(table.kernel, points, inner, table.squared_norm).error(len(points), weights)


def since(start: float) -> float:
    return time.perf_counter() - start


def door(table: Setting, feature_map: FeatureMap, exact: Any) -> str:
    """The time of one real measurement, and whether its noise has the size that is simulated here."""
    start = time.perf_counter()
    real = private_mean([table.rows], feature_map, GaussianNoise(1.0, DELTA), n_rows=len(table.rows))
    seconds = since(start)
    size = np.linalg.norm(real.vector - exact) / (real.noise_scale * np.sqrt(len(exact)))
    return f"{seconds:.1f} s for {len(exact)} random features of {len(table.rows)} rows (size of its noise: {size:.3f})"


def place(
    results: Results, name: str, measurement: Measurement, table: Setting, epsilon: float, numbers: tuple[int, ...]
) -> None:
    """Denoise once and place each number of points, and the default number.

    The draws of `place_points` continue those of `denoise_measurement`: points and weights are those of `represent`, rng=0.
    """
    domain, rng = domain_of(table.rows.shape[1]), np.random.default_rng(0)
    start = time.perf_counter()
    estimate = denoise.denoise_measurement(measurement, domain, rng=rng)
    denoising = since(start)
    results.default[epsilon] = RandomFeatures(Choices()).default_points(measurement, domain)
    for m in sorted({*numbers, results.default[epsilon]}):
        start = time.perf_counter()
        points, weights = place_points(estimate, measurement, domain, Wanted(n_points=m, rng=deepcopy(rng)))
        results.seconds[name, epsilon, m].append(denoising + since(start))
        results.errors[name, epsilon, m].append(distance(table, points, weights))


def random_features(
    results: Results, table: Setting, feature_map: RandomFourier, exact: Any, options: argparse.Namespace
) -> None:
    """The default method."""
    for epsilon in EPSILONS:
        for draw in range(options.draws):
            measurement = measure(feature_map, exact, len(table.rows), epsilon, draw)
            place(results, "random features", measurement, table, epsilon, tuple(options.points))
        print_lines(results, "random features", epsilon)


def subspace(results: Results, table: Setting, draws: int) -> None:
    """Algorithm 1 with probability weights, on points drawn from the domain."""
    domain = domain_of(results.dimension)
    for m in SUBSPACE:
        method = Subspace(Choices(points=m))
        plain, points = method.features(table.kernel, domain), method.spanning(table.kernel, domain)
        feature_map = CertifiedNystroem.of(plain) or plain
        inner = KernelMean(table.kernel, table.rows).evaluate(points)
        position = {point.tobytes(): i for i, point in enumerate(points)}
        of_basis = inner[[position[point.tobytes()] for point in feature_map.points]]
        exact = np.linalg.solve(feature_map.function_values(np.eye(len(of_basis))), of_basis)
        setting = Setting(table.kernel, points, inner, table.squared_norm)
        for epsilon in EPSILONS:
            for draw in range(draws):
                measurement = measure(feature_map, exact, len(table.rows), epsilon, draw)
                start = time.perf_counter()
                weights = weights_for("probability", points, measurement)
                results.seconds["subspace", epsilon, m].append(since(start))
                results.errors["subspace", epsilon, m].append(setting.error(m, weights))
    for epsilon in EPSILONS:
        print_lines(results, "subspace", epsilon)


def print_lines(results: Results, name: str, epsilon: float) -> None:
    """One line for each M."""
    for m in results.numbers(name, epsilon):
        draws, seconds = results.errors[name, epsilon, m], results.seconds[name, epsilon, m]
        usual = " (default)" if name == "random features" and m == results.default[epsilon] else ""
        print(
            f"D = {results.dimension}  ε {epsilon:<5} {name:<15} M {m:5d}  {np.median(draws):.5f}"
            f"  {min(draws):.5f} to {max(draws):.5f}  {np.median(seconds):6.1f} s{usual}",
            flush=True,
        )


# The whole


def study(dimension: int, options: argparse.Namespace) -> Results:
    """One dimension, printed as it goes."""
    table = load(dimension, 1)
    results = Results(dimension, float(np.sqrt((1 - table.squared_norm) / len(table.rows))))
    domain = domain_of(dimension)
    feature_map = RandomFeatures(Choices()).features(table.kernel, domain)
    assert isinstance(feature_map, RandomFourier)
    exact = feature_mean(feature_map, table.rows)
    print(f"\nD = {dimension}: embedding of the rows to that of the population {results.finite_sample:.5f}")
    print(f"D = {dimension}: the door takes {door(table, feature_map, exact)}", flush=True)
    print("setting, method, M, median error, smallest to largest, seconds from measurement to points and weights")
    random_features(results, table, feature_map, exact, options)
    subspace(results, table, options.draws)
    return results


def summary(results: Results) -> Iterator[dict[str, Any]]:
    """At the default number of points: target, error, whether it is met, and the best of the published errors at any M."""
    for e, (epsilon, target) in enumerate(zip(EPSILONS, TARGETS[results.dimension], strict=True)):
        key = "random features", epsilon, results.default[epsilon]
        draws, middle = results.errors[key], float(np.median(results.errors[key]))
        yield {
            "D": results.dimension, "ε": epsilon, "target": target, "median": middle, "smallest": min(draws),
            "largest": max(draws), "s": np.median(results.seconds[key]), "met": middle <= target,
        } | {f"Algorithm {k}": min(published(results.dimension, k)[e]) for k in (1, 2)}  # fmt: skip


def published(dimension: int, algorithm: int) -> list[list[float]]:
    """The errors for each ε."""
    facts = json.loads((ANCHORS / f"published_D{dimension}_alg{algorithm}_random_M10000.json").read_text())
    assert tuple(facts["epsilons"]) == EPSILONS
    return facts[f"dists_alg{algorithm}"]


def main() -> None:
    options = command_line(__doc__, points=POINTS, draws=5, dimension=(2, 5))
    require(ANCHORS)
    all_results = [study(dimension, options) for dimension in options.dimension]
    print("\nat the default number of points")
    show(line for results in all_results for line in summary(results))


if __name__ == "__main__":
    main()
