"""Conditional expectations from releases of simulated distributions with a known E[Y | X = x]: errors, and coverage of intervals.

    python tests/benchmarks/conditional_expectation.py [--releases 12] [--rows 20000] [--epsilon 1 0.1] [--tables]

Five distributions: a wave, a narrow bump, a step and a saturating curve over one column of numbers, and lines of unlike
slopes in three cities. For each setting: the root mean square error over given values and releases, in standard
deviations of Y; how often 95 % intervals hold the truth, on average and for the worst given value; and the mean
standard error. First the answers as they are given, then as the released points say (without
`amplitude`). --tables publishes with the default method, adaptive tables, in place of random features: there are no amplitudes
there.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show

import release_side
from kmeanalyst.inference.questions.conditional import Smoother, smoother
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

_Z = 1.96
_CITIES = {"A": (0.0, 0.06), "B": (3.0, 0.02), "C": (-2.0, 0.1)}  # mean of Y at age 45, and its slope for each year


@dataclass(frozen=True)
class Law:
    """A domain, rows drawn from a distribution over it, values that are given, and E[y | given]."""

    domain: Domain
    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    given: pd.DataFrame
    truth: Callable[[pd.DataFrame], Array]


def _curve(
    bounds: tuple[float, float, float, float], draw_x: Callable[[int, np.random.Generator], Array],
    of: Callable[[Array], Array], noise: float, given: list[float],
) -> Law:  # fmt: skip
    """y around a function of x, both cut off at their bounds."""
    low, high, bottom, top = bounds

    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        x = np.clip(draw_x(n, rng), low, high)
        return pd.DataFrame({"x": x, "y": np.clip(of(x) + rng.normal(0, noise, n), bottom, top)})

    domain = Domain((Real(name="x", lower=low, upper=high), Real(name="y", lower=bottom, upper=top)))
    return Law(domain, draw, pd.DataFrame({"x": given}), lambda frame: of(frame["x"].to_numpy()))  # fmt: skip


def _lines(n: int, rng: np.random.Generator) -> pd.DataFrame:
    ages = np.clip(np.rint(rng.normal(45, 14, n)), 18, 90).astype(int)
    frame = pd.DataFrame({"age": ages, "city": rng.choice(list("ABC"), n, p=[0.5, 0.3, 0.2])})
    return frame.assign(y=np.clip(_on_lines(frame) + rng.normal(0, 1.5, n), -12, 12))


def _on_lines(frame: pd.DataFrame) -> Array:
    level, slope = (np.array([_CITIES[city][k] for city in frame["city"]]) for k in (0, 1))
    return level + slope * (frame["age"].to_numpy() - 45)


_EVEN = (-5.0, 5.0, -5.0, 5.0)
LAWS = {
    "wave": _curve(
        _EVEN, lambda n, rng: rng.normal(0, 1.8, n), lambda x: 2 * np.sin(x), 0.7, [-2.5, -1.5, -0.75, 0.0, 0.75, 1.5, 2.5]
    ),
    "bump": _curve(
        _EVEN, lambda n, rng: rng.uniform(-5, 5, n), lambda x: 3 * np.exp(-0.5 * ((x - 1) / 0.8) ** 2) - 0.5, 0.7,
        [-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.5],
    ),
    "step": _curve(
        _EVEN, lambda n, rng: rng.normal(0, 2.5, n), lambda x: np.where(x > 0, 1.5, -1.0), 0.7,
        [-3.0, -1.5, -0.75, 0.75, 1.5, 3.0],
    ),
    "saturating": _curve(
        (0, 30, -5, 20), lambda n, rng: rng.gamma(2, 3, n), lambda x: 4 * np.log1p(x), 1.5, [1.5, 3.0, 5.0, 7.0, 10.0, 13.0]
    ),
    "lines": Law(
        Domain(
            (Integer(name="age", lower=18, upper=90), Categorical(name="city", levels=("A", "B", "C")),
             Real(name="y", lower=-12, upper=12))
        ),
        _lines, pd.DataFrame({"age": [30, 45, 60] * 3, "city": list("AAABBBCCC")}), _on_lines,
    ),
}  # fmt: skip


def _given(release: Release, law: Law) -> tuple[Array, Array]:
    """Errors (q,) and standard errors, which include bias terms."""
    answers = release.conditional_expectation("y", given=law.given)
    values, errors = np.array([(answer.value, answer.standard_error) for answer in answers]).T
    return values - law.truth(law.given), errors


def _answers(smooth: Smoother, law: Law) -> tuple[Array, Array]:
    """The same of the released points."""
    values, at = smooth.population.values("y"), smooth.at(smooth.conditioning.encode(law.given))
    found, influences, left = smooth.answers(values, at)
    parts = smooth.population.model.parts(influences)
    return found - law.truth(law.given), np.sqrt(sum(part**2 for part in parts.values()) + left**2)


def _line(name: str, regulariser: float, found: list[tuple[Array, Array]], spread: float) -> dict[str, Any]:
    errors, standard = (np.array(part) for part in zip(*found, strict=True))
    held = np.abs(errors) <= _Z * standard
    line = {"rule": name, "λ": regulariser, "error": np.sqrt((errors**2).mean()) / spread, "held": held.mean()}
    return line | {"worst": held.mean(axis=0).min(), "± error": standard.mean() / spread}


def _setting(law: Law, rows: int, epsilon: float, asked: argparse.Namespace) -> list[dict[str, Any]]:
    found: dict[str, list[tuple[Array, Array]]] = {"as answered": [], "of the points alone": []}
    options = {} if asked.tables else {"points": 300, "features": 500}
    for seed in range(asked.releases):
        frame = law.draw(rows, np.random.default_rng(seed))
        release = release_side.publish(frame, law.domain, epsilon=epsilon, delta=1e-6, uncounted=True, **options)
        smooth = smoother(release, list(law.given.columns), where=None, view=None, kernel=None)
        found["as answered"].append(_given(release, law))
        found["of the points alone"].append(_answers(smooth, law))
    spread = float(law.draw(100_000, np.random.default_rng(0))["y"].std())
    return [_line(name, smooth.regulariser, answers, spread) for name, answers in found.items()]


def main() -> None:
    asked = command_line(__doc__, releases=12, rows=(20_000,), epsilon=(1.0, 0.1), tables=False, laws=LAWS)
    for rows, epsilon, name in product(asked.rows, asked.epsilon, asked.laws):
        print(f"{name}, N = {rows:,}, ε = {epsilon:g}, {asked.releases} releases")
        show(_setting(LAWS[name], rows, epsilon, asked))


if __name__ == "__main__":
    main()
