"""A release with its noise drawn again: the parametric bootstrap (Efron & Tibshirani 1993, §6.5).

The released points take the place of the table. Their mean feature with fresh noise is a new measurement, to which points and
weights are fitted as to the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.measurement import Measurement, feature_mean, mean_unit
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.represent import KEEPS_POINTS, REPRESENT, represent
from kmeanalyst.representation.wanted import Points, Wanted
from kmeanalyst.representation.weights.views import view_weights

R = TypeVar("R", bound=ReleaseData)


def redraw(release: R, *, rng: np.random.Generator | int | None = None) -> R:
    """A release of the same method, size and guarantee, made from a simulated measurement: post-processing.

    Errors    ValueError for a release without a measurement; for texts, unless the method keeps its points; and for margins of
              tables from which no rows can be drawn, which no release of ours has.
    """
    if release.measurement is None:
        raise ValueError(
            "there is no measurement, so there is no noise that could be drawn again: these are external points, or "
            "rows that the exponential mechanism drew. Use a release with a measurement."
        )
    texts = ", ".join(column.name for column in release.domain.columns if isinstance(column, Text))
    if texts and release.method not in KEEPS_POINTS:
        raise ValueError(
            f"{texts} is a column of texts, and the method {release.method} places points: there is no string between two "
            'others. With texts, use a release of the method "subspace".'
        )
    rng = np.random.default_rng(rng)
    measurement = _measure_again(release, release.measurement, rng)
    encoded, weights = _represent_again(release, measurement, rng)
    return release.replaced(
        points=release.domain.decode(encoded), weights=weights, measurement=measurement, fit_distance=None, thinning_error=None
    )  # fmt: skip


def _measure_again(release: ReleaseData, measurement: Measurement, rng: np.random.Generator) -> Measurement:
    p = view_weights(release, "probability")
    size = measurement.feature_map.dimension  # the grid is so fine that the noise's discreteness is negligible
    noise = rng.laplace(size=size) / np.sqrt(2) if is_pure(measurement.noise_law) else rng.standard_normal(size)
    noise = noise * measurement.noise_scale
    vector = feature_mean(measurement.feature_map, release.encoded_points, p) + noise
    unit = mean_unit(n_rows=measurement.n_rows, feature_map=measurement.feature_map)
    whole = np.rint(vector / unit).astype(np.int64)
    return replace(measurement, vector=whole * unit, noisy_sum=whole)


def _represent_again(release: ReleaseData, measurement: Measurement, rng: np.random.Generator) -> Points:
    given = release.encoded_points if release.method in KEEPS_POINTS else None
    even = given is None and np.ptp(release.weights) == 0
    wanted = Wanted(n_points=len(release), view="uniform" if even else release.weight_view, given=given, rng=rng)
    return REPRESENT.get(release.method, represent)(measurement, release.domain, wanted, None)
