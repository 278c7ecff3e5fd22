"""Rows drawn from the measurement itself, for models of numbers on releases of random features.

Released points are a thousand or so, of uneven weights: all a model of a number can see of its law is the chance of theirs.
So rows are made anew from the measurement, which is post-processing: the mixture of product laws behind it (`denoise`) gives
the columns, the law of the target given the others (`number_law`) its labels, several for each row, evenly along the law. Then
a forest sees as many rows as a table has, and as much spread in them.

Numbers with long tails are left to the released points: what is drawn of a tail is mostly chance, and trees and neighbours follow
it (R² of gradient boosting on a simulated income fell from .14 to −.17 without this).

On simulated tables of 20,000 rows at ε = 1 linear models gain .04 to .06 of R², boosting .04 to .05 and neighbours .09 to .14 by
that; at ε = 0.1 everything loses .1 and more, so under much noise models of numbers learn from the points as well.

The mixture takes about as long as publishing did, once for a release; the law some seconds for a target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.learning.column_law.number_law import Bins, NumberLaw, fit_number_law, rows_for
from kmeanalyst.learning.rows.labels import why_not_measured
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.mixture.denoise import denoised
from kmeanalyst.representation.mixture.mixture import Mixture

_ROWS, _LABELS = 5000, 4  # rows drawn, and labels of each
_LAW_ROWS = 8192  # that a law is fitted on
_VALUES = 20_000  # of the number, that bins are made of
_LONG_TAILS = 10  # a normal law has a kurtosis of 3, an exponential one of 9
_MOST_NOISE = 0.05  # of one frequency, in units of its size: .02 at ε = 1 and 20,000 rows, .13 at 0.1
MIXTURE = "fitted mixture"  # in the release's cache


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Rows of equal weight with their labels.

    frame  (n, columns) in natural units, each row _LABELS times; the target's own cells say nothing.
    cells  (n,) float64, the target in natural units.
    """

    frame: pd.DataFrame
    cells: Array


def unavailable_reason(release: ReleaseData, column: Column, task: str, predictors: tuple[str, ...]) -> str | None:
    """Why rows cannot be drawn for a target; None where they can."""
    if task == "classification":
        return "they are for numbers, and classes have their law at the released points"
    if (reason := why_not_measured(release, column, task, predictors)) is not None:
        return reason
    if isinstance(column, Categorical):
        return "they are for numbers, and a boolean has its law at the released points"
    assert release.measurement is not None
    features = release.measurement.feature_map
    if not isinstance(features, RandomFourier):
        return "the measurement is not of random Fourier features"
    noise = release.measurement.noise_scale * features.n_frequencies**0.5 / features.norm_bound
    if noise > _MOST_NOISE:
        return f"the noise is {noise:.2g} of a feature's size, and above {_MOST_NOISE} the released points say more"
    return None


def drawn_rows(release: ReleaseData, column: Column) -> DrawnRows:
    """Rows for learning a number from the other columns, the same each time; ValueError where its law cannot be fitted.

    They depend on the measurement alone, not on the released points or weights.
    """
    key = ("drawn rows", column.name)
    if key not in memo(release):
        memo(release)[key] = _drawn(release, column)
    found: DrawnRows = memo(release)[key]
    return found


def number_law(release: ReleaseData, target: str) -> NumberLaw:
    """The law of a number given the other columns, fitted once for a release; ValueError where it has too many numbers."""
    key = ("number law", target)
    if key not in memo(release):
        assert release.measurement is not None
        position, features = release.domain.position(target), release.measurement.feature_map
        assert isinstance(features, RandomFourier)
        rows = _mixture(release).draw(_VALUES, np.random.default_rng(0))
        X = rows[: rows_for(features, position, _LAW_ROWS)]
        _check_tails(release.domain[target], rows[:, position])
        memo(release)[key] = fit_number_law(release.measurement, release.domain, position, X, rows[:, position])
    found: NumberLaw = memo(release)[key]
    return found


def _mixture(release: ReleaseData) -> Mixture:
    """The mixture behind the release's measurement, found once."""
    if MIXTURE not in memo(release):
        assert release.measurement is not None
        memo(release)[MIXTURE] = denoised(release.measurement, release.domain, rng=0).mixture
    found: Mixture = memo(release)[MIXTURE]
    return found


def _check_tails(column: Any, values: Array) -> None:
    """ValueError where a few values far out decide the number's variance, by its kurtosis in natural units."""
    natural = column.decode(values[~np.isnan(values)]).to_numpy(dtype=float)
    centred = natural - natural.mean()
    kurtosis = float((centred**4).mean() / max((centred**2).mean(), 1e-300) ** 2)
    if kurtosis > _LONG_TAILS:
        raise ValueError(
            f"{column.name!r} has long tails (a kurtosis of {kurtosis:.0f}, above {_LONG_TAILS}): labels drawn there would be "
            'mostly chance. Leave labels out, or take "released".'
        )


def _drawn(release: ReleaseData, column: Column) -> DrawnRows:
    law, rng = number_law(release, column.name), np.random.default_rng(1)
    rows = _mixture(release).draw(_ROWS, rng)
    values = _labels(law.bins, law.chances(rows), rng)
    order = rng.permutation(values.size)  # neighbours with several labels would be asked for the first ones
    frame = release.decode(rows)
    known: Any = column
    natural = known.decode(known.rounded(values.ravel()[order])).to_numpy(dtype=float)
    return DrawnRows(frame.iloc[order // _LABELS].reset_index(drop=True), natural)


def _labels(bins: Bins, chances: Array, rng: np.random.Generator) -> Array:
    """(n, _LABELS) encoded values, evenly along each row's law from a place drawn for it; never missing."""
    members = [part for part in bins.members if not np.isnan(part[0])]
    chances = chances[:, : len(members)]  # missing cells are the last
    ends = np.cumsum(chances, axis=1) / chances.sum(axis=1, keepdims=True)
    uniform = (np.arange(_LABELS) + rng.random((len(chances), 1))) / _LABELS
    chosen = (uniform[:, :, None] > ends[:, None, :-1]).sum(axis=2)
    below = np.take_along_axis(np.pad(ends, ((0, 0), (1, 0))), chosen, axis=1)
    width = np.take_along_axis(ends, chosen, axis=1) - below
    within = np.clip((uniform - below) / np.maximum(width, 1e-12), 0, 1 - 1e-9)
    out = np.empty(chosen.shape)
    for c, part in enumerate(members):
        own = chosen == c
        out[own] = part[(within[own] * len(part)).astype(int)]
    return out


__all__ = ["DrawnRows", "drawn_rows", "number_law", "unavailable_reason"]
