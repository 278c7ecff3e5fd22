"""What the door reads of a private table: its rows, or its units, in this process or in parts that workers read.

The identifiers in one column distinguish the units: patients, households, visits. The number of units is public, as the
number of rows is elsewhere. The number of rows, in all or of one unit, is not: no message, count or refusal here depends
on it. Identifiers are compared as text and discarded; only the information which rows belong together remains.

Source   Balog, Tolstikhin & Schölkopf 2018, §7: rows that are identically distributed, but not independent.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.statement import PopulationSize
from kmeanalyst.releases.texts import one_line
from release_side.choices.output_file import is_running
from release_side.executors.executor import LOST, Executor, Here, answers
from release_side.private_rows.table import PrivateTable, guarded
from release_side.private_rows.unit_buckets import ReadUnits, Scatter, Settle
from release_side.private_rows.unit_rows import UnitRows

_FOLDER = "release-side-"  # how a folder of rows that are on the disk begins
_MOST_HELD = 2**24  # bytes of a table's rows that are held before any is written to the disk
_LEAST, _MOST = 20_000, 250_000  # rows of a part
_PARTS_OF_A_WORKER = 4  # so that none waits long for the last one


@contextmanager
def counted_rows(
    table: PrivateTable, domain: Domain, unit: str | None, executor: Executor
) -> Iterator[tuple[Iterable[Array] | Iterable[Any] | Parts, PopulationSize]]:
    """(encoded rows, how many there are), or units and their number. Rows of units may be in temporary files meanwhile.

    unit     checked before, by `check_columns`.
    Errors   PublishError, by public facts alone, for a table without parts where workers are to read it.
    """
    here = isinstance(executor, Here)
    if unit is None:
        size = PopulationSize(table.count(), None)
        tasks = [] if here else _parts_of(table, size.count, executor)
        yield table.encoded(domain) if here else Parts(executor, tasks, methodcaller("encoded", domain), domain), size
        return
    table.check_readable()
    _name_left_folders()
    with TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        parts = [table] if here else _parts_of(table, table.count(), executor)
        rows, count = _units_of(parts, unit, domain, executor, folder)
        yield iter(rows) if here else rows, PopulationSize(count, unit)
    if os.path.exists(folder):
        with suppress(UserWarning):  # no error, whatever filters say: the noise was drawn
            warnings.warn(f"temporary rows could not be removed: delete the folder {folder}.", stacklevel=3)


def _name_left_folders() -> None:
    """Warn of folders of rows that killed publications left: their names have the process, which is no more."""
    for left in sorted(Path(gettempdir()).glob(f"{_FOLDER}*")):
        process = left.name.removeprefix(_FOLDER).partition("-")[0]
        if process.isascii() and process.isdecimal() and not is_running(int(process)) and _is_own(left):
            with suppress(UserWarning):
                warnings.warn(
                    f"a publication that was killed left private rows in {one_line(str(left))}: delete that folder.", stacklevel=4
                )


def _is_own(folder: Path) -> bool:
    with suppress(OSError):
        return folder.is_dir() and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
    return False


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


def _parts_of(table: PrivateTable, n_rows: int, executor: Executor) -> list[PrivateTable]:
    """Parts of a table, enough for every worker and small enough to be repeated where one is lost; PublishError if it has none."""
    return table.divided(min(max(n_rows // (_PARTS_OF_A_WORKER * executor.n_workers), _LEAST), _MOST))


def _units_of(parts: Sequence[PrivateTable], column: str, domain: Domain, executor: Executor, folder: str) -> tuple[Parts, int]:
    """(buckets of encoded rows, of which each has all rows of its units; P, the number of units, which is public).

    Reads the table once, and stores no identifier.

    parts    the table, whose units the cells of a column distinguish.
    folder   for rows that memory does not hold; of the curator alone, and there as long as the units are read.
    """
    key = secrets.token_bytes(16)
    where = folder if executor.same_disk else None
    held = _MOST_HELD if isinstance(executor, Here) else 0
    scatter = Scatter(column, domain, key, where, held)
    buckets = guarded(lambda: executor.exchanged(scatter, parts), LOST)
    settled = sorted(answers(executor, Settle(domain.width, where), buckets), key=lambda answer: answer[0])
    tasks = [task for number, (_, leaves) in settled for task in ([buckets[number]] if leaves is None else leaves)]
    count = sum(count for _, (count, _) in settled)
    return Parts(executor, tasks, ReadUnits(domain.width), domain), count
