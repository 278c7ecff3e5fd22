"""When is pure differential privacy (δ = 0) worth it? RKHS error against F for Laplace and Gaussian noise at the same ε.

    python tests/benchmarks/pure_epsilon.py [--rows 20000] [--epsilon 0.1 1 10] [--features 20 80 320 1280] [--seeds 2] \\
        [--family fourier subspace ...]

A made-up table of two columns (a mixture of three clusters), measured by random features of each family, with F coordinates,
and by a subspace of at most F points (Algorithm 1); by discrete Gaussian noise at (ε, δ) and by discrete Laplace noise at
(ε, 0). Two errors, in the distance of the features:

    raw        ‖y − mean φ‖, the noise itself: Gaussian noise grows as √F; Laplace noise as F, since the L1 sensitivity is
               √F times the other (Balog et al. 2017, Remark 4)
    released   ‖Σ w φ(z) − mean φ‖ of the weighted points, which probability weights keep most of the noise out of

and the distance of the released points in the kernel's own space, which adds what F features cannot see ("kernel"). Noise
comes from seeds (rehearsals): nothing here is private.
"""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show

from kmeanalyst.kernels import KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from release_side import publish
from release_side.door.mechanism import GaussianNoise

DOMAIN = Domain((Real(name="x", lower=-4, upper=4), Real(name="y", lower=-4, upper=4)))
DELTA = 1e-6
SUBSPACE = "subspace"  # Algorithm 1, whose features are its points
FAMILIES = {
    "fourier": "gaussian:lengthscale=1.5", "binning": "laplacian:lengthscale=3", "maclaurin": "polynomial:degree=3",
    SUBSPACE: "gaussian:lengthscale=1.5",
}  # fmt: skip


def made_up(rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    centres, spreads = np.array([[-2.0, -1.0], [1.0, 2.0], [2.0, -2.0]]), np.array([0.4, 0.7, 1.0])
    cluster = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    cells = centres[cluster] + spreads[cluster, None] * rng.standard_normal((rows, 2))
    return pd.DataFrame(np.clip(cells, -4, 4), columns=["x", "y"])


def errors(frame: pd.DataFrame, encoded: Array, family: str, features: int, seed: int, **guarantee: object) -> Array:
    """F as it came out; raw, released and kernel error of one rehearsal."""
    how: dict[str, object] = {"family": family, "features": features, "points": 200}
    if family == SUBSPACE:
        how = {"method": "subspace", "points": features}
    release = publish(frame, DOMAIN, kernel=FAMILIES[family], rehearsal=seed, **how, **guarantee)  # type: ignore[arg-type]
    measurement = release.measurement
    assert measurement is not None
    feature_map = measurement.feature_map
    truth = feature_map.mean(encoded, np.full(len(encoded), 1 / len(encoded)))
    released = feature_map.mean(release.encoded_points, release.weights)
    few = encoded[:: max(1, len(encoded) // 5000)]
    kernel = KernelMean(release.kernel, release.encoded_points, release.weights).distance(KernelMean(release.kernel, few))
    raw, kept = np.linalg.norm(measurement.vector - truth), np.linalg.norm(released - truth)
    return np.array([feature_map.dimension, raw, kept, kernel])


def lines(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    frame = made_up(options.rows)
    encoded = DOMAIN.encode(frame)
    for family, epsilon, features in product(options.family, options.epsilon, options.features):
        line: dict[str, Any] = {"family": family, "ε": epsilon}
        for noise, delta in (("gaussian", DELTA), ("laplace", 0.0)):
            guarantee = {"epsilon": epsilon, "delta": delta, "noise": noise}
            found = [errors(frame, encoded, family, features, seed, **guarantee) for seed in range(options.seeds)]
            dimension, *means = np.sqrt(np.square(found).mean(axis=0))
            line["F"] = int(dimension)
            line |= {f"{name}, {noise}": mean for name, mean in zip(("raw", "released", "kernel"), means, strict=True)}
        yield line


def break_even(epsilon: float) -> float:
    """The F up to which Laplace noise is no larger than Gaussian: √2·√F/ε = σ(ε, δ)/Δ."""
    return (GaussianNoise(epsilon, DELTA).multiplier() * epsilon / math.sqrt(2)) ** 2


def main() -> None:
    options = command_line(__doc__, rows=20_000, epsilon=(0.1, 1.0, 10.0), features=(20, 80, 320, 1280), family=FAMILIES, seeds=2)
    logging.disable(logging.WARNING)
    for e in options.epsilon:
        print(f"ε = {e:g}: Laplace noise is no larger than Gaussian (δ = {DELTA:g}) up to F = {break_even(e):.1f}")
    show(lines(options))


if __name__ == "__main__":
    main()
