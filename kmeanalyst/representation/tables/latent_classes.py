"""From the noisy margins of a table to rows, by latent class models (Lazarsfeld & Henry 1968).

A few dozen classes have the pair tables Σ_k w_k p_ki p_kj: thousands of noisy margins are fitted at
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

_CLASSES = 60  # of one fit
_FEWEST_CLASSES = 4
_FITS = 8
_STEPS = 600  # steps of L-BFGS
_MEMORY = 20  # steps that L-BFGS remembers
_DEVIATION = 1.0  # prior standard deviation of a class's part of the logits; the part common to all has √2 of it
_SPREAD = 1.0  # standard deviation of the starting logits
# the optimiser's scales for the logits of weights, those common to all classes and those of a class: many classes share the
# former, so the objective is steeper in them
_SCALES = (0.3, 0.1, 1.0)
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

    classes, deviation   of one fit; the prior standard deviation of a class's part of the logits.
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
    """What a measurement says of margins of one and two columns, every kind of which has tables of one height."""
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    sizes = np.array(features.kernel.sizes)
    observed: dict[str, ObservedShares] = {}
    for group in features.groups:
        shares = measurement.vector[group.start : group.stop] / group.height
        if group.kind == "pairs":
            rows, columns = _in_pair_order(sizes)
            matrix = np.zeros((sizes.sum(), sizes.sum()))
            matrix[rows, columns] = shares
            shares = matrix + matrix.T
        observed[group.kind] = ObservedShares(shares, measurement.noise_scale / group.height)
    return observed


class _Search:
    """min over latent classes of ½ Σ (fitted − noisy margin)²/noise² − log prior."""

    def __init__(
        self, kernel: Margins, observed: dict[str, ObservedShares], classes: int = _CLASSES,
        deviation: float = _DEVIATION, effort: Effort = FULL,
    ) -> None:  # fmt: skip
        self.sizes = np.array(kernel.sizes)
        self.starts, self.width = np.cumsum(self.sizes) - self.sizes, int(self.sizes.sum())
        self.steps = effort.of(_STEPS)
        self.classes = max(effort.of(_FEWEST_CLASSES), effort.of(classes))
        self.precision = deviation**-2
        column = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self.between = (column[:, None] != column).astype(float)  # (T, T) whether two cells are of different columns
        self.observed = observed

    def fit(self, rng: np.random.Generator) -> LatentClasses:
        """A local optimum near a random start."""
        n, T = self.classes, self.width
        start = np.concatenate([np.zeros(n), self._common_start(), _SPREAD * rng.standard_normal(n * T)])
        scales = np.repeat(_SCALES, [n, T, n * T])

        def scaled(moved: Array) -> tuple[float, Array]:
            value, slope = self.objective(moved * scales)
            return value, slope * scales

        options = {"maxiter": self.steps, "maxcor": _MEMORY}
        found = scales * minimize(scaled, start / scales, jac=True, method="L-BFGS-B", options=options).x
        weights, common, own = self._split(found)
        return LatentClasses(weights, block_softmax(own + common, self.sizes))

    def _common_start(self) -> Array:
        if "one-way" not in self.observed:
            return np.zeros(self.width)
        logits = np.log(np.maximum(self.observed["one-way"].values, _SMALLEST))
        return logits - np.repeat(np.add.reduceat(logits, self.starts) / self.sizes, self.sizes)

    def _split(self, flat: Array) -> tuple[Array, Array, Array]:
        n, T = self.classes, self.width
        return softmax(flat[:n]), flat[n : n + T], flat[n + T :].reshape(n, T)

    def objective(self, flat: Array) -> tuple[float, Array]:
        """The objective and its slope."""
        weights, common, own = self._split(flat)
        p = block_softmax(own + common, self.sizes)
        weighted = p * weights[:, None]
        loss, slope_ones, slope_twos = self._misfit(weighted.sum(axis=0), p.T @ weighted)
        along = p @ slope_twos
        by_weight = ((0.5 * along + slope_ones) * p).sum(axis=1)
        by_weight = weights * (by_weight - weights @ by_weight)
        by_logit = block_slope_in_logits(p, weighted * (along + slope_ones), self.sizes)
        prior = float((common**2).sum() / 2 + (own**2).sum())
        slopes = [
            by_weight, by_logit.sum(axis=0) + self.precision / 2 * common, (by_logit + self.precision * own).ravel()
        ]  # fmt: skip
        return loss + 0.5 * self.precision * prior, np.concatenate(slopes)

    def _misfit(self, ones: Array, twos: Array) -> tuple[float, Array, Array]:
        """½ Σ (margin − noisy)²/noise², and its slopes in `ones` (T,) and `twos` (T, T)."""
        loss = 0.0
        slope_ones, slope_twos = np.zeros_like(ones), np.zeros_like(twos)
        for kind, fitted, slope in (("one-way", ones, slope_ones), ("pairs", twos, slope_twos)):
            if kind in self.observed:
                observed = self.observed[kind]
                residual = (fitted - observed.values) / observed.noise
                if slope is slope_twos:
                    residual *= self.between
                loss += (0.25 if slope is slope_twos else 0.5) * float(np.vdot(residual, residual))
                slope += residual / observed.noise
        return loss, slope_ones, slope_twos


def _in_pair_order(sizes: Array) -> Array:
    """(2, cells) the rows and columns of (T, T) at which the cells of all pairs' tables are, in the order of the pairs."""
    starts = np.cumsum(sizes) - sizes
    tables = [
        np.indices((sizes[i], sizes[j])).reshape(2, -1) + starts[[i, j], None]
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
