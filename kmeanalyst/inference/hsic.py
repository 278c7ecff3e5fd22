"""Room 4: independence of two groups of columns of plain rows, by permutation (Gretton et al. 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.results import TestResult
from kmeanalyst.kernels import Gaussian, Kernel, median_lengthscale
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.kernels.embedding import centre_gram
from kmeanalyst.kernels.features import Nystroem
from kmeanalyst.releases.draft import draft_domain
from kmeanalyst.releases.kernel_choice import table_kernel

Names = str | int | Sequence[str] | Sequence[int]

_MOST_WHOLE = 500  # rows whose Gram matrices are used as they are; of more, coordinates in a subspace
_BASIS = 100  # its points
_NEGLIGIBLE = 1e-7  # of the largest eigenvalue


def positions_of(names: Sequence[str], columns: Names) -> tuple[int, ...]:
    """Positions of columns given by name or position; one or several."""
    asked: list[str | int] = [columns] if isinstance(columns, str | int) else list(columns)
    if not asked or len(set(asked)) != len(asked):
        raise ValueError(f"columns must be distinct and at least one, got {asked!r:.80}. Name each once.")
    found = []
    for name in asked:
        known = name in names if isinstance(name, str) else 0 <= name < len(names)
        if not known:
            raise ValueError(f"no column {name!r}: there are {', '.join(names)}. Name one of these, or its position.")
        found.append(names.index(name) if isinstance(name, str) else int(name))
    return tuple(found)


def two_sides(names: Sequence[str], columns_a: Names, columns_b: Names) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Positions of both groups of columns, which share none."""
    sides = positions_of(names, columns_a), positions_of(names, columns_b)
    if set(sides[0]) & set(sides[1]):
        raise ValueError("a column is never independent of itself: columns_a and columns_b share one. Name others.")
    return sides


def hsic_permutation_test(
    data: Any,
    columns_a: Names,
    columns_b: Names,
    *,
    permutations: int,
    rng: np.random.Generator | int | None,
    kernel: Kernel | tuple[Kernel, Kernel] | None,
) -> TestResult:
    """HSIC = tr(KHLH)/n² with one side's rows permuted, p = (b + 1)/(B + 1): exact for every n and B.

    Numbers have a Gaussian kernel at the median distance, tables with other columns the table kernel. Of more than 500
    rows the Gram matrices are those of coordinates in a subspace of 100 of them, which changes the power at most.
    """
    if permutations < 1:
        raise ValueError(
            f"permutations must be at least 1, got {permutations}: the law is made of them. Pass e.g. 999."
        )
    kernels = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    rng = np.random.default_rng(rng)
    sides = zip(_two_sides(data, columns_a, columns_b), kernels, strict=True)
    u, v = (_coordinates(*_rows_and_kernel(frame, given), rng) for frame, given in sides)
    n = len(u)
    statistics = np.empty(permutations + 1)
    statistics[0] = np.square(u.T @ v).sum() / n**2
    for i in range(1, permutations + 1):
        statistics[i] = np.square(u[rng.permutation(n)].T @ v).sum() / n**2
    exceed = int((statistics[1:] >= statistics[0] * (1 - 1e-9)).sum())
    return TestResult(
        statistic=float(statistics[0]),
        pvalue=(exceed + 1) / (permutations + 1),
        mmd_squared=float(statistics[0]),
        estimator="biased",
        method=f"HSIC permutation test ({permutations} permutations) of plain rows",
        noise_aware=False,
        n_release_rows=None,
        n_release_points=0,
        n_sample_rows=n,
    )


def _two_sides(data: Any, columns_a: Names, columns_b: Names) -> list[pd.DataFrame]:
    """The columns of each side."""
    frame = data if isinstance(data, pd.DataFrame) else pd.DataFrame(as_rows(data))
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    sides = two_sides(list(frame.columns), columns_a, columns_b)
    if len(frame) < 4:
        raise ValueError(f"a test of independence needs at least four rows, got {len(frame)}. Add rows.")
    return [frame.iloc[:, list(side)] for side in sides]


def _rows_and_kernel(frame: pd.DataFrame, given: Kernel | None) -> tuple[Array, Kernel]:
    """The rows as numbers, and the kernel asked for, or the usual one for them."""
    if given is not None:
        return as_rows(frame), given
    if all(pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes) and not frame.isna().to_numpy().any():
        rows = frame.to_numpy(dtype=float)
        rows = (rows - rows.mean(axis=0)) / np.where(np.ptp(rows, axis=0) > 0, rows.std(axis=0), 1.0)
        return rows, Gaussian(median_lengthscale(rows))
    domain = draft_domain(frame).domain
    return domain.encode(frame), table_kernel(domain)


def _coordinates(rows: Array, kernel: Kernel, rng: np.random.Generator) -> Array:
    """U (n, r) of mean 0 with U Uᵀ the centred Gram matrix, or nearly so."""
    if len(rows) <= _MOST_WHOLE:
        K = kernel.gram(rows, rows)
        centre_gram(K)
        eigenvalues, vectors = np.linalg.eigh(K)
        keep = eigenvalues > max(_NEGLIGIBLE * float(eigenvalues.max()), 1e-12)
        return vectors[:, keep] * np.sqrt(eigenvalues[keep])
    basis = rows[rng.permutation(len(rows))[:_BASIS]]
    coordinates = Nystroem.fit(kernel, basis, tolerance=_NEGLIGIBLE)(rows)
    return coordinates - coordinates.mean(axis=0)
