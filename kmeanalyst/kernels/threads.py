"""Blocks of elementwise work side by side: NumPy's exp, cos and sin have one thread, and release the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from threadpoolctl import threadpool_info, threadpool_limits

_MOST_WORKERS = 4
_Result = TypeVar("_Result")


def in_threads(work: Callable[[int], _Result], count: int) -> Iterator[_Result]:
    """work(0), work(1), ... in this order, on as many threads as products may have (BLAS), each with products of its own."""
    if count <= 2:  # starting threads would take longer
        yield from map(work, range(count))
        return
    workers = max([1, *(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")])
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(min(workers, _MOST_WORKERS)) as pool:
        yield from pool.map(work, range(count))
