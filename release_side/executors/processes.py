"""Processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from release_side.choices.choices import check_whole
from release_side.executors.executor import Executor


@dataclass(frozen=True)
class Processes(Executor):
    """So many processes of this machine, with one thread each.

    count   of processes; no bit of a release depends on it.

    >>> release_side.Processes(4)
    Processes(count=4)
    """

    count: int
    same_disk = True

    def __post_init__(self) -> None:
        check_whole("processes", self.count, 1)

    @property
    def n_workers(self) -> int:
        """How many tasks can run at a time."""
        return self.count

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it), in any order."""
        from joblib import Parallel, delayed

        # arguments are public, and results small: neither is worth a file in shared memory
        pool = Parallel(self.count, "loky", return_as="generator_unordered", max_nbytes=None, inner_max_num_threads=1)
        return pool(delayed(_numbered)(work, number, task) for number, task in enumerate(tasks))


def _numbered(work: Callable[[Any], Any], number: int, task: Any) -> tuple[int, Any]:
    return number, work(task)


__all__ = ["Processes"]
