"""What the door reads of a private table: its rows, or its units, in this process or in parts that workers read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import methodcaller
from tempfile import TemporaryDirectory
from typing import Any

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.population_size import PopulationSize
from release_side.executors.executor import Executor, Here
from release_side.private_rows.parts import Parts, parts_of
from release_side.private_rows.table import PrivateTable
from release_side.private_rows.units import Units, check_unit


@contextmanager
def counted_rows(
    table: PrivateTable, domain: Domain, unit: str | None, executor: Executor
) -> Iterator[tuple[Iterable[Array] | Iterable[Any] | Parts, PopulationSize]]:
    """(encoded rows, how many there are), or units and their number. Rows of units may be in temporary files meanwhile.

    Errors   PublishError, by public facts alone: as `check_unit`; for a table without parts where workers are to read it.
    """
    here = isinstance(executor, Here)
    if unit is None:
        size = PopulationSize(table.count(), None)
        tasks = [] if here else parts_of(table, size.count, executor)
        yield table.encoded(domain) if here else Parts(executor, tasks, methodcaller("encoded", domain), domain), size
        return
    check_unit(table, unit, domain)
    table.check_readable()
    with TemporaryDirectory(prefix="release-side-", ignore_cleanup_errors=True) as folder:
        parts = [table] if here else parts_of(table, table.count(), executor)
        units = Units.of(parts, unit, domain, executor, folder)
        yield iter(units.rows) if here else units.rows, PopulationSize(units.count, unit)
    if os.path.exists(folder):
        with suppress(UserWarning):  # no error, whatever filters say: the noise was drawn
            warnings.warn(f"temporary rows could not be removed: delete the folder {folder}.", stacklevel=3)
