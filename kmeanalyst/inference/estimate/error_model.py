"""What a release knows of the error of a statistic, given its influence function (METHODS §5).

A statistic T of the weights moves, to first order, by Σ δw · h(z), h its influence function. With a measurement its
error is read off the populations that the measurement allows (`population_fit`), in the directions of h. The released
points stand for the same population in their own way; where the two give h different means, that is an error too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.population_fit import PopulationFit, fit_population
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_weights

Parts = dict[str, Any]  # "privacy", "sampling", "resolution" → standard error, or None where it is not known


class ErrorModel(Protocol):
    """Which rows an influence function must be known at, and which errors follow.

    release  whose error it is; two models of one release differ by the view of its weights.
    frame    (n, d) rows in natural units, the M released points first.
    notes    what every answer should say.
    """

    @property
    def release(self) -> ReleaseData: ...

    @property
    def frame(self) -> pd.DataFrame: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def base(self) -> ErrorModel:
        """The model without the biases that only this one knows: itself, where there are none."""
        ...

    def extend_influence(self, influence: Array) -> Array:
        """An influence function of the base model as one of this model."""
        ...

    def parts(self, influence: Array) -> Parts:
        """Standard errors by their source, in the units of the influence.

        influence   (n,) at the rows of `frame`, or (n, k) for k statistics at once. Finite at the points; a NaN at
                    other rows (a division by zero) counts as the mean of the others.
        Returns     a number for each part, or (k,); None for a part that is not known.
        """
        ...

    def covariance(self, influence: Array) -> Parts:
        """Joint covariances (k, k) by source of k statistics (n, k), whose diagonals are the squared parts."""
        ...

    @property
    def everywhere(self) -> bool:
        """Whether every row that the domain has is in `frame`."""
        ...

    def least_change(self, influence: Array, level: float) -> float:
        """The least first-order change of a statistic over all populations that the release allows.

        influence   (n,) at the rows of `frame`.
        level       simultaneous confidence of what they must agree with. ValueError where nothing bounds them.
        """
        ...


def error_model(release: ReleaseData, weights: Array) -> ErrorModel:
    """The error model of a release under the weights (M,) of a view, prepared once."""
    key = ("expectation", weights.tobytes())
    if key not in memo(release):
        memo(release)[key] = _unmeasured(release) if release.measurement is None else _measured(release, weights)
    return memo(release)[key]


def _unmeasured(release: ReleaseData) -> UnmeasuredErrors:
    if release.statement is None:
        return UnmeasuredErrors(release)
    return UnmeasuredErrors(release, (
        "no measurement: rows that the exponential mechanism drew have no known privacy error (with chance 95 % they are at "
        f"most {release.statement.excess():.3g} further from the table, in the kernel's space, than the nearest such rows), "
        "and the sampling part takes the points for rows",
    ))  # fmt: skip


def fitted_model(release: ReleaseData) -> FittedErrors:
    """The error model of the fitted population of a release, prepared once; ValueError where nothing was measured."""
    if release.measurement is None:
        raise ValueError(
            "there is no measurement, so no population can be fitted to it: these are weighted points from elsewhere, or rows "
            'that the exponential mechanism drew. Ask view="signed" or "probability".'
        )
    if "fitted" not in memo(release):
        of, n = _measured(release, release.weights), len(release)
        frame = pd.concat([of.frame.iloc[n:], of.frame.iloc[:n]], ignore_index=True)
        memo(release)["fitted"] = FittedErrors(of, frame)
    return memo(release)["fitted"]


def _measured(release: ReleaseData, weights: Array) -> MeasuredErrors:
    assert release.measurement is not None
    if "population fit" not in memo(release):
        memo(release)["population fit"] = fit_population(release, release.measurement)
    fit = memo(release)["population fit"]
    if "rows to ask" not in memo(release):
        memo(release)["rows to ask"] = release.decode(np.vstack([release.encoded_points, fit.rows]))
    return MeasuredErrors(release, memo(release)["rows to ask"], weights, fit)


class _Unbiased:
    """What models without biases of their own share."""

    @property
    def base(self) -> Any:
        return self

    def extend_influence(self, influence: Array) -> Array:
        return influence


@dataclass(frozen=True, eq=False)
class MeasuredErrors(_Unbiased):
    """The errors of a release with a measurement under the weights of a view."""

    release: ReleaseData
    frame: pd.DataFrame  # points, then the rows of the fit
    weights: Array
    fit: PopulationFit
    notes: tuple[str, ...] = ()

    def parts(self, influence: Array) -> Parts:
        """The fit's parts; to resolution is added how far the points are from the fit."""
        at_rows, apart = self._apart(influence)
        parts = self.fit.parts(at_rows)
        parts["resolution"] = np.hypot(parts["resolution"], apart)
        return {name: _shaped(part, influence) for name, part in parts.items()}

    def covariance(self, influence: Array) -> Parts:
        """The fit's; how far the points are from it counts as one more error, common to all statistics."""
        at_rows, apart = self._apart(influence)
        covariance = self.fit.covariance(at_rows)
        covariance["resolution"] += np.outer(apart, apart)
        return covariance

    def _apart(self, influence: Array) -> tuple[Array, Array]:
        """Influences at the fit's rows (n, k), and by how much (k,) the points give them other means."""
        h = _finite(influence.reshape(len(influence), -1))
        at_points, at_rows = h[: len(self.release)], h[len(self.release) :]
        return at_rows, self.weights @ at_points - self.fit.weights @ at_rows

    @property
    def everywhere(self) -> bool:
        return self.fit.compatible.everywhere

    def least_change(self, influence: Array, level: float) -> float:
        """Over probability weights on rows of the fit that agree with the measurement (see `compatible`)."""
        h = _finite(influence[:, None])[:, 0]
        here = float(self.weights @ h[: len(self.release)])
        return self.fit.compatible.least(self.fit.first_rows(h[len(self.release) :]), level) - here


@dataclass(frozen=True, eq=False)
class FittedErrors(_Unbiased):
    """The same errors for the fitted population's means: the rows of the fit stand first, the released points after them."""

    of: MeasuredErrors
    frame: pd.DataFrame
    notes: tuple[str, ...] = ()

    @property
    def release(self) -> ReleaseData:
        return self.of.release

    @property
    def weights(self) -> Array:
        """p (n,) of the rows of the fit."""
        return self.of.fit.weights

    def parts(self, influence: Array) -> Parts:
        return self.of.parts(self._points_first(influence))

    def covariance(self, influence: Array) -> Parts:
        return self.of.covariance(self._points_first(influence))

    @property
    def everywhere(self) -> bool:
        return self.of.everywhere

    def least_change(self, influence: Array, level: float) -> float:
        h = _finite(self._points_first(influence)[:, None])[:, 0]
        at_points, at_rows = h[: len(self.release)], h[len(self.release) :]
        return self.of.least_change(h, level) + float(self.of.weights @ at_points - self.weights @ at_rows)

    def _points_first(self, influence: Array) -> Array:
        n = len(self.weights)
        return np.concatenate([influence[n:], influence[:n]])


@dataclass(frozen=True, eq=False)
class UnmeasuredErrors(_Unbiased):
    """The errors of weighted points from elsewhere: these are taken for a sample's rows, and no more is known."""

    release: ReleaseData
    notes: tuple[str, ...] = (
        "no measurement: the privacy noise is unknown, and the sampling part takes the points for rows",
    )

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.release.frame

    def parts(self, influence: Array) -> Parts:
        """sampling √(Var h · Σp²), the variance at an effective number of rows of 1/Σp²."""
        p = view_weights(self.release, "probability")
        sampling = np.sqrt(_variance(p, influence.reshape(len(influence), -1)) * (p @ p))
        return {"privacy": None, "sampling": _shaped(sampling, influence), "resolution": None}

    def covariance(self, influence: Array) -> Parts:
        """As `parts` has it."""
        p = view_weights(self.release, "probability")
        centred = influence - p @ influence
        return {"privacy": None, "sampling": (p[:, None] * centred).T @ centred * (p @ p), "resolution": None}

    everywhere = False

    def least_change(self, influence: Array, level: float) -> float:
        """Nothing bounds it: ValueError."""
        raise ValueError(
            "a robust interval is the range over all populations that agree with a measurement, and there is none here: "
            'anything agrees. Ask kind="default".'
        )


def _variance(p: Array, h: Array) -> Array:
    """Var_p h (k,) of h (M, k)."""
    return p @ (h - p @ h) ** 2


def _shaped(part: Array, influence: Array) -> Any:
    """A float for one statistic, (k,) for several."""
    return float(part[0]) if influence.ndim == 1 else part


def _finite(h: Array) -> Array:
    """Values (n, k) with those that are undefined near, but not at, the points set to the column's mean."""
    known = np.isfinite(h)
    if known.all():
        return h
    means = np.where(known, h, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, h, means)
