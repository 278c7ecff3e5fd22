"""Fewer points for the same embedding: n points with weights v whose Σ v_i k(z_i, ·) is near μ = Σ w_m k(z_m, ·). Post-processing.

    uniform       v = 1/n                herding (Chen, Welling & Smola 2010), then exchanges until none helps
    probability   v ≥ 0, Σ v = 1         fully corrective Frank–Wolfe (Bach, Lacoste-Julien & Obozinski 2012)
    signed        Σ|v| ≤ max(1, Σ|w|)    least squares on greedy points (Huszár & Duvenaud 2012), with the bound

The last two grow a set beyond n, refit every weight after each new point, remove the points whose loss costs least, and exchange.
Each kind starts from the result of the one before it, so that a kind with more freedom is never further away.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PrivacyStatement

ThinWeights = Literal["probability", "uniform", "signed"]
THIN_WEIGHTS: tuple[ThinWeights, ...] = ("uniform", "probability", "signed")
_Weighted = tuple[Array, Array]  # indices (n,) and weights (n,)
_GROW = 1.5  # how far beyond n the set grows before it shrinks
_PASSES = ((2e8, 3), (4e9, 1))  # (most n² · candidates, passes of exchanges over all points)
MOST_STEPS = 300_000_000_000  # steps of the kernel: 50 000 distinct points of 20 columns take 2.7·10¹¹
MOST_NUMBERS = 250_000_000  # n × distinct points: kernel values in memory
_CANDIDATES = 5000  # with all of 20 000 points as candidates and two more passes, 18 % less error in six times the time
_LEAST_REACH = 1e-9  # share of k(z, z): a smaller squared distance is mostly rounding
_MOST_ROUNDS = 50  # rounds of exchanges with equal weights
_JITTER = 1e-13  # share of k(z, z) added to the diagonal: about the rounding in a factor of a singular Gram matrix
_ROUNDING = 1e-15  # share of k(z, z): a smaller change of a squared distance is rounding

R = TypeVar("R", bound=ReleaseData)


def thin(release: R, n: int, *, weights: ThinWeights = "probability", rng: np.random.Generator | int | None = 0) -> R:
    """A release with n of the points, whose embedding is as near as possible to that of the whole.

    n         number of points, at most that of the release.
    weights   "probability", "uniform" (1/n each; a point may then occur several times), or "signed"
              (Σ|v| at most that of the release, or 1 if that is more).
    rng       seed or Generator, used only for more than 5000 points: see `thinned`.
    Returns   Release with the same domain, kernel, measurement and guarantee: this is post-processing. Its
              `thinning_error` is the RKHS distance to the embedding of the original release; a file does not store it.

    Edge case   if the weights of the release are not probabilities, probability weights have an error even for all points.
    Cost        distinct points squared, times the kernel's cost of one pair. ValueError, before any work, for more than
                3·10¹¹ steps of the kernel, or if n times the distinct points exceeds 2.5·10⁸.

    >>> small = ka.thin(release, 50)
    >>> len(small), small.thinning_error
    (50, 0.04662...)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(release):
        raise ValueError(
            f"n must be a whole number from 1 to {len(release)}, got {n!r:.80}: the thinned release has n of the "
            f"{len(release)} points. Pass how many to keep."
        )
    encoded = release.encoded_points
    indices, chosen, error = _thinned_once(release.kernel, encoded, release.weights, int(n), weights, rng)
    measurement, statement = release.measurement, release.statement
    distance = None
    if measurement is not None:
        mean = feature_mean(measurement.feature_map, encoded[indices], chosen)
        distance = float(np.linalg.norm(mean - measurement.vector))
    if isinstance(statement, PrivacyStatement):  # it stands; how many of the points are public rows changes
        statement = replace(statement, public_points=int((indices < statement.public_points).sum()))
    return release.replaced(
        points=release.frame.iloc[indices], weights=chosen, statement=statement,
        weight_view="signed" if weights == "signed" else "probability", fit_distance=distance, thinning_error=error,
    )  # fmt: skip


def _thinned_once(
    kernel: Kernel, points: Array, weights: Array, n: int, kind: ThinWeights, rng: np.random.Generator | int | None
) -> tuple[Array, Array, float]:
    first, which = _distinct(points)
    unchanged = kind not in THIN_WEIGHTS or (n == len(points) and _allowed(weights, kind))
    if not unchanged:
        _check_work(kernel, len(first), points.shape[1], n)
    if unchanged or len(first) == len(points):
        return thinned(kernel, points, weights, n, kind, rng=rng)
    merged = np.bincount(which, weights, len(first))
    few = n if kind == "uniform" else min(n, len(first))
    indices, chosen, error = thinned(kernel, points[first], merged, few, kind, rng=rng)
    if kind == "uniform":
        return first[indices], chosen, error
    return *pad(first[indices], chosen, n, weights), error


def _distinct(points: Array) -> tuple[Array, Array]:
    rows = np.ascontiguousarray(points + 0.0)  # -0.0 is 0.0
    _, first, which = np.unique(rows.view(f"V{rows.itemsize * rows.shape[1]}"), return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return first[order], rank[which.reshape(-1)]


def _check_work(kernel: Kernel, distinct: int, n_columns: int, n: int) -> None:
    steps = distinct * (distinct // 2 + 2 * n) * kernel_work(kernel, n_columns)
    if steps > MOST_STEPS:
        what = f"takes {steps:.2g} steps of the kernel, and at most {MOST_STEPS:.2g} are"
    elif n * distinct > MOST_NUMBERS:
        what = f"holds {n * distinct:.2g} kernel values, and at most {MOST_NUMBERS:.2g} are"
    else:
        return
    raise ValueError(
        f"thinning {distinct:,} different points to {n:,} {what} taken at once. Thin a sample first: "
        'kmeanalyst.from_frame(release.to_frame("resampled", rows=10_000)).thin(...), or ask for fewer points.'
    )


def thinned(
    kernel: Kernel, points: Array, weights: Array, n: int, kind: ThinWeights, *,
    rng: np.random.Generator | int | None = 0,
) -> tuple[Array, Array, float]:  # fmt: skip
    """n of the points (M, d), encoded, with new weights, whose embedding is as near as possible to that of all with `weights` (M,).

    kind      "uniform", "probability" or "signed", as above.
    rng       draws the candidates, if there are more than max(5000, 4n) points and weights are refitted.
    Returns   indices (n,) ascending, their weights (n,), and the RKHS distance between the two embeddings, to about 1e-8 of
              √k(z, z)·Σ|w|.

    If fewer than n points give an error of zero, the others have weight zero; with equal weights a point may occur several times.
    Cost      M²/2 kernel values once, in blocks. Memory: n·M numbers, and 1.5·n for each candidate.
    """
    if kind not in THIN_WEIGHTS:
        raise ValueError(
            f"weights must be probability, uniform or signed, got {kind!r:.80}: a thinned release has weights of one of "
            "these kinds. Name one."
        )
    if n == len(points) and _allowed(weights, kind):
        return np.arange(n), weights, 0.0
    target = mean_at_points(kernel, points, weights)
    squared_norm = float(weights @ target)
    indices, times = np.unique(herd(kernel, points, target, n), return_counts=True)
    if kind == "uniform":
        indices = np.repeat(indices, times)
        chosen = np.full(n, 1 / n)
    else:
        seen = candidate_indices(weights, n, indices, np.random.default_rng(rng))
        some = points[seen], target[seen]
        state = refine(kernel, *some, squared_norm, None, n, (np.searchsorted(seen, indices), times / n))
        if kind == "signed":
            bound = max(1.0, float(np.abs(weights).sum()))
            state = refine(kernel, *some, squared_norm, bound, n, state)
        indices, chosen = pad(seen[state[0]], state[1], n, weights)
    squared = squared_norm - 2 * chosen @ target[indices] + chosen @ mean_at_points(kernel, points[indices], chosen)
    return indices, chosen, math.sqrt(max(0.0, float(squared)))


def candidate_indices(weights: Array, n: int, herded: Array, rng: np.random.Generator) -> Array:
    """Indices, ascending, of the points that may be chosen: all, or the herded ones and a draw that favours large weights."""
    size = max(_CANDIDATES, 4 * n)
    if len(weights) <= size:
        return np.arange(len(weights))
    share = np.abs(weights) + np.abs(weights).mean() + 1e-300
    return np.union1d(rng.choice(len(weights), size, replace=False, p=share / share.sum()), herded)


def mean_at_points(kernel: Kernel, points: Array, weights: Array) -> Array:
    """Σ_m w_m k(z_m, z_i) at the points themselves, (M,): blockwise, each pair computed once."""
    total = np.zeros(len(points))
    for rows in row_blocks(len(points), len(points)):
        block = kernel.gram(points[rows], points[rows.start :])
        total[rows] += block @ weights[rows.start :]
        total[rows.stop :] += weights[rows] @ block[:, rows.stop - rows.start :]
    return total


def _allowed(weights: Array, kind: ThinWeights) -> bool:
    if kind == "signed":
        return True
    if kind == "uniform":
        return bool(np.allclose(weights, 1 / len(weights), rtol=1e-12, atol=0))
    return bool(weights.min() >= 0 and abs(weights.sum() - 1) < 1e-9)


def pad(indices: Array, chosen: Array, n: int, weights: Array) -> tuple[Array, Array]:
    """n indices, ascending, and their weights: the heaviest of the other points are added with weight zero."""
    others = np.argsort(-np.abs(weights), kind="stable")
    others = others[~np.isin(others, indices)][: n - len(indices)]
    indices, chosen = np.append(indices, others), np.append(chosen, np.zeros(len(others)))
    order = np.argsort(indices)
    return indices[order], chosen[order]


def herd(kernel: Kernel, points: Array, target: Array, n: int) -> Array:
    """Indices (n,), ascending, with repetition: chosen greedily, then exchanged one by one until no exchange helps."""
    diagonal = kernel.diagonal(points)
    columns = np.empty((n, len(points)))
    indices = np.empty(n, dtype=np.intp)
    total = np.zeros(len(points))
    for i in range(n):  # ‖(Σ k_j + k_i)/(i + 1) − μ‖², up to terms without the new point
        indices[i] = np.argmin(diagonal / 2 + total - (i + 1) * target)
        columns[i] = kernel.gram(points[indices[i], None], points)[0]
        total += columns[i]
    little = _ROUNDING * float(diagonal.max()) * n
    for _ in range(_MOST_ROUNDS):
        exchanged = False
        for i in range(n):
            rest = total - columns[i]
            objective = diagonal / 2 + rest - n * target
            best = int(np.argmin(objective))
            if objective[best] >= objective[indices[i]] - little:
                continue
            indices[i] = best
            columns[i] = kernel.gram(points[best, None], points)[0]
            total = rest + columns[i]
            exchanged = True
        if not exchanged:
            break
    return np.sort(indices)


def refine(
    kernel: Kernel, points: Array, target: Array, squared_norm: float, bound: float | None, n: int, start: _Weighted
) -> _Weighted:
    """At most n points and their weights: grown and shrunk, or `start` if that is nearer; then exchanged.

    bound   of Σ|v|; None for probabilities.
    """
    most = min(len(points), math.ceil(_GROW * n))
    support = _Support(kernel, points, target, squared_norm, bound, most)
    support.grow(most)
    while len(support.indices) > n:
        support.drop(support.least_missed())
    grown, squared = support.state, support.squared_distance
    if squared <= support.little:  # exact to rounding
        return grown
    support.restore(start)
    support.refit(support.weights, np.sign(support.weights))
    support.grow(n)
    if support.squared_distance >= squared - support.little:
        support.restore(grown)
    work = n * n * len(points)
    for _ in range(next((passes for most_work, passes in _PASSES if work <= most_work), 0)):
        if not _exchange(support, n):
            break
    return support.state


def _exchange(support: _Support, n: int) -> bool:
    """Remove each point in turn and grow back to n; keep the result if it is nearer. Whether any was."""
    exchanged = False
    for index in [support.indices[i] for i in np.argsort(np.abs(support.weights), kind="stable")]:
        if index not in support.indices or len(support.indices) < 2:
            continue
        before, squared = support.state, support.squared_distance
        if squared <= support.little:
            return False
        support.drop(support.indices.index(index))
        support.grow(n, closed=index)
        if support.squared_distance < squared * (1 - 1e-6) - support.little:
            exchanged = True
        else:
            support.restore(before)
    return exchanged


class _Support:
    """Chosen points S with their best weights over {v ≥ 0, Σ v = 1} or {Σ|v| ≤ bound}: an active set on a Newton basis.

    Each step goes towards the optimum of the current face, up to the first weight that would change its sign; that point leaves
    (Lawson & Hanson 1974). With RᵀR the Gram matrix of S, the basis is R⁻ᵀk(S, ·) (Müller & Schaback 2009), a row for each point.
    """

    def __init__(
        self, kernel: Kernel, points: Array, target: Array, squared_norm: float, bound: float | None, most: int
    ) -> None:
        self.kernel, self.points, self.target, self.squared_norm = kernel, points, target, squared_norm
        self.signed, self.total = bound is not None, 1.0 if bound is None else bound
        self.diagonal = kernel.diagonal(points)
        self.jitter = _JITTER * float(self.diagonal.max())
        self.little = _ROUNDING * float(self.diagonal.max()) * self.total
        self.indices: list[int] = []
        self.weights = np.zeros(0)
        self.factor = np.zeros((most, most))
        self.basis = np.zeros((most, len(points)))
        self.unseen = self.diagonal.copy()  # squared distance of k(z, ·) to the span of S, for every point z
        self._refitted()

    def _refitted(self) -> None:
        k = len(self.indices)
        self.gradient = (self.factor[:k, :k] @ self.weights) @ self.basis[:k] - self.target
        at = self.gradient[self.indices] - self.target[self.indices]
        self.squared_distance = self.squared_norm + float(self.weights @ at)

    def least_missed(self) -> int:
        """The index in S of the point that costs least to lose, v_i² / (G⁻¹)_ii."""
        k = len(self.indices)
        inverse, _ = lapack.dtrtri(self.factor[:k, :k])
        return int(np.argmin(self.weights**2 / (inverse**2).sum(axis=1)))

    def grow(self, n: int, *, closed: int | None = None) -> None:
        """Add the most helpful point and refit, until there are n points or the descent is below rounding."""
        barred = set() if closed is None else {closed}
        for _ in range(3 * n):  # points also leave; in exact arithmetic no support would occur twice
            if len(self.indices) >= n:
                return
            best, sign = self._most_helpful([*barred, *self.indices])
            if best is None:
                return
            signs = np.append(np.sign(self.weights), sign)
            self._join(best)
            self.refit(np.append(self.weights, 0.0), signs)
            if best not in self.indices:  # it left at once: the descent was rounding
                barred.add(best)

    def drop(self, position: int) -> None:
        weights = np.delete(self.weights, position)
        self._leave(position)
        self.refit(weights if self.signed else _probabilities(weights), np.sign(weights))

    @property
    def state(self) -> _Weighted:
        return np.array(self.indices, dtype=np.intp), self.weights

    def restore(self, state: _Weighted) -> None:
        indices, weights = state[0].tolist(), state[1]
        for position in reversed(range(len(self.indices))):
            if self.indices[position] not in indices:
                self._leave(position)
        for index in indices:
            if index not in self.indices:
                self._join(index)
        known = dict(zip(indices, weights, strict=True))
        self.weights = np.array([known[index] for index in self.indices])
        self._refitted()

    def _most_helpful(self, barred: list[int]) -> tuple[int | None, float]:
        """The point that would lower the distance most, and the sign of its weight; None if no point would.

        The gain is (slope towards the point / its distance to the span of S)², or to the affine hull if Σ|v| stays the same.
        """
        k = len(self.indices)
        if k == 0 and not self.signed:
            return int(np.argmax(self.target - self.diagonal / 2)), 1.0
        sign = -np.sign(self.gradient) if self.signed else np.ones(len(self.points))
        descent = self.weights @ self.gradient[self.indices] / self.total - sign * self.gradient
        squared_reach = self.unseen
        if not self.signed or np.abs(self.weights).sum() > (1 - 1e-9) * self.total:
            along = self._half_solved(np.sign(self.weights))
            squared_reach = squared_reach + (1 - sign * (along @ self.basis[:k])) ** 2 / (along @ along)
        reach = np.maximum(squared_reach, _LEAST_REACH * self.diagonal)
        gain = descent / np.sqrt(np.maximum(reach, np.finfo(float).tiny))  # a point of k(z, z) = 0 gains nothing
        gain[descent <= self.little] = 0.0
        gain[barred] = 0.0
        best = int(np.argmax(gain))
        return (best, float(sign[best])) if gain[best] > 0 else (None, 0.0)

    def _join(self, index: int) -> None:
        k = len(self.indices)
        column = self.basis[:k, index].copy()
        pivot = math.sqrt(max(self.unseen[index], 0.0) + self.jitter)
        self.factor[:k, k], self.factor[k, k] = column, pivot
        self.basis[k] = (self.kernel.gram(self.points[index, None], self.points)[0] - column @ self.basis[:k]) / pivot
        self.unseen -= self.basis[k] ** 2
        self.indices.append(index)

    def _leave(self, position: int) -> None:
        """Rotate the rows of R and of the basis until the point is the last of S, and remove it."""
        k = len(self.indices)
        R = self.factor[:k, :k]
        R[:, position:] = np.roll(R[:, position:], -1, axis=1)
        for i in range(position, k - 1):
            length = math.hypot(R[i, i], R[i + 1, i])
            cosine, sine = R[i, i] / length, R[i + 1, i] / length
            for rows in (self.factor, self.basis):
                blas.drot(rows[i], rows[i + 1], cosine, sine, overwrite_x=True, overwrite_y=True)
        self.unseen += self.basis[k - 1] ** 2
        self.factor[:, k - 1] = 0.0
        self.factor[k - 1] = 0.0
        del self.indices[position]

    def refit(self, weights: Array, signs: Array) -> None:
        """The best weights on these points, from weights of these signs."""
        while True:
            wanted, leaving = self._face_optimum(signs)
            if not leaving.any():
                break
            step = np.full(len(weights), np.inf)
            step[leaving] = weights[leaving] / (weights[leaving] - wanted[leaving])
            first = int(np.argmin(step))
            weights = np.delete(weights + step[first] * (wanted - weights), first)
            signs = np.delete(signs, first)
            self._leave(first)
            if not self.signed:
                weights = _probabilities(weights)
        self.weights = wanted
        self._refitted()

    def _face_optimum(self, signs: Array) -> tuple[Array, Array]:
        """Weights of least distance with the required Σ s_i v_i, and which of them have the wrong sign."""
        k = len(signs)
        if k == 0:
            return np.zeros(0), np.zeros(0, dtype=bool)
        half = self._half_solved(np.column_stack([self.target[self.indices], signs]))
        free, along = solve_triangular(self.factor[:k, :k], half, check_finite=False).T
        excess = signs @ free - self.total
        if self.signed and np.abs(free).sum() <= self.total:
            return free, np.zeros(k, dtype=bool)
        if self.signed and excess <= 0:
            return free, free * signs <= 0
        wanted = free - excess / (signs @ along) * along
        return wanted, wanted * signs <= 0

    def _half_solved(self, right: Array) -> Array:
        k = len(self.indices)
        return solve_triangular(self.factor[:k, :k], right, trans="T", check_finite=False)


def _probabilities(weights: Array) -> Array:
    weights = np.maximum(weights, 0.0)
    return weights / weights.sum()
