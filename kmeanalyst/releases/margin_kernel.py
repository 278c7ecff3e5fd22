"""From a domain to the margins kernel: which cells each column is cut into, and how high each kind of table is.

Everything here depends on the domain and on the noise there will be (N, ε, δ) alone: nothing is learned from private
rows.
"""

from __future__ import annotations

import math

import numpy as np

from kmeanalyst.kernels import Margins, OnColumns
from kmeanalyst.releases.columns import Categorical, Column, Number
from kmeanalyst.releases.domain import Domain, DomainError

_RANGES = (12, 9, 6, 4)  # that a column of numbers is cut into: the first with which all tables have few enough cells
_FEW_VALUES = 16  # a column of whole numbers with no more has a cell for each
_FINE_RANGES, _MOST_FINE_RANGES = 300, 20_000  # of the finer table of a column of numbers; of all those tables
_WITHOUT_PAIRS = (1.0, 3.0, 0.0, 0.0, 0.0)  # where a cell of a pair's table would have more than this noise:
_LOST = 0.15
_SHARE_OF_TARGET = 0.07  # of the others' squared norm: its own table, so that a rare class is not lost in noise
_MOST_FEATURES = 10**6  # cells of all tables
_MOST_COLUMNS = 1000
USUAL_NOISE = 1e-3  # of a share that is measured alone
# of a cell one way, where one of two ways has 1: steps, so that releases of much the same size share a kernel
_HEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0)


def margin_kernel(
    domain: Domain, target: str | None = None, noise: float = USUAL_NOISE, *, finer: bool = True
) -> Margins:
    """The kernel of one-way and two-way margins over the domain's levels, `edges`, `atoms` and missing cells.

    Numbers without edges are cut into a dozen even ranges of their scale, or into their values if they have few;
    in their finer tables, into some hundreds.
    target   a column that every margin is crossed with as well: its relations to pairs of others are then measured.
    noise    standard deviation that a share of the rows would have if it were all that is measured (√2 · multiplier/N for
             Gaussian noise): the more, the higher the one-way tables, of which there are few.
    finer    whether numbers have finer tables.
    Errors   DomainError if there is no such column, or if the tables have more than a million cells.
    """
    position = -1 if target is None else position_of(domain, target)
    place = position if len(domain) > 1 else -1
    for ranges in _RANGES if len(domain) <= _MOST_COLUMNS else ():
        if (kernel := _margins(domain, place, ranges, noise, finer=finer)).n_cells <= _MOST_FEATURES:
            return kernel
    raise DomainError(
        f"the margins of these columns have more than {_MOST_FEATURES:,} cells, or more than {_MOST_COLUMNS} columns. "
        'Name fewer columns, levels or edges, no target, or use the kernel "table".'
    )


def _margins(domain: Domain, target: int, ranges: int, noise: float, *, finer: bool) -> Margins:
    cuts = [_cuts(column, ranges) for column in domain.columns]
    numbers = sum(isinstance(column, Number) for column in domain.columns)
    finely = min(_FINE_RANGES, _MOST_FINE_RANGES // max(numbers, 1)) if finer else 0
    fine = tuple(_fine_edges(column, edges, finely) for column, (edges, _) in zip(domain.columns, cuts, strict=True))
    others = len(domain) - (target >= 0)
    pairs, fine_tables = others * (others - 1) / 2, sum(bool(edges) for j, edges in enumerate(fine) if j != target)
    counts = np.array([len(domain), others, pairs, pairs, fine_tables])
    squares = counts * np.square(_heights(target >= 0, noise))
    if target >= 0 and noise * math.sqrt(squares.sum()) > _LOST:
        squares = counts * np.square(_WITHOUT_PAIRS)
    squares = np.append(squares, _SHARE_OF_TARGET * squares.sum() if target >= 0 else 0.0)
    try:
        return Margins(
            edges=tuple(edges for edges, _ in cuts),
            atoms=tuple(atoms for _, atoms in cuts),
            missing=tuple(column.missing for column in domain.columns),
            shares=tuple((squares / squares.sum()).tolist()),
            target=target,
            fine=fine,
        )
    except ValueError as error:  # more cells than margins can have
        raise DomainError(f'{error} Name fewer levels or edges, or use the kernel "table".') from None


def _heights(with_target: bool, noise: float) -> tuple[float, ...]:
    """Of a cell one way, one way × target, two ways, two ways × target, one way and finely; by measurement on Adult."""
    wanted = 2.8 * (noise / USUAL_NOISE) ** (1 / 3)
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
    if isinstance(column, Categorical) or ranges < 1:
        return ()
    assert isinstance(column, Number)
    low, high = column.ends
    even = np.linspace(0, high - low, ranges + 1)
    even = low + (np.rint(even / column.step) * column.step if column.step else even)
    room = 1e-6 * (high - low) / ranges
    beside = np.abs(even[:, None] - np.array([low, high, *edges])).min(axis=1) > room
    inner = np.unique([*even[beside & (even > low) & (even < high)], *edges])
    return tuple(inner.tolist()) if len(inner) > len(edges) else ()


def one_way_kernel(domain: Domain, columns: tuple[int, ...], *, ranged: bool) -> OnColumns:
    """Alike in levels, atoms and missing cells of these columns, and in ranges of their numbers if so asked."""
    chosen = [domain.columns[j] for j in columns]
    cuts = [_cuts(column, _RANGES[0]) for column in chosen]
    margins = Margins(
        edges=tuple(
            edges if ranged or isinstance(column, Categorical) else ()
            for column, (edges, _) in zip(chosen, cuts, strict=True)
        ),
        atoms=tuple(atoms for _, atoms in cuts),
        missing=tuple(column.missing for column in chosen),
        shares=(1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    )
    return OnColumns(margins, columns)


def position_of(domain: Domain, target: str) -> int:
    """The target's column; DomainError if there is none of that name."""
    if target not in domain.names:
        raise DomainError(f"target: there is no column {target!r}. Name one of {', '.join(domain.names)}.")
    return domain.position(target)
