"""From a domain to a kernel: the default kernel for tables, and kernels written as text.

Everything here depends on the domain alone, so nothing is learned from private rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kmeanalyst.kernels import (
    Gaussian,
    Indicator,
    Kernel,
    Laplacian,
    Margins,
    MultiScale,
    OnColumns,
    Product,
    Scaled,
    SoftenedProduct,
    Sum,
)
from kmeanalyst.releases.columns import Categorical, Column, Number, Ordinal
from kmeanalyst.releases.domain import Domain, DomainError

_SHARE_OF_LABEL = 0.05  # of the squared norm of the generator's kernel: its classes by themselves
_SHARE_OF_NUMBERS = 0.25  # of what is left: numbers, beside one-way tables
_MOST_RANGED = 100  # columns, up to which ranges of numbers have one-way tables too
_COLUMNS_SEEN = 3  # a random feature of the table kernel looks at about three columns
_FINEST = 256  # a continuum is resolved to this part of its range
_OF_THE_DOMAIN = ("table", "margins", "generator")
_RANGES, _FEW_VALUES = 12, 16  # that a column of numbers is cut into; an integer column with no more has one for each
# by measurement: heights of a cell one way, one way × target, two ways, two ways × target
_MARGIN_HEIGHTS = (3.0, 2.0, 0.0, 1.0)
_MARGIN_HEIGHTS_WITHOUT_TARGET = (3.0, 0.0, 1.0, 0.0)


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


def margin_kernel(domain: Domain, target: str | None = None) -> Margins:
    """The kernel of one-way and two-way margins over the domain's levels, `edges`, `atoms` and missing cells.

    Numbers without edges are cut into a dozen even ranges of their scale, or into their values if they have few.
    target   a column that every margin is crossed with as well: its relations to pairs of others are then measured.
    """
    cuts = [_cuts(column) for column in domain.columns]
    position = -1 if target is None else _position(domain, target)
    place = position if len(domain) > 1 else -1
    others = len(domain) - (place >= 0)
    counts = np.array([len(domain), others, others * (others - 1) / 2, others * (others - 1) / 2])
    squares = counts * np.square(_MARGIN_HEIGHTS if place >= 0 else _MARGIN_HEIGHTS_WITHOUT_TARGET)
    return Margins(
        edges=tuple(edges for edges, _ in cuts),
        atoms=tuple(atoms for _, atoms in cuts),
        missing=tuple(column.missing for column in domain.columns),
        shares=tuple((squares / squares.sum()).tolist()),
        target=place,
    )


def _cuts(column: Column) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Inner edges of the column's ranges, and its atoms, in encoded units."""
    if isinstance(column, Categorical):
        return tuple(np.arange(len(column.levels) - 1) + 0.5), ()
    assert isinstance(column, Number)
    low, high = column.ends
    if column.edges:
        edges = column.cuts(column.edges)
    elif column.step and high - low <= _FEW_VALUES:
        edges = np.arange(low, high)
    else:
        edges = np.linspace(low, high, _RANGES + 1)
    inner = np.unique(edges[(edges > low) & (edges < high)])
    return tuple(inner.tolist()), tuple(column.atom_codes.tolist())


def generator_kernel(domain: Domain, target: str | None = None) -> Kernel:
    """The kernel of DP-MERF (Harder, Adamczewski & Park 2021): numbers beside levels, crossed with the label.

    Numbers have one Gaussian, at lengthscales in parts of their ranges: rows drawn evenly from the bounds of d numbers
    are √(d/6) ranges apart, which is the lengthscale. Levels, atoms and missing cells have their one-way tables, and so
    have ranges of numbers while there are few columns. With a target all that is crossed with its classes, and their
    own table stands beside it, so that their shares are known.
    """
    position = None if target is None else _position(domain, target)
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


def one_way_kernel(domain: Domain, columns: tuple[int, ...], *, ranged: bool) -> OnColumns:
    """Alike in levels, atoms and missing cells of these columns, and in ranges of their numbers if so asked."""
    chosen = [domain.columns[j] for j in columns]
    cuts = [_cuts(column) for column in chosen]
    margins = Margins(
        edges=tuple(
            edges if ranged or isinstance(column, Categorical) else ()
            for column, (edges, _) in zip(chosen, cuts, strict=True)
        ),
        atoms=tuple(atoms for _, atoms in cuts),
        missing=tuple(column.missing for column in chosen),
        shares=(1.0, 0.0, 0.0, 0.0),
    )
    return OnColumns(margins, columns)


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


def _position(domain: Domain, target: str) -> int:
    if target not in domain.names:
        raise DomainError(f"target: there is no column {target!r}. Name one of {', '.join(domain.names)}.")
    return domain.position(target)


def default_spec(method: str) -> str:
    """The kernel of a method, where none is named."""
    return "generator" if method == "generator" else "table"


def kernel_from_spec(spec: str | Kernel | None, domain: Domain, target: str | None = None) -> Kernel:
    """A kernel from its text, such as "table" or "gaussian:lengthscale=158.1"; DomainError if it cannot be.

    Lengthscales are in the columns' own units, log units for log columns.
    target   a column that the kernels margins and generator cross with the others; other kernels have no use for it.
    """
    if target is not None and spec not in ("margins", "generator"):
        raise DomainError(
            'target goes with the kernel "margins" or the method "generator", which measure how the other columns relate '
            "to it. Name both, or leave it out."
        )
    if isinstance(spec, Kernel):
        return spec
    name, _, rest = (spec or "table").partition(":")
    if name in _OF_THE_DOMAIN:
        if rest:
            raise DomainError(
                f'the {name} kernel takes no parameters, got {rest!r}: the domain sets them. Write "{name}".'
            )
        if name == "table":
            return table_kernel(domain)
        return margin_kernel(domain, target) if name == "margins" else generator_kernel(domain, target)
    makers: dict[str, Callable[..., Kernel]] = {"gaussian": Gaussian, "laplacian": Laplacian}
    if name not in makers:
        raise DomainError(f"unknown kernel {name!r}. Write one of {', '.join(_OF_THE_DOMAIN)}, {', '.join(makers)}.")
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
