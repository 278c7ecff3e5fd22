"""Room 3: from the noisy margins of a table to rows, by latent class models (Lazarsfeld & Henry 1968).

A latent class says: given a class, the columns are independent, each cell with a probability of its own. A few dozen
classes for each value of the target have the pair tables Σ_k w_k p_ki p_kj in closed form, so that thousands of noisy
margins are fitted at once, with exact gradients and the noise's known law: the maximum a posteriori under normal
priors on the logits. The fit has many optima of much the same height, so several are found from different starts and
averaged; rows are then drawn evenly from all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.margins import Group, MarginFeatures
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.columns import Categorical, Number
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.progress import Progress, silent

_CLASSES = 40  # of one fit, over all values of the target
_FEWEST_CLASSES = 4  # for one value of the target
_FITS = 8
_STEPS = 600  # of L-BFGS
_DEVIATION = 1.0  # prior standard deviation of the logits: of a column's cells, of what a class adds to them
_SPREAD = 0.5  # of the logits that a fit starts from
_TRIES = 50  # for a value in a range
_SMALLEST = 3e-4  # a noisy share below it starts from there


@dataclass(frozen=True)
class LatentClasses:
    """Σ_k w_k Π_j p_kj over the cells of a table's columns.

    weights        (K,) of the classes.
    probabilities  (K, T) of the cells of all columns, one block after the other; each block adds up to 1.
    """

    weights: Array
    probabilities: Array


def fit_latent_classes(
    measurement: Measurement, rng: np.random.Generator | int | None = None, progress: Progress | None = None
) -> LatentClasses:
    """The average of several fits to noisy margins (of MarginFeatures), as one model; its classes are those of all."""
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    rng, told = np.random.default_rng(rng), progress or silent
    search = _Search(features, measurement.vector, measurement.noise_scale)
    found = []
    with threadpool_limits(limits=1, user_api="blas"):
        for i in range(_FITS):
            found.append(search.fitted(rng))
            told("fitting latent classes", (i + 1) / _FITS)
    return LatentClasses(
        np.concatenate([model.weights for model in found]) / _FITS, np.vstack([model.probabilities for model in found])
    )


@dataclass(frozen=True)
class _Observed:
    """One group of tables as shares of the rows: `values` (..., T) or (..., T, T), of standard deviation `noise` each."""

    values: Array
    noise: float


class _Search:
    """min over latent classes of ½ Σ (fitted − noisy margin)²/noise² − log prior, y the target's cell of a class."""

    def __init__(self, features: MarginFeatures, vector: Array, noise_scale: float) -> None:
        kernel = features.kernel
        self.target = kernel.target
        sizes = np.array(kernel.sizes)[list(kernel.others)]
        ends = np.concatenate([[0], np.cumsum(sizes)])
        self.blocks = [slice(a, b) for a, b in pairwise(ends)]
        self.width = int(ends[-1])
        self.values = kernel.sizes[self.target] if self.target >= 0 else 1
        self.each = max(_FEWEST_CLASSES, _CLASSES // self.values)
        self.before = sum(kernel.sizes[: max(self.target, 0)])  # cells of the columns before the target
        self.upper = _in_pair_order(sizes, ends)
        self.alone: _Observed | None = None
        self.crossed: _Observed | None = None
        self.pairs: _Observed | None = None
        self.crossed_pairs: _Observed | None = None
        self.of_target: _Observed | None = None
        for group in features.groups:
            self._observe(group, vector[group.start : group.stop] / group.height, noise_scale / group.height)

    def _observe(self, group: Group, shares: Array, noise: float) -> None:
        shares = shares.reshape(group.crossed, group.length)
        if len(group.tables[0]) == 1 and group.target < 0:
            own = np.zeros(group.length, dtype=bool)
            if self.target >= 0:
                own[self.before : self.before + self.values] = True
                self.of_target = _Observed(shares[0, own], noise)
            self.alone = _Observed(shares[0, ~own], noise)
        elif len(group.tables[0]) == 1:
            self.crossed = _Observed(shares, noise)
        elif group.target < 0:
            self.pairs = _Observed(shares[0], noise)
        else:
            self.crossed_pairs = _Observed(shares, noise)

    def fitted(self, rng: np.random.Generator) -> LatentClasses:
        """A local optimum near a random start."""
        n = self.values * self.each
        start = np.concatenate(
            [np.zeros(n), self._common_start(), np.zeros(self.values * self.width),
             _SPREAD * rng.standard_normal(n * self.width)]
        )  # fmt: skip
        options = {"maxiter": _STEPS, "maxcor": 20}
        found = minimize(self.objective, start, jac=True, method="L-BFGS-B", options=options).x
        weights, common, by_value, own = self._split(found)
        inside = [self._probabilities(own[y] + common + by_value[y]) for y in range(self.values)]
        return LatentClasses(weights.ravel(), self._with_target(inside))

    def _common_start(self) -> Array:
        """Logits (T,) of the noisy one-way tables, or even ones."""
        if self.alone is not None:
            shares = self.alone.values
        elif self.crossed is not None:
            shares = self.crossed.values.sum(axis=0)
        else:
            return np.zeros(self.width)
        logits = np.log(np.maximum(shares, _SMALLEST))
        return np.concatenate([logits[block] - logits[block].mean() for block in self.blocks])

    def _split(self, flat: Array) -> tuple[Array, Array, Array, Array]:
        """Weights (Y, K), and logits: common (T,), of the target's values (Y, T), of the classes (Y, K, T)."""
        n, T = self.values * self.each, self.width
        weights = softmax(flat[:n]).reshape(self.values, self.each)
        common, rest = flat[n : n + T], flat[n + T :]
        by_value = rest[: self.values * T].reshape(self.values, T)
        return weights, common, by_value, rest[self.values * T :].reshape(self.values, self.each, T)

    def _probabilities(self, logits: Array) -> Array:
        return np.hstack([softmax(logits[:, block], axis=1) for block in self.blocks])

    def _with_target(self, inside: list[Array]) -> Array:
        """(Y·K, all cells): the target's block put where its column is."""
        stacked = np.vstack(inside)
        if self.target < 0:
            return stacked
        block = np.repeat(np.eye(self.values), self.each, axis=0)
        return np.hstack([stacked[:, : self.before], block, stacked[:, self.before :]])

    def objective(self, flat: Array) -> tuple[float, Array]:
        """Its value and its slope."""
        weights, common, by_value, own = self._split(flat)
        p = [self._probabilities(own[y] + common + by_value[y]) for y in range(self.values)]
        ones = np.array([weights[y] @ p[y] for y in range(self.values)])
        twos = [p[y].T @ (weights[y][:, None] * p[y]) for y in range(self.values)]
        loss, slope_ones, slope_twos, slope_target = self._misfit(weights.sum(axis=1), ones, twos)
        by_weight, by_logit = np.empty_like(weights), np.empty_like(own)
        for y in range(self.values):
            along = p[y] @ slope_twos[y]
            by_weight[y] = 0.5 * np.einsum("kt,kt->k", along, p[y]) + p[y] @ slope_ones[y] + slope_target[y]
            pull = p[y] * weights[y][:, None] * (along + slope_ones[y])
            for block in self.blocks:
                total = pull[:, block].sum(axis=1, keepdims=True)
                by_logit[y][:, block] = pull[:, block] - p[y][:, block] * total
        by_weight = weights * (by_weight - (weights * by_weight).sum())
        precision = _DEVIATION**-2
        prior = sum(float((a**2).sum()) for a in (common, by_value, own))
        slopes = [
            by_weight.ravel(), by_logit.sum(axis=(0, 1)) + precision * common,
            (by_logit.sum(axis=1) + precision * by_value).ravel(), (by_logit + precision * own).ravel(),
        ]  # fmt: skip
        return loss + 0.5 * precision * prior, np.concatenate(slopes)

    def _misfit(self, target: Array, ones: Array, twos: list[Array]) -> tuple[float, Array, list[Array], Array]:
        """½ Σ (margin − noisy)²/noise², and its slopes in `ones` (Y, T), `twos` (symmetric, per Y) and `target` (Y,)."""
        loss = 0.0
        slope_ones, slope_target = np.zeros_like(ones), np.zeros(self.values)
        slope_pairs = np.zeros((self.values, len(self.upper[0])))
        paired = np.array([matrix[self.upper] for matrix in twos])
        for observed, fitted, slope in (
            (self.alone, ones.sum(axis=0), slope_ones), (self.crossed, ones, slope_ones),
            (self.pairs, paired.sum(axis=0), slope_pairs), (self.crossed_pairs, paired, slope_pairs),
            (self.of_target, target, slope_target),
        ):  # fmt: skip
            if observed is not None:
                residual = (fitted - observed.values) / observed.noise
                loss += 0.5 * float((residual**2).sum())
                slope += residual / observed.noise
        matrices = []
        for y in range(self.values):
            matrix = np.zeros((self.width, self.width))
            matrix[self.upper] = slope_pairs[y]
            matrices.append(matrix + matrix.T)
        return loss, slope_ones, matrices, slope_target


def _in_pair_order(sizes: Array, ends: Array) -> tuple[Array, Array]:
    """Rows and columns, in a (T, T) matrix, of the features of a group of pairs."""
    rows, columns = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for i in range(len(sizes)):
        for j in range(i + 1, len(sizes)):
            first, second = np.indices((sizes[i], sizes[j])).reshape(2, -1)
            rows.append(ends[i] + first)
            columns.append(ends[j] + second)
    return np.concatenate(rows), np.concatenate(columns)


def draw_rows(model: LatentClasses, kernel: Margins, domain: Domain, n: int, rng: np.random.Generator) -> Array:
    """n encoded rows (n, d), spread evenly over classes and, within a class, over the cells of every column."""
    ends = np.cumsum(model.weights / model.weights.sum()) * n
    counts = np.diff(np.minimum(np.floor(ends + rng.random()).astype(int), n), prepend=0)
    counts[-1] += n - counts.sum()
    starts = np.concatenate([[0], np.cumsum(kernel.sizes)])
    cells = np.empty((n, len(domain)), dtype=np.intp)
    begin = 0
    for k in np.flatnonzero(counts):
        m = counts[k]
        for j in range(len(domain)):
            chances = np.cumsum(model.probabilities[k, starts[j] : starts[j + 1]])
            even = (np.arange(m) + rng.random()) / m
            drawn = np.minimum(np.searchsorted(chances, even * chances[-1]), len(chances) - 1)
            cells[begin : begin + m, j] = rng.permutation(drawn)
        begin += m
    return np.column_stack([_values(kernel, domain, j, cells[:, j], rng) for j in range(len(domain))])


def _values(kernel: Margins, domain: Domain, j: int, cells: Array, rng: np.random.Generator) -> Array:
    """An encoded value in each cell of column j: a level, an atom, a missing cell, or any value of a range."""
    column, edges, atoms = domain.columns[j], kernel.edges[j], kernel.atoms[j]
    ranges = len(edges) + 1
    special = np.concatenate([np.zeros(ranges), atoms, [np.nan] * kernel.missing[j]])
    if isinstance(column, Categorical):
        return np.where(cells < ranges, cells, special[cells])
    assert isinstance(column, Number)
    low, high = column.ends
    within = np.minimum(cells, len(edges))
    below, above = np.concatenate([[low], edges])[within], np.concatenate([edges, [high]])[within]
    return np.where(cells < ranges, inside(column, below, above, np.array(atoms), rng), special[cells])


def inside(column: Number, below: Array, above: Array, atoms: Array, rng: np.random.Generator) -> Array:
    """A value of the column in each range [below, above) that is no atom, by rejection; any, where there is none."""
    drawn = column.rounded(rng.uniform(below, above))
    for _ in range(_TRIES):
        wrong = (drawn < below) | (drawn > above) | np.isin(drawn, atoms)
        if not wrong.any():
            break
        drawn[wrong] = column.rounded(rng.uniform(below[wrong], above[wrong]))
    return drawn
