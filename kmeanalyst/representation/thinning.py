"""Fewer points for the same embedding: n points with weights v whose Σ v_i k(z_i, ·) is near μ = Σ w_m k(z_m, ·). Post-processing.

    uniform       v = 1/n                herding (Chen, Welling & Smola 2010), then exchanges until none helps
    probability   v ≥ 0, Σ v = 1         fully corrective Frank–Wolfe (Bach, Lacoste-Julien & Obozinski 2012), many points a step
    signed        Σ|v| ≤ max(1, Σ|w|)    likewise, with this bound

The last two add points of steepest descent, fit all weights (`convex_fit`), and remove those whose loss costs least, as long as
that helps. Each kind starts from the result of the one before it, so that a kind with more freedom is never further away.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.measurement import feature_mean
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.weights.convex_fit import PROBABILITIES, ConvexSet, solve_quadratic

ThinWeights = Literal["probability", "uniform", "signed"]
THIN_WEIGHTS: tuple[ThinWeights, ...] = ("uniform", "probability", "signed")
_Weighted = tuple[Array, Array]  # indices (n,) and weights (n,)
_GROW = 1.0  # of n, the points that are added at first; half as many where these did not help
_MOST_ATTEMPTS = 12
_ENOUGH = 1e-3  # a smaller share of the squared distance is no gain
MOST_STEPS = 300_000_000_000  # steps of the kernel: 50 000 distinct points of 20 columns take 2.7·10¹¹
MOST_NUMBERS = 250_000_000  # n × distinct points: kernel values in memory
_CANDIDATES = 5000  # with all of 20 000 points as candidates and two more passes, 18 % less error in six times the time
_LEAST_REACH = 1e-9  # share of k(z, z): points nearer to the span of others, squared, are not added
_MOST_ROUNDS = 50  # rounds of exchanges with equal weights
_JITTER = 1e-12  # share of k(z, z) added to the diagonal: about the rounding in a factor of a singular Gram matrix
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
    (50, 0.04985...)
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
    Cost      M²/2 kernel values once, in blocks. Memory: n·M numbers, and some 6·n for each candidate.
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
        fit = _Fit(kernel, points[seen], target[seen], squared_norm)
        found = fit.refined(np.searchsorted(seen, indices), times / n, PROBABILITIES, n)
        if kind == "signed":
            found = fit.refined(*found, ConvexSet(max(1.0, float(np.abs(weights).sum())), signed=True), n)
        indices, chosen = pad(seen[found[0]], found[1], n, weights)
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


class _Fit:
    """Weights on few of the candidates, near the mean that all have: by G, ½vᵀGv − vᵀt, t the target at the points."""

    def __init__(self, kernel: Kernel, points: Array, target: Array, squared_norm: float) -> None:
        self.kernel, self.points, self.target, self.squared_norm = kernel, points, target, squared_norm
        self.diagonal = kernel.diagonal(points)
        self._columns: dict[int, Array] = {}

    def refined(self, chosen: Array, weights: Array, allowed: ConvexSet, n: int) -> _Weighted:
        """At most n points and their weights, from those given."""
        best = self._fitted(chosen, weights, allowed)
        many = max(1, int(_GROW * n))
        for _ in range(_MOST_ATTEMPTS):
            self._columns = {i: self._columns[i] for i in best[0].tolist()}  # those of other attempts are not kept
            if not many or best[2] <= self._little(allowed):
                break
            found = self._fitted(*self._with_more(*best[:2], many, allowed.signed), allowed)
            while len(found[0]) > n:
                found = self._fitted(*self._without_least(*found[:2], n), allowed)
            if found[2] < (1 - _ENOUGH) * best[2]:
                best = found
            else:
                many //= 2
        return best[:2]

    def _rows(self, chosen: Array) -> Array:
        """k(z_i, ·) at all candidates, (|chosen|, M)."""
        new = [i for i in chosen.tolist() if i not in self._columns]
        self._columns |= dict(zip(new, self.kernel.gram(self.points[new], self.points), strict=True)) if new else {}
        return np.array([self._columns[i] for i in chosen.tolist()])

    def _fitted(self, chosen: Array, start: Array, allowed: ConvexSet) -> tuple[Array, Array, float]:
        """The points with their best weights, and the squared distance."""
        G, t = self._rows(chosen)[:, chosen], self.target[chosen]
        v = solve_quadratic(G, t, allowed, tolerance=self._little(allowed), start=start)
        return chosen, v, self.squared_norm + float(v @ (G @ v) - 2 * v @ t)

    def _little(self, allowed: ConvexSet) -> float:
        return _ROUNDING * float(self.diagonal.max()) * allowed.total**2

    def _with_more(self, chosen: Array, weights: Array, many: int, signed: bool) -> _Weighted:
        """And those of steepest descent, each after a step along those before it (a Newton basis: Müller & Schaback 2009)."""
        k, rows = len(chosen), self._rows(chosen)
        many, closed = min(many, len(self.points) - k), chosen.tolist()
        basis = np.zeros((k + many, len(self.points)))
        basis[:k] = solve_triangular(self._factor(chosen), rows, lower=True)
        descent, squared = self.target - weights @ rows, self.diagonal - np.einsum("ij,ij->j", basis[:k], basis[:k])
        for i in range(k, k + many):
            new = squared > _LEAST_REACH * self.diagonal
            new[closed] = False
            if not new.any():
                break
            reach = np.sqrt(np.where(new, squared, 1.0))
            best = int(np.argmax(np.where(new, (np.abs(descent) if signed else descent) / reach, -np.inf)))
            basis[i] = (self._rows(np.array([best]))[0] - basis[:i, best] @ basis[:i]) / reach[best]
            descent, squared = descent - descent[best] / reach[best] * basis[i], squared - basis[i] ** 2
            closed.append(best)
        return np.array(closed), np.append(weights, np.zeros(len(closed) - k))

    def _factor(self, chosen: Array) -> Array:
        G = self._rows(chosen)[:, chosen]
        return cholesky(G + _JITTER * float(self.diagonal.max()) * np.eye(len(chosen)), lower=True)

    def _without_least(self, chosen: Array, weights: Array, n: int) -> _Weighted:
        """Without a third of the points beyond n, or one: those whose loss costs least, v_i² / (G⁻¹)_ii."""
        inverse = solve_triangular(self._factor(chosen), np.eye(len(chosen)), lower=True)
        cost = weights**2 / np.einsum("ij,ij->j", inverse, inverse)
        kept = np.sort(np.argsort(cost, kind="stable")[max(1, (len(chosen) - n) // 3) :])
        return chosen[kept], weights[kept]
