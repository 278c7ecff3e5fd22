"""Kernel mean embeddings Σ w_m k(z_m, ·): evaluation, inner products, distances, in blocks that bound the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from kmeanalyst.kernels.base import Array, Kernel, as_rows, slices

_MOST_WORKERS = 4
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


@cache
def blas() -> ThreadpoolController:
    """The libraries of matrix products, looked for once, which takes 20 ms: within `blas().limit(limits=1)` they use one thread."""
    return ThreadpoolController().select(user_api="blas")


def on_one_thread(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The function with matrix products on one thread: sums are then the same however many there may be."""

    @wraps(function)
    def alone(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        with blas().limit(limits=1):
            return function(*given, **named)

    return alone


def in_threads(work: Callable[[int], _Result], count: int) -> Iterator[_Result]:
    """work(0), work(1), ... in this order, on as many threads as BLAS may use; within each, BLAS uses one."""
    if count <= 2:  # starting threads would take longer
        yield from map(work, range(count))
        return
    workers = max([1, *(each["num_threads"] for each in blas().info())])
    with blas().limit(limits=1), ThreadPoolExecutor(min(workers, _MOST_WORKERS)) as pool:
        yield from pool.map(work, range(count))


_BLOCK_ENTRIES = 4_000_000  # 32 MB of float64 per block


def row_blocks(n_rows: int, width: int) -> list[slice]:
    """Slices of rows such that each block of (rows, width) has at most a few million entries."""
    return slices(n_rows, _BLOCK_ENTRIES // max(1, width))


@dataclass(frozen=True, eq=False)
class KernelMean:
    """The embedding Σ_m w_m k(z_m, ·) of weighted points, an element of the RKHS of k.

    kernel    Kernel.
    points    (M, d) encoded rows.
    weights   (M,) finite, signed in general; None for 1/M each.

    >>> from kmeanalyst.kernels import Gaussian
    >>> a = KernelMean(Gaussian(1.0), [[0, 0], [1, 1], [2, 2]])
    >>> b = KernelMean(Gaussian(1.0), [[0, 0], [1, 1]])
    >>> round(a.distance(b), 10)   # sqrt((3 - exp(-1) - 2 exp(-4)) / 18)
    0.3797286517
    """

    kernel: Kernel
    points: Array
    weights: Array | None = None

    def __post_init__(self) -> None:
        points = as_rows(self.points)
        if len(points) == 0:
            raise ValueError("an embedding needs at least one point, got none. Pass points of shape (M, d), M ≥ 1.")
        weights = np.full(len(points), 1 / len(points)) if self.weights is None else self.weights
        weights = np.asarray(weights, dtype=np.float64)
        if weights.shape != (len(points),):
            raise ValueError(
                f"weights must have one entry per point, got shape {weights.shape} for {len(points)} points. "
                "Pass one weight for each row of points."
            )
        if not np.isfinite(weights).all():
            raise ValueError("weights must be finite: an infinite or undefined weight has no embedding. Remove it.")
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "weights", weights)

    def evaluate(self, X: Array) -> Array:
        """The embedding as a function: Σ_m w_m k(z_m, x_i), (n,).

        >>> release.embedding.evaluate(release.encoded_points[:2]).shape
        (2,)
        """
        X = as_rows(X)
        blocks = row_blocks(len(X), len(self.points))
        return np.concatenate([self.kernel.gram(X[b], self.points) @ self.weights for b in blocks] or [np.zeros(0)])

    def inner(self, other: KernelMean) -> float:
        """⟨self, other⟩ in the RKHS; both must have the same kernel.

        >>> mean = ka.KernelMean(ka.kernels.Gaussian(1.0), [[0.0]])
        >>> mean.inner(ka.KernelMean(ka.kernels.Gaussian(1.0), [[0.0]]))
        1.0
        """
        if self.kernel != other.kernel:
            raise ValueError(
                f"embeddings in different spaces have no inner product: {self.kernel} and {other.kernel}. "
                "Build both with one kernel."
            )
        X, u, Y, v = self.points, np.asarray(self.weights), other.points, np.asarray(other.weights)
        product = self.kernel.mean_product(X, u, Y, v)
        if product is not None:
            return product
        return float(sum(u[block] @ (self.kernel.gram(X[block], Y) @ v) for block in row_blocks(len(X), len(Y))))

    def squared_norm(self) -> float:
        """‖self‖².

        >>> ka.KernelMean(ka.kernels.Gaussian(1.0), [[0.0]]).squared_norm()
        1.0
        """
        return self.inner(self)

    def squared_distance(self, other: KernelMean) -> float:
        """‖self − other‖², never below zero (rounding of a difference that is zero is cut off).

        >>> mean = ka.KernelMean(ka.kernels.Gaussian(1.0), [[0.0]])
        >>> mean.squared_distance(ka.KernelMean(ka.kernels.Gaussian(1.0), [[9.0]]))
        2.0
        """
        return max(0.0, self.squared_norm() - 2 * self.inner(other) + other.squared_norm())

    def distance(self, other: KernelMean) -> float:
        """‖self − other‖: the maximum mean discrepancy of the two weighted samples.

        >>> release.embedding.distance(release.thin(50).embedding)
        0.0470...
        """
        return float(np.sqrt(self.squared_distance(other)))
