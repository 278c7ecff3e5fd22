"""From a domain to a kernel: the default kernel for tables, and kernels written as text.

Everything here depends on the domain alone, so nothing is learned from private rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kmeanalyst.kernels import Gaussian, Indicator, Kernel, Laplacian, Margins, MultiScale, SoftenedProduct
from kmeanalyst.releases.columns import Categorical, Column, Number, Ordinal
from kmeanalyst.releases.domain import Domain, DomainError

_COLUMNS_SEEN = 3  # a random feature of the table kernel looks at about three columns
_FINEST = 256  # a continuum is resolved to this part of its range
_OF_THE_DOMAIN = ("table", "margins")
_RANGES = (12, 9, 6, 4)  # that a column of numbers is cut into: the first with which all tables have few enough cells
_FEW_VALUES = 16  # a column of whole numbers with no more has a cell for each
_FINE_RANGES, _MOST_FINE_RANGES = 300, 20_000  # of the finer table of a column of numbers; of all those tables
_MOST_FEATURES = 10**6  # cells of all tables
_MOST_COLUMNS = 1000
_USUAL_NOISE = 1e-3  # of a share that is measured alone
_HEIGHTS = (
    1.0,
    1.5,
    2.0,
    3.0,
    4.0,
)  # of a cell one way, where one of two ways has 1: steps, so that kernels are shared


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


def default_spec(domain: Domain, target: str | None = None) -> str:
    """ "margins" for tables with levels, or with a target; "table" for numbers alone, which have distances."""
    if target is not None:
        return "margins"
    if not any(isinstance(column, Categorical) for column in domain.columns):
        return "table"
    try:
        margin_kernel(domain)
    except DomainError:  # too many cells
        return "table"
    return "margins"


def margin_kernel(domain: Domain, target: str | None = None, noise: float = _USUAL_NOISE) -> Margins:
    """The kernel of one-way and two-way margins over the domain's levels, `edges`, `atoms` and missing cells.

    Numbers without edges are cut into a dozen even ranges of their scale, or into their values if they have few;
    in their finer tables, into some hundreds.
    target   a column that every margin is crossed with as well: its relations to pairs of others are then measured.
    noise    standard deviation that a share of the rows would have if it were all that is measured (√2 · multiplier/N for
             Gaussian noise): the more, the higher the one-way tables, of which there are few.
    Errors   DomainError if there is no such column, or if the tables have more than a million cells.
    """
    if target is not None and target not in domain.names:
        raise DomainError(f"target: there is no column {target!r}. Name one of {', '.join(domain.names)}.")
    place = -1 if target is None or len(domain) == 1 else domain.position(target)
    for ranges in _RANGES if len(domain) <= _MOST_COLUMNS else ():
        if number_of_cells(kernel := _margins(domain, place, ranges, noise)) <= _MOST_FEATURES:
            return kernel
    raise DomainError(
        f"the margins of these columns have more than {_MOST_FEATURES:,} cells, or more than {_MOST_COLUMNS} columns. "
        'Name fewer columns, levels or edges, no target, or use the kernel "table".'
    )


def number_of_cells(kernel: Margins) -> int:
    """Of all tables: the dimension of the features, before any is made."""
    sizes = np.array([kernel.sizes[j] for j in kernel.others])
    values = kernel.sizes[kernel.target] if kernel.target >= 0 else 1
    pairs = (int(sizes.sum()) ** 2 - int((sizes**2).sum())) // 2
    cells = (sum(kernel.sizes), values * int(sizes.sum()), pairs, values * pairs, values * sum(kernel.fine_sizes))
    return sum(n for n, share in zip(cells, kernel.shares, strict=True) if share)


def _margins(domain: Domain, target: int, ranges: int, noise: float) -> Margins:
    cuts = [_cuts(column, ranges) for column in domain.columns]
    numbers = sum(isinstance(column, Number) for column in domain.columns)
    finely = min(_FINE_RANGES, _MOST_FINE_RANGES // max(numbers, 1))
    fine = tuple(_fine_edges(column, edges, finely) for column, (edges, _) in zip(domain.columns, cuts, strict=True))
    others = len(domain) - (target >= 0)
    pairs, finer = others * (others - 1) / 2, sum(bool(edges) for j, edges in enumerate(fine) if j != target)
    squares = np.array([len(domain), others, pairs, pairs, finer]) * np.square(_heights(target >= 0, noise))
    return Margins(
        edges=tuple(edges for edges, _ in cuts),
        atoms=tuple(atoms for _, atoms in cuts),
        missing=tuple(column.missing for column in domain.columns),
        shares=tuple((squares / squares.sum()).tolist()),
        target=target,
        fine=fine,
    )


def _heights(with_target: bool, noise: float) -> tuple[float, ...]:
    """Of a cell one way, one way × target, two ways, two ways × target, one way and finely; by measurement on Adult."""
    wanted = 2.8 * (noise / _USUAL_NOISE) ** (1 / 3)
    alone = min(_HEIGHTS, key=lambda height: abs(math.log(height / wanted)))
    return (alone, min(alone, 2.0), 0.0, 1.0, 1.0) if with_target else (alone, 0.0, 1.0, 0.0, 1.0)


def _cuts(column: Column, ranges: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
        edges = np.linspace(low, high, ranges + 1)
    inner = np.unique(edges[(edges > low) & (edges < high)])
    return tuple(inner.tolist()), tuple(column.atom_codes.tolist())


def _fine_edges(column: Column, edges: tuple[float, ...], ranges: int) -> tuple[float, ...]:
    """Inner edges of some hundred ranges, of one value each where that is enough; none if they are the column's own."""
    if isinstance(column, Categorical):
        return ()
    assert isinstance(column, Number)
    low, high = column.ends
    even = np.linspace(0, high - low, ranges + 1)
    even = low + (np.rint(even / column.step) * column.step if column.step else even)
    room = 1e-6 * (high - low) / ranges
    beside = np.abs(even[:, None] - np.array([low, high, *edges])).min(axis=1) > room
    inner = np.unique([*even[beside & (even > low) & (even < high)], *edges])
    return tuple(inner.tolist()) if len(inner) > len(edges) else ()


def kernel_from_spec(
    spec: str | Kernel | None, domain: Domain, target: str | None = None, noise: float = _USUAL_NOISE
) -> Kernel:
    """A kernel from its text, such as "table" or "gaussian:lengthscale=158.1"; DomainError if it cannot be.

    Lengthscales are in the columns' own units, log units for log columns. None is "table".
    target, noise   of `margin_kernel`; other kernels have no use for them.
    """
    if target is not None and spec != "margins":
        raise DomainError(
            'target goes with the kernel "margins", which measures how the other columns relate to it. Name both, or '
            "leave it out."
        )
    if isinstance(spec, Kernel):
        return spec
    name, _, rest = (spec or "table").partition(":")
    if name in _OF_THE_DOMAIN:
        if rest:
            raise DomainError(
                f'the {name} kernel takes no parameters, got {rest!r}: the domain sets them. Write "{name}".'
            )
        return margin_kernel(domain, target, noise) if name == "margins" else table_kernel(domain)
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
