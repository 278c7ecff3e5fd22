"""Figure 2 of Balog, Tolstikhin & Schölkopf 2018: no public rows, points and random features free to choose.

    python tests/benchmarks/figure_2.py [--points 10 31 ...] [--draws 5] [--dimension 2 5]

Reads ../shared/anchors and says so when it is not there. Points and weights of random features as a release has them by default
(`represent`), and Algorithm 1 with probability weights on points drawn from the domain. Error is the RKHS distance to the
embedding of all rows; the line to compare with is the distance of that embedding to the population's. Last, at the default
number of points, how the errors stand to the published Algorithms 1 and 2.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from copy import deepcopy
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from figure_1 import DELTA, Setting, load
from harness import ANCHORS, command_line, require, show
from simulated_releases import measurement_of

from kmeanalyst.kernels import KernelMean
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement, feature_mean, grid_sensitivity, mean_unit
from kmeanalyst.representation.mixture import denoise
from kmeanalyst.representation.represent import place_points
from kmeanalyst.representation.wanted import Wanted
from kmeanalyst.representation.weights.reweight import weights_for
from release_side.choices.choices import Choices
from release_side.door.mechanism import GaussianNoise
from release_side.publishing.methods.random_features import RandomFeatures
from release_side.publishing.methods.subspace import Subspace

POINTS = (10, 31, 100, 316, 1000)  # among the published
SUBSPACE = (100, 316, 1000)
EPSILONS = (0.01, 0.1, 1.0)


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


def place(measurement: Measurement, table: Setting, numbers: list[int]) -> Iterator[dict[str, Any]]:
    """Denoise once and place each number of points, and the default number; the error and the seconds of each.

    The draws of `place_points` continue those of `denoise_measurement`: points and weights are those of `represent`, rng=0.
    """
    domain, rng = domain_of(table.rows.shape[1]), np.random.default_rng(0)
    start = time.perf_counter()
    estimate = denoise.denoise_measurement(measurement, domain, rng=rng)
    denoising = time.perf_counter() - start
    default = RandomFeatures(Choices()).default_points(measurement, domain)
    for m in sorted({*numbers, default}):
        start = time.perf_counter()
        points, weights = place_points(estimate, measurement, domain, Wanted(n_points=m, rng=deepcopy(rng)))
        took = denoising + time.perf_counter() - start
        yield {"M": m, "default": m == default, "error": distance(table, points, weights), "s": took}


def random_features(table: Setting, domain: Domain, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    feature_map = RandomFeatures(Choices()).features(table.kernel, domain)
    exact = feature_mean(feature_map, table.rows)
    for epsilon, draw in product(EPSILONS, range(options.draws)):
        measurement = measure(feature_map, exact, len(table.rows), epsilon, draw)
        for one in place(measurement, table, options.points):
            yield {"method": "random features", "ε": epsilon} | one


def subspace(table: Setting, domain: Domain, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Algorithm 1 with probability weights, on points drawn from the domain."""
    for m in SUBSPACE:
        method = Subspace(Choices(points=m))
        plain, points = method.features(table.kernel, domain), method.spanning(table.kernel, domain)
        feature_map = CertifiedNystroem.of(plain) or plain
        inner = KernelMean(table.kernel, table.rows).evaluate(points)
        position = {point.tobytes(): i for i, point in enumerate(points)}
        of_basis = inner[[position[point.tobytes()] for point in feature_map.points]]
        exact = np.linalg.solve(feature_map.basis_features(np.arange(len(of_basis))), of_basis)
        setting = Setting(table.kernel, points, inner, table.squared_norm)
        for epsilon, draw in product(EPSILONS, range(options.draws)):
            measurement = measure(feature_map, exact, len(table.rows), epsilon, draw)
            start = time.perf_counter()
            weights = weights_for("probability", points, measurement)
            took = time.perf_counter() - start
            error = setting.error(m, weights)
            yield {"method": "subspace", "ε": epsilon, "M": m, "default": False, "error": error, "s": took}


def study(dimension: int, options: argparse.Namespace) -> pd.DataFrame:
    """Everything of one dimension, printed and returned: median, smallest and largest error, and seconds, over the draws."""
    table, domain = load(dimension, 1), domain_of(dimension)
    of_population = float(np.sqrt((1 - table.squared_norm) / len(table.rows)))
    print(f"\nD = {dimension}: embedding of the rows to that of the population {of_population:.5f}", flush=True)
    lines = []
    for method in (random_features, subspace):
        draws = pd.DataFrame(method(table, domain, options)).groupby(["method", "ε", "M", "default"])
        lines.append(draws["error"].agg(["median", "min", "max"]).assign(s=draws["s"].median()).reset_index())
        show(lines[-1].to_dict("records"))
    return pd.concat(lines).assign(D=dimension)


def published(dimension: int, algorithm: int) -> list[float]:
    """The smallest error at any M, for each ε."""
    facts = json.loads((ANCHORS / f"published_D{dimension}_alg{algorithm}_random_M10000.json").read_text())
    assert tuple(facts["epsilons"]) == EPSILONS
    return [min(errors) for errors in facts[f"dists_alg{algorithm}"]]


def main() -> None:
    options = command_line(__doc__, points=POINTS, draws=5, dimension=(2, 5))
    require(ANCHORS)
    found = pd.concat([study(dimension, options) for dimension in options.dimension])
    print("\nat the default number of points, and the smallest of the published errors at any M")
    show(
        line | {f"Algorithm {k}": published(line["D"], k)[EPSILONS.index(line["ε"])] for k in (1, 2)}
        for line in found[found["default"]].to_dict("records")
    )


if __name__ == "__main__":
    main()
