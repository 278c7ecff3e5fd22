"""What Spark's Python workers do in tests that a partition fails: workers import this file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from cluster_cases import raise_cell

from release_side.private_rows.batches import Batches
from release_side.spark import _Rows


class RowsThatDie(_Rows):
    """The worker of the first partition ends after its answer was given, in each job the first time."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        from pyspark import TaskContext

        for number, table in super().__call__(batches):
            yield number, table
            context = TaskContext.get()
            assert context is not None
            if number == 0 and context.attemptNumber() == 0:
                os._exit(1)


class RowsThatRaise(_Rows):
    """Reading a cell of the first partition raises an error that shows it."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        for number, table in super().__call__(batches):
            yield number, CruelBatches(table.source) if number == 0 else table


class CruelBatches(Batches):
    def cut(self, names: Sequence[str], announced: int | None = None) -> Iterator[list[Any]]:
        for batches in super().cut(names, announced):
            raise_cell(batches[0].column("city")[0].as_py())
            yield batches


def raise_first_cell(batches: Iterator[Any]) -> Iterator[Any]:
    """What a worker would do that did not mind."""
    for batch in batches:
        raise_cell(batch.column("city")[0].as_py())
        yield batch


def as_they_are(batches: Iterator[Any]) -> Iterator[Any]:
    return batches
