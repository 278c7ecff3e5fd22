"""The law of a column given the others, fitted to a release's measurement.

Rows (x, c) have the law p(x) π(c|x). The measurement is y = E φ(x, c) + e, so that with p(x) from the released points
y ≈ Σ_m w_m Σ_c π(c|x_m) φ(x_m, c), whatever the feature map: no more than the label's dependence is left to find. Here
π(c|x) ∝ q(c) exp(Σ_r t_r(c) θ_rᵀψ(x)), t being public scores of the target's values, ψ a basis on the other columns, and θ
minimises

    ½ ‖Σ_m w_m Σ_c π(c|x_m) φ(x_m, c) − y‖²_{R⁻¹} + ½ Σ_b ‖θ_b‖²/s_b²,    R = τ²I + Cov φ · (1/N + 1/3M)

by Gauss and Newton. The noise law gives τ², a table of N rows Cov φ/N; that p(x) is carried by M points counts as a third of
a sample of them (as in `inference.smoother`). The spread s_b of each block b of θ is read off the measurement: MacKay 1992's
update s_b² = ‖θ_b‖²/γ_b, γ_b the number of the block's directions that the measurement settles, with one direction more of
size 0.1, without which noise alone could pass for a large spread. So nothing is tuned.

The points' own labels are not used. Points are fitted to all of the measurement, noise too, and hold the whole of a joint
law in M rows; the dependence of one column on the others is a few numbers, and the measurement tells those better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, cholesky, solve_triangular
from scipy.sparse import csr_array, vstack

from kmeanalyst.inference.questions.conditional_embedding import smooth_kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

MOST_POINTS = 2000  # of a dense feature map; of margins all
_POINTS_AS_ROWS = 1 / 3
_DIRECTIONS = 500  # of a dense feature map
_CENTRES = 200  # of the smooth block
_MOST_NUMBERS = 4000  # in θ
_MOST_SLOPES = 10**8  # moments × numbers in θ
_STEPS = 25
_FLAT = 1e-2  # precision of the constants' prior: they are hardly penalised
_PRECISIONS = (1e-2, 1e4)
_DOUBTED, _LITTLE = 1.0, 0.1  # directions that each spread is thought to have been seen along before, and how large


class Basis:
    """ψ: (n, d) encoded rows → (n, P): a constant, then blocks of centred functions of all columns but the target.

    Blocks: the cells of the margins kernel if that is measured, else levels, missing cells and atoms; numbers, standardised;
    and, but for margins, coordinates of a smooth kernel (`smoother.smooth_kernel`).
    """

    def __init__(self, release: ReleaseData, target: str, X: Array, w: Array, centres: int) -> None:
        feature_map = release.measurement.feature_map  # type: ignore[union-attr]
        self._margins = feature_map.kernel if isinstance(feature_map, MarginFeatures) else None
        self._target = release.domain.position(target)
        self._columns = Domain(tuple(column for column in release.domain.columns if column.name != target))
        others = self._others(X)
        known = np.isfinite(others) * w[:, None]
        share = np.maximum(known.sum(axis=0), 1e-12)
        filled = np.nan_to_num(others)
        self._centre = (known * filled).sum(axis=0) / share
        spread = np.sqrt((known * (filled - self._centre) ** 2).sum(axis=0) / share)
        self._scale = np.where(spread > 1e-9, spread, 1.0)
        self._smooth: Nystroem | None = None
        if self._margins is None and centres:
            drawn = np.unique(others[systematic_indices(w, min(centres, len(w)))], axis=0)
            self._smooth = Nystroem.fit(smooth_kernel(self._columns), drawn, tolerance=1e-6)
        blocks = self._blocks(X)
        self.sizes = tuple(block.shape[1] for block in blocks)
        self._means = [w @ block for block in blocks]

    def __call__(self, X: Array) -> Array:
        centred = (block - mean for block, mean in zip(self._blocks(X), self._means, strict=True))
        return np.hstack([np.ones((len(X), 1)), *centred])

    @property
    def width(self) -> int:
        """P."""
        return 1 + sum(self.sizes)

    def _others(self, X: Array) -> Array:
        return np.delete(X, self._target, axis=1)

    def _blocks(self, X: Array) -> list[Array]:
        others = self._others(X)
        cells = self._kernel_cells(X) if self._margins is not None else self._marks(others)
        numbers = [j for j, column in enumerate(self._columns.columns) if isinstance(column, Number)]
        standard = np.nan_to_num((others[:, numbers] - self._centre[numbers]) / self._scale[numbers])
        blocks = [cells, standard] + ([self._smooth(others)] if self._smooth is not None else [])
        return [block for block in blocks if block.shape[1]]

    def _kernel_cells(self, X: Array) -> Array:
        assert self._margins is not None
        cells = self._margins.cells(X)
        marks = [cells[:, [j]] == np.arange(size) for j, size in enumerate(self._margins.sizes) if j != self._target]
        return np.hstack(marks).astype(float) if marks else np.zeros((len(X), 0))

    def _marks(self, others: Array) -> Array:
        marks = [np.zeros((len(others), 0), dtype=bool)]
        for column, values in zip(self._columns.columns, others.T, strict=True):
            if isinstance(column, Categorical):
                marks.append(values[:, None] == np.arange(len(column.levels)))
            elif isinstance(column, Number) and column.atoms:
                marks.append(values[:, None] == column.atom_codes)
            if column.missing:
                marks.append(np.isnan(values)[:, None])
        return np.hstack(marks).astype(float)


@dataclass(frozen=True, eq=False)
class MeasuredLaw:
    """π(c|x) ∝ exp(log_base_c + Σ_r scores_cr θ_rᵀψ(x)) of a target's C values, and how well θ is known.

    theta       (R, P).
    covariance  (RP, RP) of θ, r slowest: of the Gaussian that the posterior is near its mode.
    spreads     (R, blocks) s_b, as the measurement has them.
    """

    basis: Basis
    scores: Array
    log_base: Array
    theta: Array
    covariance: Array
    spreads: Array

    def probabilities(self, X: Array) -> Array:
        """π (n, C) at encoded rows (n, d); what stands in the target's place does not matter."""
        parts = [_shares(self.basis(X[block]), self) for block in self._rows(X)]
        return np.concatenate(parts or [np.zeros((0, len(self.log_base)))])

    def standard_errors(self, X: Array, values: Array) -> Array:
        """(n, k) of Σ_c π(c|x) v_c, for v (C, k): to first order in θ."""
        parts = [self._errors(self.basis(X[block]), values) for block in self._rows(X)]
        return np.concatenate(parts or [np.zeros((0, values.shape[1]))])

    def _errors(self, psi: Array, values: Array) -> Array:
        pi, out = _shares(psi, self), np.empty((len(psi), values.shape[1]))
        for k, v in enumerate(values.T):
            tilts = (pi * v) @ self.scores - (pi @ v)[:, None] * (pi @ self.scores)  # Cov_π(v, t_r), (n, R)
            slopes = (tilts[:, :, None] * psi[:, None, :]).reshape(len(psi), -1)
            out[:, k] = np.sqrt(np.maximum(np.einsum("ni,ni->n", slopes @ self.covariance, slopes), 0.0))
        return out

    def _rows(self, X: Array) -> list[slice]:
        return row_blocks(len(X), 2 * self.theta.size + self.basis.width)


def _shares(psi: Array, law: Any) -> Array:
    """π (n, C) from ψ (n, P)."""
    exponents = law.log_base + psi @ law.theta.T @ law.scores.T
    exponents -= exponents.max(axis=1, keepdims=True)
    pi = np.exp(exponents)
    return pi / pi.sum(axis=1, keepdims=True)


def fit_measured_law(release: ReleaseData, target: str, values: Array, scores: Array, base: Array) -> MeasuredLaw:
    """The law of a target given the other columns, fitted to the release's measurement; deterministic.

    values  (C,) encoded values of the target; a NaN stands for a missing cell.
    scores  (C, R) t_r(c).
    base    (C,) positive q(c).
    Errors  ValueError if θ, or its moments, would be too large.
    """
    measurement = release.measurement
    assert measurement is not None
    X, w = _points(release, None if isinstance(measurement.feature_map, MarginFeatures) else MOST_POINTS)
    room = _MOST_NUMBERS // scores.shape[1] - Basis(release, target, X, w, 0).width
    basis = Basis(release, target, X, w, int(np.clip(room, 0, _CENTRES)))
    _check_size(target, basis.width * scores.shape[1], measurement.feature_map)
    with_value = [_with(X, release.domain.position(target), value) for value in values]
    moments, measured = _moments(measurement, X, w, with_value)
    return _Problem(basis, basis(X), w, scores, np.log(base), moments, measured).solved()


def _points(release: ReleaseData, most: int | None) -> tuple[Array, Array]:
    """Points and probability weights of sum 1; `most` of equal weight where there are more."""
    X, w = release.encoded_points, view_weights(release, "probability")
    if most is not None and len(X) > most:
        return X[systematic_indices(w, most)], np.full(most, 1 / most)
    return X[w > 0], w[w > 0] / w.sum()


def _with(X: Array, position: int, value: float) -> Array:
    X = X.copy()
    X[:, position] = value
    return X


def _check_size(target: str, numbers: int, feature_map: FeatureMap) -> None:
    moments = feature_map.dimension if isinstance(feature_map, MarginFeatures) else _DIRECTIONS
    if numbers > _MOST_NUMBERS or numbers * moments > _MOST_SLOPES:
        raise ValueError(
            f"the law of {target!r} has {numbers:,} numbers to find from {moments:,} moments: with so many levels that takes "
            "too long. Train a model on the release's rows instead, or release with fewer levels or edges."
        )


def _moments(measurement: Measurement, X: Array, w: Array, with_value: list[Array]) -> tuple[Array | csr_array, Array]:
    """Features of the rows with each value of the target (C·M, K), and the measurement (K,), both of error 1."""
    feature_map, noise = measurement.feature_map, measurement.noise_scale**2
    rows = 1 / measurement.n_rows + _POINTS_AS_ROWS / len(X)
    if isinstance(feature_map, MarginFeatures):  # each cell by itself: tables overlap, and no more is made of that
        heights = np.repeat(feature_map.heights, np.diff(feature_map.starts))
        mean = feature_map.mean(X, w)
        error = np.sqrt(noise + np.maximum(mean * heights - mean**2, 0.0) * rows)
        return csr_array(
            vstack([feature_map.compact(Z) for Z in with_value]).multiply(1 / error)
        ), measurement.vector / error
    V = _directions(measurement, with_value)
    own = _along(feature_map, X, V)
    centred = own - w @ own
    root = cholesky(noise * np.eye(V.shape[1]) + rows * (centred * w[:, None]).T @ centred, lower=True)
    each = np.vstack([_along(feature_map, Z, V) for Z in with_value])
    return (
        solve_triangular(root, each.T, lower=True).T,
        solve_triangular(root, V.T @ measurement.vector, lower=True),
    )


def _directions(measurement: Measurement, with_value: list[Array]) -> Array:
    """(F, K) orthonormal: along which features φ(x, c) depend on c the most.

    All that θ moves lies in the span of φ(x_m, c) − φ(x_m, c₀); what does not is noise to it.
    """
    M, others = len(with_value[0]), len(with_value) - 1
    chosen = np.arange(0, M * others, -(-M * others // MOST_POINTS))
    rows, value = np.divmod(chosen, others)
    feature_map = measurement.feature_map
    contrasts = feature_map.compact(np.stack(with_value)[1 + value, rows]) - feature_map.compact(with_value[0][rows])
    gram = contrasts @ contrasts.T
    squares, left = np.linalg.eigh(gram if isinstance(gram, np.ndarray) else gram.toarray())
    kept = np.argsort(squares)[::-1][:_DIRECTIONS]
    kept = kept[squares[kept] > 1e-10 * squares.max()]
    return contrasts.T @ left[:, kept] / np.sqrt(squares[kept])


def _along(feature_map: FeatureMap, X: Array, V: Array) -> Array:
    return np.vstack([feature_map.compact(X[block]) @ V for block in row_blocks(len(X), feature_map.width)])


@dataclass
class _Problem:
    """½‖Φᵀ(w π) − y‖² + ½ Σ prior θ², Φ and y of error 1."""

    basis: Basis
    psi: Array  # (M, P)
    w: Array
    scores: Array
    log_base: Array
    moments: Array | csr_array  # (C·M, K), values of the target slowest
    measured: Array

    def __post_init__(self) -> None:
        self.theta = np.zeros((self.scores.shape[1], self.psi.shape[1]))
        self.block = np.repeat(np.arange(-1, len(self.basis.sizes)), (1, *self.basis.sizes))
        self.precision = np.where(self.block < 0, _FLAT, np.ones_like(self.theta))

    def solved(self) -> MeasuredLaw:
        """Gauss–Newton steps, halved where they do not pay, each followed by an update of the spreads."""
        for _ in range(_STEPS):
            before, residual = self._value(self.theta)
            slopes = self._slopes()
            factor = cho_factor(slopes.T @ slopes + np.diag(self.precision.ravel()))
            gradient = slopes.T @ residual + (self.precision * self.theta).ravel()
            gained = self._moved(cho_solve(factor, gradient).reshape(self.theta.shape), before)
            covariance = cho_solve(factor, np.eye(self.theta.size))
            if self._respread(np.diag(covariance).reshape(self.theta.shape)) < 0.1 and gained < 1e-5 * before + 1e-3:
                break
        starts = [int(np.argmax(self.block == b)) for b in range(len(self.basis.sizes))]
        spreads = 1 / np.sqrt(self.precision[:, starts])
        return MeasuredLaw(self.basis, self.scores, self.log_base, self.theta, covariance, spreads)

    def _value(self, theta: Array) -> tuple[float, Array]:
        """The objective and the residual (K,)."""
        pi = self._pi(theta)
        residual = self.moments.T @ (self.w[:, None] * pi).T.ravel() - self.measured
        return float(residual @ residual + (self.precision * theta**2).sum()) / 2, residual

    def _pi(self, theta: Array) -> Array:
        return _shares(self.psi, MeasuredLaw(self.basis, self.scores, self.log_base, theta, theta, theta))

    def _slopes(self) -> Array:
        """(K, RP) of the residual by θ."""
        pi, repeated = self._pi(self.theta), np.tile(self.psi, (len(self.log_base), 1))
        mean_scores = pi @ self.scores
        parts = []
        for r in range(len(self.theta)):
            change = self.w[:, None] * pi * (self.scores[:, r] - mean_scores[:, [r]])
            parts.append(self.moments.T @ (change.T.ravel()[:, None] * repeated))
        return np.hstack(parts)

    def _moved(self, step: Array, before: float) -> float:
        """Takes the step, or a part of it; returns by how much the objective fell."""
        length = 1.0
        while length > 1e-4:
            after, _ = self._value(self.theta - length * step)
            if after <= before:
                self.theta = self.theta - length * step
                return before - after
            length /= 2
        return 0.0

    def _respread(self, variances: Array) -> float:
        """MacKay's update of each block's precision from the variances of θ; the largest change of a logarithm."""
        largest = 0.0
        for b in range(len(self.basis.sizes)):
            own = self.block == b
            for theta, precision, variance in zip(self.theta, self.precision, variances, strict=True):
                old = precision[own][0]
                settled = max(float((1 - old * variance[own]).sum()), 1e-3)
                new = (settled + _DOUBTED) / (float((theta[own] ** 2).sum()) + _DOUBTED * _LITTLE**2)
                new = float(np.clip(new, *_PRECISIONS))
                largest = max(largest, abs(np.log(new / old)))
                precision[own] = new
        return largest
