"""Weighted values of a random variable: their distances to others' and to samples, the test of a sample, fewer of them.

The test's statistic is the squared distance of two mean features of a kernel; under the hypothesis it is a weighted sum of χ², its
coefficients the eigenvalues of their joint covariance. Derivation: tutorials/derivations.md.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import joined
from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import Distribution, Population, estimate
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.two_sample.result import TestResult, fields_about
from kmeanalyst.inference.variables.nodes import Node, number_node, values_at
from kmeanalyst.inference.variables.product_distribution import ProductDistribution
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Gaussian, Kernel, KernelMean, OnColumns, Product
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.thinning import ThinWeights, thinned

Nodes = tuple[Node, ...]

_REFERENCE = 40  # values of each side that features are taken from
_LEAST = 1e-8  # share of the largest eigenvalue: smaller ones are rounding errors
N_OTHERS = 100  # combinations of other releases at which a feature's influence is averaged


def at_points(distribution: Distribution, node: Node) -> Array:
    """A node's values at the distribution's points, levels and missing cells as they are."""
    if isinstance(distribution, Population):
        return np.asarray(node(distribution.model.frame.iloc[: len(distribution.weights)]))
    assert isinstance(distribution, ProductDistribution)
    frames = {factor.release: factor.model.frame for factor in distribution.factors}
    return next(values_at(node, frames, distribution.grids[:1]))


def distance(distribution: Distribution, one: Nodes, other: Nodes, kernel: Kernel | None) -> Estimate:
    """‖μ − ν‖ of two variables' distributions in the RKHS of the kernel, with its error to first order.

    distribution          of the releases that both depend on.
    one, other   the components of each.
    kernel       by default the Gaussian of the first variable's standard deviation.
    Edge         the influence is that of the distance's direction, and the error unknown where the distributions are one.
    """
    if len(one) != len(other):
        raise ValueError(
            f"distributions of {len(one)} and {len(other)} components are in different spaces. Compare the same number of "
            "components."
        )
    X, Y, n = _values(distribution, one), _values(distribution, other), len(distribution.weights)
    kernel = kernel or default_kernel(X[:n], distribution.weights)
    first, second = (gathered(Z[:n], distribution.weights, kernel, ()).embedding for Z in (X, Y))
    value, text = first.distance(second), f"distance({_names(one)}; {_names(other)})"
    features = _features(kernel, [_spread(X[:n], distribution.weights), _spread(Y[:n], distribution.weights)])
    (m, h), (k, g) = distribution.features(X, features), distribution.features(Y, features)
    difference = m - k
    if not difference.any():
        note = "the released points have one distribution, and a distance has no first-order error at 0: the error is not known"
        return estimate(distribution, Statistic(0.0, None, question=text, notes=(note,)))
    return estimate(distribution, Statistic(value, (h - g) @ (difference / np.linalg.norm(difference)), question=text))


def test_against_sample(
    distribution: Distribution, releases: tuple[ReleaseData, ...], nodes: Nodes, sample: Any, kernel: Kernel | None
) -> TestResult:
    """The noise-aware test of a sample of values against a variable's distribution.

    nodes    the variable's components.
    sample   (L,) or (L, d) finite values, L ≥ 2, independent of the releases' rows.
    kernel   by default the Gaussian of the variable's standard deviation, for each component.
    Returns  TestResult; mmd_squared is the squared distance less what noise, sampling and resolution make of it.
    """
    rows = sample_rows(nodes, sample, least=2)
    X, n = _values(distribution, nodes), len(distribution.weights)
    kernel = kernel or default_kernel(X[:n], distribution.weights)
    equal = np.full(len(rows), 1 / len(rows))
    features = _features(kernel, [_spread(X[:n], distribution.weights), _spread(rows, equal)])
    mean, influence = distribution.features(X, features)
    shown = features(rows)
    own = np.atleast_2d(np.cov(shown.T)) / len(rows)
    null = own + joined(distribution.model.covariance(influence))
    form, difference = NormalQuadraticForm(null), mean - shown.mean(axis=0)
    statistic, expected = float(difference @ difference), float(form.coefficients.sum())
    guarantees = [
        f"a release of {one.statement.n_rows:,} {one.statement.counted} at {one.statement.claim}"
        for one in releases if one.statement is not None and len(releases) > 1
    ]  # fmt: skip
    return TestResult(
        statistic=statistic, pvalue=form.sf(statistic), mmd_squared=statistic - expected,
        method="noise-aware MMD, random variable against sample", n_release_points=n, n_sample_rows=len(rows),
        noise_floor=float(np.sqrt(expected)), mmd_interval=form.interval(difference),
        detectable_mmd=form.detectable(np.diag(own)), notes=(*distribution.model.notes, *guarantees), **fields_about(releases),
    )  # fmt: skip


def _names(nodes: Nodes) -> str:
    return ", ".join(node.text for node in nodes)


def _values(distribution: Distribution, nodes: Nodes) -> Array:
    """(n, d) the components at the distribution's points, then at its other rows."""
    return np.column_stack([distribution.values(number_node(node)) for node in nodes])


def sample_rows(nodes: Nodes, sample: Any, least: int) -> Array:
    for node in nodes:
        number_node(node)
    try:
        rows = np.asarray(sample, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"the sample must hold numbers, got {sample!r:.80}: it is compared with the values of {_names(nodes)}. "
            "Pass f of the sample's own rows."
        ) from None
    rows = rows[:, None] if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != len(nodes) or len(rows) < least or not np.isfinite(rows).all():
        raise ValueError(
            f"the sample must hold at least {least} finite values, or rows of {len(nodes)}, got shape {rows.shape}: "
            f"it is compared with the values of {_names(nodes)}. Pass f of the sample's own rows."
        )
    return rows


def _spread(values: Array, weights: Array) -> Array:
    """Some of the values (n, d), spread over their mass along the first component."""
    order = np.argsort(values[:, 0], kind="stable")
    cumulative = np.cumsum(np.abs(weights[order]))
    levels = (np.arange(_REFERENCE) + 0.5) / _REFERENCE * cumulative[-1]
    return values[order[np.minimum(np.searchsorted(cumulative, levels), len(order) - 1)]]


def _features(kernel: Kernel, references: list[Array]) -> Callable[[Array], Array]:
    """The kernel's features (m, k) of values (m,) or (m, d) in the span of the reference values."""
    reference = np.unique(np.vstack(references), axis=0)
    eigenvalues, vectors = np.linalg.eigh(kernel.gram(reference, reference))
    keep = eigenvalues > _LEAST * eigenvalues.max()
    projection = vectors[:, keep] / np.sqrt(eigenvalues[keep])
    return lambda values: kernel.gram(values.reshape(len(values), -1), reference) @ projection


_CELLS = 4096


@dataclass(frozen=True, eq=False)
class ReducedPoints:
    """Weighted values that stand for the distribution of a random variable.

    values      (m, d).
    weights     (m,), Σ|w| at most that of the distribution, or 1 if that is more.
    names       (d,) of the components.
    kernel      in whose RKHS the error is.
    rkhs_error  distance of the embedding to that of all `stands_for` weighted values: that of the cells' means, computed,
                plus the error of replacing a cell by its mean, to second order.
    stands_for  how many values there were.

    >>> few = release["age"].thin(10)
    >>> few.values.shape, few.stands_for, few.embedding.squared_norm() > 0
    ((10, 1), 16000, True)
    """

    values: Array
    weights: Array
    names: tuple[str, ...]
    kernel: Kernel
    rkhs_error: float
    stands_for: int

    def __len__(self) -> int:
        """m, the number of points."""
        return len(self.weights)

    @property
    def embedding(self) -> KernelMean:
        return KernelMean(self.kernel, self.values, self.weights)

    def to_frame(self) -> pd.DataFrame:
        """A column for each component, and "weight".

        >>> release["age"].thin(10).to_frame().columns.tolist()
        ['age', 'weight']
        """
        return pd.DataFrame(self.values, columns=list(self.names)).assign(weight=self.weights)

    def __repr__(self) -> str:
        return (
            f"{', '.join(self.names)}: {len(self):,} points for {self.stands_for:,} (RKHS error {self.rkhs_error:.2g}, "
            f"Σ|w| = {np.abs(self.weights).sum():.3g})"
        )


def default_kernel(values: Array, weights: Array) -> Kernel:
    """Gaussian with the values' standard deviation as lengthscale; the product of such kernels for several components."""
    p = np.abs(weights) / np.abs(weights).sum()
    spread = np.sqrt(p @ (values - p @ values) ** 2)
    each = [Gaussian(float(sd) if sd > 0 else 1.0) for sd in spread]
    return each[0] if len(each) == 1 else Product(tuple(OnColumns(k, (j,)) for j, k in enumerate(each)))


def gathered(values: Array, weights: Array, kernel: Kernel, names: tuple[str, ...]) -> ReducedPoints:
    """At most some thousand weighted values for all (m, d): as they are if these are no more."""
    used = weights != 0
    if used.sum() <= _CELLS:
        return ReducedPoints(values[used], weights[used], names, kernel, 0.0, len(values))
    centres, masses, error = [], [], 0.0
    share = np.abs(weights[weights < 0]).sum() / np.abs(weights).sum()
    for side, cells in ((weights > 0, round(_CELLS * (1 - share))), (weights < 0, round(_CELLS * share))):
        if side.any():
            X, w = values[side], np.abs(weights[side])
            means, mass, spread = _cells(X, w, max(cells, 1))
            sign = 1.0 if weights[side][0] > 0 else -1.0
            centres.append(means)
            masses.append(sign * mass)
            error += _replacement_error(kernel, means, mass, spread)
    return ReducedPoints(np.vstack(centres), np.concatenate(masses), names, kernel, error, len(values))


def reduced(points: ReducedPoints, n: int, kind: ThinWeights) -> ReducedPoints:
    """At most n of the points with new weights, bounded by the old ones' Σ|w|; see `thinned`."""
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a whole number of at least 1, got {n!r:.80}: it is how many points to keep.")
    if n >= len(points):
        return points
    chosen, weights, error = thinned(points.kernel, points.values, points.weights, int(n), kind)
    used = weights != 0
    return ReducedPoints(
        points.values[chosen[used]], weights[used], points.names, points.kernel, points.rkhs_error + error,
        points.stands_for,
    )  # fmt: skip


def _cells(X: Array, w: Array, most: int) -> tuple[Array, Array, Array]:
    """Means (c, d), masses (c,) and standard deviations (c, d) of c ≤ most cells of points (m, d) of positive weights.

    The cell of the largest Σ w‖x − mean‖², in units of the points' spread, is split at its mean.
    """
    scale = np.sqrt(np.maximum((w @ (X - w @ X / w.sum()) ** 2) / w.sum(), 1e-300))
    waiting: list[tuple[float, int, Array]] = []

    def add(rows: Array, number: int) -> None:
        mass = float(w[rows].sum())
        mean = w[rows] @ X[rows] / mass
        variance = w[rows] @ (X[rows] - mean) ** 2 / mass
        cells[number] = mean, mass, variance
        heapq.heappush(waiting, (-mass * float((variance / scale**2).sum()), number, rows))

    cells: dict[int, tuple[Array, float, Array]] = {}
    add(np.arange(len(X)), 0)
    number = 0
    while waiting and len(cells) < most:
        priority, cell, rows = heapq.heappop(waiting)
        mean, _, variance = cells[cell]
        widest = int(np.argmax(variance / scale**2))
        lower = X[rows, widest] <= mean[widest]
        if priority == 0 or lower.all() or not lower.any():  # of one value, to rounding
            continue
        del cells[cell]
        add(rows[lower], number + 1)
        add(rows[~lower], number + 2)
        number += 2
    means, masses, variances = zip(*cells.values(), strict=True)
    return np.array(means), np.array(masses), np.sqrt(np.array(variances))


def _replacement_error(kernel: Kernel, means: Array, masses: Array, spread: Array) -> float:
    """Σ over cells and components of the mass times ‖½k(c + s, ·) + ½k(c − s, ·) − k(c, ·)‖, s the standard deviation."""
    total = 0.0
    v = np.array([0.5, 0.5, -1.0])
    for j in range(means.shape[1]):
        for c, s, mass in zip(means, spread[:, j], masses, strict=True):
            three = np.vstack([c, c, c])
            three[:2, j] += s, -s
            total += mass * float(np.sqrt(max(v @ kernel.gram(three, three) @ v, 0.0)))
    return total
