"""Sums over the Gram matrix of pooled rows, from one pass over half of its blocks.

The matrix is symmetric, so only pairs of blocks I ≤ J are evaluated, and never kept: memory grows with the number of
rows, not with its square. Distances of Gaussian kernels come from a matrix product of centred rows, which is quick;
if rows lie so far out that the product would cancel, from the kernel itself. Everything is float64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, MultiScale, SoftenedProduct
from kmeanalyst.kernels.base import Array, filled
from kmeanalyst.kernels.embedding import in_threads

_BLOCK = 512  # rows: a block of 2 MB stays in a core's cache
_FARTHEST = 1e5  # squared distance from the centre, in lengthscales: rounding moves an exponent by 1e-10 at most
_MOST_VALUES = 512  # distinct values of a column whose kernel is tabulated

Block = Callable[[slice, slice], Array]  # K(I, J), float64, to be used before the next is asked for


class PartialSum(Protocol):
    """A further sum over one row of blocks of one kernel."""

    def add(self, K: Array, J: slice, share: float) -> None:
        """Add the block K (len I, len J); share is ½ on the diagonal, which a symmetric sum meets twice."""

    def finish(self) -> None:
        """Add this row's sum to the total: called in the order of the rows, by one thread."""


@dataclass(frozen=True)
class GramSums:
    """Sums of k over the pooled rows, n of the first sample and then m, a row with itself left out.

    towards    (n + m, 2) Σ_j k(z_i, z_j) over the rows j of the first and of the second sample.
    squares    (3,) Σ k² over ordered pairs within the first, across (each pair once), within the second.
    diagonal   (n + m,) k(z_i, z_i).
    """

    n: int
    towards: Array
    squares: Array
    diagonal: Array

    @property
    def m(self) -> int:
        """Rows of the second sample."""
        return len(self.towards) - self.n

    @property
    def totals(self) -> tuple[float, float, float]:
        """Σ k within the first sample, across (each pair once), within the second."""
        return (
            float(self.towards[: self.n, 0].sum()),
            float(self.towards[: self.n, 1].sum()),
            float(self.towards[self.n :, 1].sum()),
        )


def gram_sums(
    kernels: Sequence[Kernel], rows: Array, n: int, partial_sums: Sequence[Callable[[slice], PartialSum]] = ()
) -> list[GramSums]:
    """One pass over the blocks of every kernel's Gram matrix of the rows (n + m, d), of which n are the first sample.

    partial_sums   for each kernel, makes the further sum of a row of blocks from its slice; () for none.
    """
    evaluators = [block_evaluator(kernel, rows) for kernel in kernels]
    stripes = _stripes(n, len(rows))
    sums = [GramSums(n, np.zeros((len(rows), 2)), np.zeros(3), kernel.diagonal(rows)) for kernel in kernels]

    def work(i: int) -> list[_Stripe]:
        found = [_Stripe.empty(stripes[i], len(rows)) for _ in kernels]
        for stripe, partial_sum in zip(found, partial_sums, strict=False):
            stripe.further = partial_sum(stripe.I)
        for J in stripes[i:]:
            for evaluate, stripe in zip(evaluators, found, strict=True):
                stripe.add(evaluate(stripe.I, J), J, n)
        return found

    for found in in_threads(work, len(stripes)):
        for total, stripe in zip(sums, found, strict=True):
            total.towards[stripe.I] += stripe.across
            total.towards[:, int(stripe.I.start >= n)] += stripe.down
            total.squares[:] += stripe.squares
            if stripe.further is not None:
                stripe.further.finish()
    return sums


@dataclass
class _Stripe:
    """The blocks (I, J), J ≥ I, of one kernel."""

    I: slice  # noqa: E741
    across: Array  # (len I, 2) row sums, by the sample of the column
    down: Array  # (n + m,) column sums
    squares: Array  # (3,) as in GramSums
    further: PartialSum | None = None

    @classmethod
    def empty(cls, I: slice, n_rows: int) -> _Stripe:  # noqa: E741
        return cls(I, np.zeros((I.stop - I.start, 2)), np.zeros(n_rows), np.zeros(3))

    def add(self, K: Array, J: slice, n: int) -> None:
        ours, theirs, same = int(self.I.start >= n), int(J.start >= n), J == self.I
        if same:
            np.fill_diagonal(K, 0.0)  # a row with itself is left out
        self.across[:, theirs] += K @ np.ones(K.shape[1])
        if not same:
            self.down[J] += np.ones(K.shape[0]) @ K
        self.squares[ours + theirs] += np.vdot(K, K) * (1 if same or ours != theirs else 2)
        if self.further is not None:
            self.further.add(K, J, 0.5 if same else 1.0)


def _stripes(n: int, n_rows: int) -> list[slice]:
    """Blocks of rows, none with rows of both samples."""
    bounds = [*range(0, n, _BLOCK), *range(n, n_rows, _BLOCK), n_rows]
    return [slice(a, b) for a, b in pairwise(bounds)]


# ---------------------------------------------------------------- blocks of one kernel


def block_evaluator(kernel: Kernel, rows: Array) -> Block:
    """K(I, J) of the rows, by the quickest way that keeps float64's accuracy."""
    if isinstance(kernel, Gaussian | MultiScale):
        lengthscales = kernel.lengthscales if isinstance(kernel, MultiScale) else (kernel.lengthscale,)
        scaled = _centred(rows) / min(lengthscales)
        if np.einsum("ij,ij->i", scaled, scaled).max() <= _FARTHEST:
            return _gaussian(scaled, np.array(lengthscales) / min(lengthscales), _patterns(rows))
    if isinstance(kernel, SoftenedProduct) and rows.shape[1] == len(kernel.kernels):
        return _softened(kernel, rows)
    return lambda I, J: np.array(kernel.gram(rows[I], rows[J]), dtype=float)  # noqa: E741


def _centred(rows: Array) -> Array:
    """Rows about their mean, a missing cell at it: two missing cells are at distance zero."""
    present = ~np.isnan(rows)
    return filled(rows - filled(rows).sum(axis=0) / np.maximum(present.sum(axis=0), 1))


def _patterns(rows: Array) -> Array | None:
    """Which cells are missing, as a number per row; None if none are."""
    missing = np.isnan(rows)
    return np.unique(missing, axis=0, return_inverse=True)[1].ravel() if missing.any() else None


def _gaussian(rows: Array, lengthscales: Array, patterns: Array | None) -> Block:
    """The mean of exp(−‖z_i − z_j‖²/2ℓ²); the exponent is the product of (z, −‖z‖²/2, 1) and (z, 1, −‖z‖²/2)."""
    half, one = -0.5 * np.einsum("ij,ij->i", rows, rows), np.ones(len(rows))
    left, right = np.column_stack([rows, half, one]), np.column_stack([rows, one, half])

    def block(I: slice, J: slice) -> Array:  # noqa: E741
        shape = (I.stop - I.start, J.stop - J.start)
        exponent, K = _scratch("exponent", shape), _scratch("gaussian", shape)
        np.matmul(left[I], right[J].T, out=exponent)
        np.exp(exponent if lengthscales[0] == 1 else exponent / lengthscales[0] ** 2, out=K)
        for lengthscale in lengthscales[1:]:
            K += np.exp(exponent / lengthscale**2)
        if len(lengthscales) > 1:
            K /= len(lengthscales)
        if patterns is not None:
            K *= patterns[I, None] == patterns[None, J]
        return K

    return block


def _softened(kernel: SoftenedProduct, rows: Array) -> Block:
    """The kernel for tables, column by column; a column of few values has its kernel in a table."""
    p, d = kernel.inclusion, len(kernel.kernels)
    empty = (1 - p) ** d
    columns = [_column(k, rows[:, j : j + 1]) for j, k in enumerate(kernel.kernels)]

    def block(I: slice, J: slice) -> Array:  # noqa: E741
        product = _scratch("product", (I.stop - I.start, J.stop - J.start))
        product[:] = 1.0
        for column in columns:
            K = column(I, J)
            K *= p
            K += 1 - p
            product *= K
        product -= empty
        product /= 1 - empty
        return product

    return block


def _column(kernel: Kernel, cells: Array) -> Block:
    values, codes = np.unique(cells[:, 0], return_inverse=True)
    if len(values) > _MOST_VALUES:
        return block_evaluator(kernel, cells)
    table = kernel.gram(values[:, None], values[:, None])

    def block(I: slice, J: slice) -> Array:  # noqa: E741
        K = _scratch("looked up", (I.stop - I.start, J.stop - J.start))
        return np.take(table[codes[I]], codes[J], axis=1, out=K, mode="clip")  # every code is in range

    return block


_memory = threading.local()


def _scratch(name: str, shape: tuple[int, int]) -> Array:
    """An array of this thread's own, used again for the next block: fresh memory would cost more than the sums."""
    kept = _memory.__dict__.setdefault(name, np.empty(0))
    size = shape[0] * shape[1]
    if kept.size < size:
        kept = _memory.__dict__[name] = np.empty(size)
    return kept[:size].reshape(shape)
