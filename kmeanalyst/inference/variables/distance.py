"""Distances of a random variable's distribution to others' and to samples, and the test of a sample.

Values are mapped to the kernel's features on some reference values. Each feature is a question, so its mean over the
releases' weighted points has an influence function on each release, and all of them have a joint covariance: privacy
noise, sampling and resolution. The test's statistic is the squared distance of two mean features; under the
hypothesis it is a weighted sum of χ², its coefficients the eigenvalues of that covariance and the sample's together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.estimate.population import Distribution, Population, estimate
from kmeanalyst.inference.estimate.statistic import Statistic
from kmeanalyst.inference.two_sample.result import TestResult, fields_about
from kmeanalyst.inference.variables.nodes import Node, number_node, values_at
from kmeanalyst.inference.variables.product_distribution import ProductDistribution
from kmeanalyst.inference.variables.reduced_points import default_kernel, gathered
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Kernel, KernelMean
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData

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


def mmd_to_sample(nodes: Nodes, embedding: KernelMean, sample: Any) -> float:
    """‖μ − mean k(sample, ·)‖; the errors of both sides make it larger than the populations' distance."""
    return embedding.distance(KernelMean(embedding.kernel, _rows(nodes, sample, least=1)))


def test_against_sample(
    distribution: Distribution, releases: tuple[ReleaseData, ...], nodes: Nodes, sample: Any, kernel: Kernel | None
) -> TestResult:
    """The noise-aware test of a sample of values against a variable's distribution.

    nodes    the variable's components.
    sample   (L,) or (L, d) finite values, L ≥ 2, independent of the releases' rows.
    kernel   by default the Gaussian of the variable's standard deviation, for each component.
    Returns  TestResult; mmd_squared is the squared distance less what noise, sampling and resolution make of it.
    """
    rows = _rows(nodes, sample, least=2)
    X, n = _values(distribution, nodes), len(distribution.weights)
    kernel = kernel or default_kernel(X[:n], distribution.weights)
    equal = np.full(len(rows), 1 / len(rows))
    features = _features(kernel, [_spread(X[:n], distribution.weights), _spread(rows, equal)])
    mean, influence = distribution.features(X, features)
    shown = features(rows)
    own = np.atleast_2d(np.cov(shown.T)) / len(rows)
    null = own + sum(part for part in distribution.model.covariance(influence).values() if part is not None)
    form, difference = NormalQuadraticForm(null), mean - shown.mean(axis=0)
    statistic, expected = float(difference @ difference), float(form.coefficients.sum())
    return TestResult(
        statistic=statistic,
        pvalue=form.sf(statistic),
        mmd_squared=statistic - expected,
        method="noise-aware MMD, random variable against sample",
        n_release_points=n,
        n_sample_rows=len(rows),
        noise_floor=float(np.sqrt(expected)),
        mmd_interval=form.interval(difference),
        detectable_mmd=form.detectable(np.diag(own)),
        notes=(*distribution.model.notes, *_guarantees(releases)),
        **fields_about(releases),
    )


def _guarantees(releases: tuple[ReleaseData, ...]) -> list[str]:
    """The privacy guarantees of several releases, as notes; that of a single one is in fields."""
    each = [release.statement for release in releases if release.statement is not None] if len(releases) > 1 else []
    return [f"a release of {p.n_rows:,} {p.counted} at {p.claim}" for p in each]


def _names(nodes: Nodes) -> str:
    return ", ".join(node.text for node in nodes)


def _values(distribution: Distribution, nodes: Nodes) -> Array:
    """(n, d) the components at the distribution's points, then at its other rows."""
    return np.column_stack([distribution.values(number_node(node)) for node in nodes])


def _rows(nodes: Nodes, sample: Any, least: int) -> Array:
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
