"""How each release method turns its measurement into points and weights: one table for the curator and the analyst.

A curator calls this once, after the door; an analyst calls it again for a measurement that is drawn anew (`redraw`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.generator.generator import generated_rows
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.weights.reweight import weights_for


@dataclass(frozen=True, kw_only=True, eq=False)
class Wanted:
    """What points and weights are asked for.

    n_points   M.
    view       the view of the weights, or "uniform".
    bound      the largest Σ|w| of bounded and signed weights; the view's own by default.
    public     (m, d) encoded public rows that the points may start from.
    given      (M, d) encoded points, of a method that places none.
    n_public   how many of the given points are public rows.
    float32    real columns hold single precision numbers.
    rng        for points that are drawn.
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


def place(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Points where the fit wants them (`represent`)."""
    return represent(
        measurement, domain, n_points=wanted.n_points, view=wanted.view, bound=wanted.bound, public=wanted.public,
        float32=wanted.float32, rng=wanted.rng, progress=progress,
    )  # fmt: skip


def weigh(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """The points that are given, with weights of the view."""
    assert wanted.given is not None
    weights = weights_for(wanted.view, wanted.given, measurement, bound=wanted.bound, n_public=wanted.n_public)
    return wanted.given, weights


def generate(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Rows of a network that is trained on the measurement, with weights 1/M."""
    rows = generated_rows(measurement, domain, n_points=wanted.n_points, progress=progress)
    encoded = domain.encode(domain.decode(rows, float32=wanted.float32))
    return encoded, np.full(wanted.n_points, 1 / wanted.n_points)


REPRESENT: dict[str, Represent] = {"random-features": place, "subspace": weigh, "generator": generate}
KEEPS_POINTS = frozenset({"subspace"})  # methods whose points do not depend on the measurement


__all__ = ["KEEPS_POINTS", "REPRESENT", "Points", "Represent", "Wanted", "generate", "place", "weigh"]
