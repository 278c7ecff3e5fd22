"""From a domain to a kernel: the default kernel for tables, and kernels written as text.

Everything here depends on the domain alone, so nothing is learned from private rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmeanalyst.kernels import Gaussian, Indicator, Kernel, Laplacian, MultiScale, SoftenedProduct
from kmeanalyst.releases.columns import Categorical, Column, Ordinal
from kmeanalyst.releases.domain import Domain, DomainError

_COLUMNS_SEEN = 3  # a random feature of the table kernel looks at about three columns
_FINEST = 256  # a continuum is resolved to this part of its range


def table_kernel(domain: Domain) -> Kernel:
    """The default kernel for tables: a softened product of one kernel per column (METHODS §3).

    Numbers, dates and ordinals get Gaussians at lengthscales from one step of the column up to its range,
    an octave apart; levels get the indicator.
    """
    kernels = tuple(_column_kernel(column) for column in domain.columns)
    return SoftenedProduct(kernels=kernels, inclusion=float(np.clip(_COLUMNS_SEEN / len(domain), 0.01, 0.5)))


def _column_kernel(column: Column) -> Kernel:
    if isinstance(column, Categorical) and not (isinstance(column, Ordinal) and len(column.levels) > 2):
        return Indicator(levels=len(column.levels))
    low, high = column.bounds  # type: ignore[attr-defined]
    finest = max(getattr(column, "step", 1.0) or 0.0, (high - low) / _FINEST)
    octaves = max(0, round(np.log2((high - low) / finest)))
    return MultiScale(lengthscales=tuple(float(high - low) / 2.0**i for i in reversed(range(octaves + 1))))


def kernel_from_spec(spec: str | Kernel | None, domain: Domain) -> Kernel:
    """A kernel from its text, such as "table" or "gaussian:lengthscale=158.1"; DomainError if it cannot be.

    Lengthscales are in the columns' own units, log units for log columns.
    """
    if isinstance(spec, Kernel):
        return spec
    name, _, rest = (spec or "table").partition(":")
    if name == "table":
        if rest:
            raise DomainError(
                f'the table kernel takes no parameters, got {rest!r}: the domain sets them. Write "table".'
            )
        return table_kernel(domain)
    makers: dict[str, Callable[..., Kernel]] = {"gaussian": Gaussian, "laplacian": Laplacian}
    if name not in makers:
        raise DomainError(f"unknown kernel {name!r}. Write one of table, {', '.join(makers)}.")
    _refuse_levels(name, domain)
    try:
        return makers[name](**_parameters(rest))
    except TypeError:
        raise DomainError(f'kernel {spec!r}: {name} takes lengthscale. Write "{name}:lengthscale=1.0".') from None
    except ValueError as error:
        raise DomainError(f"kernel {spec!r}: {error}") from None


def _refuse_levels(name: str, domain: Domain) -> None:
    levels = [column.name for column in domain.columns if isinstance(column, Categorical)]
    if levels:
        raise DomainError(
            f"the {name} kernel is for numbers, and {', '.join(levels)} have levels, which have no distance. "
            'Use "table", which treats each column as what it is.'
        )


def _parameters(text: str) -> dict[str, float]:
    parameters = {}
    for item in filter(None, text.split(",")):
        key, _, value = item.partition("=")
        try:
            parameters[key.strip()] = float(value)
        except ValueError:
            raise ValueError(f"{item!r} is not name=number. Write e.g. lengthscale=1.0") from None
    return parameters
