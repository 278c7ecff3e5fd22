"""The distribution of a column given the others, fitted to a release's measurement.

Rows (x, c) have the distribution p(x) π(c|x). The measurement is y = E φ(x, c) + e. With p(x) from the released points,
y ≈ Σ_m w_m Σ_c π(c|x_m) φ(x_m, c) for any feature map: only the label's dependence remains to be found. π is a conditional
exponential family (`exponential_family`) with public scores t of the target's values, a basis ψ on the other columns, and
the misfit

    ½ ‖Σ_m w_m Σ_c π(c|x_m) φ(x_m, c) − y‖²_{R⁻¹},    R = τ²I + Cov φ · (1/N + 1/3M).

τ² is the variance of the noise and Cov φ/N that of a table of N rows. The error of representing p(x) by M points counts as a
third of that of a sample of M rows (as in `questions.conditional_embedding`).

The points' own labels are not used. Points are fitted to all of the measurement, noise included, and represent a whole joint
distribution by M rows; the dependence of one column on the others has few parameters, and the measurement determines these
better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, vstack

from kmeanalyst.inference.questions.conditional_embedding import smooth_kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.column_law.exponential_family import ConditionalExponentialFamily, FitRules, fit_family
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import systematic_indices, view_weights

MOST_POINTS = 2000  # points used with a dense feature map; with margins all are
_POINTS_AS_ROWS = 1 / 3
_DIRECTIONS = 500  # directions used of a dense feature map
_CENTRES = 200  # centres of the smooth block
_MOST_NUMBERS = 4000  # numbers in θ
_MOST_SLOPES = 10**8  # moments × numbers in θ
_RULES = FitRules(
    steps=25, shortest_step=1e-4, change=0.1, gain=1e-3, first_precision=1.0,
    constant_precision=1e-2,  # the constants are hardly penalised
)  # fmt: skip


class ReleaseBasis:
    """ψ: (n, d) encoded rows → (n, P): a constant, then blocks of centred functions of all columns but the target.

    Blocks: the cells of the margins kernel if that is measured, else levels, missing cells and atoms; numbers, standardised;
    and, except for margins, coordinates of a smooth kernel (`conditional_embedding.smooth_kernel`).
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
        sizes = [block.shape[1] for block in blocks]
        self.blocks = np.repeat(np.arange(-1, len(sizes)), (1, *sizes))
        self._means = [w @ block for block in blocks]

    def __call__(self, X: Array) -> Array:
        centred = (block - mean for block, mean in zip(self._blocks(X), self._means, strict=True))
        return np.hstack([np.ones((len(X), 1)), *centred])

    def _others(self, X: Array) -> Array:
        return np.delete(X, self._target, axis=1)

    def _blocks(self, X: Array) -> list[Array]:
        others = self._others(X)
        cells = self._kernel_cells(X) if self._margins is not None else self._marks(others)
        numbers = [j for j, column in enumerate(self._columns.columns) if column.is_number]
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
        columns: Any = self._columns.columns
        for column, values in zip(columns, others.T, strict=True):
            if isinstance(column, Tree):
                depth = column.deepest()
                values, codes = column.group_of(values, depth), np.arange(len(column.groups(depth)))
            else:
                codes = np.arange(len(column.levels)) if column.has_levels else column.atom_codes
            marks.append(values[:, None] == codes)
            if column.missing:
                marks.append(np.isnan(values)[:, None])
        return np.hstack(marks).astype(float)


def fit_measured_law(
    release: ReleaseData, target: str, values: Array, scores: Array, base: Array
) -> ConditionalExponentialFamily:
    """The distribution of a target given the other columns, fitted to the release's measurement; deterministic.

    values  (C,) encoded values of the target; a NaN stands for a missing cell.
    scores  (C, R) t_r(c).
    base    (C,) positive q(c).
    Errors  ValueError if θ, or the number of its moments, would be too large.
    """
    measurement = release.measurement
    assert measurement is not None
    X, w = _points(release, None if isinstance(measurement.feature_map, MarginFeatures) else MOST_POINTS)
    room = _MOST_NUMBERS // scores.shape[1] - len(ReleaseBasis(release, target, X, w, 0).blocks)
    basis = ReleaseBasis(release, target, X, w, int(np.clip(room, 0, _CENTRES)))
    _check_size(target, len(basis.blocks) * scores.shape[1], measurement.feature_map)
    with_value = [_with(X, release.domain.position(target), value) for value in values]
    moments, measured = _moments(measurement, X, w, with_value)
    misfit = _MomentMisfit(w, scores, moments, measured)
    return fit_family(basis, scores, np.log(base), X, misfit, _RULES)


def _points(release: ReleaseData, most: int | None) -> tuple[Array, Array]:
    """Points and probability weights of sum 1; `most` points of equal weight where there are more."""
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
            f"the distribution of {target!r} has {numbers:,} numbers to fit from {moments:,} moments: with so many levels this "
            "takes too long. Train a model on the release's rows instead, or release with fewer levels or edges."
        )


def _moments(measurement: Measurement, X: Array, w: Array, with_value: list[Array]) -> tuple[Array | csr_array, Array]:
    """Features of the rows with each value of the target (C·M, K), and the measurement (K,), both scaled to error 1."""
    feature_map, noise = measurement.feature_map, measurement.noise_scale**2
    rows = 1 / measurement.n_rows + _POINTS_AS_ROWS / len(X)
    if isinstance(feature_map, MarginFeatures):  # errors of cells count as independent, though tables overlap
        heights = np.repeat(feature_map.heights, np.diff(feature_map.starts))
        mean = feature_map.mean(X, w)
        error = np.sqrt(noise + np.maximum(mean * heights - mean**2, 0.0) * rows)
        cells = vstack([feature_map.compact(Z) for Z in with_value])
        return csr_array(cells.multiply(1 / error)), measurement.vector / error
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

    θ changes features only in the span of φ(x_m, c) − φ(x_m, c₀); all else is noise.
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


@dataclass(frozen=True, eq=False)
class _MomentMisfit:
    """½‖Φᵀ(w π) − y‖², Φ and y scaled to error 1."""

    w: Array
    scores: Array
    moments: Array | csr_array  # (C·M, K), values of the target slowest
    measured: Array

    def value(self, pi: Array) -> tuple[float, Array]:
        residual = self.moments.T @ (self.w[:, None] * pi).T.ravel() - self.measured
        return float(residual @ residual) / 2, residual

    def linearise(self, pi: Array, psi: Array, residual: Array) -> tuple[Array, Array]:
        repeated, mean_scores = np.tile(psi, (pi.shape[1], 1)), pi @ self.scores
        parts = []
        for r in range(self.scores.shape[1]):
            change = self.w[:, None] * pi * (self.scores[:, r] - mean_scores[:, [r]])
            parts.append(self.moments.T @ (change.T.ravel()[:, None] * repeated))
        slopes = np.hstack(parts)  # (K, RP) of the residual
        return slopes.T @ slopes, slopes.T @ residual
