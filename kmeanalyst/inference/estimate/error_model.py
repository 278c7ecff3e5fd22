"""The errors of a statistic of a release, given its influence function.

A statistic T of the weights moves, to first order, by Σ δw · h(z), h its influence function. With a measurement its error is
read off the populations that the measurement allows (`Posterior`), in the directions of h. The released points stand for
the same population in their own way; where the two give h different means, that is an error too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.declared import contradiction_notes
from kmeanalyst.inference.posterior.posterior import Posterior
from kmeanalyst.inference.posterior.smooth import around_clouds
from kmeanalyst.inference.posterior.through_tables import around_points
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.declared_statement import DeclaredStatement
from kmeanalyst.releases.memo import kept
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.weights.views import view_weights

_SECOND_MODEL = 0.5  # the share of two models' distance that is an error of one of them
PARTS = ("privacy", "sampling", "resolution")
Parts = dict[str, Any]  # each of PARTS → standard error, or None where it is not known


class ErrorModel(ABC):
    """Which rows an influence function must be known at, and which errors follow.

    release     whose error it is; None: a sample's.
    frame       (n, d) rows in natural units, those with weights first.
    notes       what every answer should say.

    An influence (n,) or (n, k) has a value for each row of `frame`. One of n + 1 values ends in a bias, which the
    statistic has in addition to its error: it counts as resolution, and as a fixed change of a robust interval.
    """

    release: ReleaseData | None
    frame: pd.DataFrame
    notes: tuple[str, ...]

    def parts(self, influence: Array) -> Parts:
        """Standard errors by their source, in the units of the influence: roots of the diagonals of `covariance`.

        influence   (n,) at the rows of `frame`, or (n, k) for k statistics at once.
        Returns     a number for each part, or (k,); None for a part that is not known.
        """
        covariance = self.covariance(influence.reshape(len(influence), -1))
        known = {name: np.sqrt(one.diagonal()) for name, one in covariance.items() if one is not None}
        if influence.ndim == 1:
            known = {name: float(part[0]) for name, part in known.items()}
        return dict.fromkeys(PARTS) | known

    def covariance(self, influence: Array) -> Parts:
        """Joint covariances (k, k) by source of k statistics (n, k).

        influence   finite at rows with weights; a NaN at other rows (a division by zero) counts as the mean of the others.
        """
        at_rows, bias = self._split(influence)
        covariance = self._covariance(at_rows)
        if bias is not None:  # one more error, common to all
            known = covariance["resolution"]
            covariance["resolution"] = np.outer(bias, bias) + (0.0 if known is None else known)
        return covariance

    def _split(self, influence: Array) -> tuple[Array, Array | None]:
        """The influence at the rows (n, k), and the biases (k,), None where it has none."""
        n = len(self.frame)
        return influence[:n], influence[n] if len(influence) > n else None

    def with_bias(self, influence: Array, bias: float) -> Array:
        """An influence (n,) with one more error, as its bias or beside the one that it has: (n + 1,)."""
        at_rows, known = influence[: (n := len(self.frame))], influence[n:]
        return np.append(at_rows, np.hypot(bias, known.sum()))

    @abstractmethod
    def _covariance(self, influence: Array) -> Parts: ...

    @abstractmethod
    def least_change(self, influence: Array, level: float) -> float:
        """The least first-order change of a statistic over all populations that the release allows.

        influence   (n,) at the rows of `frame`.
        level       simultaneous confidence of what they must agree with. ValueError where nothing bounds them.
        """


Terms = tuple[tuple[ErrorModel, Array], ...]  # the influence function of a statistic on each release


def error_model(release: ReleaseData, weights: Array) -> ErrorModel:
    """The error model of a release under the weights (M,) of a view, prepared once."""
    make = (lambda: _unmeasured(release)) if release.measurement is None else (lambda: _measured(release, weights))
    return kept(release, ("expectation", weights.tobytes()), make)


def _unmeasured(release: ReleaseData) -> SamplingErrors:
    note = "no measurement: the privacy noise is unknown, and the sampling part takes the points for rows"
    if isinstance(release.statement, PrivacyStatement):
        note = (
            "no measurement: rows that the exponential mechanism drew have no known privacy error (with probability 95 % they "
            f"are at most {release.statement.excess():.3g} further from the table, in the kernel's space, than the nearest "
            "such rows), and the sampling part takes the points for rows"
        )
    return SamplingErrors(release.frame, view_weights(release, "probability"), (note,), release)


def fitted_model(release: ReleaseData) -> MeasuredErrors:
    """The error model of the fitted population of a release, prepared once; ValueError where nothing was measured."""
    if release.measurement is None:
        raise ValueError(
            "there is no measurement, so no population can be fitted to it: these are weighted points from elsewhere, or rows "
            'that the exponential mechanism drew. Ask view="signed" or "probability".'
        )

    return kept(release, "fitted", lambda: _measured(release, None))


def fitted_frame(release: ReleaseData) -> pd.DataFrame:
    model = fitted_model(release)
    n = len(model.weights)
    return model.frame.iloc[:n].assign(weight=model.weights)


def _measured(release: ReleaseData, weights: Array | None) -> MeasuredErrors:
    """Of means over the points under weights (M,) of a view; where there are none, over the rows of the posterior."""
    posterior, points = kept(release, "posterior", lambda: _posterior(release)), release.encoded_points
    if posterior.on_points:
        rows, at = points, slice(None)
        apart = np.zeros(len(points)) if weights is None else weights - posterior.weights
    elif weights is None:
        rows, at = np.vstack([posterior.rows, points]), slice(len(posterior.rows))
        apart = _SECOND_MODEL * np.append(-posterior.weights, release.weights)
    else:
        rows, at = np.vstack([points, posterior.rows]), slice(len(points), None)
        apart = np.append(weights, -posterior.weights)
    return MeasuredErrors(release, rows, posterior.weights if weights is None else weights, posterior, at, apart)


def _posterior(release: ReleaseData) -> Posterior:
    assert release.measurement is not None
    told = release.measurement, release.domain, release.encoded_points, view_weights(release, "probability")
    return around_points(*told) or around_clouds(*told)


@dataclass(frozen=True, eq=False)
class MeasuredErrors(ErrorModel):
    """The errors of means over the points of a release with a measurement, or over the rows of its posterior.

    rows       (n, d) encoded, those of `frame`.
    weights    of the first rows, over which means are taken.
    posterior  the populations that the measurement allows, with its rows `at` these places of all.
    apart      (n,) weights of which answers are one more error. Of means over the points, how far these are from the posterior.
               Of its own, half of that where it has rows of its own: the standard error of two models of the population. One
               around the points has what is left of it in its own errors.
    """

    release: ReleaseData
    rows: Array
    weights: Array
    posterior: Posterior
    at: slice
    apart: Array

    @cached_property
    def frame(self) -> pd.DataFrame:
        return self.release.decode(self.rows)

    @cached_property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        statement = self.release.statement
        declared = (statement.claim,) if isinstance(statement, DeclaredStatement) else ()
        return (*declared, *contradiction_notes(self.release))

    def _covariance(self, influence: Array) -> Parts:
        influence = _finite(influence)
        covariance, distance = self.posterior.covariance(influence[self.at]), self.apart @ influence
        return covariance | {"resolution": covariance["resolution"] + np.outer(distance, distance)}

    def deviations(self, k: int, rng: np.random.Generator) -> Array:
        """(n, k) draws, at the rows of `frame`, of how the table's own weights may differ from `weights`; each sums to 0.

        Their covariances are those of privacy and resolution.
        """
        drawn = np.zeros((len(self.rows), k))
        drawn[self.at] = self.posterior.deviations(k, rng)
        return drawn + np.outer(self.apart, rng.standard_normal(k)) if self.apart.any() else drawn

    @property
    def features(self) -> Any:
        """(n, F) of the rows, as the posterior sees them."""
        return kept(self.release, ("features", self.at.start), lambda: self.posterior.seen(self.rows))

    def measured_part(self, influence: Array) -> Array:
        """a (F,): aᵀφ is what the measurement shows of an influence (n,), and any sample of rows has it too."""
        return self.posterior.measured_part(_finite(self._split(influence[:, None])[0])[self.at, 0])

    def least_change(self, influence: Array, level: float) -> float:
        """Over probability weights on rows of the posterior that agree with the measurement (see `CompatiblePopulations`)."""
        at_rows, bias = self._split(influence)
        values = _finite(at_rows[:, None])[:, 0]
        here = float(self.weights @ values[: len(self.weights)])
        return self.posterior.least(values[self.at], level) - here - (0.0 if bias is None else abs(float(bias)))


@dataclass(frozen=True, eq=False)
class SamplingErrors(ErrorModel):
    """The errors of means over rows that are assumed to be independent draws; nothing else is known of them.

    probabilities  p (n,): the variance is that at an effective number of rows of 1/Σp², n for equal weights.
    others         probabilities (m,) of the rows of `frame` after these, of a population taken to be theirs too, or None.
                   Their variance counts as that of as many rows as its kurtosis, which show one to ±100 %, and makes that of
                   the rows no smaller: rows in which a rare event is missing would have none.
    """

    frame: pd.DataFrame
    probabilities: Array
    notes: tuple[str, ...]
    release: ReleaseData | None = None
    others: Array | None = None

    def _variances(self, influence: Array) -> Array:
        p, q, n = self.probabilities, self.others, len(self.probabilities)
        own = p @ (influence[:n] - p @ influence[:n]) ** 2
        if q is None:
            return own
        at_rows = _finite(influence)
        everyone = np.concatenate([p, q]) / 2
        centred = at_rows - everyone @ at_rows
        square, there = everyone @ centred**2, at_rows[n:]
        kurtosis = everyone @ centred**4 / np.where(square > 0, square, 1.0) ** 2
        share = kurtosis / (kurtosis + 1 / (p @ p))
        return np.maximum(own, own + share * (q @ (there - q @ there) ** 2 - own))

    def _covariance(self, influence: Array) -> Parts:
        p = self.probabilities
        centred = influence[: len(p)] - p @ influence[: len(p)]
        covariance = (p[:, None] * centred).T @ centred
        np.fill_diagonal(covariance, self._variances(influence))
        return {"privacy": None, "sampling": covariance * (p @ p), "resolution": None}

    def least_change(self, influence: Array, level: float) -> float:
        raise ValueError(
            "a robust interval is the range over all populations that agree with a measurement, and there is none here (a "
            'sample has none either). Ask kind="default".'
        )


@dataclass(frozen=True, eq=False)
class IndependentErrors:
    """The error models of independent releases: influences stand one below the other, errors add in squares."""

    models: tuple[ErrorModel, ...]
    assumptions: tuple[str, ...] = ()  # and approximations

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*(note for model in self.models for note in model.notes), *self.assumptions]))

    def terms(self, influence: Array) -> Terms:
        ends = np.cumsum([len(model.frame) for model in self.models])
        return tuple(zip(self.models, np.split(influence, ends[:-1]), strict=True))

    def parts(self, influence: Array) -> Parts:
        return joint_parts(self.terms(influence))

    def covariance(self, influence: Array) -> Parts:
        """Joint covariances by source; None for a source that no release knows."""
        covariances = [model.covariance(part) for model, part in self.terms(influence)]
        known = {name: [one[name] for one in covariances if one[name] is not None] for name in PARTS}
        return {name: sum(some) if some else None for name, some in known.items()}


def joined(covariances: Parts) -> Any:
    """The joint covariance of all sources that are known."""
    return sum(one for one in covariances.values() if one is not None)


def total(parts: Parts) -> Any:
    return np.sqrt(sum(part**2 for part in parts.values() if part is not None))


def joint_parts(terms: Terms) -> Parts:
    """Parts of a statistic's error on independent releases together; what is unknown on all of them is unknown."""
    each, joint = [model.parts(influence) for model, influence in terms], Parts()
    for name in PARTS:
        squares = [np.square(parts[name]) for parts in each if parts[name] is not None]
        joint[name] = np.sqrt(np.sum(squares, axis=0)) if squares else None
    return joint


def _finite(h: Array) -> Array:
    """Values (n, k) with those that are undefined near, but not at, the points set to the column's mean."""
    known = np.isfinite(h)
    if known.all():
        return h
    means = np.where(known, h, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return np.where(known, h, means)
