"""Risk of shrunk means compared with plain ones: of an analyst's sample, and of a release's noisy mean.

    python tests/benchmarks/shrinkage.py [--repetitions 20]

First, n rows of a standard normal population in five dimensions, kernel exp(−‖x−y‖²/2): mean of ‖estimate − μ‖² over
repetitions (×10), relative to that of the plain mean, for the simple and the flexible estimator of Muandet et al. 2016.
Then a noisy mean of N = 10⁴ rows in two dimensions, of which 200 more are public: mean of ‖estimate − mean of the table‖
over the root of F·τ², for y itself, y drawn towards zero and towards the public rows (James-Stein), and what makes points
and weights: the Wiener step of a subspace, and `denoise_measurement` for random features, both with the public rows.
"""

from __future__ import annotations

import argparse

import numpy as np

from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import Measurement, feature_mean, mean_unit
from kmeanalyst.representation.mixture.denoise import denoise_measurement
from kmeanalyst.representation.shrinkage import shrunk_mean, shrunk_vector
from kmeanalyst.representation.weights.public_prior import posterior_of_public

N = 10_000
DOMAIN = Domain((Real(name="x", lower=-4.0, upper=4.0), Real(name="y", lower=-4.0, upper=4.0)))


def squared_error(mean: KernelMean) -> float:
    """‖mean − μ‖² for the standard normal population and the Gaussian kernel of lengthscale 1."""
    d = mean.points.shape[1]
    inner = 0.5 ** (d / 2) * np.exp(-(mean.points**2).sum(axis=1) / 4) @ mean.weights
    return mean.squared_norm() - 2 * float(inner) + 3 ** (-d / 2)


def samples(repetitions: int) -> None:
    """Print the first table."""
    print("a sample's mean: risk relative to the plain mean's\n    n   simple flexible")
    kernel = Gaussian(1.0)
    for n in (10, 30, 100, 300):
        risks = np.zeros(3)
        for seed in range(10 * repetitions):
            rows = np.random.default_rng(seed).normal(size=(n, 5))
            means = (KernelMean(kernel, rows), shrunk_mean(kernel, rows, how="simple"), shrunk_mean(kernel, rows))
            risks += [squared_error(mean) for mean in means]
        print(f"{n:5} {risks[1] / risks[0]:8.3f} {risks[2] / risks[0]:8.3f}", flush=True)


def measured(mean: Array, feature_map: FeatureMap, scale: float, seed: int) -> Measurement:
    """This mean with noise of this scale."""
    unit = mean_unit(n_rows=N, feature_map=feature_map)
    rng = np.random.default_rng(
        [1847, seed]
    )  # no stream that frequencies were drawn from: such noise looks like signal
    noisy = np.rint((mean + scale * rng.normal(size=len(mean))) / unit).astype(np.int64)
    return Measurement.from_sum(
        noisy, grid_scale=scale / unit, n_rows=N, feature_map=feature_map, noise_law="discrete gaussian"
    )


def releases(repetitions: int) -> None:
    """Print the second table."""
    rng = np.random.default_rng(0)
    rows = np.clip(rng.normal([1.0, -0.5], [1.0, 0.5], (N + 200, 2)), -4, 4)
    table, public, kernel = rows[:N], rows[N:], Gaussian(1.0)
    maps: list[tuple[str, FeatureMap]] = [
        ("subspace", Nystroem.fit(kernel, public)),
        ("random", RandomFourier.draw(kernel, n_columns=2, dimension=1000, missing_columns=[], rng=1)),
    ]
    print("\na release's noisy mean: distance to the table's mean, over √F·τ")
    print(f"{'features':>9} {'F':>5} {'tau':>7} {'y':>6} {'to 0':>6} {'to public':>10} {'what is used':>13}")
    for name, feature_map in maps:
        mean, guess = feature_mean(feature_map, table), feature_mean(feature_map, public)
        for scale in (1e-4, 1e-3, 1e-2, 1e-1):
            found = []
            for seed in range(repetitions if name == "subspace" else 3):
                y = measured(mean, feature_map, scale, seed)
                used = (
                    posterior_of_public(y.feature_map(public), y.vector, y.noise_scale, n_rows=y.n_rows)[0]
                    if name == "subspace"
                    else denoise_measurement(y, DOMAIN, public=public, rng=0).mean
                )
                estimates = (y.vector, shrunk_vector(y), shrunk_vector(y, towards=guess), used)
                found.append([float(np.linalg.norm(estimate - mean)) for estimate in estimates])
            plain, zero, towards, best = np.mean(found, axis=0) / (scale * np.sqrt(len(mean)))
            print(
                f"{name:>9} {len(mean):5} {scale:7.0e} {plain:6.3f} {zero:6.3f} {towards:10.3f} {best:13.3f}",
                flush=True,
            )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20)
    repetitions = parser.parse_args().repetitions
    samples(repetitions)
    releases(repetitions)


if __name__ == "__main__":
    main()
