"""How every publication begins: options are checked, the private table is opened once, and no public input is that table."""

from __future__ import annotations

import warnings

from kmeanalyst.releases.domain.domain import Domain
from release_side.budget.spending import LedgerWarning
from release_side.choices.choices import Account, Reading
from release_side.choices.internal_files import warning_of_internal_files
from release_side.choices.output_file import Output
from release_side.choices.public_inputs import refuse_private_as_public
from release_side.executors.executor import check_executor
from release_side.private_rows.rows import PrivateSource, Table, open_private
from release_side.private_rows.table import PrivateTable


def open_checked(
    private: PrivateSource, domain: Domain, values: tuple[Account, Reading, Output], *, points: Table | None,
    columns: Domain, workload: object = None, others: tuple[object, ...] = (),
) -> PrivateTable:  # fmt: skip
    """The private table; PublishError or DomainError for every fault that can be found before its rows are counted.

    points        rows that are given as public; compared with the private rows in these columns.
    workload      the path of a text of questions, if there is one: messages may quote it.
    others        further inputs, which the output may not replace; those that are not paths are ignored.
    """
    account, reading, output = values
    account.check()
    reading.check()
    check_executor(reading.executor, reading.workers)
    table = open_private(private, reading.n_rows)
    table.check_columns(domain, reading.unit)
    output.check(table, account.ledger, (*others, points, workload))
    samples = () if account.rehearsal is not None else domain.samples
    refuse_private_as_public(table, points, columns, samples, workload)
    if output.path is not None and account.rehearsal is None and (warning := warning_of_internal_files(output.path)):
        warnings.warn(warning, LedgerWarning, stacklevel=3)
    return table
