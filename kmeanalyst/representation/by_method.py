"""How each release method turns its measurement into points and weights: one table for the curator and the analyst.

A curator calls this once, after the door; an analyst calls it again for a simulated measurement (`redraw`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.generator.generator import generated_rows
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.represent import represent
from kmeanalyst.representation.wanted import Points, Wanted
from kmeanalyst.representation.weights.reweight import weights_for

Represent: TypeAlias = Callable[[Measurement, Domain, Wanted, Progress | None], Points]


def weigh(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """The given points, with weights of the view."""
    assert wanted.given is not None
    weights = weights_for(wanted.view, wanted.given, measurement, bound=wanted.bound, n_public=wanted.n_public)
    return wanted.given, weights


def generate(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress | None) -> Points:
    """Rows from a network trained on the measurement, with weights 1/M."""
    rows = generated_rows(
        measurement, domain, n_points=wanted.n_points, effort=wanted.effort, progress=progress or silent
    )
    encoded = domain.encode(domain.decode(rows, float32=wanted.float32))
    return encoded, np.full(wanted.n_points, 1 / wanted.n_points)


REPRESENT: dict[str, Represent] = {"random-features": represent, "subspace": weigh, "generator": generate}
KEEPS_POINTS = frozenset({"subspace"})  # methods whose points do not depend on the measurement
