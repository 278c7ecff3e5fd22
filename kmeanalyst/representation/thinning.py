"""Fewer points for the same embedding: n points with weights v whose Σ v_i k(z_i, ·) is near μ = Σ w_m k(z_m, ·). Post-processing.

    uniform       v = 1/n                herding (Chen, Welling & Smola 2010), then exchanges until none helps
    probability   v ≥ 0, Σ v = 1         orthogonal matching pursuit (f/P-greedy: Müller & Schaback 2009), then all weights fitted
    signed        Σ|v| ≤ max(1, Σ|w|)    likewise, with this bound

In the last two, points of small weight are then replaced by a further pursuit, fewer at a time, where that helps. Each kind also
fits the points of the one before it, so that a kind with more freedom is never further away.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

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
_MOST_PASSES = 12
_ENOUGH = 1e-3  # a smaller share of the squared distance is no gain
MOST_STEPS = 300_000_000_000  # steps of the kernel: 50 000 distinct points of 20 columns take 2.7·10¹¹
MOST_NUMBERS = 250_000_000  # n × distinct points: kernel values in memory
_CANDIDATES = 5000
_LEAST_REACH = 1e-9  # share of k(z, z): points nearer to the span of others, squared, are not chosen
_MOST_ROUNDS = 50  # rounds of exchanges with equal weights
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
    (50, 0.0470...)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or not 1 <= n <= len(release):
        raise ValueError(
            f"n must be a whole number from 1 to {len(release)}, got {n!r:.80}: the thinned release has n of the "
            f"{len(release)} points. Pass how many to keep."
        )
    encoded = release.encoded_points
    if not _unchanged(release.weights, n, weights):
        _check_work(release.kernel, len(np.unique(encoded, axis=0)), encoded.shape[1], int(n))
    indices, chosen, error = thinned(release.kernel, encoded, release.weights, int(n), weights, rng=rng)
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
    kernel: Kernel, points: Array, weights: Array, n: int, kind: ThinWeights, *, rng: np.random.Generator | int | None = 0
) -> tuple[Array, Array, float]:
    """n of the points (M, d), encoded, with new weights, whose embedding is as near as possible to that of all with `weights` (M,).

    kind      "uniform", "probability" or "signed", as above.
    rng       draws the candidates, if there are more than max(5000, 4n) points and weights are refitted.
    Returns   indices (n,) ascending, their weights (n,), and the RKHS distance between the two embeddings, to about 1e-8 of
              √k(z, z)·Σ|w|.

    If fewer than n points give an error of zero, the others have weight zero; with equal weights a point may occur several times.
    Cost      M²/2 kernel values once, in blocks. Memory: n·M numbers, and some 4·n for each candidate.
    """
    if kind not in THIN_WEIGHTS:
        raise ValueError(
            f"weights must be probability, uniform or signed, got {kind!r:.80}: a thinned release has weights of one of "
            "these kinds. Name one."
        )
    if _unchanged(weights, n, kind):
        return np.arange(n), weights, 0.0
    _, first, which = np.unique(points + 0.0, axis=0, return_index=True, return_inverse=True)  # -0.0 is 0.0
    points, merged = points[first], np.bincount(which.reshape(-1), weights)
    target = mean_at_points(kernel, points, merged)
    squared_norm = float(merged @ target)
    chosen, fitted = herd(kernel, points, target, n), np.full(n, 1 / n)
    if kind != "uniform":
        seen = candidate_indices(merged, n, chosen, np.random.default_rng(rng))
        found = np.searchsorted(seen, np.unique(chosen))
        sets = (PROBABILITIES, ConvexSet(max(1.0, float(np.abs(weights).sum())), signed=True))
        for allowed in sets[: THIN_WEIGHTS.index(kind)]:
            found, fitted = refitted(kernel, points[seen], target[seen], squared_norm, found, allowed, min(n, len(points)))
        chosen = seen[found]
    squared = squared_norm - 2 * fitted @ target[chosen] + fitted @ mean_at_points(kernel, points[chosen], fitted)
    error = math.sqrt(max(0.0, float(squared)))
    if kind == "uniform":
        return np.sort(first[chosen]), fitted, error
    full = np.bincount(first[chosen], fitted, len(weights))
    indices = np.sort(np.lexsort((-np.abs(weights), full == 0))[:n])  # the heaviest others have weight zero
    return indices, full[indices], error


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


def _unchanged(weights: Array, n: int, kind: ThinWeights) -> bool:
    if n != len(weights) or kind == "signed":
        return n == len(weights)
    if kind == "uniform":
        return bool(np.allclose(weights, 1 / n, rtol=1e-12, atol=0))
    return bool(weights.min() >= 0 and abs(weights.sum() - 1) < 1e-9)


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


def refitted(
    kernel: Kernel, points: Array, target: Array, squared_norm: float, chosen: Array, allowed: ConvexSet, n: int
) -> tuple[Array, Array]:
    """At most n of the points (M, d) and their weights: the best on those given, or on what passes of `pursue` find nearer.

    The first pass starts from no point, later ones from the heaviest n/2, 3n/4, …: each of these as long as it helps.
    """
    little = _ROUNDING * float(kernel.diagonal(points).max()) * allowed.total**2
    rows = dict(zip(chosen.tolist(), kernel.gram(points[chosen], points), strict=True))

    def fitted(chosen: Array) -> tuple[Array, Array, float]:
        G, t = np.array([rows[i][chosen] for i in chosen.tolist()]), target[chosen]
        v = solve_quadratic(G, t, allowed, tolerance=little)
        return chosen, v, squared_norm + float(v @ (G @ v) - 2 * v @ t)

    best, replaced = fitted(chosen), n
    for _ in range(_MOST_PASSES):
        if not replaced or best[2] <= little:
            break
        heaviest = best[0][np.argsort(-np.abs(best[1]), kind="stable")]
        kept = heaviest[: min(n - replaced, np.count_nonzero(best[1]))]
        found = fitted(pursue(kernel, points, target, kept, n, allowed.signed, rows))
        helps = found[2] < (1 - _ENOUGH) * best[2]
        best = found if helps else best
        replaced //= 1 if helps and replaced < n else 2
        rows = {i: rows[i] for i in best[0].tolist()}  # those of other passes are not kept
    return best[:2]


def pursue(kernel: Kernel, points: Array, target: Array, kept: Array, n: int, signed: bool, rows: dict[int, Array]) -> Array:
    """Indices of the kept points and of others, n in all: each of steepest descent after the best step along those before it.

    The residual is in a Newton basis (Müller & Schaback 2009). rows: k(z_i, ·) at all points, by i; new ones are added.
    """
    diagonal = kernel.diagonal(points)
    basis = np.zeros((n, len(points)))
    descent, squared = target, diagonal  # squared: distances to the span of the chosen points
    chosen: list[int] = []
    for i in range(n):
        new = squared > _LEAST_REACH * diagonal
        new[chosen] = False
        if not new.any():
            break
        reach = np.sqrt(np.where(new, squared, 1.0))
        gain = (np.abs(descent) if signed else descent) / reach
        gain[kept] = np.inf
        best = int(np.argmax(np.where(new, gain, -np.inf)))
        if best not in rows:
            rows[best] = kernel.gram(points[best, None], points)[0]
        basis[i] = (rows[best] - basis[:i, best] @ basis[:i]) / reach[best]
        descent, squared = descent - descent[best] / reach[best] * basis[i], squared - basis[i] ** 2
        chosen.append(best)
    return np.array(chosen)
