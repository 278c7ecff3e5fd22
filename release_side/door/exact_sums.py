"""The exact sum over the rows of a table, or over its units: by the threads of this process, or by an executor's workers.

A partial sum is exact, so that of one row it would be the row: it goes from a worker to the door and nowhere else. The sum is in
whole numbers, and no bit of it depends on who read which part, how often, or in which order.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import threadpool_info

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.embedding import blas
from kmeanalyst.releases.domain.domain import Domain
from release_side.errors import PublishError
from release_side.executors.executor import answers
from release_side.private_rows.reading import Parts
from release_side.private_rows.unit_rows import UnitRows

_T = TypeVar("_T")
PrivateRows: TypeAlias = Iterable[Array] | Iterable[UnitRows] | Parts
SumOfBlock: TypeAlias = Callable[[Array | UnitRows], Array]
_STEPS = 100  # of progress
_CHECK_ROWS = 64


class Sums(Protocol):
    """Which whole numbers of each row, or unit, are added; can be pickled."""

    @property
    def dimension(self) -> int:
        """F, how many numbers there are."""

    @property
    def step(self) -> int:
        """How many rows, or units, to add at a time."""

    def of_block(self) -> SumOfBlock:
        """Rows, or units → the exact sum (F,) int64 of their numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class PartialSum:
    """The exact sum over one part of a table.

    vector   (F,) int64.
    n_rows   how many rows, or units, it is of.
    worker   what the worker is, and what it makes of public rows: they must be this process's.
    """

    vector: Array
    n_rows: int
    worker: tuple[str, ...]


def sum_over_rows(
    private_rows: PrivateRows, sums: Sums, *, n_rows: int, workers: int = 1,
    progress: Callable[[str, float], None] | None = None,
) -> Array:  # fmt: skip
    """The exact sum (F,) int64 over a table of n_rows rows, or units.

    workers    threads, unless an executor reads the parts.
    progress   called for each hundredth of n_rows, so that its calls do not show how many rows a unit has.
    Errors     PublishError if there are more or fewer; if a part fails, or is missing; if a worker is not like this process.
    """
    exact_sum, seen, shown = np.zeros(sums.dimension, dtype=np.int64), 0, 0
    for n_block, block_sum in _partial_sums(private_rows, sums, workers):
        seen += n_block
        exact_sum += block_sum
        while progress and shown < min(_STEPS, _STEPS * seen // n_rows):
            shown += 1
            progress("reading rows", shown / _STEPS)
    if seen != n_rows:  # the count is public: this says nothing about a row
        raise PublishError(f"the table has {seen} rows, not the {n_rows} that were announced. Count again.")
    return exact_sum


def _partial_sums(private_rows: PrivateRows, sums: Sums, workers: int) -> Iterator[tuple[int, Array]]:
    if isinstance(private_rows, Parts):
        return _sums_of_parts(private_rows, sums)
    return _sums_of_blocks(private_rows, sums, workers)


def _sums_of_blocks(pieces: Iterable[Array] | Iterable[UnitRows], sums: Sums, workers: int) -> Iterator[tuple[int, Array]]:
    sum_of = sums.of_block()
    step = sums.step  # whole units
    blocks = (rows[start : start + step] for rows in pieces for start in range(0, len(rows), step))
    return _in_order(lambda rows: (len(rows), sum_of(rows)), blocks, workers)


def _sums_of_parts(parts: Parts, sums: Sums) -> Iterator[tuple[int, Array]]:
    own = _facts_of(sums, parts.domain)
    work = _SumOfPart(parts.read, sums, parts.domain)
    for _, found in answers(parts.executor, work, parts.tasks):
        if not isinstance(found, PartialSum) or type(found.n_rows) is not int or found.n_rows < 0:
            raise PublishError(_NOT_A_SUM)
        vector = found.vector
        if not isinstance(vector, np.ndarray) or vector.shape != (sums.dimension,) or vector.dtype != np.int64:
            raise PublishError(_NOT_A_SUM)
        if found.worker != own:
            raise PublishError(
                f"a worker is not like this process: it has {_listed(found.worker)}, and this one {_listed(own)}. The same row "
                "might become other numbers there. Nothing was spent. Install the same versions on machines of one kind."
            )
        yield found.n_rows, vector


_NOT_A_SUM = "a worker's answer is not a partial sum. Nothing was spent. Install the same version of kmeanalyst on all workers."


@dataclass(frozen=True, eq=False, repr=False)
class _SumOfPart:
    read: Callable[[Any], Iterator[Array] | Iterator[UnitRows]]
    sums: Sums
    domain: Domain

    def __call__(self, task: Any) -> PartialSum:
        total, n_rows = np.zeros(self.sums.dimension, dtype=np.int64), 0
        for n_block, block_sum in _sums_of_blocks(self.read(task), self.sums, 1):
            total += block_sum
            n_rows += n_block
        return PartialSum(total, n_rows, _facts_of(self.sums, self.domain))


def _facts_of(sums: Sums, domain: Domain) -> tuple[str, ...]:
    """Versions, the kind of machine, and a digest of what public rows become, from text to whole numbers."""
    public = domain.encode(domain.decode(domain.draw(_CHECK_ROWS, 0)))
    digest = blake2b(public.tobytes() + sums.of_block()(public).tobytes(), digest_size=16)
    return (*_machine(), digest.hexdigest())


@cache
def _machine() -> tuple[str, ...]:
    """Versions, and which instructions NumPy and the library of matrices use here: last digits may depend on them."""
    versions = (f"{name} {version(name)}" for name in ("kmeanalyst", "numpy", "scipy"))
    instructions = np.show_config(mode="dicts")["SIMD Extensions"]
    libraries = (each for each in threadpool_info() if each["user_api"] == "blas")
    matrices = sorted({(each["internal_api"], str(each.get("architecture"))) for each in libraries})
    kind = blake2b(repr((instructions, matrices)).encode(), digest_size=4).hexdigest()
    return (f"Python {platform.python_version()}", *versions, f"{platform.machine()} {kind}")


def _listed(facts: tuple[str, ...]) -> str:
    return ", ".join(f"{fact:.40}" for fact in facts[:8])


def _in_order(work: Callable[[Array | UnitRows], _T], blocks: Iterable[Array | UnitRows], workers: int) -> Iterator[_T]:
    """work(block) for each block, by that many threads, with few blocks in memory at a time."""
    if workers == 1:
        yield from map(work, blocks)
        return
    # matrix products then need no threads of their own
    with blas().limit(limits=1), ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[_T]] = deque()
        for block in blocks:
            waiting.append(pool.submit(work, block))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)
