"""From noisy tables to encoded rows: cells are drawn from a tree of pairs, moved until they fit all tables, and filled with values.

The tables are smoothed first (`estimates`); rows are moved by `even_rows`, and values drawn by `within_cells` and `values_kept`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.allowed_cells import allowed_cells
from kmeanalyst.representation.tables.estimates import Observed, estimate_tables, estimated_sets, is_smoothed
from kmeanalyst.representation.tables.even_rows import draw_cells, move_cells, rake_cells
from kmeanalyst.representation.tables.values_kept import rows_that_keep_rules
from kmeanalyst.representation.tables.within_cells import fine_ranges, rows_in_cells
from kmeanalyst.representation.wanted import Wanted

_SWEEPS, _SWEEPS_SMALL = 120, 240  # where noise is small, rows come nearer to their tables


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
    rng, observed = np.random.default_rng(wanted.rng), Observed.of(measurement)  # one stream for all steps
    estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    cells = draw_cells(estimates, wanted.n_points, rng, allowed)
    if allowed is not None:
        estimates, cells = rake_cells(estimates, cells, allowed, rng)
        estimates = replace(estimates, sets=estimated_sets(observed, estimates.pairs, allowed))
    sweeps = wanted.effort.of(_SWEEPS if is_smoothed(measurement) else _SWEEPS_SMALL)
    cells = move_cells(estimates, cells, rng, sweeps=sweeps, allowed=allowed, progress=progress)
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
