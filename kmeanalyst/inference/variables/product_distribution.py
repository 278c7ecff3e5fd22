"""The joint distribution of several releases taken as independent: the product of their weighted points.

Up to some millions of combinations the product is taken whole; beyond, combinations are drawn. A statistic with derivative d(x, y)
by the weight of a combination has the influence Σ_j w_j d(z, y_j) on the first release (tutorials/derivations.md). Large weights of
both signs fit a kernel mean in their own kernel, but not behind a function of it: `check_bounded` warns of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from math import prod
from typing import Any

import numpy as np

from kmeanalyst.inference.estimate import population
from kmeanalyst.inference.estimate.error_model import IndependentErrors, Terms
from kmeanalyst.inference.estimate.estimate import INDEPENDENT
from kmeanalyst.inference.variables.nodes import Node, RowGrid, values_at
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import row_blocks
from kmeanalyst.releases.release import ReleaseData, View

MOST_COMBINATIONS = 4_000_000  # taken whole
DRAWN = 1_000_000  # combinations, where there are more
_N_OTHERS = 500  # combinations of the others at which an influence is averaged
MOST_MASS = 5.0  # Σ|w|; probabilities have 1, weights fitted with a bound at most 2


class UnboundedWeights(UserWarning):
    """Points were pushed through a function with weights that are not bounded.

    >>> frame = pd.DataFrame({"x": [0.0, 1.0, 2.0], "weight": [20.0, -18.0, -1.0]})
    >>> x = ka.from_frame(frame)["x"]
    >>> import warnings
    >>> warnings.simplefilter("error", ka.UnboundedWeights)  # refuse rather than warn
    >>> (x * x).mean()
    Traceback (most recent call last):
       ...
    kmeanalyst...UnboundedWeights: x * x is computed from weights with Σ|w| = 39, more than 5: ...
    """


def total_mass(weights: Sequence[Array]) -> float:
    return float(prod(np.abs(w).sum() for w in weights))


def check_bounded(weights: Sequence[Array], what: str) -> None:
    mass = total_mass(weights)
    if mass > MOST_MASS:
        warnings.warn(
            f"{what} is computed from weights with Σ|w| = {mass:.3g}, more than {MOST_MASS:g}: pushing points through a function "
            "is consistent only while Σ|w| is bounded (Simon-Gabriel et al. 2016, theorem 1), and weights that cancel in "
            'their own kernel need not cancel behind the function. Ask the variable\'s in_view("probability"), or publish '
            'with weights="bounded".',
            UnboundedWeights,
            stacklevel=5,
        )


@dataclass(frozen=True, eq=False)
class ProductDistribution(population.Distribution):
    """Weighted combinations of several releases' points, given a condition or not.

    factors     the releases' populations, in one view.
    grids       the combinations; then for each release all rows of its frame with combinations of the others' points.
    weights     (P,) of the combinations; given a condition they sum to one.
    others      for each release, the weights of the others' combinations.
    given       (n,) bool over the rows of all grids, whether the condition holds; None without one.
    """

    factors: tuple[population.Population, ...]
    grids: tuple[RowGrid, ...]
    weights: Array
    others: tuple[Array, ...] = field(repr=False)
    conditions: tuple[Node, ...] = ()
    condition: str = ""
    given: Array | None = None
    probability: float = 1.0

    @property
    def view(self) -> str:  # type: ignore[override]
        """ "probability" if every release's is, else "signed"."""
        return "probability" if all(factor.view == "probability" for factor in self.factors) else "signed"

    @cached_property
    def model(self) -> IndependentErrors:
        return IndependentErrors(tuple(factor.model for factor in self.factors), (INDEPENDENT, *self.drawing))

    @property
    def combinations(self) -> int:
        """The number of all combinations; `weights` has fewer if they were drawn."""
        return prod(len(factor.weights) for factor in self.factors)

    @property
    def drawing(self) -> tuple[str, ...]:
        if self.combinations <= MOST_COMBINATIONS:
            return ()
        error = total_mass([factor.weights for factor in self.factors]) / len(self.weights) ** 0.5
        return (
            f"{len(self.weights):,} of {self.combinations:,} combinations of points were drawn: the RKHS error of this is about "
            f"{error:.2g}, for a kernel with k(x, x) = 1",
        )

    def values(self, question: Node) -> Array:
        """A node's values at the combinations, then with each release's rows, finite at the combinations."""
        frames = {factor.release: factor.model.frame for factor in self.factors}
        values = np.concatenate([np.asarray(v, dtype=float) for v in values_at(question, frames, self.grids)])
        values[~np.isfinite(values)] = np.nan
        if self.given is not None:
            values[~self.given] = 0.0
        population.check_defined(values[: len(self.weights)], question.exclusion)
        return values

    def influence(self, derivative: Array) -> Array:
        """The influences on the releases, one below the other, from derivatives (n,) or (n, k) on all grids."""
        if derivative.ndim == 2:
            return np.column_stack([self.influence(column) for column in derivative.T])
        return self.features(derivative, lambda values: values[:, None])[1][:, 0]

    def features(self, values: Array, function: Callable[[Array], Array]) -> tuple[Array, Array]:
        n = len(self.weights)
        width = len(function(values[:1])[0])
        mean = sum(self.weights[block] @ function(values[:n][block]) for block in row_blocks(n, width))
        centre = np.zeros(width) if self.given is None else np.asarray(mean)
        parts, start = [], n
        for weights, factor in zip(self.others, self.factors, strict=True):
            q, length = len(weights), len(factor.model.frame)
            for block in row_blocks(length, q * width):
                rows = slice(start + block.start * q, start + block.stop * q)
                held = np.broadcast_to(weights, (block.stop - block.start, q))
                if self.given is not None:
                    held = held * self.given[rows].reshape(held.shape)
                some = function(values[rows]).reshape(*held.shape, width)
                parts.append((held[:, None, :] @ some)[:, 0] - held.sum(axis=1)[:, None] * centre)
            start += length * q
        return np.asarray(mean), np.vstack(parts) / self.probability

    def terms(self, influence: Array) -> Terms:
        return self.model.terms(influence)

    def infeasible(self, what: str, value: Callable[[Any], float]) -> str:
        """A note on an infeasible value; what the probability view gives in its place, unless combinations are drawn."""
        if self.drawing:
            return f'{what}: signed weights can give one. Ask the variable\'s in_view("probability").'
        try:
            feasible = joint_distribution([factor.release for factor in self.factors], self.conditions, "probability")
        except ValueError:
            feasible = None
        return population.infeasible_value(what, feasible, value)


def joint_distribution(
    releases: Sequence[ReleaseData], conditions: Sequence[Node], view: View | None, *, n_others: int = _N_OTHERS
) -> population.Distribution:
    """The distribution of one release, or the product of several, given conditions; ValueError where these have probability 0.

    n_others  combinations of the other releases' points, at most, that an influence on one is averaged over.
    """
    if len(releases) == 1:
        return population.population_of(releases[0], where=tuple(conditions), view=view)
    factors = tuple(population.population_of(release, view=view or population.released_view(release)) for release in releases)
    rng = np.random.default_rng(0)
    joint, weights = _combined(factors, MOST_COMBINATIONS, DRAWN, rng)
    grids, masses = [joint], []
    for factor in factors:
        others = tuple(other for other in factors if other is not factor)
        among, w = _combined(others, n_others, n_others, rng, flat=True)
        rows = {factor.release: np.arange(len(factor.model.frame)), **among.rows}
        grids.append(RowGrid(rows, {release: int(release is not factor.release) for release in rows}))
        masses.append(w)
    product = ProductDistribution(factors, tuple(grids), weights, tuple(masses))
    return _given(product, tuple(conditions)) if conditions else product


def _given(product: ProductDistribution, conditions: tuple[Node, ...]) -> ProductDistribution:
    held = [product.values(condition) for condition in conditions]
    n = len(product.weights)
    for values in held:
        population.check_condition(values[:n])
    given = np.logical_and.reduce([values == 1 for values in held])
    probability = population.positive_probability(float(product.weights @ given[:n]))
    weights = product.weights * given[:n] / probability
    text = " and ".join(map(population.shown, conditions))
    return replace(product, conditions=conditions, condition=text, given=given, probability=probability, weights=weights)


def _combined(
    factors: tuple[population.Population, ...], most: int, drawn: int, rng: np.random.Generator, *, flat: bool = False
) -> tuple[RowGrid, Array]:
    """All combinations of the points, or `drawn` of them where there are more than `most`, and their weights.

    flat   on one axis, those of weight 0 left out.
    """
    releases = [factor.release for factor in factors]
    if prod(len(factor.weights) for factor in factors) > most:
        points, each = zip(*(_resampled(factor.weights, drawn, rng) for factor in factors), strict=True)
        weights, flat = np.prod(each, axis=0) * float(drawn) ** (len(factors) - 1), True
    else:
        weights = reduce(np.multiply.outer, [factor.weights for factor in factors])
        points = np.nonzero(weights) if flat else tuple(np.arange(length) for length in weights.shape)
        weights = weights[points] if flat else weights.ravel()
    axes = [0] * len(releases) if flat else range(len(releases))
    return RowGrid(dict(zip(releases, points, strict=True)), dict(zip(releases, axes, strict=True))), weights


def _resampled(weights: Array, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """n positions, each point as often as |w| asks, in random order, and their weights: ±Σ|w|/n."""
    cumulative = np.cumsum(np.abs(weights))
    drawn = np.searchsorted(cumulative / cumulative[-1], (np.arange(n) + rng.random()) / n, side="right")
    drawn = rng.permutation(np.minimum(drawn, len(weights) - 1))
    return drawn, np.sign(weights[drawn]) * cumulative[-1] / n
