"""How fast a release approaches its population as the table grows: fitted slopes and the proved exponents.

    python tests/benchmarks/rates.py [--rows 200 400 800 1600 3200] [--seeds 6] [--epsilon 1] [--only public]

Rates of Balog, Tolstikhin & Schölkopf (2018), Propositions 5, 6 and 8, at fixed (ε, δ), in our words. N rows of a population
with embedding μ; τ, the noise on a coordinate, is of order 1/N, and rows alone are N^(−1/2) from μ.

    public share   Algorithm 1 whose M = N/20 points are rows of the table: N^(−1/2).
    covering       Algorithm 1 on M points drawn from a bounded domain in D dimensions, k Lipschitz: N^(−1/(D+1)) with M of order
                   N^(2D/(D+1)). The kernel has a kink (matern 1/2): a smoother one is faster.
    features       Algorithm 2 with F of order N^(4/3): N^(−1/3).

These are bounds. Algorithm 1 has its weights as published; "probability" is this package's default for the same points. Kernels:
one with a kink, on a population of 10,000 atoms, and a Gaussian one, whose population is known in closed form.

Printed: errors ‖Σ w k(z, ·) − μ‖ (root mean square of the seeds), their slope in log N with its standard error (least
squares over all draws), and that of the distance to the table's own embedding, which leaves sampling out. Noise comes from
seeds (rehearsals): nothing here is private.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from mixture import PLANE, Mixture

from kmeanalyst.kernels import Kernel, KernelMean, Matern
from kmeanalyst.kernels.base import Array
from release_side import publish

DELTA = 1e-6
_ATOMS = 100  # values of each column


@dataclass(frozen=True)
class Atoms:
    """The mixture's density on a grid, as a population of its own, under a kernel with a kink."""

    mixture: Mixture = PLANE
    kernel: Kernel = Matern(0.5, 2.0)  # noqa: RUF009 - frozen

    @property
    def domain(self) -> Any:
        return self.mixture.domain

    @cached_property
    def law(self) -> tuple[Array, Array]:
        axis = np.linspace(-self.mixture.reach, self.mixture.reach, _ATOMS)
        places = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
        parts = zip(self.mixture.shares, self.mixture.centres, self.mixture.spreads, strict=True)
        density = sum(p / s**2 * np.exp(-((places - np.array(m)) ** 2).sum(axis=1) / (2 * s**2)) for p, m, s in parts)
        return places, density / density.sum()

    @cached_property
    def embedding(self) -> KernelMean:
        return KernelMean(self.kernel, *self.law)

    @cached_property
    def squared_norm(self) -> float:
        return self.embedding.squared_norm()

    def table(self, n: int, rng: np.random.Generator) -> pd.DataFrame:
        places, law = self.law
        return pd.DataFrame(places[rng.choice(len(law), n, p=law)], columns=list(self.domain.names))

    def distance(self, points: Array, weights: Array) -> float:
        own = KernelMean(self.kernel, points, weights)
        squared = own.squared_norm() - 2 * weights @ self.embedding.evaluate(points) + self.squared_norm
        return float(np.sqrt(max(0.0, squared)))


@dataclass(frozen=True)
class Setting:
    """A way to publish N rows, the exponent that is proved, and where the population is known."""

    name: str
    population: Atoms | Mixture
    exponent: float
    options: Callable[[pd.DataFrame], dict[str, Any]]
    weights: str


ROUGH = Atoms()


def _public_share(table: pd.DataFrame) -> dict[str, Any]:
    return {"method": "subspace", "public_points": table.iloc[: len(table) // 20]}


def _covering(table: pd.DataFrame) -> dict[str, Any]:
    return {"method": "subspace", "points": round(0.04 * len(table) ** (4 / 3))}  # 2D/(D + 1), D = 2


def _features(table: pd.DataFrame) -> dict[str, Any]:
    return {"features": 2 * round(0.05 * len(table) ** (4 / 3)), "points": max(100, len(table) // 5)}


SETTINGS = [
    Setting(f"{name}, {'kink' if population is ROUGH else 'smooth'}", population, exponent, options, weights)
    for name, exponent, options, some in (
        ("public share", -1 / 2, _public_share, ("published", "probability")),
        ("covering", -1 / 3, _covering, ("published", "probability")),
        ("features", -1 / 3, _features, ("probability",)),
    )
    for population, weights in (*((ROUGH, weights) for weights in some), (PLANE, some[0]))
]


def distances(setting: Setting, n: int, seed: int, epsilon: float) -> tuple[float, float]:
    """To the population, and to the table's own embedding."""
    population = setting.population
    table = population.table(n, np.random.default_rng([n, seed]))
    release = publish(
        table, population.domain, kernel=population.kernel, weights=setting.weights, epsilon=epsilon, delta=DELTA,
        rehearsal=seed, **setting.options(table),
    )  # fmt: skip
    own = KernelMean(population.kernel, population.domain.encode(table))
    released = KernelMean(population.kernel, release.encoded_points, release.weights)
    return population.distance(released.points, release.weights), released.distance(own)


def slope(sizes: Array, errors: Array) -> tuple[float, float]:
    """Of log error in log N over all draws (sizes, seeds), and its standard error."""
    x = np.repeat(np.log(sizes), errors.shape[1])
    y = np.log(errors).ravel()
    centred = x - x.mean()
    found = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - found * centred
    return found, float(np.sqrt(rest @ rest / (len(x) - 2) / (centred @ centred)))


def line(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    found = np.array([
        [distances(setting, n, seed, options.epsilon) for seed in range(options.seeds)] for n in options.rows
    ])  # fmt: skip
    sizes = np.array(options.rows, dtype=float)
    total, private = (slope(sizes, found[:, :, j]) for j in range(2))
    errors = np.sqrt((found[:, :, 0] ** 2).mean(axis=1))
    return {"setting": setting.name, "weights": setting.weights} | dict(zip(options.rows, errors, strict=True)) | {
        "proved": setting.exponent, "slope": total[0], "s.e.": total[1], "from the table": private[0], "its s.e.": private[1],
    }  # fmt: skip


def main() -> None:
    options = command_line(__doc__, rows=(200, 400, 800, 1600, 3200), seeds=6, epsilon=1.0, only="")
    logging.disable(logging.WARNING)
    show(line(setting, options) for setting in SETTINGS if options.only in setting.name)


if __name__ == "__main__":
    main()
