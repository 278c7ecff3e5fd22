"""The flow of `publish` for the exponential mechanism: a private table in, a release without a measurement out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.file.points import cells_of_a_row
from kmeanalyst.representation.progress import Progress
from release_side.choices.options import (
    check_choices,
    check_ledger,
    check_strings,
    fitting,
    kernel_as_read,
    public_rows,
    spec_for,
)
from release_side.choices.output_file import check_output
from release_side.choices.public_inputs import refuse_private_as_public
from release_side.choices.statement import statement_of_draw
from release_side.door.exponential_mechanism import (
    ExponentialMechanism,
    MultisetSampler,
    RehearsedExponential,
    sample_database,
    small_databases,
)
from release_side.door.mechanism import PublishError
from release_side.private_rows.rows import Table, open_private
from release_side.publishing.publish import Spending, note_budget_spent, write_release_whole

if TYPE_CHECKING:
    from kmeanalyst.kernels.base import Array

METHOD = "exponential"


def publish_small_database(
    private: Table,
    domain: Domain | str | Path,
    *,
    epsilon: float,
    delta: float,
    public_points: Table | None = None,
    points: int | None = None,
    kernel: Kernel | str | None = None,
    target: str | None = None,
    ledger: str | Path | None = None,
    table: str | None = None,
    uncounted: bool = False,
    weak: bool = False,
    rehearsal: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Release:
    """Release M rows, drawn by the exponential mechanism, with epsilon-differential privacy: see `publish`.

    public_points  a grid to draw from; by default every row that the domain allows.
    points         M; by default `small_database.default_size`.
    """
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    mechanism = _mechanism(epsilon, delta, rehearsal)
    check_choices(METHOD, "uniform", points, None, None, None)
    check_ledger(ledger, table, rehearsal, uncounted=uncounted)
    check_output(output, private=private, ledger=ledger, others=(domain_path, public_points), force=force)
    refuse_private_as_public(private, public_points, domain, () if rehearsal is not None else domain.samples)
    check_strings(METHOD, domain, public_points)
    grid = public_rows(public_points, domain)
    rows = open_private(private)
    rows.check_columns(domain)
    n_rows = rows.count()
    chosen = kernel_as_read(kernel_from_spec(spec_for(METHOD, kernel, domain, target), domain, target), domain)
    databases = _checked(chosen, domain, grid, points, n_rows=n_rows, epsilon=epsilon)
    spending = None
    if isinstance(mechanism, ExponentialMechanism):  # a rehearsal spends nothing
        spending = Spending(ledger, table, mechanism, n_rows=n_rows, method=METHOD, uncounted=uncounted, weak=weak)
    with note_budget_spent(spending):
        drawn = sample_database(
            rows.encoded(domain), databases, mechanism, n_rows=n_rows,
            record_spend=spending.record if spending else None, progress=progress,
        )  # fmt: skip
        del rows  # from here on, post-processing
        release = _drawn(drawn, databases, mechanism, n_rows=n_rows, ledger_head=spending.head if spending else None)
        if output is not None:
            write_release_whole(release, output)
    if output is not None and spending:
        spending.published(output)
    return release


def _mechanism(epsilon: float, delta: float, rehearsal: int | None) -> ExponentialMechanism | RehearsedExponential:
    fresh = ExponentialMechanism(epsilon, delta)
    return fresh if rehearsal is None else RehearsedExponential(fresh, rehearsal)


def _checked(
    kernel: Kernel, domain: Domain, grid: Array | None, points: int | None, *, n_rows: int, epsilon: float
) -> MultisetSampler:
    """The databases to draw from; PublishError, before a row is read, if the draw or its file would be too large."""
    with fitting():
        databases = small_databases(kernel, domain, grid, points, n_rows=n_rows, epsilon=epsilon)
        _ = databases.sensitivity
    if (cells := databases.size * cells_of_a_row(domain)) > USUAL.cells:
        raise PublishError(
            f"the release would have {cells:,} cells, and readers allow {USUAL.cells:,}. Pass fewer points."
        )
    return databases


def _drawn(
    rows: Array,
    databases: MultisetSampler,
    mechanism: ExponentialMechanism | RehearsedExponential,
    *,
    n_rows: int,
    ledger_head: str | None,
) -> Release:
    """M points of weight 1/M; a row that was drawn twice is two of them."""
    return Release(
        points=databases.domain.decode(rows),
        weights=np.full(len(rows), 1 / len(rows)),
        measurement=None,
        kernel=databases.kernel,
        domain=databases.domain,
        statement=statement_of_draw(
            epsilon=mechanism.epsilon, name=mechanism.name, diameter=databases.diameter, n_rows=n_rows,
            n_databases=databases.count, n_public=len(rows) if databases.is_grid else 0,
            ledger_head=ledger_head,
        ),
        method=METHOD,
        weight_view="probability",
    )  # fmt: skip
