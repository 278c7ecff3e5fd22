"""Functions of random variables: convergence, coverage of their error bars, and the time of thinning a product.

    python tests/benchmarks/pushforward.py [--parts convergence coverage time] [--draws 10] [--repetitions 60] [--workers 2]

Convergence: X ~ N(3, 0.5), Y ~ N(4, 0.5) and f of XY, X/Y, X^Y (Schölkopf et al. 2015, §5; Balog et al. 2018, §3.3).
Squared RKHS errors against quadrature, Gaussian kernel of f's standard deviation, mean over --draws, of N points:
pairs (x_i, y_i) of N draws; the product of N draws of each, thinned to N points with probability weights; and √N × √N
points of 1,000 draws each, either thinned or with unbounded weights by least squares on points drawn elsewhere.
Coverage: two tables of 20,000 rows at ε = 1, 500 features and 300 points: how often 95 % intervals hold the truth, and
Var[X − Z] of two dependent columns of one release compared with columns of two releases.
Time: a product of 1,000 × 1,000 points thinned to 1,000, compared with one evaluation of the kernel at a hundred times the points.
"""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
from harness import command_line

import kmeanalyst as ka
import release_side
from kmeanalyst.inference.variables.product_distribution import UnboundedWeights
from kmeanalyst.kernels import Gaussian, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

_FUNCTIONS = {"XY": np.multiply, "X/Y": np.divide, "X^Y": np.power}
_MEANS, _SD = (3.0, 4.0), 0.5
_SIZES = (25, 50, 100, 200, 400, 800)
_DRAWN = 1000
_KINDS = ("pairs", "product thinned", "factors thinned", "factors unbounded")
_ROWS = 20_000
_A = Domain((Real(name="x", lower=0.5, upper=5.5), Real(name="z", lower=-1, upper=6)))
_B = Domain((Real(name="y", lower=1.5, upper=6.5),))


def quadrature(mean: float) -> tuple[Array, Array]:
    """Points and weights of N(mean, 0.5): the trapezoidal rule, exact to 1e-7."""
    z = np.linspace(-5.5, 5.5, 81)
    w = np.exp(-(z**2) / 2)
    return mean + _SD * z, w / w.sum()


def weighted(values: Array, weights: Array | None = None) -> Release:
    """Weighted points as a release, with the kernel that its points are thinned in."""
    weight = np.full(len(values), 1 / len(values)) if weights is None else weights
    return ka.from_frame(pd.DataFrame({"v": values, "weight": weight}), kernel=Gaussian(_SD))


def truths() -> dict[str, KernelMean]:
    """The embeddings of f(X, Y)."""
    x, y = (weighted(*quadrature(mean))["v"] for mean in _MEANS)
    return {name: f(x, y).thin(200).embedding for name, f in _FUNCTIONS.items()}


def unbounded(draws: Release, mean: float, n: int, rng: np.random.Generator) -> Release:
    """Least squares weights for the draws' embedding on n points drawn more widely."""
    Z = np.maximum(rng.normal(mean, 1.5 * _SD, n), 0.1)[:, None]
    beta = draws.embedding.evaluate(Z)
    return weighted(Z[:, 0], np.linalg.lstsq(Gaussian(_SD).gram(Z, Z), beta, rcond=1e-14)[0])


def convergence(draws: int) -> None:
    """Print the table of squared errors and slopes."""
    truth, errors, masses = truths(), defaultdict(list), defaultdict(list)
    for n in _SIZES:
        side = round(n**0.5)
        for draw in range(draws):
            rng = np.random.default_rng([n, draw])
            x, y = (rng.normal(mean, _SD, n) for mean in _MEANS)
            both = ka.from_frame(pd.DataFrame({"x": x, "y": y, "weight": 1 / n}))
            many = [weighted(rng.normal(mean, _SD, _DRAWN)) for mean in _MEANS]
            wild = [unbounded(some, mean, side, rng) for some, mean in zip(many, _MEANS, strict=True)]
            masses[n].append(np.prod([np.abs(release.weights).sum() for release in wild]))
            for name, f in _FUNCTIONS.items():
                kernel = truth[name].kernel
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UnboundedWeights)
                    found = (
                        f(both["x"], both["y"]).embedding(kernel),
                        f(weighted(x)["v"], weighted(y)["v"]).thin(n, kernel=kernel).embedding,
                        f(*(some.thin(side)["v"] for some in many)).embedding(kernel),
                        f(*(release["v"] for release in wild)).embedding(kernel),
                    )
                for kind, embedding in zip(_KINDS, found, strict=True):
                    errors[name, kind, n].append(embedding.squared_distance(truth[name]))
    print(f"squared RKHS error, N = {', '.join(map(str, _SIZES))}; slope of its logarithm in log N")
    for name in _FUNCTIONS:
        for kind in _KINDS:
            means = [float(np.mean(errors[name, kind, n])) for n in _SIZES]
            slope = np.polyfit(np.log(_SIZES), np.log(means), 1)[0]
            print(f"  {name:<4} {kind:<18}", *(f"{error:9.2g}" for error in means), f"   slope {slope:5.2f}")
    print(f"  Σ|w| of the unbounded  {'':<1}", *(f"{np.median(masses[n]):9.2g}" for n in _SIZES))


def tables(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """x and a z that depends on it; and y."""
    x = rng.normal(_MEANS[0], _SD, _ROWS)
    return (
        pd.DataFrame({"x": x, "z": 0.8 * x + rng.normal(0, 0.3, _ROWS)}),
        pd.DataFrame({"y": rng.normal(_MEANS[1], _SD, _ROWS)}),
    )


def exact() -> dict[str, float]:
    """The population's answers."""
    (x, u), (y, v) = (quadrature(mean) for mean in _MEANS)
    X, Y = (np.random.default_rng(i).normal(mean, _SD, 4_000_000) for i, mean in enumerate(_MEANS))
    return {
        "E[X + Y]": 7.0, "E[XY]": 12.0, "E[X/Y]": float((u @ x) * (v @ (1 / y))), "Var[X + Y]": 0.5,
        "median X^Y": float(np.median(X**Y)),
        "Var[X − Z], one release": 0.04 * 0.25 + 0.09,
        "Var[X − Z], two releases": 0.25 + 0.64 * 0.25 + 0.09,
    }  # fmt: skip


def answers(seed: int) -> dict[str, tuple[float, float, float]]:
    """Value and interval of each question, on fresh releases of fresh tables."""
    first, second = tables(np.random.default_rng(seed))
    other, _ = tables(np.random.default_rng(10**6 + seed))
    settings = {"epsilon": 1.0, "delta": 1e-6, "features": 500, "points": 300}
    a, b = release_side.publish(first, _A, **settings), release_side.publish(second, _B, **settings)
    c = release_side.publish(other, _A, **settings)
    x, z, y = a["x"], a["z"], b["y"]
    found = {
        "E[X + Y]": (x + y).mean(), "E[XY]": (x * y).mean(), "E[X/Y]": (x / y).mean(), "Var[X + Y]": (x + y).var(),
        "median X^Y": (x**y).quantile(0.5), "Var[X − Z], one release": (x - z).var(),
        "Var[X − Z], two releases": (x - c["z"]).var(),
    }  # fmt: skip
    return {name: (estimate.value, *estimate.interval()) for name, estimate in found.items()}


def coverage(repetitions: int, workers: int) -> None:
    """Print how often the intervals hold the truth."""
    truth = exact()
    with ProcessPoolExecutor(workers) as pool:
        found = list(pool.map(answers, range(repetitions)))
    print(
        f"\n95 % intervals, {repetitions} repetitions: coverage, truth, mean value, root mean square error, mean width"
    )
    for name, true in truth.items():
        value, low, high = np.array([each[name] for each in found]).T
        held, error = np.mean((low <= true) & (true <= high)), np.sqrt(np.mean((value - true) ** 2))
        print(f"  {name:<26} {held:5.3f}   {true:9.4f} {value.mean():9.4f}   {error:8.4f} {np.mean(high - low):8.4f}")


def timing() -> None:
    """Print the time of thinning a product, and of as many kernel values as it must at least look at."""
    rng = np.random.default_rng(0)
    x, y = (weighted(rng.normal(mean, _SD, 1000))["v"] for mean in _MEANS)
    print("\n1,000 × 1,000 points, a product thinned to 1,000")
    for name, f in _FUNCTIONS.items():
        start = time.perf_counter()
        points = f(x, y).thin(1000)
        taken = time.perf_counter() - start
        start = time.perf_counter()
        values = rng.normal(size=(1_000_000, 1))
        for centre in range(100):
            points.kernel.gram(values, np.full((1, 1), centre / 100))
        limit = time.perf_counter() - start
        print(f"  {name:<4} {taken:5.2f} s; 10⁸ kernel values {limit:5.2f} s; {points!r}")


def main() -> None:
    """Read the arguments and print what was asked for."""
    options = command_line(__doc__, parts=("convergence", "coverage", "time"), draws=10, repetitions=60, workers=2)
    if "convergence" in options.parts:
        convergence(options.draws)
    if "coverage" in options.parts:
        coverage(options.repetitions, options.workers)
    if "time" in options.parts:
        timing()


if __name__ == "__main__":
    main()
