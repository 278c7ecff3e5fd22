"""A release as it might have come out, had its noise been drawn again (parametric bootstrap).

The released points stand for the table: their mean feature and fresh noise of the release's own law make a new measurement,
and points and weights are fitted to that as they were to the first. Whatever is computed from the release can be computed
from such others, and spreads over them about as it does over releases of the table itself (Efron & Tibshirani 1993, §6.5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.measurement import Measurement, feature_mean, mean_unit
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.by_method import KEEPS_POINTS, REPRESENT, Points, Wanted, place
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.weights.views import view_weights

R = TypeVar("R", bound=ReleaseData)


def redraw(
    release: R,
    *,
    sampling: bool = False,
    rng: np.random.Generator | int | None = None,
    progress: Progress | None = None,
) -> R:
    """A release of the same method and size, around a measurement drawn anew.

    sampling  whether the table is drawn anew too, N rows of the released points; otherwise the noise alone is.
    Returns   Release with the promise of the first, of which it is made: post-processing.
    Errors    ValueError for a release without measurement, of which nothing is known to draw; for texts, of which points
              cannot be placed; and for the rows of units, whose averages vary otherwise than rows do.

    What a release does not tell is not redrawn: rows that were public to its curator count as any others.
    """
    if release.measurement is None:
        raise ValueError(
            "there is no measurement, so there is no noise that could be drawn again: these are weighted points from "
            "elsewhere, or rows that the exponential mechanism drew. Use a release that was measured."
        )
    _check_known(release, sampling)
    rng = np.random.default_rng(rng)
    measurement = _drawn(release, release.measurement, sampling, rng)
    encoded, weights = _represented(release, measurement, rng, progress)
    return release.replaced(
        points=release.domain.decode(encoded),
        weights=weights,
        measurement=measurement,
        fit_distance=None,
        thinning_error=None,
    )


def _check_known(release: ReleaseData, sampling: bool) -> None:
    texts = ", ".join(column.name for column in release.domain.columns if isinstance(column, Text))
    if texts and release.method not in KEEPS_POINTS:
        raise ValueError(
            f"{texts} is a column of texts, and the method {release.method} places points: there is no string between two "
            'others. Only releases of the method "subspace" can be drawn again with texts.'
        )
    if sampling and release.statement is not None and release.statement.protects_units:
        raise ValueError(
            "the release protects units, each of which counts with the average of all its rows, and how these averages vary "
            "is not known from it: their table cannot be drawn anew. Pass sampling=False, for the noise alone."
        )


def _drawn(release: ReleaseData, measurement: Measurement, sampling: bool, rng: np.random.Generator) -> Measurement:
    p = view_weights(release, "probability")
    if sampling:
        p = rng.multinomial(measurement.n_rows, p / p.sum()) / measurement.n_rows
    noise = _noise(measurement, rng) * measurement.noise_scale
    vector = feature_mean(measurement.feature_map, release.encoded_points, p) + noise
    unit = mean_unit(n_rows=measurement.n_rows, feature_map=measurement.feature_map)
    whole = np.rint(vector / unit).astype(np.int64)
    return replace(measurement, vector=whole * unit, noisy_sum=whole)


def _noise(measurement: Measurement, rng: np.random.Generator) -> Array:
    """Of the release's law, at standard deviation 1: on a grid this fine no different from the discrete one."""
    size = measurement.feature_map.dimension
    return rng.laplace(size=size) / np.sqrt(2) if is_pure(measurement.noise_law) else rng.standard_normal(size)


def _represented(
    release: ReleaseData, measurement: Measurement, rng: np.random.Generator, progress: Progress | None
) -> Points:
    """Points (M, d), encoded, and weights (M,), made as the release's were."""
    given = release.encoded_points if release.method in KEEPS_POINTS else None
    even = given is None and np.ptp(release.weights) == 0
    wanted = Wanted(n_points=len(release), view="uniform" if even else release.weight_view, given=given, rng=rng)
    return REPRESENT.get(release.method, place)(measurement, release.domain, wanted, progress)


__all__ = ["redraw"]
