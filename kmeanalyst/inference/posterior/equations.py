"""The equations of a measurement: (κ C + τ²I) A = B, C the covariance of features of weighted rows, solved in double precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import LinearOperator, eigsh

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.principal import Directions
from kmeanalyst.kernels.margins import MarginFeatures

_MOST_ALONE, _LARGEST, _MOST_TOGETHER = 400, 512, 2000  # cells of single columns, of a block of one table, of any block
_RELATED = 0.85  # canonical correlation of columns whose tables are one block of the preconditioner
_ROUNDING, _NOTHING = 1e-9, 1e-30
_MOST_STEPS, PATIENCE = 100, 2  # steps of the solver, and the last ones by which it is seen to end
_LEAST_NOISE = 1e-5  # variance, relative to the largest prior variance: with less the solver would not end
_MORE_CELLS = 1.5  # times as many as rows
_LEADING_TO = 1e-2  # of a leading variance: any direction may be looked along, by what its own variance is
_DRAWN = 1e-3  # draws are solved for to this share
_EXACT, _MOST_STEPS_EXACTLY = 1e-6, 10_000  # noise deviations that are left of the equations of the best answers


@dataclass(frozen=True, eq=False)
class FeatureCovariance:
    """C = Cov_p φ of rows, as an operator, and its diagonal; κ C + τ²I is solved with it."""

    features: Any  # (n, F) sparse
    transposed: Any  # (F, n) sparse
    weights: Array  # (n,) p
    mean: Array  # (F,)
    diagonal: Array  # (F,)

    @classmethod
    def of(cls, features: Any, weights: Array) -> FeatureCovariance:
        transposed = features.T.tocsr()
        mean = transposed @ weights
        return cls(features, transposed, weights, mean, transposed.multiply(transposed) @ weights - mean**2)

    def __matmul__(self, A: Array) -> Array:
        return self.with_features(self.features @ A) - np.outer(self.mean, self.mean @ A)

    def at_rows(self, a: Array) -> Array:
        """aᵀ(φ − E_p φ) at the rows, (n,) or (n, k), of a (F,) or (F, k)."""
        return self.features @ a - self.mean @ a

    def with_features(self, values: Array) -> Array:
        return self.transposed @ (self.weights[:, None] * values)

    def within(self, block: Any) -> Array:
        """(k, k) C of some features: their numbers, or a slice within one table, of which each row is in one cell."""
        mean = self.mean[block]
        if isinstance(block, slice):
            return np.diag(self.diagonal[block] + mean**2) - np.outer(mean, mean)
        own = self.transposed[block]
        return (own.multiply(self.weights) @ own.T).toarray() - np.outer(mean, mean)

    def leading(self, most: int) -> Directions:
        """Eigenvectors of C of the largest eigenvalues, in descending order, those of 0 left out."""
        size = len(self.mean)
        if size <= 2 * most:
            variances, vectors = np.linalg.eigh(self.within(np.arange(size)))
        else:  # Lanczos' method: tens of steps for each
            product = LinearOperator((size, size), matvec=lambda v: (self @ v.reshape(-1, 1))[:, 0], dtype=float)
            variances, vectors = eigsh(product, most, v0=np.sqrt(np.maximum(self.diagonal, 0.0)), tol=_LEADING_TO)
        order = np.argsort(variances)[::-1][:most]
        order = order[variances[order] > _ROUNDING * variances.max()]
        return Directions(vectors[:, order], variances[order])


@dataclass(frozen=True, eq=False)
class _Blocks:
    """An approximate inverse of κ C + τ²I: exact within every block of cells, and in the effects of single columns.

    C is taken as C_A, the covariances that the indicators of single columns' cells explain, and C − C_A within blocks alone. Tables
    of columns that nearly copy each other say nearly the same, so they are one block; so are a set's table and those of its parts.

    inverses     each block's cells (a slice, or numbers), and the inverse (of κ (C − C_A) + τ²I) there.
    explained    (F, r) the blocks' inverses times a root of κ C_A.
    inner        Cholesky factor of the Woodbury identity's (r, r) matrix.
    """

    inverses: tuple[tuple[Any, Array], ...]
    explained: Array
    inner: Any

    @classmethod
    def of(
        cls, covariance: FeatureCovariance, feature_map: MarginFeatures, spread: float, noise_variance: float
    ) -> Any:
        """An identity where cells are so many more than rows that the eigenvalues of C but 0 are alike."""
        if len(covariance.mean) > _MORE_CELLS * len(covariance.weights):
            return eye_array(len(covariance.mean), format="csr")
        root = np.sqrt(spread) * _explained_by_columns(covariance, feature_map)
        inverses, explained = [], np.zeros_like(root)
        for block in _blocks(covariance, feature_map):
            size = spread * covariance.within(block) - root[block] @ root[block].T
            size[np.diag_indices_from(size)] += noise_variance
            inverse = np.linalg.inv(size)
            inverses.append((block, (inverse + inverse.T) / 2))
            explained[block] = inverses[-1][1] @ root[block]
        inner = cho_factor(np.eye(root.shape[1]) + root.T @ explained)
        return cls(tuple(inverses), explained, inner)

    def __matmul__(self, B: Array) -> Array:
        solved = -self.explained @ cho_solve(self.inner, self.explained.T @ B)
        for block, inverse in self.inverses:
            solved[block] += inverse @ B[block]
        return solved


def _explained_by_columns(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Array:
    """(F, r) covariances of the features with orthonormal functions of single columns."""
    alone = [group for group in feature_map.groups if group.kind == "one-way"]
    cells = np.concatenate([np.arange(group.start, group.stop) for group in alone])
    cells = cells[np.argsort(-covariance.diagonal[cells])[:_MOST_ALONE]]
    indicators, mean = covariance.features[:, cells], covariance.mean
    weighted = indicators.multiply(covariance.weights[:, None]).tocsr()
    joint = (covariance.transposed @ weighted).toarray() - np.outer(mean, mean[cells])
    return joint @ _inverse_root(joint[cells])


def _blocks(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Iterator[Any]:
    together: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    related = _related_columns(covariance, feature_map)
    for group in feature_map.groups:
        for table, own in zip(group.tables, group.ranges, strict=True):
            together.setdefault(tuple(sorted({int(related[j]) for j in table})), []).append(own)
    size = {columns: sum(stop - start for start, stop in ranges) for columns, ranges in together.items()}
    for columns in sorted(together, key=len):  # the table of more columns says what theirs says: they join the smallest
        holding = [c for c in together if set(columns) < set(c) and size[c] + size[columns] <= _MOST_TOGETHER]
        if holding:
            smallest = min(holding, key=size.__getitem__)
            together[smallest] += together.pop(columns)
            size[smallest] += size[columns]
    for columns, ranges in together.items():
        if len(ranges) > 1 and size[columns] <= _MOST_TOGETHER:
            yield np.concatenate([np.arange(*own) for own in ranges])
        else:
            for start, stop in ranges:
                step = _LARGEST if stop - start > _MOST_TOGETHER else stop - start
                yield from (slice(part, min(part + step, stop)) for part in range(start, stop, step))


def _related_columns(covariance: FeatureCovariance, feature_map: MarginFeatures) -> Array:
    """A number for each coarse and finer column, the same for those whose cells have a canonical correlation above `_RELATED`."""
    kernel = feature_map.kernel
    columns = [*range(len(kernel.edges)), *kernel.finer]
    ranges = {
        table[0]: own
        for group in feature_map.groups
        for table, own in zip(group.tables, group.ranges, strict=True)
        if group.kind == "one-way"
    }
    if not ranges:
        return np.array(columns)
    cells = np.concatenate([np.arange(*own) for own in ranges.values()])
    starts = np.cumsum([0, *(stop - start for start, stop in ranges.values())])
    own = {j: slice(*ends) for j, ends in zip(ranges, pairwise(starts), strict=True)}
    joint = covariance.within(cells)
    roots = {j: _inverse_root(joint[part, part]) for j, part in own.items()}
    related = np.eye(len(kernel.edges))
    for i, j in combinations([j for j in ranges if roots[j].size], 2):
        related[i, j] = np.linalg.norm(roots[i].T @ joint[own[i], own[j]] @ roots[j], 2) > _RELATED
    return connected_components(related, directed=False)[1][columns]


def _inverse_root(covariance: Array) -> Array:
    """(L, r) R of which Rᵀ C R is the identity, on the space where C (L, L) is not 0."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _ROUNDING * values[-1]
    return vectors[:, kept] / np.sqrt(values[kept])


@dataclass(frozen=True, eq=False)
class Equations:
    """(κ C + τ²I) A = B, solved for several columns at once."""

    covariance: FeatureCovariance
    spread: float
    noise_variance: float
    inverse: Any  # nearly: `_Blocks` or an identity; of few features the inverse itself

    @classmethod
    def of(
        cls, covariance: FeatureCovariance, feature_map: MarginFeatures, spread: float, noise_variance: float
    ) -> Equations:
        """Those of tables' cells."""
        noise_variance = solvable_noise(noise_variance, covariance, spread)
        return cls(covariance, spread, noise_variance, _Blocks.of(covariance, feature_map, spread, noise_variance))

    def __matmul__(self, A: Array) -> Array:
        return self.spread * (self.covariance @ A) + self.noise_variance * A

    def fitted(self, sums: Array) -> Array:
        """(m, k) the weights p (φ − E_p φ)ᵀ κ (κ C + τ²I)⁻¹ sums that a fit adds for measured sums of features (F, k), nearly."""
        b = self.spread * self.solved(sums, until(_DRAWN, fewest=PATIENCE + 1))
        return self.covariance.weights[:, None] * self.covariance.at_rows(b)

    def solved_exactly(self, b: Array, most: float | None = None) -> Array:
        """a (F,), up to a residual of `_EXACT` noise deviations: answers are off by at most that share of their privacy error.

        most   a larger residual that will do.

        ValueError where `_MOST_STEPS_EXACTLY` steps do not reach it.
        """
        most = max(most or 0.0, _EXACT * np.sqrt(self.noise_variance))
        a = self.solved(b[:, None], most=_MOST_STEPS_EXACTLY, residual=most)
        if not (left := float(np.linalg.norm(b - (self @ a)[:, 0]))) <= 2 * most:  # 2: it is summed up in another order
            raise ValueError(
                f"the equations of the measurement were not solved: after {_MOST_STEPS_EXACTLY} steps {left / most:.3g} times the "
                "tolerance is left. Where errors are not known there is no answer; please report it with the file."
            )
        return a[:, 0]

    def solved(
        self, B: Array, enough: Callable[[Array], Array] = lambda gains: gains[-1] < 0, most: int = _MOST_STEPS,
        residual: float = 0.0,
    ) -> Array:  # fmt: skip
        """A (F, k) by conjugate gradients, each column by itself: it ends when `enough` is true of its gains.

        enough    from what each step so far added to Bᵀ A (steps, k) → (k,).
        most      steps. ValueError where one is not finite.
        residual  norm of what is left of a column with which it ends too.
        """
        A, rest, gains = np.zeros_like(B), B.copy(), np.zeros((most, B.shape[1]))
        step = direction = self.inverse @ rest
        size = (rest * step).sum(axis=0)
        going = np.arange(B.shape[1])
        for i in range(most):
            kept = ~(size <= _NOTHING * gains.sum(axis=0)[going])
            going, rest, direction, size = going[kept], rest[:, kept], direction[:, kept], size[kept]
            if not len(going):
                break
            image = self @ direction
            length = size / (direction * image).sum(axis=0)
            if not (np.isfinite(length) & (length > 0)).all():
                raise ValueError(
                    f"the equations of the measurement were not solved: step {i + 1} has no length. Where errors are not known "
                    "there is no answer; please report it with the file."
                )
            A[:, going] += length * direction
            rest -= length * image
            gains[i, going] = length * size
            left = ~enough(gains[: i + 1])[going] & (np.linalg.norm(rest, axis=0) > residual)
            going, rest, direction, before = going[left], rest[:, left], direction[:, left], size[left]
            step = self.inverse @ rest
            size = (rest * step).sum(axis=0)
            direction = step + size / before * direction
        return A


def solvable_noise(variance: float, covariance: FeatureCovariance, spread: float) -> float:
    """The noise variance, or as much as the solver needs to end: a is then a little shorter than the best one."""
    return max(variance, _LEAST_NOISE * spread * float(covariance.diagonal.max()))


def until(share: float, *, fewest: int = 1) -> Callable[[Array], Array]:
    """Whether none of the last steps, of this many at least, gained more than this share of what all of them did."""
    return lambda gains: (len(gains) >= fewest) & (gains[-PATIENCE:].max(axis=0) < share * gains.sum(axis=0))
