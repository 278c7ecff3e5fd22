"""From noisy tables to encoded rows: of chosen pairs by a tree of them, of all pairs by latent classes.

Rows of cells are drawn and moved until they fit all tables (`even_rows`), and values are drawn in them (`values_kept`). Latent
classes are too few for some tables, so noisy tables are smoothed around theirs, and the rows moved to fit them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.allowed_cells import AllowedCells, allowed_cells
from kmeanalyst.representation.tables.estimates import (
    Observed,
    TableEstimates,
    allowed_columns,
    allowed_tables,
    estimate_tables,
    estimated_sets,
    moved_along_orders,
    noise_of_all_pairs,
    smoothed_around,
)
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells, rake_cells
from kmeanalyst.representation.tables.latent_classes import (
    LatentClasses,
    ObservedShares,
    draw_class_cells,
    fit_classes_to,
)
from kmeanalyst.representation.tables.ordered_pairs import orders_of
from kmeanalyst.representation.tables.tree import Pair, Tree, implied_tables, spanning_tree
from kmeanalyst.representation.tables.values_kept import rows_that_keep_rules
from kmeanalyst.representation.tables.within_cells import fine_ranges, rows_in_cells
from kmeanalyst.representation.wanted import Wanted

_SWEEPS = 120
_CLASSES, _DEVIATION = 100, 1.5  # of latent classes: more, and with looser priors, than where all pairs are measured
_SEEN_WELL = 0.004  # noise on a share, if all pairs were measured alike, below which tables are refined
_FAR = 2.0  # standard deviations of a sum of squares of noise
_MOST_CELLS = 2 * 10**7  # of all pairs of columns, up to which rows are moved to fit the classes' tables of all of them


def rows_from_tables(measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress = silent) -> Array:
    """As many encoded rows (n, d) of equal weight as are wanted, that fit a measurement of MarginFeatures.

    Errors   ValueError unless it has the one-way tables that `publish` always measures.
    """
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    kernel = features.kernel
    _check_tables(kernel)
    allowed = allowed_cells(domain, kernel)
    estimates = estimate_tables(measurement, allowed, domain)
    wanted = replace(wanted, rng=np.random.default_rng(wanted.rng))  # one stream for all steps
    if not _mostly_ordered(domain, kernel) and noise_of_all_pairs(measurement) < _SEEN_WELL:
        shares = completed_shares(measurement, Observed.of(measurement), estimates)
        model = fit_classes_to(
            kernel, shares, wanted.generator, classes=_CLASSES, deviation=_DEVIATION, effort=wanted.effort, progress=progress
        )  # fmt: skip
        estimates = _of_classes(model, kernel, list(estimates.pairs), estimates.tree, allowed)
        estimates = _refined(estimates, measurement, domain, allowed)
    return _rows(estimates, allowed, measurement, domain, wanted, progress)


def _mostly_ordered(domain: Domain, kernel: Margins) -> bool:
    """Whether most pairs have a column with an order: it says more of their tables than classes."""
    without = sum(order.rank is None for order in orders_of(domain, kernel))
    return 2 * without * (without - 1) < len(kernel.edges) * (len(kernel.edges) - 1)


def rows_from_classes(
    model: LatentClasses, measurement: Measurement, domain: Domain, wanted: Wanted, progress: Progress = silent
) -> Array:
    """As many encoded rows (n, d) as are wanted: they keep rules and fit the tables of latent classes, and measured ones."""
    kernel = measurement.feature_map.kernel
    assert isinstance(kernel, Margins)
    allowed = allowed_cells(domain, kernel)
    d, few = len(kernel.edges), sum(kernel.sizes) ** 2 / 2 <= _MOST_CELLS
    pairs = list(combinations(range(d), 2)) if few else [(0, j) for j in range(1, d)]
    found = _of_classes(model, kernel, pairs, Tree.of([(0, j) for j in range(1, d)], d), allowed)
    found = _refined(found, measurement, domain, allowed)
    drawn = None
    wanted = replace(wanted, rng=np.random.default_rng(wanted.rng))
    if allowed is None:
        drawn = draw_class_cells(model, kernel, wanted.n_points, wanted.generator)
    else:
        worth = np.full((d, d), -np.inf)
        for i, j in pairs:
            worth[i, j] = worth[j, i] = np.abs(found.pairs[i, j] - np.outer(found.ones[i], found.ones[j])).sum()
        found = replace(found, tree=Tree.of(spanning_tree(worth) if d > 1 else [], d))
    return _rows(found, allowed, measurement, domain, wanted, progress, drawn)


def _rows(
    estimates: TableEstimates, allowed: AllowedCells | None, measurement: Measurement, domain: Domain, wanted: Wanted,
    progress: Progress, drawn: Array | None = None,
) -> Array:  # fmt: skip
    """Rows from estimates.  drawn  cells (n, columns), where they are not drawn from the tree."""
    kernel = measurement.feature_map.kernel
    assert isinstance(kernel, Margins)
    rng = wanted.generator
    observed = Observed.of(measurement)
    estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    cells = draw_cells(estimates, wanted.n_points, rng, allowed) if drawn is None else drawn
    if allowed is not None:
        estimates, cells = rake_cells(estimates, cells, allowed, rng)
        estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    cells = move_cells(estimates, cells, rng, sweeps=wanted.effort.of(_SWEEPS), allowed=allowed, progress=progress)
    fine = fine_ranges(measurement, domain, np.concatenate(estimates.ones))
    rows = rows_in_cells(kernel, domain, cells, fine, rng)
    return rows if allowed is None else rows_that_keep_rules(rows, kernel, domain, cells, fine, rng)


def _check_tables(kernel: Margins) -> None:
    if not kernel.shares[0]:
        raise ValueError(
            "rows are drawn from one-way tables and from pairs, and this measurement has no one-way tables: no release of "
            "release_side is like that. Ask questions of the release as it is; for new rows, ask its maker for the tables of "
            "single columns."
        )


def _refined(
    found: TableEstimates, measurement: Measurement, domain: Domain, allowed: AllowedCells | None
) -> TableEstimates:
    """Tables of classes, with what noisy ones say around them.

    They are moved along the order of columns; where noise is large, those alone that are further from the noisy table than
    noise can be. Each cell is smoothed by itself where the table is still as far: the classes were fitted to the same noise.
    """
    kernel = measurement.feature_map.kernel
    assert isinstance(kernel, Margins)
    observed = Observed.of(measurement)
    pairs = [pair for pair in observed.pairs if pair in found.pairs]
    if noise_of_all_pairs(measurement) >= _SEEN_WELL:
        pairs = _far(pairs, observed, found.pairs)
    moved = found.pairs | moved_along_orders(observed, pairs, found.pairs, orders_of(domain, kernel))
    far = _far(pairs, observed, moved)
    return replace(found, pairs=moved | smoothed_around(observed, far, moved, found.ones, allowed))


def _far(pairs: list[Pair], observed: Observed, guesses: dict[Pair, Array]) -> list[Pair]:
    """The pairs whose noisy table is further from its guess than noise can be: by two standard deviations."""

    def is_far(noisy: Array, variance: float, guess: Array) -> bool:
        return float(((noisy - guess) ** 2).sum() / variance) > guess.size + _FAR * math.sqrt(2 * guess.size)

    return [pair for pair in pairs if is_far(*observed.pairs[pair], guesses[pair])]


def _of_classes(
    model: LatentClasses, kernel: Margins, pairs: list[Pair], tree: Tree, allowed: AllowedCells | None
) -> TableEstimates:
    ends = np.concatenate([[0], np.cumsum(kernel.sizes)])
    blocks = [model.probabilities[:, ends[j] : ends[j + 1]] for j in range(len(kernel.sizes))]
    ones = allowed_columns([model.weights @ block for block in blocks], allowed)
    tables = {(i, j): (blocks[i] * model.weights[:, None]).T @ blocks[j] for i, j in pairs}
    tables = allowed_tables(tables, ones, allowed)
    return TableEstimates(ones, tables, frozenset(tables), tree)


# Left alone, classes invent relations between columns whose pair was not measured. So every pair has pseudo-observations of the
# tree's table E, with the deviation τ E^0.65 of a cell: weakly for measured pairs, where τ follows from how far the noisy table is
# from E, and more strongly for the others, where it follows from the noisy score of the pair, if there is one.
_POWER = 0.65  # of a cell's share, in the deviation of its pseudo-observation
_MEASURED, _UNMEASURED = 0.01, 0.3  # weights of pseudo-observations
_DISTANCE = 1.25  # deviation over mean |deviation|
_LEAST_DISTANCE = 0.02  # L1 distance of a pair's table from the tree's, at least
_SMALLEST = 1e-4  # share of a cell in the deviation of its pseudo-observation: less would take many more steps to fit


def completed_shares(
    measurement: Measurement, observed: Observed, estimates: TableEstimates
) -> dict[str, ObservedShares]:
    """Observations and pseudo-observations of all tables of one and two columns, for `fit_classes_to`."""
    ends = np.concatenate([[0], np.cumsum(observed.sizes)])
    width = int(ends[-1])
    twos, precision = np.zeros((width, width)), np.zeros((width, width))
    distances = _scored_distances(measurement)
    implied = implied_tables(estimates.tree, estimates.pairs)
    for n, (pair, guess) in enumerate(sorted(implied.items())):
        shares, weight = _completed(guess, observed.pairs.get(pair), distances[n] if len(distances) else 0.0)
        own, other = (slice(ends[j], ends[j + 1]) for j in pair)
        twos[own, other], precision[own, other] = shares, weight
        twos[other, own], precision[other, own] = shares.T, weight.T
    with np.errstate(divide="ignore"):
        of_pairs = ObservedShares(twos, 1 / np.sqrt(precision))
    # of single columns what all tables say of them; the noise is that of the one-way tables
    noise = np.repeat([variance**0.5 for _, variance in observed.ones], observed.sizes)
    return {"pairs": of_pairs, "one-way": ObservedShares(np.concatenate(estimates.ones), noise)}


def _completed(guess: Array, measured: tuple[Array, float] | None, distance: float) -> tuple[Array, Array]:
    """Shares (a, b) of a pair and the precision of each, from its noisy table, if there is one, and the guess."""
    powers = np.maximum(guess, _SMALLEST) ** _POWER
    least = _DISTANCE * _LEAST_DISTANCE / powers.sum()
    if measured is None:
        spread = max(_DISTANCE * distance / powers.sum(), least)
        return guess, _UNMEASURED / (spread * powers) ** 2
    shares, variance = measured
    excess = float(((shares - guess) ** 2 - variance).sum() / (powers**2).sum())
    prior = _MEASURED / (max(excess, least**2) * powers**2)
    precision = prior + 1 / variance
    return (shares / variance + prior * guess) / precision, precision


def _scored_distances(measurement: Measurement) -> Array:
    """For all pairs √(score² − noise²) of the last scores, in shares; empty without scores."""
    if not measurement.scores:
        return np.zeros(0)
    last = measurement.scores[-1]
    whole = last.step * measurement.n_rows
    score, noise = last.noisy / whole, measurement.noise_scale * measurement.n_rows * measurement.grid_steps / whole
    return np.sqrt(np.maximum(score**2 - noise**2, 0.0))
