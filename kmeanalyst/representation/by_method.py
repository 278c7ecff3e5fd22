"""How each release method turns its measurement into points and weights: one table for the curator and the analyst.

A curator calls this once, after the door; an analyst calls it again for a simulated measurement (`redraw`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.effort import FULL
from kmeanalyst.representation.generator.generator import generated_rows
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.weights.reweight import weights_for


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """The points and weights that are wanted.

    n_points   M.
    view       the view of the weights, or "uniform".
    bound      the largest Σ|w| of bounded and signed weights; the view's own by default.
    public     (m, d) encoded public rows that the points may start from.
    given      (M, d) encoded points, for a method that keeps its points.
    n_public   how many of the given points are public rows.
    float32    real columns hold single-precision numbers.
    rng        for random points.
    """

    n_points: int
    view: str = "probability"
    bound: float | None = None
    public: Array | None = None
    given: Array | None = None
    n_public: int = 0
    float32: bool = False
    rng: np.random.Generator | int = 0


Points: TypeAlias = tuple[Array, Array]  # encoded (M, d), and their weights (M,)
Represent: TypeAlias = Callable[[Measurement, Domain, Wanted, Progress | None], Points]

EFFORT = FULL  # of all methods


def place(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Points and weights fitted to the measurement (`represent`)."""
    return represent(
        measurement, domain, n_points=wanted.n_points, view=wanted.view, bound=wanted.bound, public=wanted.public,
        float32=wanted.float32, rng=wanted.rng, effort=EFFORT, progress=progress,
    )  # fmt: skip


def weigh(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """The given points, with weights of the view."""
    assert wanted.given is not None
    weights = weights_for(wanted.view, wanted.given, measurement, bound=wanted.bound, n_public=wanted.n_public)
    return wanted.given, weights


def generate(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Rows from a network trained on the measurement, with weights 1/M."""
    rows = generated_rows(measurement, domain, n_points=wanted.n_points, effort=EFFORT, progress=progress)
    encoded = domain.encode(domain.decode(rows, float32=wanted.float32))
    return encoded, np.full(wanted.n_points, 1 / wanted.n_points)


REPRESENT: dict[str, Represent] = {"random-features": place, "subspace": weigh, "generator": generate}
KEEPS_POINTS = frozenset({"subspace"})  # methods whose points do not depend on the measurement
