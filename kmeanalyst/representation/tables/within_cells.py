"""The position of a value within its cell: from the finer tables of margins, or uniform.

Most finer ranges hold few rows, so the shares of the model's coarser cells are divided by maxima a posteriori under normal priors
on the logits, of several deviations, averaged by Laplace's approximation of the evidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import ndtr, ndtri, softmax

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import FROM_SCALE, Date, Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.weights.views import systematic_indices

_STEPS = 200  # steps of L-BFGS
_DEVIATIONS = (0.25, 0.5, 1.0, 2.12)  # prior standard deviations of the logits
_EMPTY = -40.0  # logit of a range without values of the column
_TRIES = 50  # tries to draw a value in a range
_CLOSE = 1e-9  # of a multiple, relative to its unit
_HEAPED = 4.0  # deviations by which a range stands out of its neighbours


@dataclass(frozen=True)
class FineRanges:
    """The finer ranges of one column, and their probabilities within their cells.

    ends            (R + 1,) of the ranges, in encoded units.
    cell            (R,) the cell that contains each range, increasing.
    probabilities   (R,) those of a cell sum to 1.
    heaped, at      (R,) the share of each that is at one value, and the roundest value, encoded, that it has.
    """

    ends: Array
    cell: Array
    probabilities: Array
    heaped: Array
    at: Array


def fine_ranges(measurement: Measurement, domain: Domain, shares: Array) -> dict[int, FineRanges]:
    """Column → its finer ranges, for each column with a finer table: of several the finest, each divided as the next says.

    shares   (T,) of the rows, in the cells of all columns.
    """
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    found = next((group for group in features.groups if group.kind == "finer"), None)
    if found is None:
        return {}
    kernel, heights = features.kernel, np.sqrt(found.squares)
    values, deviations = (each[found.start : found.stop] for each in (measurement.vector, measurement.variances**0.5))
    begins = np.concatenate([[0], np.cumsum(kernel.sizes)])
    fitted: dict[int, FineRanges] = {}
    first = 0
    for (j, edges), size, height in zip(kernel.finer_tables, kernel.fine_sizes, heights, strict=True):
        column = domain.columns[j]
        assert isinstance(column, Number | Tree)
        low, high = column.ends
        ends = np.concatenate([[low], edges, [high]])
        above = fitted.get(j) or _cells(kernel, j, low, high)
        inside = np.searchsorted(above.ends[1:-1], (ends[:-1] + ends[1:]) / 2, side="right")
        cell = above.cell[inside]
        of_parent = shares[begins[j] + cell] * above.probabilities[inside]
        own, noises = (each[first : first + len(cell)] / height for each in (values, deviations))
        noise = float(np.median(noises))
        sizes, more = sizes_within(column, ends, kernel.atoms[j]), np.zeros(len(cell))
        if isinstance(column, Number) and sizes.any():
            more = heaps(sizes, own, noise)
            of_cells, place = np.unique(cell, return_inverse=True)
            coarse = np.maximum(shares[begins[j] + of_cells] - np.bincount(place, more), 0.0)
            smooth = smooth_shares(ends, sizes, cell, coarse, own - more, noise)
            sizes = smooth * max(float(coarse.sum()), _LEAST) + more
        within = _probabilities(own, noise, of_parent, inside, sizes)
        at = np.full(len(cell), np.nan)
        for i in np.flatnonzero(more[1:-1]) + 1:  # those at the ends may be where a long tail begins
            at[i] = _roundest(column, ends[i], ends[i + 1], kernel.atoms[j])
        heaped = np.where(np.isnan(at), 0.0, more / np.where(more > 0, sizes, 1.0))
        fitted[j] = FineRanges(ends, cell, above.probabilities[inside] * within, heaped, at)
        first += size
    return fitted


def _cells(kernel: Margins, j: int, low: float, high: float) -> FineRanges:
    ends = np.concatenate([[low], kernel.edges[j], [high]])
    n = len(ends) - 1
    return FineRanges(ends, np.arange(n), np.ones(n), np.zeros(n), np.full(n, np.nan))


def heaps(sizes: Array, observed: Array, noise: float) -> Array:
    """How much more a range has than at its neighbours' density, where it stands out, twofold at least: values heap there.

    sizes      (R,) the number of values of each, or its width; observed (R,) its noisy share, of this deviation.
    Returns    (R,) that, 0 of others.
    """
    density, apart = (np.pad(each / np.where(sizes > 0, sizes, np.inf), 1) for each in (observed, np.full(len(sizes), noise)))
    denser = np.where(density[:-2] > density[2:], 0, 2) + np.arange(len(sizes))  # of both neighbours
    more = observed - sizes * np.maximum(density[denser], 0.0)
    deviation = np.hypot(noise, sizes * apart[denser])
    return np.where((sizes > 0) & (more > _HEAPED * deviation) & (more > observed / 2), more, 0.0)


def _roundest(column: Number | Tree, below: float, above: float, atoms: tuple[float, ...]) -> float:
    """The value of a range [below, above), encoded, that has the fewest digits; NaN of days, and where it is an atom."""
    if isinstance(column, Date | Tree):
        return np.nan
    low, high = FROM_SCALE[column.scale](np.array([below, above]))
    for power in np.arange(np.ceil(np.log10(max(abs(low), abs(high), 1e-9))), -10.0, -1.0):
        for unit in (10.0**power, 5 * 10.0 ** (power - 1)):
            value = float(f"{np.ceil(low / unit - _CLOSE) * unit:.12g}")
            code = float(column.rounded(column._scaled(np.array([value])))[0])
            if value < high and below <= code < above:
                return np.nan if code in atoms else code
    return np.nan


def sizes_within(column: Number | Tree, ends: Array, atoms: tuple[float, ...]) -> Array:
    """(R,) the number of values except atoms, or the width for a column without a step."""
    if isinstance(column, Tree):
        return np.rint(np.diff(ends))
    if not column.spacing:
        return np.where(column.holds(ends[:-1], ends[1:]), np.diff(ends), 0.0)
    counts = np.rint(np.diff(ends) / column.spacing)
    np.subtract.at(counts, np.searchsorted(ends, np.array(atoms), side="right") - 1, 1.0)
    return np.maximum(counts, 0.0)


def _probabilities(observed: Array, noise: float, cell_shares: Array, cell: Array, sizes: Array) -> Array:
    """(R,) the maximum a posteriori probabilities of the ranges within their cells.

    observed      (R,) noisy shares of the ranges, of standard deviation `noise`; cell_shares (R,) the share of each range's cell.
    sizes         (R,) of the ranges, or shares: the prior mode within a cell is proportional to them.
    """
    _, starts, which, ranges = np.unique(cell, return_index=True, return_inverse=True, return_counts=True)
    with np.errstate(divide="ignore"):
        base = np.maximum(np.log(sizes / np.add.reduceat(sizes, starts).clip(1e-300)[which]), _EMPTY)

    def objective(flat: Array, deviation: float) -> tuple[float, Array]:
        p = block_softmax(base + flat, ranges)
        residual = (cell_shares * p - observed) / noise
        pull = block_slope_in_logits(p, p * residual * cell_shares / noise, ranges)
        loss = (residual**2).sum() + (flat**2).sum() / deviation**2
        return 0.5 * float(loss), pull + flat / deviation**2

    found, evidences, flat = [], [], np.zeros(len(cell))
    for deviation in _DEVIATIONS:
        best = minimize(objective, flat, (deviation,), jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
        flat, p = best.x, block_softmax(base + best.x, ranges)
        curvature = 0.0  # log determinant, relative to the prior's
        for own in np.split(np.arange(len(cell)), starts[1:]):
            slopes = deviation / noise * cell_shares[own, None] * (np.diag(p[own]) - np.outer(p[own], p[own]))
            curvature += np.linalg.slogdet(np.eye(len(own)) + slopes.T @ slopes)[1]
        found.append(p)
        evidences.append(-best.fun - 0.5 * curvature)
    return np.asarray(softmax(evidences) @ np.array(found))


def rows_in_cells(kernel: Margins, domain: Domain, cells: Array, fine: dict[int, FineRanges], rng: np.random.Generator) -> Array:
    """Encoded rows (n, d) in the given cells (n, d): numbers are related within cells as their cells are."""
    columns = range(len(domain))
    rows = np.column_stack([values_in_cells(kernel, domain, j, cells[:, j], fine.get(j), rng) for j in columns])
    ordered = Number | Ordinal | Boolean  # levels stay as they are, and numbers follow them
    numbers = [j for j, column in enumerate(domain.columns) if isinstance(column, ordered) and len(kernel.edges[j])]
    ranges = [np.searchsorted(np.array(kernel.edges[j]), rows[:, j], side="right") for j in numbers]
    if any(isinstance(domain.columns[j], Number) for j in numbers):
        rows[:, numbers] = with_related_values(rows[:, numbers], np.column_stack(ranges), cells[:, numbers], rng)
    return rows


def values_in_cells(
    kernel: Margins, domain: Domain, j: int, cells: Array, fine: FineRanges | None, rng: np.random.Generator
) -> Array:
    """Encoded values (n,) in the given cells of column j: a level, an atom, a missing cell, or a value of a range."""
    column, edges, atoms = domain.columns[j], kernel.edges[j], kernel.atoms[j]
    ranges = len(edges) + 1
    special = np.concatenate([np.zeros(ranges), atoms, [np.nan] * kernel.missing[j]])
    if isinstance(column, Categorical) and not isinstance(column, Tree):
        return np.where(cells < ranges, cells, special[cells])
    assert isinstance(column, Number | Tree)
    low, high = column.ends
    ends, within = np.concatenate([[low], edges, [high]]), np.minimum(cells, len(edges))
    if fine is not None:
        ends, within = fine.ends, _draw_ranges(fine, within, rng)
    drawn = inside(column, ends[within], ends[within + 1], np.array(atoms), rng)
    if fine is not None and fine.heaped.any():
        drawn = np.where(rng.random(len(drawn)) < fine.heaped[within], fine.at[within], drawn)
    return np.where(cells < ranges, drawn, special[cells])


def _draw_ranges(fine: FineRanges, cells: Array, rng: np.random.Generator) -> Array:
    found = np.empty(len(cells), dtype=np.intp)
    for cell in np.unique(cells):
        rows, ranges = np.flatnonzero(cells == cell), np.flatnonzero(fine.cell == cell)
        found[rows] = ranges[draw_evenly(fine.probabilities[ranges], len(rows), rng)]
    return found


def draw_evenly(probabilities: Array, n: int, rng: np.random.Generator) -> Array:
    """n draws of a finite distribution, in random order; each outcome n times its probability, rounded up or down."""
    return rng.permutation(systematic_indices(probabilities, n, rng))


def inside(column: Number | Tree, below: Array, above: Array, atoms: Array, rng: np.random.Generator) -> Array:
    """A value of the column in each range [below, above), by rejection of atoms; a range of atoms alone gives atoms."""
    if isinstance(column, Tree):
        return np.minimum(np.floor(rng.uniform(below, above) + 0.5), above - 0.5)  # a draw may be rounded up to the end
    drawn = column.rounded(rng.uniform(below, above))
    for _ in range(_TRIES):
        wrong = (drawn < below) | (drawn > above) | np.isin(drawn, atoms)
        if not wrong.any():
            break
        drawn[wrong] = column.rounded(rng.uniform(below[wrong], above[wrong]))
    return drawn


# Values drawn for each column alone are unrelated within cells: with twelve ranges a correlation of −.93 becomes −.87, and one of
# .92 becomes .69 where two ranges hold most rows. The rows' ranks are taken for those of correlated normals that are known up to
# cells, drawn in turn, given one another; each cell's values are handed to its rows in their order (a normal copula of grouped
# values by Gibbs sampling, as in Hoff 2007, The Annals of Applied Statistics 1, 265-283).
_REDRAWS = 10  # draws of all normals
_FURTHEST = 6.0  # of a normal
_RIDGE = 1e-4  # keeps correlations of columns that determine one another invertible


def with_related_values(values: Array, ranges: Array, groups: Array, rng: np.random.Generator) -> Array:
    """Values (n, k) of k number columns, in another order within each of their groups.

    values   NaN where missing; those have no order.
    ranges   (n, k) the range that holds each value: larger values are in the same or in a later one.
    groups   (n, k) whole numbers: rows of one number exchange values of the column.
    """
    if values.shape[1] < 2 or not len(values):
        return values
    low, high = _bounds(values, ranges)
    normals = np.column_stack([ndtri((a + b) / 2) for a, b in zip(ndtr(low.T), ndtr(high.T), strict=True)])
    for _ in range(_REDRAWS):
        _redraw(normals, low, high, rng)
    related = np.empty_like(values)
    for j, own in enumerate(groups.T):
        related[np.lexsort((normals[:, j], own)), j] = values[np.lexsort((values[:, j], own)), j]
    return related


def _bounds(values: Array, ranges: Array) -> tuple[Array, Array]:
    """(n, k) the least and largest normal of each row: the quantiles at the ends of its range; of a missing value, any."""
    low, high = np.full(values.shape, -_FURTHEST), np.full(values.shape, _FURTHEST)
    for j, own in enumerate(ranges.T):
        present = ~np.isnan(values[:, j])
        _, place, counts = np.unique(own[present], return_inverse=True, return_counts=True)
        ends = np.clip(ndtri(np.concatenate([[0], np.cumsum(counts)]) / max(counts.sum(), 1)), -_FURTHEST, _FURTHEST)
        low[present, j], high[present, j] = ends[place], ends[place + 1]
    return low, high


def _redraw(normals: Array, low: Array, high: Array, rng: np.random.Generator) -> None:
    k = normals.shape[1]
    spread = normals.std(axis=0)
    correlation = np.cov(normals.T) / np.outer(spread, spread).clip(1e-12) + _RIDGE * np.eye(k)
    precision = np.linalg.inv(correlation)
    for j in range(k):
        deviation = precision[j, j] ** -0.5
        mean = normals[:, j] - normals @ precision[:, j] / precision[j, j]
        below, above = (ndtr((bound[:, j] - mean) / deviation) for bound in (low, high))
        drawn = mean + deviation * ndtri(below + (above - below) * rng.random(len(mean)))
        normals[:, j] = np.clip(drawn, low[:, j], high[:, j])


# Its logarithm is linear between a few knots, and bends little. Ranges at the ends of a scale are wide and hold few rows, which lie
# near the others: values spread evenly over them would give the number a larger variance, and lower every correlation.
_BEND = 0.5  # prior standard deviation of the second difference of the log density at knots half a range apart
# of its first difference between two of them; in the first range and in the last, where tails are, its mean and deviation. Over
# some 100 columns of 37 tables it is 3.3 ± 2.6 and 3.7 ± 2.2, and 0 ± 1.1 elsewhere; less here, as short tails have short intervals
_SLOPE, _TAIL = 1.1, (2.0, 2.5)
_TOLERANCE, _LEAST = 0.05, 1e-4  # deviation of a range's share, relative to it, and at least
_ROUGH = 0.3  # deviation of a fine range's share from a smooth density, relative to it
_NEWTON_STEPS = 30
_APART = 1e-12  # of knots, of a whole of 1
_LONGEST = 3.0  # change of a log density in one step
_ENOUGH = 1e-6


def smooth_shares(ends: Array, sizes: Array, cell: Array, shares: Array, observed: Array, noise: float) -> Array:
    """(R,) shares of fine ranges under a smooth density.

    ends       (R + 1,) of the ranges; `sizes` (R,) are 0 for a range without values.
    cell       (R,) the coarser range that contains each, increasing; `shares` (cells,) are theirs.
    observed   (R,) noisy shares of the fine ranges, of standard deviation `noise`.
    """
    ends = (ends / 2 - ends[0] / 2) / (ends[-1] / 2 - ends[0] / 2)  # halves of the largest floats can be subtracted
    first = np.flatnonzero(np.diff(cell, prepend=-1))
    borders = np.append(ends[first], ends[-1])
    knots = np.sort(np.concatenate([borders, (borders[1:] + borders[:-1]) / 2]))
    knots = knots[np.diff(knots, prepend=-1.0) > _APART]
    middles = (ends[:-1] + ends[1:]) / 2
    hats = np.column_stack([np.interp(middles, knots, unit) for unit in np.eye(len(knots))])
    outwards = np.zeros(len(knots) - 1)  # of intervals in the first cell, and in the last one
    outwards[knots[1:] <= borders[1]], outwards[knots[:-1] >= borders[-2]] = 1.0, -1.0
    outwards *= len(first) > 1
    spreads = np.where(outwards, _TAIL[1], _SLOPE)
    same = outwards[1:] == outwards[:-1]
    prior = np.concatenate([_second_differences(knots)[same] / _BEND, np.diff(np.eye(len(knots)), axis=0) / spreads[:, None]])
    expected = np.concatenate([np.zeros(same.sum()), _TAIL[0] * outwards / spreads])
    total = max(float(shares.sum()), _LEAST)
    wanted, deviation = shares / total, np.maximum(_TOLERANCE * shares / total, _LEAST)
    seen = observed / total
    noises = np.hypot(noise / total, _ROUGH * np.maximum(seen, 0.0))
    logs = np.zeros(len(knots))
    for _ in range(_NEWTON_STEPS):
        density = sizes * np.exp(hats @ logs - (hats @ logs).max())
        p = density / density.sum()
        slopes = p[:, None] * (hats - p @ hats)
        of_cells = np.add.reduceat(slopes, first) / deviation[:, None]
        misfit = (np.add.reduceat(p, first) - wanted) / deviation
        curvature = slopes.T @ (slopes / noises[:, None] ** 2) + of_cells.T @ of_cells + prior.T @ prior
        slope = slopes.T @ ((p - seen) / noises**2) + of_cells.T @ misfit + prior.T @ (prior @ logs - expected)
        step = np.linalg.solve(curvature + _ENOUGH * np.eye(len(knots)), slope)
        logs = logs - step * min(1.0, _LONGEST / max(np.abs(step).max(), _LONGEST))
        if np.abs(step).max() < _ENOUGH:
            break
    density = sizes * np.exp(hats @ logs - (hats @ logs).max())
    return density / density.sum()


def _second_differences(knots: Array) -> Array:
    widths = np.diff(knots)
    before, after = widths[:-1], widths[1:]
    found = np.zeros((len(knots) - 2, len(knots)))
    scale = 2 * before * after / (before + after)
    rows = np.arange(len(knots) - 2)
    found[rows, rows], found[rows, rows + 2] = scale / before, scale / after
    found[rows, rows + 1] = -(scale / before + scale / after)
    return found


def block_softmax(logits: Array, sizes: Array) -> Array:
    """Probabilities (..., T): the softmax of each block of the last axis, which has blocks of these sizes."""
    starts = np.cumsum(sizes) - sizes
    p = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts, axis=-1), sizes, axis=-1))
    return p / np.repeat(np.add.reduceat(p, starts, axis=-1), sizes, axis=-1)


def block_slope_in_logits(p: Array, pull: Array, sizes: Array) -> Array:
    """The slope in the logits of p = block_softmax(logits, sizes), from `pull`: p times the slope in p."""
    starts = np.cumsum(sizes) - sizes
    return pull - p * np.repeat(np.add.reduceat(pull, starts, axis=-1), sizes, axis=-1)
