"""Functions of random variables of two releases: coverage of their error bars.

    python tests/benchmarks/pushforward.py [--repetitions 60] [--workers 2]

X ~ N(3, 0.5), Y ~ N(4, 0.5): two tables of 20,000 rows at ε = 1, 500 features and 300 points: how often 95 % intervals hold the
truth, and Var[X − Z] of two dependent columns of one release compared with columns of two releases.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pandas as pd
from harness import command_line, show

import release_side
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

_MEANS, _SD = (3.0, 4.0), 0.5
_ROWS = 20_000
_A = Domain((Real(name="x", lower=0.5, upper=5.5), Real(name="z", lower=-1, upper=6)))
_B = Domain((Real(name="y", lower=1.5, upper=6.5),))


def tables(rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """x and a z that depends on it; and y."""
    x = rng.normal(_MEANS[0], _SD, _ROWS)
    return (
        pd.DataFrame({"x": x, "z": 0.8 * x + rng.normal(0, 0.3, _ROWS)}),
        pd.DataFrame({"y": rng.normal(_MEANS[1], _SD, _ROWS)}),
    )


def exact() -> dict[str, float]:
    """The population's answers."""
    z = np.linspace(-5.5, 5.5, 81)
    w = np.exp(-(z**2) / 2)
    w = w / w.sum()  # with these weights the trapezoidal rule is exact to 1e-7
    x, y = (mean + _SD * z for mean in _MEANS)
    X, Y = (np.random.default_rng(i).normal(mean, _SD, 4_000_000) for i, mean in enumerate(_MEANS))
    return {
        "E[X + Y]": 7.0, "E[XY]": 12.0, "E[X/Y]": float((w @ x) * (w @ (1 / y))), "Var[X + Y]": 0.5,
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


def main() -> None:
    options = command_line(__doc__, repetitions=60, workers=2)
    with ProcessPoolExecutor(options.workers) as pool:
        found = list(pool.map(answers, range(options.repetitions)))
    lines = []
    for name, true in exact().items():
        value, low, high = np.array([one[name] for one in found]).T
        held, error = np.mean((low <= true) & (true <= high)), np.sqrt(np.mean((value - true) ** 2))
        line = {"question": name, "held": held, "truth": true, "mean": value.mean(), "rmse": error}
        lines.append(line | {"width": np.mean(high - low)})
    show(lines)


if __name__ == "__main__":
    main()
