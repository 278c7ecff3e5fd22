"""From noisy tables of chosen pairs to encoded rows."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.mixture.latent_classes import LatentClasses, fit_classes_to
from kmeanalyst.representation.mixture.partly_observed import completed_shares
from kmeanalyst.representation.mixture.within_cells import fine_ranges, rows_in_cells
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.estimates import Observed, TableEstimates, estimate_tables, noise_of_all_pairs
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells
from kmeanalyst.representation.wanted import FULL, Effort

_SWEEPS = 120
_CLASSES, _DEVIATION = 100, 1.5  # of latent classes: more, and with looser priors, than where all pairs are measured
_SEEN_WELL = 0.004  # with less noise on a share, if all pairs were measured alike, all tables are smoothed together


def rows_from_tables(
    measurement: Measurement, domain: Domain, n: int, rng: np.random.Generator, *, cells_only: bool = False,
    effort: Effort = FULL, progress: Progress = silent,
) -> Array:  # fmt: skip
    """n encoded rows (n, d) of equal weight that fit a measurement of MarginFeatures.

    cells_only   values are even within cells, and tables that are seen well are not smoothed together first: for scores of cells.
    Errors       ValueError unless it has the one-way tables that `publish` always measures, and pairs as `publish` crosses them.
    """
    features = measurement.feature_map
    assert isinstance(features, MarginFeatures)
    kernel = features.kernel
    _check_tables(kernel)
    estimates = estimate_tables(measurement)
    if not cells_only and noise_of_all_pairs(measurement) < _SEEN_WELL:
        model = _classes(measurement, kernel, estimates, rng, effort, progress)
        estimates = _of_classes(model, kernel, estimates)
    target, others = draw_cells(estimates, n, rng)
    others = move_cells(estimates, target, others, rng, sweeps=effort.of(_SWEEPS), progress=progress)
    cells = np.insert(others, kernel.target, target, axis=1) if kernel.target >= 0 else others
    fine = {} if cells_only else fine_ranges(measurement, domain, _shares(estimates, kernel.target))
    return rows_in_cells(kernel, domain, cells, target, fine, rng)


def _check_tables(kernel: Margins) -> None:
    alone, by_target, pairs, _, _, target = (share > 0 for share in kernel.shares)
    known = by_target and (alone or target) and not pairs if kernel.target >= 0 else alone
    if not known:
        raise ValueError(
            "rows are drawn from one-way tables and from pairs, all crossed with the target if there is one, and this "
            "measurement was made of other tables: no release of release_side is. Ask questions of the release as it is; "
            "for new rows, ask its maker for the tables of single columns."
        )


def _classes(
    measurement: Measurement, kernel: Margins, estimates: TableEstimates, rng: np.random.Generator, effort: Effort,
    progress: Progress,
) -> LatentClasses:  # fmt: skip
    """Latent classes fitted to the noisy tables, and to the tree's for pairs that were not measured."""
    shares = completed_shares(measurement, Observed.of(measurement), estimates)
    return fit_classes_to(
        kernel, shares, rng, classes=_CLASSES, deviation=_DEVIATION, effort=effort, progress=progress
    )  # fmt: skip


def _of_classes(model: LatentClasses, kernel: Margins, estimates: TableEstimates) -> TableEstimates:
    """The estimates with the tables of all pairs as the classes have them."""
    sizes = kernel.sizes
    ends = np.concatenate([[0], np.cumsum(sizes)])
    blocks = [model.probabilities[:, ends[j] : ends[j + 1]] for j in range(len(sizes))]
    of_target = blocks[kernel.target] if kernel.target >= 0 else np.ones((len(model.weights), 1))
    weights = (model.weights[:, None] * of_target).T  # (Y, K)
    others = [blocks[j] for j in kernel.others]
    ones = [weights @ block for block in others]
    pairs = {
        (i, j): np.einsum("yk,ka,kb->yab", weights, others[i], others[j], optimize=True) for i, j in estimates.pairs
    }
    return TableEstimates(weights.sum(axis=1), ones, pairs, frozenset(pairs), estimates.tree)


def _shares(estimates: TableEstimates, target: int) -> Array:
    """(Y, T) of the rows in the cells of all columns, for each value of the target."""
    blocks = list(estimates.ones)
    if target >= 0:
        blocks.insert(target, np.diag(estimates.target))
    return np.hstack(blocks)
