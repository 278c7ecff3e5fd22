"""Processes of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from release_side.choices.choices import check_whole
from release_side.executors.executor import Executor

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


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
        """How many tasks can run at a time.

        >>> release_side.Processes(4).n_workers
        4
        """
        return self.count

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it), in any order.

        >>> sorted(release_side.Processes(2).run(abs, [-7, 5]))
        [(0, 7), (1, 5)]
        """
        from loky import ProcessPoolExecutor, as_completed

        pool = ProcessPoolExecutor(self.count, env=_ONE_THREAD)  # also from notebooks, and scripts without a main guard
        try:
            numbers = {pool.submit(work, task): number for number, task in enumerate(tasks)}
            for future in as_completed(numbers):
                yield numbers.pop(future), future.result()
        finally:
            pool.shutdown(kill_workers=True)
