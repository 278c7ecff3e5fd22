"""From a domain to the kernel of DP-MERF: numbers beside levels, crossed with the label."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, OnColumns, Product, Scaled, Sum
from kmeanalyst.releases.columns import Column, Number
from kmeanalyst.releases.domain import Domain
from kmeanalyst.releases.margin_kernel import one_way_kernel, position_of

_SHARE_OF_LABEL = 0.05  # of the squared norm: its classes by themselves
_SHARE_OF_NUMBERS = 0.25  # of what is left: numbers, beside one-way tables
_MOST_RANGED = 100  # columns, up to which ranges of numbers have one-way tables too


def generator_kernel(domain: Domain, target: str | None = None) -> Kernel:
    """The kernel of DP-MERF (Harder, Adamczewski & Park 2021): numbers beside levels, crossed with the label.

    Numbers have one Gaussian, at lengthscales in parts of their ranges: rows drawn evenly from the bounds of d numbers
    are √(d/6) ranges apart, which is the lengthscale. Levels, atoms and missing cells have their one-way tables, and so
    have ranges of numbers while there are few columns. With a target all that is crossed with its classes, and their
    own table stands beside it, so that their shares are known.
    """
    position = None if target is None else position_of(domain, target)
    label = position if len(domain) > 1 else None  # a label alone is crossed with nothing
    others = tuple(j for j in range(len(domain)) if j != label)
    numbers = tuple(j for j in others if isinstance(domain.columns[j], Number))
    ranged = len(domain) <= _MOST_RANGED
    listed = tuple(j for j in others if j not in numbers or ranged or _has_special_cells(domain.columns[j]))
    parts: list[Kernel] = [one_way_kernel(domain, listed, ranged=ranged)] if listed else []
    parts += [_numbers_kernel(domain, numbers)] if numbers else []
    shares = [1.0] if len(parts) == 1 else [1 - _SHARE_OF_NUMBERS, _SHARE_OF_NUMBERS]
    if label is None:
        return parts[0] if len(parts) == 1 else Sum(tuple(map(Scaled, shares, parts)))
    own = one_way_kernel(domain, (label,), ranged=True)
    scaled = tuple(Scaled((1 - _SHARE_OF_LABEL) * share, part) for share, part in zip(shares, parts, strict=True))
    rest = scaled[0] if len(scaled) == 1 else Sum(scaled)
    return Sum((Scaled(_SHARE_OF_LABEL, own), Product((own, rest))))


def _has_special_cells(column: Column) -> bool:
    return column.missing or bool(getattr(column, "atoms", ()))


def _numbers_kernel(domain: Domain, numbers: tuple[int, ...]) -> Kernel:
    """A Gaussian over all of them, each column's lengthscale in parts of its range."""
    apart = float(np.sqrt(len(numbers) / 6))
    groups: dict[float, list[int]] = {}  # columns of one range share a kernel: a wide table would have thousands
    for j in numbers:
        low, high = domain.columns[j].bounds  # type: ignore[attr-defined]
        groups.setdefault(apart * (high - low), []).append(j)
    kernels = tuple(OnColumns(Gaussian(lengthscale), tuple(on)) for lengthscale, on in groups.items())
    return kernels[0] if len(kernels) == 1 else Product(kernels)
