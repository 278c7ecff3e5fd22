"""Sums over the Gram matrix of pooled rows, from one pass over half of its blocks, and how precise a comparison they allow.

The matrix is symmetric, so only pairs of blocks I ≤ J are evaluated, and never kept: memory grows with the number of
rows, not with its square. Distances of Gaussian kernels come from a matrix product of centred rows, which is quick;
if rows lie so far out that the product would cancel, from the kernel itself. Everything is float64, but products with labels.

With Σ the covariance of the features φ = k(z, ·), tr Σ and tr Σ² are means over pairs of rows; U-centring (Székely &
Rizzo 2014, equation 3.2; Song et al. 2012, equation 5) makes them unbiased, and computes no feature.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, MultiScale, SoftenedProduct
from kmeanalyst.kernels.base import Array, filled
from kmeanalyst.kernels.embedding import in_threads

_BLOCK = 512  # rows: a block of 2 MB stays in a core's cache
_FARTHEST = 1e5  # squared distance from the centre, in lengthscales: rounding moves an exponent by 1e-10 at most
_MOST_VALUES = 512  # distinct values of a column whose kernel is tabulated

_Z_95, _Z_80 = 1.959963984540054, 0.8416212335729143
_LEAST_ROWS = 4  # fewer have no unbiased tr Σ²
_ROUNDING = 1e-13  # share of a sum's terms, which cancel: less is rounding error

Block = Callable[[slice, slice], Array]  # K(I, J), float64, to be used before the next is asked for


class RowLabels:
    """q = cᵀKc for each column of labels (n + m, B), by float32 products with blocks of K, added in float64.

    Labels are about their mean, c = a − n/(n + m). `level` is about the mean of K: it is taken off every entry, which changes
    no q (cᵀ1 = 0) and spares digits.
    """

    def __init__(self, labels: Array, level: float) -> None:
        self.labels, self.level, self.share = labels, level, np.float32(labels[:, 0].mean())
        self.quadratic = np.zeros(labels.shape[1])

    def product(self, K: Array, J: slice, share: float) -> Array:
        """The block K (len I, len J) times the labels of J; share is ½ on the diagonal, which a symmetric sum meets twice."""
        small = np.subtract(K, self.level, dtype=np.float32, casting="same_kind")
        if share != 1:
            small *= np.float32(share)
        product: Array = small @ (self.labels[J] - self.share)
        return product

    def finish(self, I: slice, towards: Array) -> None:  # noqa: E741
        self.quadratic += 2 * np.einsum("ib,ib->b", towards, self.labels[I] - self.share, dtype=np.float64)


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
        return len(self.towards) - self.n

    @property
    def totals(self) -> tuple[float, float, float]:
        """Σ k within the first sample, across (each pair once), within the second."""
        first, second = self.towards[: self.n], self.towards[self.n :]
        return float(first[:, 0].sum()), float(first[:, 1].sum()), float(second[:, 1].sum())


def gram_sums(kernels: Sequence[Kernel], rows: Array, n: int, forms: Sequence[RowLabels] = ()) -> list[GramSums]:
    """One pass over the blocks of every kernel's Gram matrix of the rows (n + m, d), of which n are the first sample.

    forms   for each kernel, the quadratic forms that are summed in the same pass; () for none.
    """
    evaluators = [block_evaluator(kernel, rows) for kernel in kernels]
    bounds = [*range(0, n, _BLOCK), *range(n, len(rows), _BLOCK), len(rows)]  # no block has rows of both samples
    stripes = [slice(a, b) for a, b in pairwise(bounds)]
    sums = [GramSums(n, np.zeros((len(rows), 2)), np.zeros(3), kernel.diagonal(rows)) for kernel in kernels]
    labels: Sequence[RowLabels | None] = forms or [None] * len(kernels)

    def work(i: int) -> list[_Stripe]:
        found = [_Stripe.empty(stripes[i], len(rows), form) for form in labels]
        for J in stripes[i:]:
            for evaluate, stripe in zip(evaluators, found, strict=True):
                stripe.add(evaluate(stripe.I, J), J, n)
        return found

    for found in in_threads(work, len(stripes)):
        for total, stripe in zip(sums, found, strict=True):
            total.towards[stripe.I] += stripe.across
            total.towards[:, int(stripe.I.start >= n)] += stripe.down
            total.squares[:] += stripe.squares
            if stripe.form is not None:
                stripe.form.finish(stripe.I, stripe.towards)
    return sums


@dataclass
class _Stripe:
    """The blocks (I, J), J ≥ I, of one kernel."""

    I: slice  # noqa: E741
    across: Array  # (len I, 2) row sums, by the sample of the column
    down: Array  # (n + m,) column sums
    squares: Array  # (3,) as in GramSums
    form: RowLabels | None
    towards: Array  # (len I, B) products with the form's labels

    @classmethod
    def empty(cls, I: slice, n_rows: int, form: RowLabels | None) -> _Stripe:  # noqa: E741
        length = I.stop - I.start
        towards = np.zeros((length, 0 if form is None else form.labels.shape[1]), dtype=np.float32)
        return cls(I, np.zeros((length, 2)), np.zeros(n_rows), np.zeros(3), form, towards)

    def add(self, K: Array, J: slice, n: int) -> None:
        ours, theirs, same = int(self.I.start >= n), int(J.start >= n), J == self.I
        if same:
            np.fill_diagonal(K, 0.0)  # a row with itself is left out
        self.across[:, theirs] += K @ np.ones(K.shape[1])
        if not same:
            self.down[J] += np.ones(K.shape[0]) @ K
        self.squares[ours + theirs] += np.vdot(K, K) * (1 if same or ours != theirs else 2)
        if self.form is not None:
            self.towards += self.form.product(K, J, 0.5 if same else 1.0)


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


# ---------------------------------------------------------------- how precise a comparison is


def of_two_samples(sums: GramSums, unbiased: float, margin: float | None) -> dict[str, Any]:
    """The fields of a TestResult of a permutation test. `margin`: how far above its mean a statistic is rejected at 5 %."""
    rate, trace = 1 / sums.n + 1 / sums.m, pooled_trace(sums)
    square, variances = pooled_trace_of_square(sums), variances_of_unbiased(sums)
    fields: dict[str, Any] = {"noise_floor": float(np.sqrt(rate * trace))}
    if margin is not None and square is not None and trace > 0:
        fields["detectable_mmd"] = detectable_mmd(margin, 2 * rate**2 * square, rate * square / trace)
    if variances is not None:
        fields["mmd_interval"] = mmd_interval(unbiased, *variances)
    return fields


def mmd_interval(unbiased: float, null_variance: float, linear_variance: float) -> tuple[float, float]:
    """95 % interval for the populations' MMD: the roots of all s = MMD² with |U − s| ≤ z √(v₀ + 4 s r).

    unbiased          U, the unbiased estimate of s. Its variance is v₀ + 4 s r, r the variance of the difference of the
                      mean features along its own direction, that of the witness.
    null_variance     v₀, the variance of U if s = 0.
    linear_variance   the estimate of s r. Divided by U it estimates r, unreliably if U is within the noise. r is therefore the
                      mean of this ratio, with weight U, and of √(v₀/2), with weight √v₀: the value of r if all variance
                      is along one direction.
    The plain interval for s, U ± z √(v₀ + 4 · linear_variance), uses too small a variance whenever U happens to be too small:
    near the distances that are just detected it covers 87 %. This one covers between 93 and 99 % in simulations.
    """
    spread = np.sqrt(null_variance)
    if spread == 0 and unbiased <= 0:
        return 0.0, 0.0
    r = (linear_variance + spread * np.sqrt(null_variance / 2)) / (max(unbiased, 0.0) + spread)
    middle = unbiased + 2 * _Z_95**2 * r
    root = np.sqrt(max(0.0, middle**2 - unbiased**2 + _Z_95**2 * null_variance))
    low, high = max(0.0, middle - root), max(0.0, middle + root)
    if unbiased <= _Z_95 * spread:  # s = 0 is among them
        low = 0.0
    return float(np.sqrt(low)), float(np.sqrt(high))


def detectable_mmd(margin: float, null_variance: float, direction_variance: float) -> float:
    """The distance found at 5 % with 80 % power: s = c + z_.8 √(v₀ + 4 s v) for s = MMD², and its root.

    margin               c, the critical value minus the statistic's mean if there is no difference.
    null_variance        v₀, of the statistic if there is none.
    direction_variance   v, of the mean difference along the populations' difference, taken to be spread over the
                         directions of feature space as the variance is: (1/n + 1/m)·tr Σ²/tr Σ.
    """
    b = margin + 2 * _Z_80**2 * direction_variance
    inside = b**2 - margin**2 + _Z_80**2 * null_variance
    return float(np.sqrt(max(0.0, b + np.sqrt(max(0.0, inside)))))


def pooled_trace(sums: GramSums) -> float:
    """tr Σ of the pooled rows: mean k(z, z) less the mean of k over pairs of different rows."""
    rows = sums.n + sums.m
    own = float(sums.diagonal.mean())
    trace = own - float(sums.towards.sum()) / (rows * (rows - 1))
    return trace if trace > _ROUNDING * own else 0.0


def pooled_trace_of_square(sums: GramSums) -> float | None:
    """tr Σ² of the pooled rows, which no relabelling changes."""
    within, across, beyond = sums.squares
    return trace_of_square(float(within + 2 * across + beyond), sums.towards.sum(axis=1))


def trace_of_square(squares: float, row_sums: Array) -> float | None:
    """tr Σ², from Σ k² and the row sums over pairs of different rows; None for fewer than four rows.

    It is the sum of squares of the U-centred Gram matrix over n(n − 3); sampling can make it negative: 0 then.
    """
    n = len(row_sums)
    if n < _LEAST_ROWS:
        return None
    total = float(row_sums.sum())
    centred = squares - 2 * float(row_sums @ row_sums) / (n - 2) + total**2 / ((n - 1) * (n - 2))
    return centred / (n * (n - 3)) if centred > _ROUNDING * squares else 0.0


def variances_of_unbiased(sums: GramSums) -> tuple[float, float] | None:
    """The two parts of the unbiased MMD²'s variance, v₀ + 4·linear: (v₀, linear); None for fewer than four rows.

    Hoeffding's decomposition of the two-sample U-statistic (Serfling 1980, section 5.2; its linear part is Gretton et
    al. 2012, corollary 16): linear is Var w(x)/n + Var w(y)/m, w the witness, and v₀ = 2 tr Σ_x²/n(n − 1) + 2 tr Σ_y²/m(m − 1) +
    4 tr Σ_xΣ_y/nm. The witness at a row is itself an estimate: the variance that this adds is subtracted.
    """
    n, m = sums.n, sums.m
    first, second = sums.towards[:n], sums.towards[n:]
    square_x, square_y = trace_of_square(sums.squares[0], first[:, 0]), trace_of_square(sums.squares[2], second[:, 1])
    if square_x is None or square_y is None:
        return None
    total = float(first[:, 1].sum())
    across = sums.squares[1] - first[:, 1] @ first[:, 1] / m - second[:, 0] @ second[:, 0] / n + total**2 / (n * m)
    product = max(0.0, float(across) / ((n - 1) * (m - 1)))
    linear_x = witness_variance(first[:, 0] / (n - 1) - first[:, 1] / m, square_x, other=product / m)
    linear_y = witness_variance(second[:, 1] / (m - 1) - second[:, 0] / n, square_y, other=product / n)
    degenerate = 2 * square_x / (n * (n - 1)) + 2 * square_y / (m * (m - 1)) + 4 * product / (n * m)
    return degenerate, linear_x / n + linear_y / m


def witness_variance(witness: Array, square: float, *, rows: int | None = None, other: float = 0.0) -> float:
    """Variance of the populations' witness from its values at some rows, each left out of its own value.

    rows     n, from which the values are means; as many as the values by default.
    square   tr Σ². The sample variance also contains tr Σ²(n − 2)/(n − 1)², from the n − 1 rows.
    other    what the other sample adds.
    """
    n = rows or len(witness)
    return max(0.0, float(witness.var(ddof=1)) - square * (n - 2) / (n - 1) ** 2 - other)
