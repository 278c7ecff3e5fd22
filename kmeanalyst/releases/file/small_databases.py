"""Databases of a few rows that the exponential mechanism draws: how many, and how far rows are apart.

Balog, Tolstikhin & Schölkopf 2018, §3.4: a database R of M rows is drawn with probability ∝ exp(−ε‖μ_D − μ_R‖/2Δ). The
curator draws it and every reader computes Δ again, both by what is written here: the domain, the kernel and N decide.
"""

from __future__ import annotations

import math

import numpy as np

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.file.kernel import kernel_work

MOST_ROWS = 2000  # of a domain that are listed: their Gram matrix is built by whoever reads the release
_MOST_WORK = 200_000_000  # entries of that matrix × passes of the kernel: a rule of the format, for Δ depends on it
_BLOCK_ENTRIES = 2**16  # of that matrix at a time: it stays in a processor's cache
MOST_SIZE = 1000  # M: squared norms of M whole images then fit 64 bits


def every_row(domain: Domain, kernel: Kernel) -> Array | None:
    """All encoded rows (n, d) of a small domain; None where there are more than 2000, or a continuum.

    None as well where the kernel takes more than 2·10⁸ steps to compare them all.
    """
    rows = domain.every_row(MOST_ROWS)
    if rows is None or len(rows) ** 2 * kernel_work(kernel, domain.width) > _MOST_WORK:
        return None
    return rows


def n_databases(n_rows: int, size: int) -> int:
    """Multisets of `size` rows out of n_rows different ones: C(n + M − 1, M).

    >>> n_databases(3, 2)  # aa ab ac bb bc cc
    6
    """
    return math.comb(n_rows + size - 1, size)


def distances(kernel: Kernel, rows: Array) -> Array:
    """‖k(x_i, ·) − k(x_j, ·)‖, (n, n), never above 2B, nor above √2·B where the kernel is non-negative."""
    with np.errstate(all="ignore"):  # of a file's kernel: what is not a number is refused by whoever compares it
        K = kernel.gram(rows, rows)
        norms = np.diag(K)
        squared = norms[:, None] + norms[None, :] - 2 * K
    return np.minimum(np.sqrt(np.maximum(squared, 0.0)), _bound_of_distance(kernel))


def diameter_over(kernel: Kernel, domain: Domain) -> float:
    """sup ‖k(x, ·) − k(x′, ·)‖ over rows of the domain: N times how far replacing a row can move ‖μ_D − μ_R‖.

    Exact where `every_row` lists the rows, else its bound: ‖·‖² = k(x, x) + k(x′, x′) − 2k(x, x′), at most 4B² and, for
    k ≥ 0, 2B².
    """
    rows = every_row(domain, kernel)
    return _bound_of_distance(kernel) if rows is None else _largest_distance(kernel, rows)


def _largest_distance(kernel: Kernel, rows: Array) -> float:
    """The largest of `distances`, to the last bit: each pair of rows is compared once, in blocks. NaN if any is NaN."""
    step, largest = max(1, _BLOCK_ENTRIES // len(rows)), 0.0
    norms = np.empty(len(rows))
    with np.errstate(all="ignore"):
        for start in range(0, len(rows), step):
            stop = min(start + step, len(rows))
            K = kernel.gram(rows[start:stop], rows[:stop])
            norms[start:stop] = np.diagonal(K, start)
            squared = norms[start:stop, None] + norms[None, :stop] - 2 * K
            largest = float(np.maximum(largest, squared.max()))
        return float(np.minimum(np.sqrt(largest), _bound_of_distance(kernel)))


def _bound_of_distance(kernel: Kernel) -> float:
    return (math.sqrt(2) if kernel.nonnegative else 2.0) * kernel.bound
