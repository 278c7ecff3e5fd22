"""From a domain to a kernel: the table kernel, margins (which cells, how high), DP-MERF's, and kernels written as text.

Everything here depends only on the domain and on the noise there will be (N, ε, δ): nothing is learned from private rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from kmeanalyst import kernels
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column, DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import USUAL_NODES, Tree
from kmeanalyst.releases.rules.compiled import rules_of

_RANGES = (12, 9, 6, 4)  # ranges of a column of numbers: the first of these with which all tables have few enough cells
_FEW_VALUES = 16  # a column of whole numbers with no more has a cell for each
_FINE_RANGES, _MOST_FINE_RANGES = 300, 20_000  # most ranges of a number column's finer table; of all those tables
_OF_TARGET = 0.3  # of the squared norm of pairs, for those of a target
_MOST_FEATURES = 10**6  # cells of all tables
_MOST_COUNTED = 4 * 10**6  # cells of all tables that may be chosen
_MOST_COLUMNS = 1000
_NO_CUTS: Mapping[int, Sequence[float]] = MappingProxyType({})
USUAL_NOISE = 1e-3  # noise on a share that is measured alone
# of a cell one way, if one of two ways has 1: in steps, so that releases of similar size share a kernel
_HEIGHTS = (1.0, 1.5, 2.0, 3.0, 4.0)


def margin_kernel(domain: Domain, noise: float = USUAL_NOISE, *, finer: bool = True) -> kernels.Margins:
    """The kernel of one-way and two-way margins over the domain's levels, `edges`, `atoms` and missing cells.

    Numbers without edges are cut into a dozen even ranges of their scale, or into their values if they have few;
    in their finer tables, into some hundreds. Where that makes too many cells, into fewer, and so are those with edges.
    Ranges also end where a rule of the domain changes.
    noise    standard deviation that a share of the rows would have if it were all that is measured (√2 · multiplier/N for
             Gaussian noise): the more, the higher the one-way tables, of which there are few.
    finer    whether numbers have finer tables.
    Errors   DomainError if the tables have more than a million cells.
    """
    return _first_small_enough(domain, lambda ranges: _margins(domain, ranges, noise, finer=finer), _MOST_FEATURES)


def _for_target(kernel: kernels.Margins, target: int) -> kernels.Margins:
    """The same tables, of which those of pairs with the target have more height; all have as much where there are no others."""
    named = [target in pair for pair in kernel.pairs]
    if target < 0 or all(named):
        return kernel
    alone, even, finer = kernel.squared_heights
    more = _OF_TARGET * sum(even) / sum(named)
    pairs = tuple((1 - _OF_TARGET) * square + more * own for square, own in zip(even, named, strict=True))
    given = {each.name: getattr(kernel, each.name) for each in fields(kernel)}
    return kernels.ChosenMargins(**given, chosen=kernel.pairs, squares=(alone, pairs, finer))


def _first_small_enough(domain: Domain, made: Callable[[int], kernels.Margins], most: int) -> kernels.Margins:
    """Of `made(ranges of a number)` the first with at most so many cells; DomainError if there is none."""
    for ranges in _RANGES if len(domain) <= _MOST_COLUMNS else ():
        if (kernel := made(ranges)).n_cells <= most:
            return kernel
    raise DomainError(
        f"the margins of these columns have more than {most:,} cells, or more than {_MOST_COLUMNS} columns. "
        'Name fewer columns, levels or edges, or use the kernel "table".'
    )


def _margins(
    domain: Domain, ranges: int, noise: float, *, finer: bool, asked: Mapping[int, Sequence[float]] = _NO_CUTS,
    most: int | None = None,
) -> kernels.Margins:  # fmt: skip
    ruled = rules_of(domain).cuts  # a rule is then about whole cells
    numbers = sum(column.is_number for column in domain.columns)
    finely = min(_FINE_RANGES, _MOST_FINE_RANGES // max(numbers, 1)) if finer else 0
    cuts, finer_tables = [], []
    for j, column in enumerate(domain.columns):
        own = (*asked.get(j, ()), *ruled.get(j, ()))
        declared, atoms = _cuts(column, ranges, own)
        edges = _merged(column, declared, most, own)
        cuts.append((edges, atoms))
        finer_tables.append(_finer_edges(column, edges, declared, finely))
    fine = tuple(next(iter(tables), ()) for tables in finer_tables)
    deeper = tuple((j, own) for j, tables in enumerate(finer_tables) for own in tables[1:])
    counts = np.array([len(domain), math.comb(len(domain), 2), sum(map(bool, fine)) + len(deeper)])
    squares = counts * np.square(_heights(noise))
    try:
        return kernels.Margins(
            edges=tuple(edges for edges, _ in cuts), atoms=tuple(atoms for _, atoms in cuts),
            missing=tuple(column.missing for column in domain.columns), shares=tuple((squares / squares.sum()).tolist()),
            fine=fine, deeper=deeper,
        )  # fmt: skip
    except ValueError as error:  # more cells than margins can have
        raise DomainError(f'{error} Name fewer levels or edges, or use the kernel "table".') from None


def adaptive_kernel(domain: Domain, asked: Mapping[int, Sequence[float]] = _NO_CUTS, *, most: int | None = None) -> kernels.Margins:
    """Margins of all columns and all pairs: what tables may be chosen from.

    Numbers without edges are cut as for `margin_kernel`. The shares mean nothing until tables are chosen.
    asked    for columns of numbers, by their index, values where questions cut them, in encoded units: there ranges end.
    most     ranges of a number whose edges are declared: neighbours are merged until there are so many, evenly by their count,
             but for `asked` and rules. Declared ranges are those of a finer table then. By default no ranges are merged.
    Errors   DomainError if the tables have more than four million cells.
    """

    def every_table(ranges: int) -> kernels.Margins:
        kernel = _margins(domain, ranges, USUAL_NOISE, finer=True, asked=asked, most=most)
        wanted = (1.0, float(kernel.n_pairs > 0), float(bool(kernel.finer)))
        shares: Any = tuple(share / sum(wanted) for share in wanted)
        return replace(kernel, shares=shares)

    return _first_small_enough(domain, every_table, _MOST_COUNTED)


def _heights(noise: float) -> tuple[float, float, float]:
    """Heights of a cell in tables of one way, two ways, and finer ranges, chosen by measurements on the Adult data."""
    wanted = 2.8 * (noise / USUAL_NOISE) ** (1 / 3)
    return min(_HEIGHTS, key=lambda height: abs(math.log(height / wanted))), 1.0, 1.0


def _cuts(column: Column, ranges: int, asked: Sequence[float] = ()) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Inner edges of the column's ranges, and its atoms, in encoded units; of a tree the deepest nodes that are few enough.

    asked   edges that replace even ones that are near.
    """
    if isinstance(column, Tree):
        return _edges_at(column, column.deepest(USUAL_NODES * ranges // _RANGES[0])), ()
    if isinstance(column, Categorical):
        return tuple(np.arange(len(column.levels) - 1) + 0.5), ()
    assert isinstance(column, Number)
    low, high = column.ends
    if column.edges:
        edges = column.cuts(column.edges)
        if ranges < _RANGES[0]:
            edges = edges[np.unique(np.linspace(0, len(edges) - 1, min(ranges - 1, len(edges))).round().astype(int))]
    elif column.spacing and high - low <= _FEW_VALUES * column.spacing:
        edges = low + column.spacing * np.arange(1, round((high - low) / column.spacing))
    else:
        edges = _even_edges(column, ranges)
        if len(asked):
            edges = edges[np.abs(edges[:, None] - np.array(asked)).min(axis=1) > (high - low) / ranges / 2]
    edges = np.append(edges, asked)
    inner = np.unique(edges[(edges > low) & (edges < high)])
    return tuple(inner.tolist()), tuple(column.atom_codes.tolist())


def _edges_at(column: Tree, depth: int) -> tuple[float, ...]:
    return tuple((column.starts(depth)[1:] - 0.5).tolist())


def _merged(column: Column, edges: tuple[float, ...], most: int | None, asked: Sequence[float]) -> tuple[float, ...]:
    """Inner edges of at most so many ranges of a number with declared edges: evenly many of them in each; and those asked for."""
    if most is None or not isinstance(column, Number) or not column.edges or len(edges) < most:
        return edges
    kept = np.rint(np.linspace(0, len(edges) + 1, most + 1)).astype(int)[1:-1] - 1
    return tuple(edge for n, edge in enumerate(edges) if n in kept or edge in asked)


def _finer_edges(column: Column, edges: tuple[float, ...], declared: tuple[float, ...], ranges: int) -> list[tuple[float, ...]]:
    """Inner edges of a column's finer tables, the coarsest first: nodes of a tree, or declared ranges, then about so many."""
    if ranges < 1:
        return []
    if column.has_levels:
        found = [edges]
        for depth in range(column.depths if isinstance(column, Tree) else 0):
            if len(own := _edges_at(column, depth)) > len(found[-1]):  # type: ignore[arg-type]
                found.append(own)
        return found[1:]
    tables = [declared] if len(declared) > len(edges) else []
    return [*tables, *filter(None, [_fine_edges(column, declared, ranges)])]


def _fine_edges(column: Column, edges: tuple[float, ...], ranges: int) -> tuple[float, ...]:
    """Inner edges of some hundred ranges, or of one for each value if that is fewer; none if they are the column's own."""
    assert isinstance(column, Number)
    low, high = column.ends
    even = _even_edges(column, ranges)
    margin = 1e-6 * (high - low) / ranges
    separate = np.abs(even[:, None] - np.array([low, high, *edges])).min(axis=1) > margin
    inner = np.unique([*even[separate & (even > low) & (even < high)], *edges])
    return tuple(inner.tolist()) if len(inner) > len(edges) else ()


def _even_edges(column: Number, ranges: int) -> Array:
    """(ranges + 1,) ends of even ranges, in encoded units; moved between two values where the column has steps."""
    low, high = column.ends
    even = np.linspace(0, high - low, ranges + 1)[1:-1]
    inner = low + (np.rint(even / column.spacing) * column.spacing if column.spacing else even)
    return np.array([low, *inner, high])  # a sum may be next to the end, and leave a range without width


def one_way_kernel(domain: Domain, columns: tuple[int, ...], *, ranged: bool) -> kernels.OnColumns:
    """A kernel of the levels, atoms and missing cells of these columns; if `ranged`, of ranges of their numbers too."""
    chosen = [domain.columns[j] for j in columns]
    cuts = [_cuts(column, _RANGES[0]) for column in chosen]
    margins = kernels.Margins(
        edges=tuple(cut if ranged or column.has_levels else () for column, (cut, _) in zip(chosen, cuts, strict=True)),
        atoms=tuple(atoms for _, atoms in cuts),
        missing=tuple(column.missing for column in chosen),
        shares=(1.0, 0.0, 0.0),
    )
    return kernels.OnColumns(margins, columns)


def position_of(domain: Domain, target: str) -> int:
    """The target's column; DomainError if there is none of that name."""
    if target not in domain.names:
        raise DomainError(f"target: there is no column {target!r}. Name one of {', '.join(domain.names)}.")
    return domain.position(target)


_SHARE_OF_LABEL = 0.05  # share of the squared norm for the table of the label's classes
_SHARE_OF_NUMBERS = 0.25  # share of the rest for numbers; one-way tables have the remainder
_MOST_RANGED = 100  # columns, up to which ranges of numbers have one-way tables too


def generator_kernel(domain: Domain, target: str | None = None) -> kernels.Kernel:
    """The kernel of DP-MERF (Harder, Adamczewski & Park 2021): numbers and levels, crossed with the label.

    Numbers have one Gaussian, at lengthscales that are fractions of their ranges: rows drawn evenly from the bounds of d numbers
    have distance √(d/6) ranges, which is the lengthscale. Levels, atoms and missing cells have their one-way tables, and so
    have ranges of numbers while there are few columns. With a target all that is crossed with its classes, and their
    own table is added, so that their shares are known.
    """
    position = None if target is None else position_of(domain, target)
    label = position if len(domain) > 1 else None  # a label alone is crossed with nothing
    others = tuple(j for j in range(len(domain)) if j != label)
    numbers = tuple(j for j in others if domain.columns[j].is_number)
    ranged = len(domain) <= _MOST_RANGED
    special = {j for j, column in enumerate(domain.columns) if column.missing or bool(getattr(column, "atoms", ()))}
    listed = tuple(j for j in others if j not in numbers or ranged or j in special)
    parts: list[kernels.Kernel] = [one_way_kernel(domain, listed, ranged=ranged)] if listed else []
    parts += [_numbers_kernel(domain, numbers)] if numbers else []
    shares = [1.0] if len(parts) == 1 else [1 - _SHARE_OF_NUMBERS, _SHARE_OF_NUMBERS]
    if label is None:
        return parts[0] if len(parts) == 1 else kernels.Sum(tuple(map(kernels.Scaled, shares, parts)))
    own = one_way_kernel(domain, (label,), ranged=True)
    scaled = tuple(kernels.Scaled((1 - _SHARE_OF_LABEL) * share, part) for share, part in zip(shares, parts, strict=True))
    rest = scaled[0] if len(scaled) == 1 else kernels.Sum(scaled)
    return kernels.Sum((kernels.Scaled(_SHARE_OF_LABEL, own), kernels.Product((own, rest))))


def _numbers_kernel(domain: Domain, numbers: tuple[int, ...]) -> kernels.Kernel:
    """A Gaussian over all of them, each column's lengthscale as a fraction of its range."""
    in_ranges = float(np.sqrt(len(numbers) / 6))
    groups: dict[float, list[int]] = {}  # columns of one range share a kernel: a wide table would have thousands
    for j in numbers:
        low, high = domain.columns[j].bounds
        groups.setdefault(in_ranges * (high - low), []).append(j)
    factors = tuple(kernels.OnColumns(kernels.Gaussian(lengthscale), tuple(on)) for lengthscale, on in groups.items())
    return factors[0] if len(factors) == 1 else kernels.Product(factors)


_COLUMNS_SEEN = 3  # columns that a random feature of the table kernel uses on average
_SUBSTRINGS = 3  # characters of the longest substrings that are compared
_YEAR = 365.2425  # days, in the mean of the calendar's 400 years
_FINEST = 256  # a continuum is resolved to one part in 256 of its range


def table_kernel(domain: Domain, *, length: int = _SUBSTRINGS, blended: bool = True) -> kernels.Kernel:
    """The default kernel for tables: a softened product of one kernel per column (`SoftenedProduct`).

    Numbers, dates and ordinals get Gaussians at lengthscales from one step of the column up to its range,
    one octave each, cyclic quantities the same around their circle, seasonal dates both; levels get the indicator.
    length, blended   of strings: the substrings that two of them share, of up to so many characters or of just so many.
    """

    def kernel_of(column: Column) -> kernels.Kernel:
        if isinstance(column, Text):
            return kernels.StringSpectrum(length, symbols=len(column.symbols), numbers=column.width, blended=blended)
        return _column_kernel(column)

    factors = tuple(map(kernel_of, domain.columns))
    return kernels.SoftenedProduct(kernels=factors, inclusion=float(np.clip(_COLUMNS_SEEN / len(domain), 0.01, 0.5)))


def _column_kernel(column: Column) -> kernels.Kernel:
    if isinstance(column, Cyclic):
        return kernels.Periodic(period=column.period, lengthscales=_octaves(column.period / 4, column.period / _FINEST))
    if isinstance(column, Categorical) and not (column.ordered and len(column.levels) > 2):
        return kernels.Indicator(levels=len(column.levels))
    if isinstance(column, Date) and column.seasonal:
        season = kernels.Periodic(period=_YEAR, lengthscales=_octaves(_YEAR / 4, _YEAR / 64))
        return 0.5 * _column_kernel(replace(column, seasonal=False)) + 0.5 * season
    low, high = column.bounds
    finest = max(getattr(column, "step", 1.0) or 0.0, (high - low) / _FINEST)
    return kernels.MultiScale(lengthscales=_octaves(high - low, finest))


def _octaves(broadest: float, finest: float) -> tuple[float, ...]:
    octaves = max(0, round(np.log2(broadest / finest)))
    return tuple(float(broadest) / 2.0**i for i in reversed(range(octaves + 1)))


def kernel_from_spec(
    spec: str | kernels.Kernel | None, domain: Domain, target: str | None = None, noise: float = USUAL_NOISE, *,
    finer: bool = True,
) -> kernels.Kernel:  # fmt: skip
    """A kernel from its text, such as "table" or "gaussian:lengthscale=158.1"; DomainError if it cannot be.

    Lengthscales are in the columns' own units, log units for log columns. None is "table". The parameters are named as
    the kernel's fields are: "matern:nu=1.5,lengthscale=2", "rational-quadratic:alpha=1,lengthscale=2". That of
    "polynomial:degree=2,offset=1" is of columns scaled from their bounds to [−1, 1].
    target                 a column that the kernel generator crosses with the others; margins give its pairs more height.
    noise, finer           of `margin_kernel`; other kernels ignore them.
    """
    if target is not None and spec not in ("margins", "adaptive", "generator"):
        raise DomainError(
            'target goes with the kernels "adaptive" and "margins", or the method "generator", which measure how the other '
            "columns relate to it. Name both, or leave it out."
        )
    if isinstance(spec, kernels.Kernel):
        return spec
    if not isinstance(spec, str | None):
        raise DomainError(
            f"kernel must be a Kernel or its text, got {type(spec).__name__}: a release names its kernel, of proven bound. Pass "
            '"table", "gaussian:lengthscale=0.5" or another of ka.kernels; ka.mmd_test takes any Kernel.'
        )
    name, _, rest = (spec or "table").partition(":")
    name = {"rbf": "gaussian", "matérn": "matern"}.get(name.lower(), name)
    texts = [column.name for column in domain.columns if column.is_text]
    if texts and name != "table":
        raise DomainError(
            f"the {name} kernel does not compare strings, and {', '.join(texts)} holds strings: only the table kernel does. "
            'Write "table", or "table:length=4" for substrings of 4 characters.'
        )
    if texts and rest:
        return table_kernel(domain, **_substrings(rest))
    if name in _OF_THE_DOMAIN:
        if rest:
            raise DomainError(f'the {name} kernel takes no parameters, got {rest!r}: the domain sets them. Write "{name}".')
        return _OF_THE_DOMAIN[name](domain, target, noise, finer)
    if name not in _OF_NUMBERS:
        raise DomainError(f"unknown kernel {name!r}. Write one of {', '.join(_OF_THE_DOMAIN)}, {', '.join(_OF_NUMBERS)}.")
    _refuse_levels(name, domain)
    try:
        return _kernel_of_numbers(name, domain, _parameters(rest))
    except TypeError:
        allowed = _OF_NUMBERS[name]
        raise DomainError(f'kernel {spec!r}: {name} takes {allowed}. Write "{name}:{allowed}".') from None
    except ValueError as error:
        raise DomainError(f"kernel {spec!r}: {error}") from None


_OF_THE_DOMAIN: dict[str, Callable[[Domain, str | None, float, bool], kernels.Kernel]] = {
    "table": lambda domain, target, noise, finer: table_kernel(domain),
    "margins": lambda domain, target, noise, finer: _for_target(
        margin_kernel(domain, noise, finer=finer), -1 if target is None else position_of(domain, target)
    ),
    "adaptive": lambda domain, target, noise, finer: adaptive_kernel(domain),
    "generator": lambda domain, target, noise, finer: generator_kernel(domain, target),
}
_OF_NUMBERS = {  # what may be written
    "gaussian": "lengthscale=1.0",
    "laplacian": "lengthscale=1.0",
    "matern": "nu=1.5,lengthscale=1.0",
    "rational-quadratic": "alpha=1.0,lengthscale=1.0",
    "polynomial": "degree=2,offset=1.0",
}


def _kernel_of_numbers(name: str, domain: Domain, parameters: dict[str, Any]) -> kernels.Kernel:
    if name != "polynomial":
        return kernels.KERNELS[name](**parameters)
    parameters = {"degree": 2.0, "offset": 1.0} | parameters
    if parameters["degree"].is_integer() and abs(parameters["degree"]) < 1e9:
        parameters["degree"] = int(parameters["degree"])  # of any other number the kernel says what is wrong
    ends = zip(*(column.bounds for column in domain.columns), strict=True)
    return kernels.KERNELS[name](**parameters, **dict(zip(("lower", "upper"), ends, strict=True)))


def _substrings(text: str) -> dict[str, Any]:
    try:
        parameters = _parameters(text)
    except ValueError as error:
        raise DomainError(f"kernel table: {error}") from None
    length, blended = parameters.pop("length", float(_SUBSTRINGS)), parameters.pop("blended", 0.0)
    if parameters or not length.is_integer() or length < 1 or blended not in (0.0, 1.0):
        raise DomainError(
            f"kernel table: of strings it takes length, a whole number of at least 1, and blended, 0 or 1, got {text!r:.80}. "
            'Write e.g. "table:length=4" or "table:length=4,blended=1".'
        )
    return {"length": int(length), "blended": bool(blended)}


def _refuse_levels(name: str, domain: Domain) -> None:
    levels = [column.name for column in domain.columns if column.has_levels]
    if levels:
        raise DomainError(
            f"the {name} kernel is for numbers, and {', '.join(levels)} have levels, which have no distance. "
            'Use "table", which has a kernel for each kind of column.'
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
