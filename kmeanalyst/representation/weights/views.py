"""Views of a release's weights: as released, as probabilities, and as rows of equal weight.

Rows of equal weight come from `systematic_indices`, the project's one systematic resampling.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.representation.weights.reweight import nearest_probability_weights


def view_weights(release: ReleaseData, view: View = "signed") -> Array:
    """Weights (M,) of a view: "signed" as released, "probability" the nearest probability weights in RKHS distance."""
    if view == "signed":
        return release.weights
    if view == "probability":
        return _probability_weights(release)
    raise ValueError(
        f'view must be "signed" or "probability" here, got {view!r}: resampled rows have no weights of their own, and '
        "the fitted population has other rows."
    )


def _probability_weights(release: ReleaseData) -> Array:
    def make() -> Array:
        weights = release.weights
        if release.measurement is None and weights.min() >= 0 and weights.sum() > 0:
            weights = weights / weights.sum()  # external counts: projected, all but a point or two would get 0
        return nearest_probability_weights(release.kernel, release.encoded_points, weights)

    return kept(release, "probability weights", make)


def distinct_rows(release: ReleaseData) -> tuple[Array, Array]:
    """The released rows (m, d), encoded and each once, and their positive probabilities (m,)."""

    def make() -> tuple[Array, Array]:
        rows, which = np.unique(release.encoded_points, axis=0, return_inverse=True)
        weights = np.bincount(which.ravel(), _probability_weights(release))
        return rows[weights > 0], weights[weights > 0]

    return kept(release, "distinct rows", make)


def view_frame(
    release: ReleaseData, view: View = "signed", *, rows: int | None = None,
    rng: np.random.Generator | int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """The columns and a "weight" column: (M, d + 1), or (rows, d + 1) for the view "resampled"."""
    if view == "resampled":
        frame = resample(release, len(release) if rows is None else rows, rng=rng)
        return frame.assign(weight=1 / len(frame))
    if rows is not None:
        raise ValueError(f'rows goes with view="resampled": the {view} view has the {len(release)} released points.')
    return release.frame.assign(weight=view_weights(release, view))


def resample(release: ReleaseData, n: int, *, rng: np.random.Generator | int | None = None) -> pd.DataFrame:
    """n rows of equal weight: systematic resampling of the probability view (Kitagawa 1996), shuffled."""
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}: name how many rows to draw.")
    rng = np.random.default_rng(rng)
    drawn = systematic_indices(view_weights(release, "probability"), n, rng)
    return release.frame.iloc[rng.permutation(drawn)].reset_index(drop=True)


def systematic_indices(weights: Array, n: int, rng: np.random.Generator | None = None) -> Array:
    """n indices, ascending, each occurring ⌊n·p⌋ or ⌈n·p⌉ times for its share p of the weights.

    weights  (M,) non-negative, with a positive sum; an index of weight 0 never occurs.
    rng      draws the one random offset; None takes the middle of the steps, so that nothing is random.
    Source   Kitagawa 1996, systematic resampling.

    >>> systematic_indices(np.array([0.5, 0.0, 0.25, 0.25]), 4)
    array([0, 0, 2, 3])
    """
    cumulative = np.cumsum(weights)
    steps = (np.arange(n) + (0.5 if rng is None else rng.random())) / n
    # side="left" finds an index of positive weight, except for an offset of exactly 0
    return np.searchsorted(cumulative / cumulative[-1], np.maximum(steps, np.finfo(float).tiny), side="left")
