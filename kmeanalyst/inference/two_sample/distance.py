"""The maximum mean discrepancy (MMD): a distance between two populations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.two_sample.gram_sums import gram_sums
from kmeanalyst.kernels import Gaussian, Kernel, KernelMean, median_lengthscale
from kmeanalyst.kernels.base import Array, as_rows, filled
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.draft import draft_domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.sources.tables import number_or_text, table_of

Sample = Any  # an array (n, d), a DataFrame, or a (points, weights) pair


def mmd(a: ReleaseData | Sample, b: ReleaseData | Sample, kernel: Kernel | None = None) -> float:
    """Maximum mean discrepancy ‖Σ u_i k(x_i, ·) − Σ v_j k(y_j, ·)‖ of two weighted samples.

    a, b     releases (with their weights as released), (points, weights) pairs, or plain samples of rows.
    kernel   the release's by default; for plain samples a Gaussian at the median distance of columns of one spread, and the table
             kernel for DataFrames with text, dates or missing cells.
    Returns  the distance itself; `mmd_squared` gives its square, unbiased if asked.

    >>> round(mmd([[0, 0], [1, 1], [2, 2]], [[0, 0], [1, 1]], Gaussian(1.0)), 10)
    0.3797286517
    """
    x, y = embeddings(a, b, kernel)
    return x.distance(y)


def mmd_squared(
    a: ReleaseData | Sample, b: ReleaseData | Sample, kernel: Kernel | None = None, *, estimator: str = "biased"
) -> float:
    """Squared maximum mean discrepancy (Gretton et al. 2012, equations 3 and 5).

    estimator   "biased": the squared distance of the embeddings (V-statistic), right for any weights.
                "unbiased": pairs of a row with itself left out; equal weights only.

    >>> x, y = [[0.0], [1.0]], [[0.0], [1.0]]
    >>> mmd_squared(x, y, Gaussian(1.0)), round(mmd_squared(x, y, Gaussian(1.0), estimator="unbiased"), 4)
    (0.0, -0.3935)
    """
    x, y = embeddings(a, b, kernel)
    if estimator == "biased":
        return x.squared_distance(y)
    if estimator != "unbiased":
        raise ValueError(f'estimator must be "biased" or "unbiased", got {estimator!r}. Name one of these.')
    if min(len(x.points), len(y.points)) < 2 or not (_equal(x.weights) and _equal(y.weights)):
        raise ValueError(
            "the unbiased estimator is for plain samples of two rows or more: with weights given, no pair can be "
            'left out. Use estimator="biased".'
        )
    return without_diagonal(x) + without_diagonal(y) - 2 * x.inner(y)


def without_diagonal(x: KernelMean) -> float:
    """Mean of k over pairs of different points, equal weights: by a shorter way if the kernel has one, else in blocks."""
    n, one = len(x.points), np.ones(1)
    if x.kernel.mean_product(x.points[:1], one, x.points[:1], one) is None:
        return gram_sums([x.kernel], x.points, n)[0].totals[0] / (n * (n - 1))
    return (x.squared_norm() * n * n - float(x.kernel.diagonal(x.points).sum())) / (n * (n - 1))


def _equal(weights: Any) -> bool:
    return bool(np.ptp(weights) <= 1e-12 * abs(weights[0]) and abs(weights.sum() - 1) < 1e-9)


def check_kernels(kernels: Sequence[Any], given: Any) -> None:
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise ValueError(
            f'kernel must be a kernel, a sequence of kernels or "aggregated", got {given!r:.80}. Pass e.g. Gaussian(1.0), or a '
            "subclass of kmeanalyst.kernels.Kernel with gram, diagonal and bound."
        )


def embeddings(a: Any, b: Any, kernel: Kernel | None) -> tuple[KernelMean, KernelMean]:
    if kernel is not None:
        check_kernels([kernel], kernel)
    releases = [side for side in (a, b) if isinstance(side, ReleaseData)]
    spaces = [(release.kernel, release.domain) for release in releases]
    if kernel is None and spaces and spaces[0] != spaces[-1]:
        raise ValueError(
            "the two releases have different kernels or domains, so their embeddings are in different spaces. "
            "Pass kernel=..., one kernel for both sides."
        )
    if not releases:
        pair = read_pair(a, b, kernel)
        return KernelMean(pair.kernel, pair.x, pair.u), KernelMean(pair.kernel, pair.y, pair.v)
    (x, u), (y, v) = (_encoded_by_release(side, releases[0]) for side in (a, b))
    _check_like_columns(x, y)
    kernel = kernel or releases[0].kernel
    return KernelMean(kernel, x, u), KernelMean(kernel, y, v)


def _encoded_by_release(side: Any, release: ReleaseData) -> tuple[Array, Array | None]:
    """Encoded points and weights, rows with names by the release's domain."""
    if isinstance(side, ReleaseData):
        return side.encoded_points, side.weights
    rows, weights = _points_and_weights(side, release.domain)
    if not isinstance(rows, pd.DataFrame):
        return as_rows(rows), weights
    encoded, counts = release.domain.encode_counted(rows)
    counts.check(release.domain)
    return encoded, weights


def is_weighted(side: Any) -> bool:
    return isinstance(side, tuple) and len(side) == 2


def typed(side: Sample, domain: Domain | None = None) -> Sample:
    """A table of any source as a DataFrame, without a domain with the numbers that its texts are; anything else as it is."""
    if (table := table_of(side)) is None:
        return side
    return table.frame(domain) if domain is not None else table.frame().apply(number_or_text)


def _points_and_weights(side: Any, domain: Domain | None = None) -> tuple[Any, Array | None]:
    """Arrays as they are; any other table as `typed` reads it."""
    rows, weights = side if is_weighted(side) else (side, None)
    rows = typed(rows, domain)
    if hasattr(rows, "__array__") and not isinstance(rows, pd.DataFrame):
        rows = np.asarray(rows)  # what is not an array says so itself
    return rows, None if weights is None else np.asarray(weights, dtype=float)


def _check_like_columns(x: Array, y: Array) -> None:
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"both sides need the same columns, got {x.shape[1]} and {y.shape[1]}. Select like columns.")


@dataclass(frozen=True)
class Pair:
    """Two samples in one encoding: rows (n, d) and (m, d), their weights or None, and the kernel to see them with.

    notes    how columns were read.
    """

    x: Array
    u: Array | None
    y: Array
    v: Array | None
    kernel: Kernel
    notes: tuple[str, ...] = ()


def read_pair(a: Sample, b: Sample, kernel: Kernel | None = None) -> Pair:
    """Two samples, or (points, weights) pairs, that are both the reader's own.

    Arrays, and DataFrames of numbers, keep their natural units where a kernel is given; else each of several columns is divided
    by its standard deviation over both. DataFrames with text, dates or missing cells are encoded by a domain drafted from the
    rows of both. Columns are matched by name where both have names.
    kernel   None: Gaussian at the pooled median distance, or the drafted domain's table kernel.
    """
    (a, u), (b, v) = (_points_and_weights(side) for side in (a, b))
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame):
        a, b = _columns_by_name(a, b)
    a, b = (side.infer_objects() if isinstance(side, pd.DataFrame) else side for side in (a, b))
    about = []
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame):
        running = [name for name in a.columns if _is_running(a[name]) and _is_running(b[name])]
        about = [f"{name} looks like a running number of the rows; leave it out with columns=[...]" for name in running]
    if not (_is_numbers(a, kernel) and _is_numbers(b, kernel)):
        x, y, domain, notes = _drafted(a, b, kernel)
        return Pair(x, u, y, v, table_kernel(domain), (*about, *notes))
    x, y = _numbers(a), _numbers(b)
    _check_like_columns(x, y)
    if kernel is None and (np.isnan(x).any() or np.isnan(y).any()):
        raise ValueError("cells are NaN, and arrays have no missing cells. Leave these rows out, or pass DataFrames.")
    if kernel is None and x.shape[1] > 1:
        both = pd.DataFrame(np.sort(np.vstack([x, y]), axis=0))  # sorted: the same bits in any order of rows
        with np.errstate(all="ignore"):  # of numbers whose squares are infinite
            spread = both.std(ddof=0).to_numpy()
        spread = np.where((spread > 0) & (spread < np.inf), spread, 1.0)
        x, y = x / spread, y / spread
        about.append("each column was divided by its standard deviation over both samples: the kernel has one lengthscale for all")
    return Pair(x, u, y, v, kernel or Gaussian(pooled_lengthscale(x, y)), tuple(about))


def _is_running(cells: pd.Series) -> bool:
    whole = pd.api.types.is_integer_dtype(cells.dtype) and len(cells) > 2
    return bool(whole and cells.is_monotonic_increasing and cells.is_unique)


def _columns_by_name(a: pd.DataFrame, b: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    a, b = (side.rename(columns=str) for side in (a, b))
    for side, other, which in ((a, b, "second"), (b, a, "first")):
        repeated = sorted(name for name, count in Counter(side.columns).items() if count > 1)
        if repeated:
            raise ValueError(f"columns {repeated} appear more than once: which is meant is not clear. Rename one.")
        lacking = [name for name in side.columns if name not in set(other.columns)]
        if lacking:
            raise ValueError(
                f"the {which} sample lacks the columns {lacking}, which the other has: rows are compared in all columns. "
                "Add them, or drop them from the other."
            )
    return a, b[list(a.columns)]


def _is_numbers(side: Any, kernel: Kernel | None) -> bool:
    """Whether rows are numbers in natural units; missing ones only if a kernel was chosen for them."""
    if not isinstance(side, pd.DataFrame):
        return True
    numbers = all(pd.api.types.is_numeric_dtype(kind) and kind.kind != "c" for kind in side.dtypes)
    return numbers and (kernel is not None or not side.isna().to_numpy().any())


def _numbers(side: Any) -> Array:
    rows = as_rows(side.to_numpy(dtype=float, na_value=np.nan) if isinstance(side, pd.DataFrame) else side)
    if np.isinf(rows).any():
        raise ValueError(
            f"{int(np.isinf(rows).any(axis=1).sum())} rows hold infinite numbers, whose distance from other rows is undefined. "
            "Remove these rows, or write a finite number."
        )
    return rows


def _drafted(a: Any, b: Any, kernel: Kernel | None) -> tuple[Array, Array, Domain, tuple[str, ...]]:
    if not (isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame)):
        raise ValueError(
            "one side has text, dates or missing cells and the other has no column names, so cells cannot be matched. "
            "Pass both as DataFrames with the same columns."
        )
    if kernel is not None:
        raise ValueError(
            "a kernel for numbers cannot compare text or dates, which have no distance. Leave kernel out for the table "
            "kernel, or encode both sides with one Domain and pass arrays."
        )
    pooled = pd.DataFrame({name: np.concatenate([side[name].astype(object).to_numpy() for side in (a, b)]) for name in a.columns})
    domain = draft_domain(pooled, strings=True).domain
    rows, counts = domain.encode_counted(pooled)
    kinds = ", ".join(f"{column.name} ({column.kind})" for column in domain.columns)
    return rows[: len(a)], rows[len(a) :], domain, (f"columns read from both samples: {kinds}", *counts.notes())


def pooled_lengthscale(x: Array, y: Array) -> float:
    """Median distance between different rows of both samples, each present by its size.

    It depends on the pooled rows as a set and not on whose they are, or a test by relabelling would not be exact: a
    subset is drawn (from a fixed seed) after the rows have been sorted.
    """
    rows = np.vstack([x, y])
    rows = rows[np.lexsort(rows.T)]
    for some in (rows, np.unique(filled(rows), axis=0)):  # most rows may be alike
        try:
            return median_lengthscale(some, most_rows=1000)
        except ValueError:
            continue
    raise ValueError("all rows of both samples are alike, so they suggest no lengthscale. Pass a kernel, such as Gaussian(1.0).")
