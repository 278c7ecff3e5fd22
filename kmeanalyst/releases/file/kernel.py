"""The kernel of a file: known by name, small enough to evaluate, bounded, and one of the domain's rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels import (
    Indicator,
    Kernel,
    Margins,
    Matern,
    OnColumns,
    Product,
    Scaled,
    SoftenedProduct,
    StringSpectrum,
    Sum,
    kernel_from_dict,
)
from kmeanalyst.kernels.base import coordinates_of
from kmeanalyst.kernels.strings import characters_in_a_number
from kmeanalyst.releases.columns import Categorical
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.file.refusal import MOST_KERNEL_WORK, refusal, refusing
from kmeanalyst.releases.text_column import Text


def kernel_of(header: Any, n_columns: int) -> Kernel:
    """The kernel that a header describes, if evaluating it is no more work than a release needs."""
    with refusing("the kernel"):
        kernel = kernel_from_dict(header)
        work = kernel_work(kernel, n_columns)
    if work > MOST_KERNEL_WORK:
        raise refusal(f"the kernel has parts that take {work} passes over the points", f"at most {MOST_KERNEL_WORK}")
    return kernel


def kernel_work(kernel: Kernel, n_columns: int) -> int:
    """How many passes over a Gram matrix the kernel takes: one for each part, and for what each part looks at."""
    if isinstance(kernel, SoftenedProduct):
        return 1 + sum(kernel_work(part, 1) for part in kernel.kernels)
    if isinstance(kernel, Sum | Product):
        return 1 + sum(kernel_work(part, n_columns) for part in kernel.parts)
    if isinstance(kernel, Scaled):
        return 1 + kernel_work(kernel.kernel, n_columns)
    if isinstance(kernel, Margins):
        return 3 * len(kernel.edges)
    if isinstance(kernel, StringSpectrum):  # a product of counts for each character of a string, at most
        characters = kernel.numbers * characters_in_a_number(kernel.symbols)
        return characters * (kernel.length if kernel.blended else 1)
    if isinstance(kernel, OnColumns):
        return len(kernel.on) + kernel_work(kernel.kernel, len(kernel.on))
    if isinstance(kernel, Matern):
        return n_columns + int(kernel.nu)
    return n_columns + len(getattr(kernel, "lengthscales", ()))


def check_kernel(kernel: Kernel, domain: Domain, points: pd.DataFrame) -> None:
    """The kernel has a finite bound and is a kernel on rows of this domain."""
    with refusing("the kernel"), np.errstate(all="ignore"):
        rows = domain.encode(points.iloc[:8])
        K, bound = kernel.gram(rows, rows), kernel.bound
        kept = K.shape == (len(rows), len(rows)) and bool((np.abs(K) <= bound**2 * (1 + 1e-9)).all())
        if not (kept and 0 < bound < math.inf):
            raise ValueError("it is not bounded, or does not keep its bound on the points")
        _check_strings(kernel, domain, list(range(domain.width)))
        parts = kernel.kernels if isinstance(kernel, SoftenedProduct) else ()
        for part, column in zip(parts, domain.columns, strict=bool(parts)):
            levels = len(column.levels) if isinstance(column, Categorical) else None
            if isinstance(part, Indicator) and levels is not None and part.levels != levels:
                raise ValueError(f"it counts {part.levels} levels in column {column.name}, which has {levels}")


def _check_strings(kernel: Kernel, domain: Domain, places: list[int]) -> None:
    """ValueError unless each spectrum kernel in it looks at the numbers of one text column, and at its alphabet."""
    if isinstance(kernel, StringSpectrum):
        column = domain.columns[domain.owners[places[0]]]
        here = isinstance(column, Text) and places == domain.coordinates[domain.position(column.name)]
        if not here or len(column.symbols) != kernel.symbols:
            raise ValueError(f"it compares strings of {kernel.symbols} symbols where no text column has such")
    elif isinstance(kernel, OnColumns):
        _check_strings(kernel.kernel, domain, [places[int(j)] for j in kernel.on])
    elif isinstance(kernel, SoftenedProduct):
        for part, at in zip(kernel.kernels, coordinates_of([part.width for part in kernel.kernels]), strict=True):
            _check_strings(part, domain, [places[i] for i in at])
    elif isinstance(kernel, Sum | Product | Scaled):
        for part in (kernel.kernel,) if isinstance(kernel, Scaled) else kernel.parts:
            _check_strings(part, domain, places)
