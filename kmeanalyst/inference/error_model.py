"""Room 4: what a release knows of the error of a statistic, given its influence function (METHODS §5).

A statistic T of the weights moves, to first order, by Σ δw · h(z), h its influence function. Its error is read off
the part of h that the features can see: a ridge fit h ≈ const + aᵀφ. Then the privacy noise reaches the answer as
τ‖a‖, the table is itself a sample of N rows, and what the fit leaves over, r = h − aᵀφ, is what the features cannot
see of the question: the table may differ there from the released points by a relative variance κ, which is read off
the measurement.

A fit on the released points alone would explain any question by interpolation. It is therefore made on
points and neighbours of theirs, and its residual is taken on other neighbours that it has not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import sum_of_squares
from kmeanalyst.releases.columns import Number
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.release import Release

_NEIGHBOURS = (500, 2000)  # fewest and most, to fit on and again to check on
_MOST_FIT = 2000  # of the released points, to fit on
_MOST_NUMBERS = 5e7  # features of the points to fit on, altogether: some 400 MB
_BLUR = 0.1  # of a column's range

Parts = dict[str, Any]  # "privacy", "sampling", "resolution" → standard error, or None where it is not known


class ErrorModel(Protocol):
    """Which rows an influence function must be known at, and which errors follow.

    release  whose error it is; two models of one release differ by the view of its weights.
    frame    (n, d) rows in natural units, the M released points first.
    notes    what every answer should say.
    """

    @property
    def release(self) -> Release: ...

    @property
    def frame(self) -> pd.DataFrame: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def parts(self, influence: Array) -> Parts:
        """Standard errors by their source, in the units of the influence.

        influence   (n,) at the rows of `frame`, or (n, k) for k statistics at once. Finite at the points; a NaN at
                    other rows (a division by zero) counts as the mean of the others.
        Returns     a number for each part, or (k,); None for a part that is not known.
        """
        ...


def error_model(release: Release, weights: Array) -> ErrorModel:
    """The error model of a release under the weights (M,) of a view, prepared once."""
    key = ("expectation", weights.tobytes())
    if key not in release.cache:
        release.cache[key] = UnmeasuredErrors(release) if release.measurement is None else _prepare(release, weights)
    return release.cache[key]


@dataclass(frozen=True, eq=False)
class MeasuredErrors:
    """The errors of a release with a measurement: points to fit on (q their weights), and others to check on."""

    release: Release
    frame: pd.DataFrame  # points, rows to fit on, rows to check on
    q: Array
    kernel: Array  # (m, m) √q φ̃ φ̃ᵀ √q, φ̃ = φ − Σ q φ
    factor: Any  # Cholesky of kernel + τ²/κ · I
    across: Array  # (n, m) φ̃(check) φ̃ᵀ √q
    missed: Array  # (m,) √q φ̃ (y − Σ w φ(z)): how far the weighted points miss the measurement
    kappa: float
    notes: tuple[str, ...] = ()

    def parts(self, influence: Array) -> Parts:
        """privacy τ‖a‖, sampling √(Var h / N), resolution √(κ Var r + missed²).

        a minimises τ²‖a‖² + κ · Var_q(h − aᵀφ), the variance it is used to state; Var r is taken on points it has
        not seen. k statistics share one solve.
        """
        measurement = self.release.measurement
        assert measurement is not None
        h = influence.reshape(len(influence), -1)
        at_points, at_fit, unseen = np.split(h, np.cumsum([len(self.release), len(self.q)]))
        at_fit, unseen = _finite(at_fit), _finite(unseen)
        root = np.sqrt(self.q)[:, None]
        alpha = cho_solve(self.factor, root * (at_fit - self.q @ at_fit))  # a = φ̃ᵀ √q α
        residual = unseen - self.across @ alpha
        squared_norm = np.maximum(np.einsum("ik,ik->k", alpha, self.kernel @ alpha), 0.0)
        variance = _variance(self.release.view_weights("probability"), at_points)
        parts = {
            "privacy": measurement.noise_scale * np.sqrt(squared_norm),
            "sampling": np.sqrt(variance / measurement.n_rows),
            "resolution": np.sqrt(self.kappa * residual.var(axis=0) + (self.missed @ alpha) ** 2),
        }
        return {name: _shaped(part, influence) for name, part in parts.items()}


@dataclass(frozen=True, eq=False)
class UnmeasuredErrors:
    """The errors of weighted points from elsewhere: these are taken for a sample's rows, and no more is known."""

    release: Release
    notes: tuple[str, ...] = (
        "no measurement: the privacy noise is unknown, and the sampling part takes the points for rows",
    )

    @property
    def frame(self) -> pd.DataFrame:
        return self.release.to_frame("signed").drop(columns="weight")

    def parts(self, influence: Array) -> Parts:
        """sampling √(Var h · Σp²), the variance at an effective number of rows of 1/Σp²."""
        p = self.release.view_weights("probability")
        sampling = np.sqrt(_variance(p, influence.reshape(len(influence), -1)) * (p @ p))
        return {"privacy": None, "sampling": _shaped(sampling, influence), "resolution": None}


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


def _prepare(release: Release, weights: Array) -> MeasuredErrors:
    measurement, domain = release.measurement, release.domain
    assert measurement is not None
    rng = np.random.default_rng(0)
    features = measurement.feature_map
    most = int(np.clip(_MOST_NUMBERS / (3 * features.width), _NEIGHBOURS[0], _MOST_FIT))
    n = int(np.clip(len(release), _NEIGHBOURS[0], min(_NEIGHBOURS[1], most)))
    p = release.view_weights("probability")
    near, check_points = _neighbours(release, n, rng), _neighbours(release, n, rng)
    used = np.flatnonzero(p > 0)
    if len(used) > most:
        used = rng.choice(used, most, replace=False)
    fit_points = np.vstack([release.encoded_points[used], near])
    q = np.concatenate([p[used] / p[used].sum() / 2, np.full(n, 0.5 / n)])
    fit, check = features.compact(fit_points), features.compact(check_points)
    centre, check_centre, root = fit.T @ q, check.T @ np.full(n, 1 / n), np.sqrt(q)
    kappa = _relative_variance(check, check_centre, measurement, p)
    towards = fit @ centre
    kernel = _centred(features.gram(fit_points, fit_points), towards, towards, float(centre @ centre))
    kernel *= root[:, None]
    kernel *= root
    across = _centred(
        features.gram(check_points, fit_points), check @ centre, fit @ check_centre, float(check_centre @ centre)
    )
    across *= root
    ridged = kernel.copy()
    np.fill_diagonal(ridged, kernel.diagonal() + measurement.noise_scale**2 / kappa)
    gap = measurement.vector - feature_mean(features, release.encoded_points, weights)
    return MeasuredErrors(
        release=release,
        frame=domain.decode(np.vstack([release.encoded_points, fit_points, check_points])),
        q=q,
        kernel=kernel,
        factor=cho_factor(ridged, lower=True, overwrite_a=True),
        across=across,
        missed=root * (fit @ gap - centre @ gap),
        kappa=kappa,
    )


def _centred(K: Array, x_towards: Array, y_towards: Array, centres: float) -> Array:
    """⟨φ(x) − c, φ(y) − c′⟩ from K = ⟨φ(x), φ(y)⟩, in place: given ⟨φ(x), c′⟩, ⟨φ(y), c⟩ and ⟨c, c′⟩."""
    K -= x_towards[:, None]
    K -= y_towards
    K += centres
    return K


def _neighbours(release: Release, n: int, rng: np.random.Generator) -> Array:
    """n rows near the released points: each cell kept, or taken from another point, at even odds; numbers blurred."""
    p = release.view_weights("probability")
    home, other = (release.encoded_points[rng.choice(len(p), n, p=p / p.sum())] for _ in range(2))
    rows = np.where(rng.random(home.shape) < 0.5, home, other)
    for j, column in enumerate(release.domain.columns):
        if isinstance(column, Number):
            low, high = column.bounds
            blurred = np.clip(rows[:, j] + rng.normal(0, _BLUR * (high - low), n), low, high)
            rows[:, j] = np.where(rng.random(n) < 0.5, column.rounded(blurred), rows[:, j])
    return rows


def _relative_variance(near: Array | csr_array, centre: Array, measurement: Measurement, p: Array) -> float:
    """κ: how far the table may be from the points where the features do not look, in units of one row's spread.

    Were the table's law the neighbours' but for relative deviations of variance κ, ‖y − mean φ‖² would exceed its
    noise Fτ² by κ tr Cov φ. That estimate, with two standard errors of the noise on top; at least Σp².

    near     (n, F) features of the neighbours; centre, their mean.
    """
    spread = sum_of_squares(near) / near.shape[0] - float(centre @ centre)
    excess = float(((measurement.vector - centre) ** 2).sum()) - len(centre) * measurement.noise_scale**2
    doubt = 2 * np.sqrt(2 * len(centre)) * measurement.noise_scale**2
    return max((max(excess, 0.0) + doubt) / max(spread, 1e-12), float(p @ p))
