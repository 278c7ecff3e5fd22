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

import numpy as np
import pandas as pd
from harness import command_line

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
    "fourier": "gaussian:lengthscale=1.5", "binning": "laplacian:lengthscale=3", "maclaurin": "exponential-dot:rate=2",
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
    kernel = KernelMean(release.kernel, release.encoded_points, release.weights).distance(
        KernelMean(release.kernel, few)
    )
    raw, kept = np.linalg.norm(measurement.vector - truth), np.linalg.norm(released - truth)
    return np.array([feature_map.dimension, raw, kept, kernel])


def table(options: argparse.Namespace) -> pd.DataFrame:
    """One row for each family, ε and F."""
    frame = made_up(options.rows)
    encoded, lines = DOMAIN.encode(frame), []
    for family in options.family:
        for epsilon in options.epsilon:
            for features in options.features:
                found = {}
                for noise, delta in (("gaussian", DELTA), ("laplace", 0.0)):
                    guarantee = {"epsilon": epsilon, "delta": delta, "noise": noise}
                    each = [
                        errors(frame, encoded, family, features, seed, **guarantee) for seed in range(options.seeds)
                    ]
                    found[noise] = np.sqrt(np.square(each).mean(axis=0))
                g, l = found["gaussian"], found["laplace"]  # noqa: E741
                lines.append([family, epsilon, int(g[0]), g[1], l[1], l[1] / g[1], g[2], l[2], g[3], l[3]])
                print(_line(lines[-1]), flush=True)
    names = "family epsilon F raw_gaussian raw_laplace ratio released_gaussian released_laplace kernel_gaussian kernel_laplace"
    return pd.DataFrame(lines, columns=names.split())


def _line(values: list) -> str:
    return f"{values[0]:>12} {values[1]:>6g} {values[2]:>6} " + " ".join(f"{v:>9.4f}" for v in values[3:])


def break_even(epsilon: float) -> float:
    """The F up to which Laplace noise is no larger than Gaussian: √2·√F/ε = σ(ε, δ)/Δ."""
    return (GaussianNoise(epsilon, DELTA).multiplier() * epsilon / math.sqrt(2)) ** 2


def main() -> None:
    options = command_line(
        __doc__, rows=20_000, epsilon=(0.1, 1.0, 10.0), features=(20, 80, 320, 1280), family=FAMILIES, seeds=2
    )
    logging.disable(logging.WARNING)
    for epsilon in options.epsilon:
        print(
            f"ε = {epsilon:g}: Laplace noise (δ = 0) is no larger than Gaussian (δ = {DELTA:g}) up to F = {break_even(epsilon):.1f}"
        )
    print("      family      ε      F |  raw: gauss laplace ratio | released: gauss laplace | kernel: gauss laplace")
    table(options)


if __name__ == "__main__":
    main()
