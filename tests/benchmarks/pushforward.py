"""Functions of random variables of two releases: coverage of their error bars.

    python tests/benchmarks/pushforward.py [--repetitions 60] [--workers 2]

X ~ N(3, 0.5), Y ~ N(4, 0.5): two tables of 20,000 rows at ε = 1, 500 features and 300 points: how often 95 % intervals hold the
truth.
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
_A, _B = Domain((Real(name="x", lower=0.5, upper=5.5),)), Domain((Real(name="y", lower=1.5, upper=6.5),))


def exact() -> dict[str, float]:
    z = np.linspace(-5.5, 5.5, 81)
    w = np.exp(-(z**2) / 2)
    w = w / w.sum()  # with these weights the trapezoidal rule is exact to 1e-7
    x, y = (mean + _SD * z for mean in _MEANS)
    X, Y = (np.random.default_rng(i).normal(mean, _SD, 4_000_000) for i, mean in enumerate(_MEANS))
    return {
        "E[X + Y]": 7.0, "E[XY]": 12.0, "E[X/Y]": float((w @ x) * (w @ (1 / y))), "Var[X + Y]": 0.5,
        "median X^Y": float(np.median(X**Y)),
    }  # fmt: skip


def answers(seed: int) -> dict[str, tuple[float, float, float]]:
    """Value and interval of each question, on fresh releases of fresh tables."""
    rng, settings = np.random.default_rng(seed), {"epsilon": 1.0, "delta": 1e-6, "features": 500, "points": 300}
    x, y = (
        release_side.publish(pd.DataFrame({name: rng.normal(mean, _SD, _ROWS)}), domain, **settings)[name]
        for name, mean, domain in zip("xy", _MEANS, (_A, _B), strict=True)
    )
    found = {
        "E[X + Y]": (x + y).mean(), "E[XY]": (x * y).mean(), "E[X/Y]": (x / y).mean(), "Var[X + Y]": (x + y).var(),
        "median X^Y": (x**y).quantile(0.5),
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
