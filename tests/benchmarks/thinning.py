"""RKHS distance of n points to a release of M = 3000: drawn at random, herded, and thinned.

    python tests/benchmarks/thinning.py [--points 3000] [--repetitions 3]

The release is a mixture of ten normal clusters in D = 2 and 5 dimensions under the kernel exp(−‖x−y‖²/(10⁴ D)), with
probability weights, or with signed ones of which a fifth are negative. `kmeanalyst.thin` is compared with systematic
resampling (points drawn by |w|, with weights ±Σ|w|/n; mean of 20 draws), plain kernel herding (Chen, Welling &
Smola 2010, equal weights) and herding with line search (Bach, Lacoste-Julien & Obozinski 2012: conditional gradient,
probability weights). The ratio is that of the best of these to the thinned release with probability weights.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import numpy as np
import pandas as pd

import kmeanalyst as ka
from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

SIZES = (10, 30, 100, 300)


def mixture(dimension: int, n_points: int, rng: np.random.Generator, *, signed: bool) -> ka.Release:
    """Points of the clusters, with exponential weights that sum to one."""
    centres = rng.normal(0, 150, (10, dimension))
    rows = centres[rng.integers(0, 10, n_points)] + rng.normal(0, 30, (n_points, dimension))
    weights = rng.exponential(size=n_points)
    if signed:
        weights *= np.where(rng.random(n_points) < 0.2, -1, 1)
    domain = Domain(tuple(Real(name=f"x{j}", lower=-1000, upper=1000) for j in range(dimension)))
    frame = pd.DataFrame(rows, columns=list(domain.names)).assign(weight=weights / weights.sum())
    return ka.from_frame(frame, kernel=Gaussian(float(np.sqrt(1e4 * dimension / 2))), domain=domain)


def drawn(release: ka.Release, n: int, rng: np.random.Generator) -> float:
    """The distance of n points drawn systematically by |w|, the mean of 20 draws."""
    cumulative = np.cumsum(np.abs(release.weights))
    total = cumulative[-1]
    distances = []
    for _ in range(20):
        indices = np.searchsorted(cumulative / total, (np.arange(n) + rng.random()) / n, side="right")
        indices = np.minimum(indices, len(release) - 1)
        weights = np.sign(release.weights[indices]) * total / n
        distances.append(distance(release, indices, weights))
    return float(np.mean(distances))


def herded(release: ka.Release, n: int) -> float:
    """The distance of the first n points of plain herding: argmax of μ(z) − Σ k(z_j, z)/(i + 1)."""
    target = release.embedding.evaluate(release.encoded_points)
    total = np.zeros(len(release))
    indices = []
    for i in range(n):
        indices.append(int(np.argmax(target - total / (i + 1))))
        total += release.kernel.gram(release.encoded_points[indices[-1], None], release.encoded_points)[0]
    return distance(release, np.array(indices), np.full(n, 1 / n))


def line_searched(release: ka.Release, n: int) -> float:
    """The distance after n steps of conditional gradient: towards the point of largest gain, as far as is best."""
    points, kernel = release.encoded_points, release.kernel
    target = release.embedding.evaluate(points)
    weights, reached, inner, norm = np.zeros(len(release)), np.zeros(len(release)), 0.0, 0.0  # g(z), ⟨g, μ⟩, ‖g‖²
    for i in range(n):
        index = int(np.argmax(target - reached))
        column = kernel.gram(points[index, None], points)[0]
        away = norm - 2 * reached[index] + column[index]  # ‖k(z, ·) − g‖²
        gain = (target[index] - reached[index]) - (inner - norm)
        step = 1.0 if i == 0 else float(np.clip(gain / away, 0, 1)) if away > 0 else 0.0
        norm = (1 - step) ** 2 * norm + 2 * step * (1 - step) * reached[index] + step**2 * column[index]
        inner = (1 - step) * inner + step * target[index]
        reached = (1 - step) * reached + step * column
        weights *= 1 - step
        weights[index] += step
    used = np.flatnonzero(weights)
    return distance(release, used, weights[used])


def distance(release: ka.Release, indices: np.ndarray, weights: np.ndarray) -> float:
    """RKHS distance of weighted points to the release."""
    points = release.encoded_points
    difference = KernelMean(release.kernel, points[indices], weights)
    target = release.embedding.evaluate(points)
    squared = release.weights @ target - 2 * weights @ target[indices] + difference.squared_norm()
    return float(np.sqrt(max(0.0, squared)))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--repetitions", type=int, default=3)
    choice = parser.parse_args()
    kinds = ("uniform", "probability", "signed")
    print(f"M = {choice.points}, mean of {choice.repetitions} releases; RKHS distance, and seconds of the thinning")
    heads = "".join(f"{kind:>12}       s" for kind in kinds)
    print(f"{'D':>1} {'weights':12} {'n':>4} {'resampled':>10} {'herded':>10} {'searched':>10}{heads}{'ratio':>9}")
    for dimension, signed, n in product((2, 5), (False, True), SIZES):
        rows = []
        for seed in range(choice.repetitions):
            rng = np.random.default_rng(seed)
            release = mixture(dimension, choice.points, rng, signed=signed)
            row = [drawn(release, n, rng), herded(release, n), line_searched(release, n)]
            for kind in kinds:
                start = time.perf_counter()
                error = release.thin(n, weights=kind).thinning_error
                assert error is not None
                row += [error, time.perf_counter() - start]
            rows.append(row)
        found = np.mean(rows, axis=0)
        cells = "".join(f"{found[i]:12.2e} {found[i + 1]:7.1f}" for i in (3, 5, 7))
        label = "signed" if signed else "probability"
        ratio = found[:3].min() / max(found[5], 1e-8)
        baselines = " ".join(f"{value:10.2e}" for value in found[:3])
        print(f"{dimension} {label:12} {n:4} {baselines}{cells}{ratio:9.1f}", flush=True)


if __name__ == "__main__":
    main()
