"""Noisy tables that others published: a frame or an array of counts, the law of its noise, and the cells that it is of."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array, is_number
from kmeanalyst.releases.domain.cells import BAD, text_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from kmeanalyst.releases.texts import shortened

LAWS = {
    "gaussian": GAUSSIAN, "discrete gaussian": GAUSSIAN,
    "laplace": LAPLACE, "discrete laplace": LAPLACE, "geometric": LAPLACE,
}  # fmt: skip
_VALUES, _ERRORS = ("count", "share"), ("standard_error", "variance")  # columns of a frame beside those of its cells
_BOUNDS = re.compile(r"([\[(])\s*(\S+?)\s*,\s*(\S+?)\s*([\])])|(\S+) to (\S+)")
_INFINITE = {"-inf": -math.inf, "inf": math.inf, "+inf": math.inf, "-infinity": -math.inf, "infinity": math.inf}
_ROUNDING = 1e-9
_CONTINUED = 4.0  # scale from which a discrete normal distribution has the deviation of the continuous one

Span = tuple[float, float]  # [low, high) in encoded units; an atom has both the same


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A table of counts or shares with noise of a known law, which somebody published.

    table    DataFrame with a row for each cell: columns of the domain with levels, or with ranges of numbers as lower edges,
             pandas.Interval, "[17, 25)" or "17 to 24"; `count` or `share`; and, where no scale is given, `standard_error` or
             `variance`, cell by cell. Or an array with an axis for each of `columns`: levels in the domain's order, ranges between
             its `edges`, and a missing cell last where there may be one.
    columns  of an array, in the order of its axes.
    noise    "gaussian", "laplace", "discrete gaussian", "discrete laplace" or "geometric" (the same law), independent in each
             cell where there is no covariance. By default Gaussian.
    scale    of the law, in units of the table: σ of Gaussian noise, b of Laplace noise P ∝ exp(−|x|/b). Of an array, also an array
             of its shape.
    covariance   in place of a scale, (cells, cells) of Gaussian noise, in the order of a frame's rows or of an array's entries.
             It counts as independent noise that is no smaller in any direction: errors and tests are valid, and the worse the more
             cells share one error.
    exact    whether the table has no noise.
    shares   whether an array holds shares; a frame says so by the name of its column.

    >>> table = pd.DataFrame({"sex": ["Female", "Male"], "count": [1970.4, 4031.1]})
    >>> noisy = ka.NoisyTable(table, noise="laplace", scale=10.0)
    >>> noisy.law, noisy.deviation
    ('discrete laplace', 14.14...)
    """

    table: Any
    columns: Sequence[str] = ()
    noise: str | None = None
    scale: Any = None
    exact: bool = False
    shares: bool = False
    covariance: Any = None

    def __post_init__(self) -> None:
        if self.noise not in (None, *LAWS):
            raise ValueError(f"noise must be one of {', '.join(LAWS)}, got {self.noise!r:.80}. Name the law of the noise.")
        scale = self.scale
        if isinstance(scale, np.ndarray):
            fits = scale.dtype.kind in "iuf" and scale.shape == np.shape(self.table) and scale.size > 0
            fits = fits and bool(0 < scale.min() <= scale.max() < math.inf)
        else:
            fits = scale is None or (is_number(scale) and 0 < scale < math.inf)
        if not fits:
            raise ValueError(
                f"scale must be a positive number, or an array of them of the array's shape, got {scale!r:.80}: a table without "
                "noise is said to be so. Pass exact=True for one."
            )
        if self.exact is not False and (self.exact is not True or self.noise is not None or scale is not None):
            raise ValueError("exact is true or false, and an exact table has no law and no scale. Leave one of them out.")

        if self.covariance is not None and not (
            scale is None and not self.exact and self.law == GAUSSIAN and _is_covariance(self.covariance)
        ):
            raise ValueError(
                "covariance must be an array, a symmetric positive matrix with a row for each cell, of Gaussian noise without a "
                "scale. Correct it, or leave one of them out."
            )

    @property
    def law(self) -> str:
        """The law as measurements name it."""
        return LAWS[self.noise or "gaussian"]

    @property
    def deviation(self) -> Any:
        """Standard deviation of the noise on a cell, or on each, in units of the table, by law and scale; None without a scale.

        >>> ka.NoisyTable(np.zeros(2), ["sex"], noise="geometric", scale=1.0).deviation
        1.35...
        """
        if self.scale is None:
            return None
        pure, b = self.law == LAPLACE, np.asarray(self.scale, dtype=np.float64)
        found = math.sqrt(2) * b if pure else b
        if not (self.noise in ("gaussian", "laplace", None) or self.shares):
            k = np.arange(-40, 41)
            weights = np.exp(-0.5 * (k / np.minimum(b, _CONTINUED)[..., None]) ** 2)
            gaussian = np.where(b > _CONTINUED, b, np.sqrt(weights @ k**2 / weights.sum(axis=-1)))
            found = np.sqrt(2 * np.exp(-1 / b)) / -np.expm1(-1 / b) if pure else gaussian
        return found if b.ndim else float(found)


@dataclass(frozen=True, eq=False)
class TableCells:
    """A noisy table over the cells of some of a domain's columns.

    name       its columns, for readers.
    columns    their numbers, increasing.
    edges      of each the inner ends of its ranges, in encoded units; atoms: values that are cells of their own.
    values     (a, b, …) counts or shares: ranges first, then atoms, then a missing cell.
    deviations (a, b, …) standard deviations of the noise on the cells, in units of the values: 0 of an exact table.
    law        of the noise, as measurements name it.
    shares     whether the values are shares.
    correlated whether the deviations bound noise that is not independent.
    """

    name: str
    columns: tuple[int, ...]
    edges: tuple[tuple[float, ...], ...]
    atoms: tuple[tuple[float, ...], ...]
    values: Array
    deviations: Array
    law: str
    shares: bool
    correlated: bool = False

    @property
    def deviation(self) -> float:
        """The largest one."""
        return float(self.deviations.max())


def cells_of_table(given: NoisyTable, domain: Domain) -> TableCells:
    """A table over the domain's cells; ValueError, in one sentence, where it does not cover them or its noise is not known."""
    frame = given.table if isinstance(given.table, pd.DataFrame) else _frame_of(given, domain)
    names = [str(name) for name in frame.columns if name not in (*_VALUES, *_ERRORS)]
    what = shortened(f"the table of {' × '.join(names) or 'no column'}", 200)
    if unknown := [name for name in names if name not in domain.names]:
        raise ValueError(f"{what} has the column {unknown[0]!r:.80}, which the domain does not have. Rename or remove it.")
    kinds = [name for name in _VALUES if name in frame.columns]
    if len(kinds) != 1 or not names:
        raise ValueError(f"{what} must have columns of cells and one of count and share. Add what it lacks.")
    values = _numbers(frame[kinds[0]], what, kinds[0])
    errors = np.broadcast_to(_deviations(given, frame, what), values.shape)
    order = sorted(range(len(names)), key=lambda i: domain.position(names[i]))
    read = [_column_cells(domain[names[i]], list(frame[names[i]]), what) for i in order]
    shape = tuple(size for *_, size in read)
    flat = np.ravel_multi_index(tuple(codes for _, _, codes, _ in read), shape)
    times = np.bincount(flat, minlength=math.prod(shape))
    if (times != 1).any():
        cell = np.unravel_index(int((times != 1).argmax()), shape)
        how = "twice" if times.max() > 1 and times[np.ravel_multi_index(cell, shape)] else "not"
        raise ValueError(
            f"{what} must list each of its {times.size} cells once, and cell {[int(i) + 1 for i in cell]} is {how} in it: "
            "a cell that was left out is unknown, not 0. List every cell, or leave the table out."
        )
    table, deviations = np.empty((2, *shape))
    table.ravel()[flat], deviations.ravel()[flat] = values, errors
    return TableCells(
        name=" × ".join(names[i] for i in order), columns=tuple(domain.position(names[i]) for i in order),
        edges=tuple(edges for edges, *_ in read), atoms=tuple(atoms for _, atoms, *_ in read), values=table,
        deviations=deviations, law=given.law, shares=kinds[0] == "share",
        correlated=given.covariance is not None,
    )  # fmt: skip


def _frame_of(given: NoisyTable, domain: Domain) -> pd.DataFrame:
    """An array over named columns as a frame of its cells."""
    array = np.asarray(given.table)
    names = [given.columns] if isinstance(given.columns, str) else [*given.columns]
    cells = [_names_of_cells(domain[name]) for name in names]
    if array.shape != tuple(map(len, cells)) or not names:
        raise ValueError(
            f"an array of {' × '.join(names) or 'no column'} has shape {tuple(map(len, cells))} over the domain's cells, got "
            f"{array.shape}. Pass `columns` in the order of its axes, or a frame that names its cells."
        )
    index = pd.MultiIndex.from_product(cells, names=names)
    return pd.DataFrame({"share" if given.shares else "count": array.ravel()}, index=index).reset_index()


def _names_of_cells(column: Column) -> list[Any]:
    if isinstance(column, Categorical):
        return [*column.levels, *([None] if column.missing else [])]
    if not isinstance(column, Number) or not column.edges or column.atoms:
        raise ValueError(
            f"an array says nothing of the ranges of {column.name!r:.80}, which has no edges in the domain, or atoms. Pass a frame "
            'with ranges such as "[17, 25)".'
        )
    lows = ["-inf", *map(text_of, column.edges)]
    return [*map("[{}, {})".format, lows, [*lows[1:], "inf"]), *([None] if column.missing else [])]


def _numbers(cells: pd.Series, what: str, name: str) -> Array:
    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if not np.isfinite(numbers).all():
        raise ValueError(f"{what} has a {name} that is not a finite number. Correct it, or leave the table out.")
    return numbers


def _deviations(given: NoisyTable, frame: pd.DataFrame, what: str) -> Any:
    """The standard deviation of the noise on all cells, or (n,) on each of them."""
    kinds = [name for name in _ERRORS if name in frame.columns]
    if given.exact:
        return 0.0
    if given.covariance is not None:
        if kinds or len(frame) != len(given.covariance):
            raise ValueError(
                f"{what} has {len(frame)} cells and a covariance of {len(given.covariance)}{' beside ' * bool(kinds)}"
                f"{', '.join(kinds)}. Pass a row of it for each cell, and no other noise."
            )
        return np.sqrt(independent_bound(np.asarray(given.covariance, dtype=np.float64)))
    if given.scale is not None and not kinds:
        return np.ravel(given.deviation)
    if len(kinds) != 1 or given.scale is not None:
        law = f"a law, {given.noise}, without its scale" if given.noise and not kinds else "no noise, or several"
        raise ValueError(
            f"{what} has {law}: without the size of its noise nothing has an error. Pass one of scale, a column standard_error "
            "or variance, and exact=True."
        )
    numbers = _numbers(frame[kinds[0]], what, kinds[0])
    if not (numbers > 0).all():
        raise ValueError(
            f"{what} has a {kinds[0]} of {numbers.min():g}: a table without noise is said to be so. Pass exact=True for one, or a "
            "positive number."
        )
    return np.sqrt(numbers) if kinds[0] == "variance" else numbers


def _is_covariance(matrix: Any) -> bool:
    try:
        known = np.asarray(matrix)
    except ValueError:  # rows of unlike lengths
        return False
    if isinstance(matrix, pd.DataFrame) or known.dtype.kind not in "iuf" or known.ndim != 2 or len(set(known.shape)) > 1:
        return False
    room = _ROUNDING * float(known.diagonal().max(initial=0.0))
    symmetric = np.isfinite(known).all() and np.allclose(known, known.T, rtol=1e-6, atol=room)
    return bool(symmetric and (known.diagonal() > 0).all() and np.linalg.eigvalsh(known).min(initial=0.0) >= -room)


def independent_bound(covariance: Array) -> Array:
    """Variances (n,) of independent noise which in no direction is smaller than noise with this covariance (n, n).

    By the largest eigenvalue of the covariance or of the correlations, or by sums of rows (Gershgorin): whichever adds up to least.
    """
    covariance = (covariance + covariance.T) / 2
    own = covariance.diagonal()
    roots = np.sqrt(own)
    bounds = (
        np.full(len(own), np.linalg.eigvalsh(covariance)[-1]),
        own * np.linalg.eigvalsh(covariance / np.outer(roots, roots))[-1],
        np.abs(covariance).sum(axis=1),
    )
    return min(bounds, key=np.sum)


# ---------------------------------------------------------------------- the cells of one column


def _column_cells(column: Column, cells: Sequence[Any], what: str) -> tuple[tuple[float, ...], tuple[float, ...], Array, int]:
    """Inner edges and atoms of a column's cells, the cell of each entry (n,), and how many cells there are."""
    texts = [str(cell) if isinstance(cell, pd.Interval) else text_of(cell) for cell in cells]
    present = [text for text in dict.fromkeys(texts) if text != ""]
    spans = _spans(column, present, what)
    ranges = sorted({span for span in spans.values() if span[0] < span[1]})
    atoms = tuple(sorted({low for low, high in spans.values() if low == high}))
    low, high = column.ends if isinstance(column, Number) else (-0.5, len(column.levels) - 0.5)  # type: ignore[attr-defined]
    room = _ROUNDING * (high - low)
    ends = [low, *(end for _, end in ranges)]
    whole = ranges and ends[-1] >= high - room and ranges[0][0] <= low + room
    if not whole or any(abs(a - b) > room for (a, _), b in zip(ranges[1:], ends[1:-1], strict=True)):
        raise ValueError(
            f"{what} does not cover {column.name!r:.80}, {column.describe():.200}: its cells must follow one another from end to "
            "end without a gap or an overlap. Add what is left out."
        )
    if column.missing != ("" in texts):
        has = "has no cell for a missing one, which the domain allows" if column.missing else "has a missing cell"
        raise ValueError(f"{what} {has} in column {column.name!r:.80}. Add the cell, or correct `missing` in the domain.")
    numbers = {span: i for i, span in enumerate([*ranges, *((atom, atom) for atom in atoms)])}
    codes = np.array([len(numbers) if text == "" else numbers[spans[text]] for text in texts], dtype=np.intp)
    return tuple(low for low, _ in ranges[1:]), atoms, codes, len(numbers) + column.missing


def _spans(column: Column, texts: Sequence[str | None], what: str) -> dict[str | None, Span]:
    """What each text of a cell is; numbers alone are the lower edges of ranges."""
    if isinstance(column, Number) and not any(text and _BOUNDS.fullmatch(text) for text in texts):
        lows = {text: _end(column, text or "", after=False) for text in texts}
        after = dict(zip(ordered := sorted(set(lows.values())), [*ordered[1:], math.inf], strict=True))
        return {text: (low, after[low]) for text, low in lows.items()}
    found = {text: _span(column, text or "") for text in texts}
    if unknown := [text for text, span in found.items() if span is None]:
        raise ValueError(
            f"{what} has the cell {unknown[0]!r:.80} in column {column.name!r:.80}, which is {column.describe():.200}. Name levels "
            'of the domain, or ranges such as "[17, 25)".'
        )
    return {text: span for text, span in found.items() if span is not None}


def _span(column: Column, text: str) -> Span | None:
    if isinstance(column, Tree):
        codes = column.span(text)
        return None if codes is None else (codes[0] - 0.5, codes[1] - 0.5)
    if isinstance(column, Categorical):
        code = column.parse(text)
        return None if code is None or code is BAD else (code - 0.5, code + 0.5)
    if not isinstance(column, Number):
        return None
    if match := _BOUNDS.fullmatch(text):
        opened, low, high, closed, first, last = match.groups()
        return _end(column, low or first, after=opened == "("), _end(column, high or last, after=closed != ")")
    if (atom := float(column.encode([text])[0][0])) in column.atom_codes:
        return atom, atom
    return (_end(column, text, after=False), _end(column, text, after=True)) if column.grain else None


def _end(column: Number, text: str, *, after: bool) -> float:
    """Where cells end just below a value, or just after it, in encoded units."""
    if (infinite := _INFINITE.get(text.lower())) is not None:
        return infinite
    with np.errstate(all="ignore"):  # below a logarithm's zero
        end = float((column.cuts_above if after and column.grain else column.cuts)([text])[0])
    end = -math.inf if math.isnan(end) else end
    return math.nextafter(end, math.inf) if after and not column.grain else end
