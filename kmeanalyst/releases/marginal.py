"""A release of some of its columns: for a test against a table that has no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.measurement import Choice, Measurement, of_tables
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.rules.compiled import rules_of


def marginal(release: ReleaseData, columns: Sequence[str] | None) -> ReleaseData:
    """What a release says of some columns alone: its points, and the tables that were measured of these, with their noise.

    Errors   KeyError for an unknown column, ValueError where each measured feature is of all columns.
    """
    if columns is None:
        return release
    domain, names = release.domain, [columns] if isinstance(columns, str) else columns
    chosen = sorted({domain.position(name) for name in names})
    if len(chosen) == len(domain):
        return release
    rules = zip(domain.rules, rules_of(domain).columns, strict=True)
    kept = tuple(rule for rule, of in rules if set(of) <= set(chosen))
    own = Domain(tuple(domain.columns[j] for j in chosen), kept)
    measurement = None if release.measurement is None else _measured(release.measurement, chosen)
    return release.replaced(
        points=release.frame[list(own.names)], domain=own, measurement=measurement, derived=(), fit_distance=None,
        kernel=table_kernel(own) if measurement is None else measurement.feature_map.kernel,
    )  # fmt: skip


def _measured(measurement: Measurement, chosen: Sequence[int]) -> Measurement:
    """What was measured of some columns; of how its tables were chosen no more than whether."""
    own, new = of_tables(measurement, chosen), {j: i for i, j in enumerate(chosen)}
    beforehand = tuple((new[i], new[j]) for i, j in measurement.beforehand if {i, j} <= new.keys())
    sets = own.feature_map.kernel.chosen  # type: ignore[attr-defined]
    by_rows = measurement.chosen_by_rows and not set(sets) <= set(beforehand)
    return replace(own, beforehand=beforehand, choices=(Choice(len(sets), 1, 1.0),)) if by_rows else own
