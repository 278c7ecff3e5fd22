"""DataFrames of Spark: each partition is summed where it is, and the door adds the exact sums.

A thin adapter over `mapInArrow`. Spark's own logs, event logs and shuffle files are the curator's: PROMISE.md says what is in them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import itemgetter, methodcaller
from pathlib import Path
from typing import Any

from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.sources.arrow_types import why_refused
from kmeanalyst.sources.source import ArrowSource
from release_side.choices.options import chosen_domain
from release_side.errors import PublishError
from release_side.executors.executor import FAILED, LOST, Executor, Quiet
from release_side.private_rows.batches import Batches
from release_side.private_rows.table import NOT_OPENED, ElsewhereTable, PrivateTable, guarded
from release_side.private_rows.unit_buckets import BUCKETS
from release_side.publishing.publish import publish as publish_table

_ANSWERS = "number int, answer binary"
_CHUNKS = "bucket int, part int, chunk binary"
_CHANGED = (
    "the DataFrame has other partitions than when its rows were counted. Nothing was spent. Write or persist it first, and publish "
    "that."
)


def publish(frame: Any, domain: Domain | str | Path, *, unit: str | None = None, **options: Any) -> Release:
    """Release the kernel mean embedding of a DataFrame of Spark, as `release_side.publish` does.

    frame     a DataFrame of Spark 4 or newer. It must have the same rows each time that it is computed: write or persist it
              first, and use no limit, sample, window or random number. Each of its rows must be made from one person's record,
              and its types declared (no inferSchema). Python workers need the same versions of NumPy and kmeanalyst as here.
    domain    as for `release_side.publish`, and so are the options, but for executor, workers and n_rows.
    unit      column that identifies the units: Spark shuffles their encoded rows, which its shuffle files hold. Set
              spark.io.encryption.enabled where others can read its folders. A 64th of these rows must fit into a worker's memory.
    Errors    PublishError or DomainError, by public facts alone. What a task of Spark itself raises is in Spark's own logs.

    >>> visits = spark.read.parquet("visits")  # doctest: +SKIP
    >>> release_side.spark.publish(visits, domain, epsilon=1, delta=1e-9, uncounted=True)  # doctest: +SKIP
    """
    if not type(frame).__module__.startswith("pyspark.sql"):
        raise PublishError(
            f"a {type(frame).__name__} is not a DataFrame of Spark. Pass one, or publish other tables by release_side.publish."
        )
    for name in {"executor", "workers", "n_rows"} & options.keys():
        raise PublishError(f"{name} has no meaning here: Spark reads and counts the rows. Leave it out.")
    known = chosen_domain(domain)
    table = _Table(frame, [*known.names_read, *([] if unit is None else [unit])])
    return publish_table(table, domain, unit=unit, executor=_Spark(), **options)


@dataclass(frozen=True, eq=False, repr=False)
class _Tasks:
    """What the partitions of a frame hold: one job.

    opened   on a worker: the record batches of a partition → (number of a task, the task).
    """

    frame: Any
    opened: Callable[[Iterator[Any]], Iterator[tuple[int, Any]]]

    def answers(self, work: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it)."""
        for row in self.frame.mapInArrow(_Answers(self.opened, work), _ANSWERS).collect():
            yield row["number"], pickle.loads(row["answer"])


@dataclass(frozen=True, eq=False, repr=False)
class _Task(ElsewhereTable):
    tasks: _Tasks
    number: int

    @property
    def header(self) -> list[str]:
        return list(self.tasks.frame.columns)


@dataclass(frozen=True)
class _Spark(Executor):
    same_disk = False
    n_workers = 1  # Spark has divided the table already

    def run(self, work: Callable[[Any], Any], tasks: Sequence[_Task]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it)."""
        indices = {task.number: i for i, task in enumerate(tasks)}
        for number, answer in tasks[0].tasks.answers(work) if tasks else ():
            if number not in indices:
                raise PublishError(_CHANGED)
            yield indices[number], answer

    def exchanged(self, scatter: Callable[[Any], list[Any]], tasks: Sequence[_Task]) -> list[Any]:
        """For each bucket what `scatter` made for it of every task, after a shuffle by the number of the bucket."""
        if not tasks:
            return []
        parts = tasks[0].tasks
        chunks = parts.frame.mapInArrow(_Chunks(parts.opened, Quiet(scatter)), _CHUNKS)
        buckets = _Tasks(chunks.repartition("bucket").sortWithinPartitions("bucket", "part"), _buckets)
        return [_Task(buckets, number) for number in range(BUCKETS)]


@dataclass(frozen=True, eq=False, repr=False)
class _Table(ElsewhereTable):
    frame: Any
    names: Sequence[str]

    @property
    def header(self) -> list[str]:
        return list(self.frame.columns)

    def count(self) -> int:
        return sum(self._sizes.values())

    def type_of(self, name: str) -> str:
        return str(self._schema.field(name).type)

    def refusal(self, name: str, column: Column | None) -> str:
        return why_refused(self._schema.field(name), column)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        return [_Task(self._rows, number) for number in self._sizes]

    @cached_property
    def _selected(self) -> Any:
        quoted = (name.replace("`", "``") for name in self._read)  # numbers: mapInArrow fails at names with a dot
        return guarded(
            lambda: self.frame.selectExpr(*(f"`{name}` as c{i}" for i, name in enumerate(quoted))), NOT_OPENED
        )

    @property
    def _read(self) -> list[str]:
        return [name for name in self.header if name in self.names]

    @cached_property
    def _schema(self) -> Any:
        import pyarrow as pa

        found = guarded(lambda: self._selected.limit(0).toArrow().schema, NOT_OPENED)
        return pa.schema([field.with_name(name) for field, name in zip(found, self._read, strict=True)])

    @cached_property
    def _rows(self) -> _Tasks:
        return _Tasks(self._selected, _Rows(self._schema))

    @cached_property
    def _sizes(self) -> dict[int, int]:
        """Rows of each partition, by the plan that sums them: another plan might divide the table in another way."""
        given = guarded(lambda: dict(self._rows.answers(Quiet(methodcaller("count")))), LOST)
        if not all(isinstance(answer, tuple) for answer in given.values()):
            raise PublishError(FAILED)
        return {number: n_rows for number, (n_rows,) in given.items()}


# ---------------------------------------------------------------------- on the workers


@dataclass(frozen=True, eq=False, repr=False)
class _Answers:
    """Record batches of a partition → a row for each task: what the work, which never raises, returned for it."""

    opened: Callable[[Iterator[Any]], Iterator[tuple[int, Any]]]
    work: Callable[[Any], Any]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for number, task in self.opened(batches):
            answer = pickle.dumps(self.work(task))
            yield pa.record_batch([pa.array([number], pa.int32()), pa.array([answer])], ["number", "answer"])


@dataclass(frozen=True, eq=False, repr=False)
class _Chunks:
    """Record batches of a partition → its records in each bucket; one without bytes, which no work can read, if that failed."""

    opened: Callable[[Iterator[Any]], Iterator[tuple[int, Any]]]
    scatter: Quiet

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for number, task in self.opened(batches):
            found = self.scatter(task)
            for bucket, chunk in enumerate(found[0] if isinstance(found, tuple) else [None]):
                columns = [
                    pa.array([bucket], pa.int32()),
                    pa.array([number], pa.int32()),
                    pa.array([chunk], pa.binary()),
                ]
                yield pa.record_batch(columns, ["bucket", "part", "chunk"])


@dataclass(frozen=True, eq=False, repr=False)
class _Rows:
    """The record batches of a partition as one task: a table."""

    schema: Any

    def __call__(self, batches: Iterator[Any]) -> Iterator[tuple[int, PrivateTable]]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield context.partitionId(), Batches(_Partition(self.schema, batches))


def _buckets(batches: Iterator[Any]) -> Iterator[tuple[int, list[Any]]]:
    """Record batches of chunks, sorted by bucket → each bucket as a task."""
    rows = (row for batch in batches for row in batch.to_pylist())
    for bucket, chunks in groupby(rows, itemgetter("bucket")):
        yield bucket, [row["chunk"] for row in chunks]


@dataclass(frozen=True, eq=False, repr=False)
class _Partition(ArrowSource):
    rows: Iterator[Any]

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.rows)

    def batches(self, names: Sequence[str]) -> Iterator[Any]:
        return (batch.rename_columns(self.schema.names) for batch in self.rows)
