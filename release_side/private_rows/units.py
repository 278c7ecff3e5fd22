"""Tables in which a unit has several rows: which unit has which, and the rows of each together.

The identifiers in one column distinguish the units: patients, households, visits. The number of units is public, as the
number of rows is elsewhere. The number of rows, in all or of one unit, is not: no message, count or refusal here depends
on it. Identifiers are compared as text and discarded; only the information which rows belong together remains.

Source   Balog, Tolstikhin & Schölkopf 2018, §7: rows that are identically distributed, but not independent.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.statement import LONGEST_UNIT, is_unit_name
from release_side.errors import PublishError
from release_side.executors.executor import LOST, Executor, Here, answers
from release_side.private_rows.foreign import guarded
from release_side.private_rows.parts import Parts
from release_side.private_rows.table import PrivateTable
from release_side.private_rows.unit_buckets import ReadUnits, Scatter, Settle

_MOST_HELD = 2**24  # bytes of a table's rows that are held before any is written to the disk


def check_unit(table: PrivateTable, column: str, domain: Domain) -> None:
    """Check that a column can identify units.

    Errors   PublishError, by the header and the declared types alone, unless the column is there, once, has a name that can
             be published and a type that can identify, and is not published itself.
    """
    header = table.header
    if column in domain.names:
        raise PublishError(
            f"column {column!r} is named as the unit and is in the domain: what identifies units is never published. "
            "Remove it from the domain."
        )
    if header.count(column) != 1:
        found = "no column" if column not in header else "more than one column"
        raise PublishError(
            f"the private table has {found} {column!r}, so the rows of a unit cannot be found. Name the one column that "
            "identifies the units."
        )
    if not is_unit_name(column):
        raise PublishError(
            f"column {column!r:.80} is named as the unit, and its name cannot stand in a file: it has more than {LONGEST_UNIT} "
            "characters, or some that cannot be printed. Rename the column."
        )
    if why := table.refusal(column, None):
        raise PublishError(why)


@dataclass(frozen=True, eq=False, repr=False)
class Units:
    """The units of a table: their encoded rows, in buckets of which each has all rows of its units.

    rows    the buckets, for the door.
    count   P, the number of units; public.
    """

    rows: Parts
    count: int

    @classmethod
    def of(cls, parts: Sequence[PrivateTable], column: str, domain: Domain, executor: Executor, folder: str) -> Units:
        """The units that the cells of a column distinguish. Reads the table once, and stores no identifier.

        parts    the table.
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
        return cls(Parts(executor, tasks, ReadUnits(domain.width), domain), count)
