"""A private table in parts, which the workers of an executor read: its rows, or its units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from release_side.executors.executor import Executor
from release_side.private_rows.table import PrivateTable
from release_side.private_rows.unit_rows import UnitRows

_LEAST, _MOST = 20_000, 250_000  # rows of a part
_PARTS_OF_A_WORKER = 4  # so that none waits long for the last one


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """Encoded rows, or units, in parts.

    executor   who reads them.
    tasks      one for each part; where the table is in files, what it says where they are.
    read       a task → pieces of encoded rows, or of units; can be pickled.
    domain     by which rows are encoded.
    """

    executor: Executor
    tasks: Sequence[Any]
    read: Callable[[Any], Iterator[Array] | Iterator[UnitRows]]
    domain: Domain

    def __iter__(self) -> Iterator[Array] | Iterator[UnitRows]:
        for task in self.tasks:
            yield from self.read(task)


def parts_of(table: PrivateTable, n_rows: int, executor: Executor) -> list[PrivateTable]:
    """Parts of a table, enough for every worker and small enough to be repeated where one is lost; PublishError if it has none."""
    return table.divided(min(max(n_rows // (_PARTS_OF_A_WORKER * executor.n_workers), _LEAST), _MOST))
