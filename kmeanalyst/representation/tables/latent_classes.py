"""From the noisy margins of a table to rows, by latent class models (Lazarsfeld & Henry 1968).

A few dozen classes for each value of the target have the pair tables Σ_k w_k p_ki p_kj: thousands of noisy margins are fitted at
once, the maximum a posteriori under normal priors on the logits, from several starts, whose optima are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.within_cells import block_slope_in_logits, block_softmax, draw_evenly
from kmeanalyst.representation.wanted import FULL, Effort

_CLASSES = 60  # classes of one fit, over all values of the target
_FEWEST_CLASSES = 4  # classes for one value of the target
_FITS = 8
_STEPS = 600  # steps of L-BFGS
_MEMORY = 20  # steps that L-BFGS remembers
_DEVIATION = 1.0  # prior standard deviation of each part of the logits
_SPREAD = 1.0  # standard deviation of the starting logits
# the optimiser's scales for the logits of weights, those common to all classes, those of a target's value and those of a
# class: many classes share the former, so the objective is steeper in them
_SCALES = (0.3, 0.1, 0.2, 1.0)
_SMALLEST = 3e-4  # smallest share that a fit starts from


@dataclass(frozen=True)
class LatentClasses:
    """Σ_k w_k Π_j p_kj over the cells of a table's columns.

    weights        (K,) of the classes.
    probabilities  (K, T) of the cells of all columns, one block per column; each block sums to 1.
    """

    weights: Array
    probabilities: Array


def fit_latent_classes(
    measurement: Measurement,
    rng: np.random.Generator | int | None = None,
    *,
    effort: Effort = FULL,
    progress: Progress = silent,
) -> LatentClasses:
    """The average of several fits to noisy margins, of all pairs of columns, as one model with the classes of all fits."""
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    return fit_classes_to(features.kernel, observed_margins(measurement), rng, effort=effort, progress=progress)


def fit_classes_to(
    kernel: Margins, observed: dict[str, ObservedShares], rng: np.random.Generator | int | None = None, *,
    classes: int = _CLASSES, deviation: float = _DEVIATION, effort: Effort = FULL, progress: Progress = silent,
) -> LatentClasses:  # fmt: skip
    """The same for noisy shares of the cells of this kernel, by the kind of their tables.

    classes, deviation   of one fit, over all values of the target; the prior standard deviation of each part of the logits.
    """
    rng = np.random.default_rng(rng)
    search = _Search(kernel, observed, classes, deviation, effort)
    found, fits = [], effort.of(_FITS)
    with threadpool_limits(limits=1, user_api="blas"):
        for i in range(fits):
            found.append(search.fit(rng))
            progress("fitting latent classes", (i + 1) / fits)
    weights = np.concatenate([model.weights / len(found) for model in found])
    return LatentClasses(weights, np.vstack([model.probabilities for model in found]))


@dataclass(frozen=True)
class ObservedShares:
    """Tables of one kind as shares of the rows, each with noise of a standard deviation.

    values   (..., T), or (..., T, T) for pairs, each pair twice.
    noise    of all cells, or of each; infinite where nothing was observed.
    """

    values: Array
    noise: float | Array


def observed_margins(measurement: Measurement) -> dict[str, ObservedShares]:
    """What a measurement says of margins, every kind of which has tables of one height."""
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    layout = _Layout.of(features.kernel)
    observed: dict[str, ObservedShares] = {}
    for group in features.groups:
        shares, noise = measurement.vector[group.by_target()] / group.height, measurement.noise_scale / group.height
        if group.kind == "one-way" and layout.target >= 0:
            own = slice(layout.before, layout.before + layout.values)
            observed["target one-way"] = ObservedShares(shares[0, own], noise)
            shares = np.delete(shares, own, axis=1)
        if group.kind in ("pairs", "pairs by target"):
            rows, columns = _in_pair_order(layout.sizes, layout.ends)
            matrix = np.zeros((len(shares), layout.width, layout.width))
            matrix[:, rows, columns] = shares
            shares = matrix + matrix.transpose(0, 2, 1)
        observed[group.kind] = ObservedShares(shares[0] if group.kind == "target" else shares, noise)
    return observed


@dataclass(frozen=True)
class _Layout:
    """Where the cells of the columns are, without those of the target.

    sizes    of the columns except the target.
    before   cells of the columns before the target.
    values   of the target; 1 without one.
    """

    sizes: Array
    target: int
    before: int
    values: int

    @classmethod
    def of(cls, kernel: Margins) -> _Layout:
        target = kernel.target
        sizes = np.array(kernel.sizes)[list(kernel.others)]
        return cls(sizes, target, sum(kernel.sizes[: max(target, 0)]), kernel.sizes[target] if target >= 0 else 1)

    @property
    def ends(self) -> Array:
        """(columns + 1,) where the cells of each column begin."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @property
    def width(self) -> int:
        """T, the number of cells."""
        return int(self.sizes.sum())


class _Search:
    """min over latent classes of ½ Σ (fitted − noisy margin)²/noise² − log prior, y the target's cell of a class."""

    def __init__(
        self, kernel: Margins, observed: dict[str, ObservedShares], classes: int = _CLASSES,
        deviation: float = _DEVIATION, effort: Effort = FULL,
    ) -> None:  # fmt: skip
        layout = _Layout.of(kernel)
        self.target, self.sizes, self.starts = layout.target, layout.sizes, layout.ends[:-1]
        self.width, self.values, self.before = layout.width, layout.values, layout.before
        self.steps = effort.of(_STEPS)
        self.each = max(effort.of(_FEWEST_CLASSES), effort.of(classes) // self.values)
        self.precision = deviation**-2
        column = np.repeat(np.arange(len(layout.sizes)), layout.sizes)
        self.between = (column[:, None] != column).astype(float)  # (T, T) whether two cells are of different columns
        self.observed = observed

    def fit(self, rng: np.random.Generator) -> LatentClasses:
        """A local optimum near a random start."""
        n = self.values * self.each
        start = np.concatenate(
            [np.repeat(self._target_start(), self.each), self._common_start(), np.zeros(self.values * self.width),
             _SPREAD * rng.standard_normal(n * self.width)]
        )  # fmt: skip
        scales = np.repeat(_SCALES, [n, self.width, self.values * self.width, n * self.width])

        def scaled(moved: Array) -> tuple[float, Array]:
            value, slope = self.objective(moved * scales)
            return value, slope * scales

        options = {"maxiter": self.steps, "maxcor": _MEMORY}
        found = scales * minimize(scaled, start / scales, jac=True, method="L-BFGS-B", options=options).x
        weights, common, by_value, own = self._split(found)
        inside = block_softmax(own + common + by_value[:, None], self.sizes)
        return LatentClasses(weights.ravel(), self._with_target(inside))

    def _common_start(self) -> Array:
        if "one-way" in self.observed:
            shares = self.observed["one-way"].values[0]
        elif "one-way by target" in self.observed:
            shares = self.observed["one-way by target"].values.sum(axis=0)
        else:
            return np.zeros(self.width)
        logits = np.log(np.maximum(shares, _SMALLEST))
        return logits - np.repeat(np.add.reduceat(logits, self.starts) / self.sizes, self.sizes)

    def _target_start(self) -> Array:
        """Logits (Y,) of the target's noisy table, with no share below its noise: a class of weight 0 would keep it."""
        observed = [self.observed[kind] for kind in ("target", "target one-way") if kind in self.observed]
        if not observed:
            return np.zeros(self.values)
        best = min(observed, key=lambda one: one.noise)
        return np.log(np.maximum(best.values, max(best.noise, _SMALLEST)))

    def _split(self, flat: Array) -> tuple[Array, Array, Array, Array]:
        n, T = self.values * self.each, self.width
        weights = softmax(flat[:n]).reshape(self.values, self.each)
        common, rest = flat[n : n + T], flat[n + T :]
        by_value = rest[: self.values * T].reshape(self.values, T)
        return weights, common, by_value, rest[self.values * T :].reshape(self.values, self.each, T)

    def _with_target(self, inside: Array) -> Array:
        stacked = inside.reshape(-1, self.width)
        if self.target < 0:
            return stacked
        block = np.repeat(np.eye(self.values), self.each, axis=0)
        return np.hstack([stacked[:, : self.before], block, stacked[:, self.before :]])

    def objective(self, flat: Array) -> tuple[float, Array]:
        """The objective and its slope."""
        weights, common, by_value, own = self._split(flat)
        p = block_softmax(own + common + by_value[:, None], self.sizes)
        weighted = p * weights[:, :, None]
        loss, slope_ones, slope_twos, slope_target = self._misfit(
            weights.sum(axis=1), weighted.sum(axis=1), p.transpose(0, 2, 1) @ weighted
        )
        along = p @ slope_twos
        by_weight = np.einsum("ykt,ykt->yk", 0.5 * along + slope_ones[:, None], p) + slope_target[:, None]
        by_weight = weights * (by_weight - (weights * by_weight).sum())
        by_logit = block_slope_in_logits(p, weighted * (along + slope_ones[:, None]), self.sizes)
        precision = self.precision
        prior = sum(float((a**2).sum()) for a in (common, by_value, own))
        slopes = [
            by_weight.ravel(), by_logit.sum(axis=(0, 1)) + precision * common,
            (by_logit.sum(axis=1) + precision * by_value).ravel(), (by_logit + precision * own).ravel(),
        ]  # fmt: skip
        return loss + 0.5 * precision * prior, np.concatenate(slopes)

    def _misfit(self, target: Array, ones: Array, twos: Array) -> tuple[float, Array, Array, Array]:
        """½ Σ (margin − noisy)²/noise², and its slopes in `ones` (Y, T), `twos` (Y, T, T) and `target` (Y,)."""
        loss = 0.0
        slope_ones, slope_twos, slope_target = np.zeros_like(ones), np.zeros_like(twos), np.zeros(self.values)
        for kind, fitted, slope in (
            ("one-way", ones.sum(axis=0), slope_ones), ("one-way by target", ones, slope_ones),
            ("pairs", twos.sum(axis=0), slope_twos), ("pairs by target", twos, slope_twos),
            ("target", target, slope_target), ("target one-way", target, slope_target),
        ):  # fmt: skip
            if kind in self.observed:
                observed = self.observed[kind]
                residual = (fitted - observed.values) / observed.noise
                if slope is slope_twos:
                    residual *= self.between
                loss += (0.25 if slope is slope_twos else 0.5) * float(np.vdot(residual, residual))
                slope += residual / observed.noise
        return loss, slope_ones, slope_twos, slope_target


def _in_pair_order(sizes: Array, ends: Array) -> Array:
    """(2, cells) the rows and columns of (T, T) at which the cells of all pairs' tables are, in the order of the pairs."""
    tables = [
        np.indices((sizes[i], sizes[j])).reshape(2, -1) + ends[[i, j], None]
        for i, j in combinations(range(len(sizes)), 2)
    ]
    return np.hstack([np.zeros((2, 0), np.intp), *tables])


def draw_class_cells(model: LatentClasses, kernel: Margins, n: int, rng: np.random.Generator) -> Array:
    """The cell of each column (n, d), drawn evenly: stratified over classes and, within a class, over the cells of every column."""
    ends = np.cumsum(model.weights / model.weights.sum()) * n
    counts = np.diff(np.minimum(np.floor(ends + rng.random()).astype(int), n), prepend=0)
    counts[-1] += n - counts.sum()
    starts = np.concatenate([[0], np.cumsum(kernel.sizes)])
    cells = np.empty((n, len(kernel.sizes)), dtype=np.intp)
    begin = 0
    for k in np.flatnonzero(counts):
        rows = slice(begin, begin + counts[k])
        for j in range(len(kernel.sizes)):
            cells[rows, j] = draw_evenly(model.probabilities[k, starts[j] : starts[j + 1]], counts[k], rng)
        begin += counts[k]
    return cells
