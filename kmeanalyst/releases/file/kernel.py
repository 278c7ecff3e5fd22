"""The kernel of a file: known by name, small enough to evaluate, bounded, and a kernel on the domain's rows.

Also the small databases that the exponential mechanism draws: how many there are, and the distances between rows. A
database R of M rows is drawn with probability ∝ exp(−ε‖μ_D − μ_R‖/2Δ) (Balog, Tolstikhin & Schölkopf 2018, §3.4). The
curator draws it and every reader computes Δ again with the functions here, from the domain, the kernel and N alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst import kernels
from kmeanalyst.kernels.base import Array, coordinates_of
from kmeanalyst.kernels.strings import characters_in_a_number
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.limits import MOST_KERNEL_WORK, refusal, refusing
from kmeanalyst.releases.rules.compiled import rules_of


def kernel_of(header: Any, n_columns: int) -> kernels.Kernel:
    """The kernel that a header describes; FileRefused if evaluating it is more work than any release needs."""
    with refusing("the kernel"):
        kernel = kernels.kernel_from_dict(header)
        work = kernel_work(kernel, n_columns)
    if work > MOST_KERNEL_WORK:
        raise refusal(f"the kernel has parts that take {work} passes over the points", f"at most {MOST_KERNEL_WORK}")
    return kernel


def kernel_work(kernel: kernels.Kernel, n_columns: int) -> int:
    """How many passes over a Gram matrix the kernel takes: one for each part and each column that a part uses."""
    if isinstance(kernel, kernels.SoftenedProduct):
        return 1 + sum(kernel_work(part, 1) for part in kernel.kernels)
    if isinstance(kernel, kernels.Sum | kernels.Product):
        return 1 + sum(kernel_work(part, n_columns) for part in kernel.parts)
    if isinstance(kernel, kernels.Scaled):
        return 1 + kernel_work(kernel.kernel, n_columns)
    if isinstance(kernel, kernels.ChosenMargins):
        return 3 * len(kernel.edges) + 3 * kernel.n_tables
    if isinstance(kernel, kernels.Margins):
        return 3 * len(kernel.edges) + len(kernel.deeper)
    if isinstance(kernel, kernels.StringSpectrum):  # a product of counts for each character of a string, at most
        characters = kernel.numbers * characters_in_a_number(kernel.symbols)
        return characters * (kernel.length if kernel.blended else 1)
    if isinstance(kernel, kernels.OnColumns):
        return len(kernel.on) + kernel_work(kernel.kernel, len(kernel.on))
    if isinstance(kernel, kernels.Matern):
        return n_columns + int(kernel.nu)
    return n_columns + len(getattr(kernel, "lengthscales", ()))


def check_kernel(kernel: kernels.Kernel, domain: Domain, points: pd.DataFrame) -> None:
    """FileRefused unless the kernel has a finite bound and is a kernel on rows of this domain."""
    with refusing("the kernel"), np.errstate(all="ignore"):
        rows = domain.encode(points.iloc[:8])
        K, bound = kernel.gram(rows, rows), kernel.bound
        kept = K.shape == (len(rows), len(rows)) and bool((np.abs(K) <= bound**2 * (1 + 1e-9)).all())
        if not (kept and 0 < bound < math.inf):
            raise ValueError("it is not bounded, or does not keep its bound on the points")
        _check_strings(kernel, domain, list(range(domain.width)))
        parts = kernel.kernels if isinstance(kernel, kernels.SoftenedProduct) else ()
        for part, column in zip(parts, domain.columns, strict=bool(parts)):
            levels = len(column.levels) if isinstance(column, Categorical) else None
            if isinstance(part, kernels.Indicator) and levels is not None and part.levels != levels:
                raise ValueError(f"it counts {part.levels} levels in column {column.name}, which has {levels}")


def _check_strings(kernel: kernels.Kernel, domain: Domain, indices: list[int]) -> None:
    """ValueError unless each spectrum kernel in it uses exactly the numbers of one text column, with its alphabet."""
    if isinstance(kernel, kernels.StringSpectrum):
        column = domain.columns[domain.column_of[indices[0]]]
        here = isinstance(column, Text) and indices == domain.coordinates[domain.position(column.name)]
        if not here or len(column.symbols) != kernel.symbols:
            raise ValueError(f"it compares strings of {kernel.symbols} symbols where no text column has such")
    elif isinstance(kernel, kernels.OnColumns):
        _check_strings(kernel.kernel, domain, [indices[int(j)] for j in kernel.on])
    elif isinstance(kernel, kernels.SoftenedProduct):
        for part, at in zip(kernel.kernels, coordinates_of([part.width for part in kernel.kernels]), strict=True):
            _check_strings(part, domain, [indices[i] for i in at])
    elif isinstance(kernel, kernels.Sum | kernels.Product | kernels.Scaled):
        for part in (kernel.kernel,) if isinstance(kernel, kernels.Scaled) else kernel.parts:
            _check_strings(part, domain, indices)


MOST_ROWS = 2000  # domains with at most this many rows are listed: every reader of the release builds their Gram matrix
_MOST_WORK = 200_000_000  # entries of that matrix × passes of the kernel: part of the format, because Δ depends on it
_BLOCK_ENTRIES = 2**16  # entries of that matrix at a time: they stay in a processor's cache
MOST_SIZE = 1000  # M: squared norms of M whole images then fit 64 bits


def enumerate_rows(domain: Domain, kernel: kernels.Kernel) -> Array | None:
    """All encoded rows (n, d) of a small domain; None where there are more than 2000, or a continuum.

    None as well where the kernel takes more than 2·10⁸ steps to compare them all.
    """
    rows = domain.enumerate_rows(MOST_ROWS)
    if rows is None or len(rows) ** 2 * kernel_work(kernel, domain.width) > _MOST_WORK:
        return None
    return rows


def listed_rows(domain: Domain, kernel: kernels.Kernel) -> Array | None:
    """Those of `enumerate_rows` that keep the rules of the domain: the exponential mechanism draws databases of them.

    A private row may break a rule, so that its sensitivity is a maximum over all rows of the domain.
    """
    rows = enumerate_rows(domain, kernel)
    return rows if rows is None or not domain.rules else rows[~rules_of(domain).broken(rows)]


def n_databases(n_rows: int, size: int) -> int:
    """Multisets of `size` rows out of n_rows different ones: C(n + M − 1, M).

    >>> n_databases(3, 2)  # aa ab ac bb bc cc
    6
    """
    return math.comb(n_rows + size - 1, size)


def distances(kernel: kernels.Kernel, rows: Array) -> Array:
    """‖k(x_i, ·) − k(x_j, ·)‖, (n, n), never above 2B, nor above √2·B where the kernel is non-negative."""
    with np.errstate(all="ignore"):  # the kernel may be a file's: the caller refuses what is not a number
        K = kernel.gram(rows, rows)
        norms = np.diag(K)
        squared = norms[:, None] + norms[None, :] - 2 * K
    return np.minimum(np.sqrt(np.maximum(squared, 0.0)), _bound_of_distance(kernel))


def diameter_over(kernel: kernels.Kernel, domain: Domain) -> float:
    """sup ‖k(x, ·) − k(x′, ·)‖ over rows of the domain: N times how far replacing a row can move ‖μ_D − μ_R‖.

    Exact where `enumerate_rows` lists the rows, else a bound: ‖·‖² = k(x, x) + k(x′, x′) − 2k(x, x′), at most 4B² and, for
    k ≥ 0, 2B².
    """
    rows = enumerate_rows(domain, kernel)
    return _bound_of_distance(kernel) if rows is None else _largest_distance(kernel, rows)


def _largest_distance(kernel: kernels.Kernel, rows: Array) -> float:
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


def _bound_of_distance(kernel: kernels.Kernel) -> float:
    return (math.sqrt(2) if kernel.nonnegative else 2.0) * kernel.bound
