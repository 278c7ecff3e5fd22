"""What an executor can do, and how its answers are taken: each part once, none missing, and no word of a worker's errors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from release_side.errors import PublishError
from release_side.private_rows.table import WITHHELD, guarded, silently

FAILED = f"a worker could not read its part of the private table. {WITHHELD}"
LOST = f"the workers that read parts of the private table were lost. {WITHHELD}"


class Executor(ABC):
    """Where the parts of a table are read and summed (abstract).

    same_disk   whether workers see the files that this process writes to its temporary folder.
    """

    same_disk: ClassVar[bool]

    @property
    @abstractmethod
    def n_workers(self) -> int:
        """How many tasks can run at a time."""

    @abstractmethod
    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it), in any order. `work` can be pickled, and never raises."""

    def exchanged(self, scatter: Callable[[Any], list[Any]], tasks: Sequence[Any]) -> list[list[Any]]:
        """For each bucket what `scatter` made for it of every task: lists that `run` accepts as tasks.

        >>> release_side.Processes(2).exchanged(sorted, [[2, 1], [4, 3]])
        [[1, 3], [2, 4]]
        """
        scattered = sorted(answers(self, scatter, tasks), key=lambda answer: answer[0])
        return [list(bucket) for bucket in zip(*(buckets for _, buckets in scattered), strict=True)]


@dataclass(frozen=True)
class Here(Executor):
    """This process, one task after the other."""

    same_disk = True
    n_workers = 1

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return ((number, work(task)) for number, task in enumerate(tasks))


def check_executor(executor: object, workers: int | None) -> None:
    """PublishError unless this is an executor or None, and threads were not asked for as well."""
    if executor is not None and not isinstance(executor, Executor):
        raise PublishError(
            f"executor must be release_side.Processes(N) or release_side.Dask(client), got a {type(executor).__name__}. Pass "
            "one of these, or leave it out."
        )
    if executor is not None and workers is not None:
        raise PublishError(
            "workers are threads of this process, and an executor's processes have one thread each. Pass one of the two."
        )


@dataclass(frozen=True)
class Quiet:
    """Work that never raises: an error could show a row to whoever carries it.

    It returns what it found, in a tuple; the message of a PublishError, which names public facts alone; None for other errors.
    """

    work: Callable[[Any], Any]

    def __call__(self, task: Any) -> tuple[Any] | str | None:
        try:
            return (silently(lambda: self.work(task)),)
        except PublishError as error:
            return str(error)
        except KeyboardInterrupt:
            raise
        except BaseException:  # by the value of a cell, perhaps; polars has errors that are no Exception
            return None


def answers(executor: Executor, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """(number of a task, what `work` returned for it), for each task once.

    A second answer to a task is dropped unseen: engines repeat tasks whose workers they lost.
    Errors   PublishError for a task that failed or was not answered, without what a worker or an engine says of it.
    """
    left = set(range(len(tasks)))
    given = guarded(lambda: iter(executor.run(Quiet(work), tasks)), LOST)
    try:
        while (answer := guarded(lambda: next(given, None), LOST)) is not None:
            number, value = answer
            if number not in left:
                continue
            left.remove(number)
            if not isinstance(value, tuple):
                raise PublishError(value or FAILED)
            yield number, value[0]
    finally:  # the workers stop before the files are removed that they write
        guarded(getattr(given, "close", tuple), LOST)
    if left:
        raise PublishError(
            "parts of the private table were not answered for, so that the sum would be of some rows only. Nothing was spent. "
            "Publish again, or read the table in one process."
        )
