"""A column's values divided into groups, each with its condition: for tables, histograms and `groupby`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Number
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import LONGEST, words

_RANGES = 10  # ranges of a column without public edges
_FEW = 20  # values: each is a group of its own
MISSING = "(missing)"
MOST_GROUPS = 10_000  # groups of a column: each is a cell of its table
MOST_ASKED = 500  # groups of which each is a population of its own, with conditions evaluated anew


@dataclass(frozen=True)
class Group:
    """Some of a column's values.

    label      for readers: a level, a number, or a range such as "[30, 50)".
    condition  the expression that holds for them and for no others.
    left       the lowest of them, and right where they end, of numbers and dates; None of levels and missing cells.
    column     whose values they are, and code, the index of a level among the column's; None of other groups.
    """

    label: str
    condition: str
    left: Any = None
    right: Any = None
    column: str = ""
    code: int | None = None


def groups_of(domain: Domain, name: str, bins: int | Sequence[float] | None = None) -> list[Group]:
    """The groups of a column: every value is in one of them, a missing one too where it is declared.

    bins   None: levels; the public atoms of a number, each by itself, and the ranges between its public edges. Without
           edges, each value of whole numbers that have at most 20, else ten ranges of equal width on the column's scale.
           A number: so many such ranges. A list: edges in natural units, as numpy has them (the last range closed);
           what lies outside is in no group. With bins, atoms are not kept separate.
           Of a tree: the nodes of the largest depth that has at most 60 of them, or at most `bins`.

    Errors   ValueError for more than 10,000 groups, before any of them is made.
    """
    column = domain[name]
    check_groups(column, bins)
    written = words.column(name)
    if isinstance(column, Number):
        groups = _number_groups(column, written, bins)
    elif isinstance(column, Tree):
        groups = _node_groups(column, written, bins)
    elif column.is_text:
        raise ValueError(
            f"{name} is a column of texts, of which there are too many to be groups. Ask of one at a time: "
            f'probability("{words.example(column)}").'
        )
    elif bins is not None:
        raise ValueError(f"{name} has no ranges to bin: it is {column.kind}, and its groups are its levels. Leave bins out.")
    else:
        assert isinstance(column, Categorical)
        levels = enumerate(column.levels)
        groups = [Group(x, f"{written} == {words.literal(x)}", column=name, code=k) for k, x in levels]
    if column.missing:
        groups.append(Group(MISSING, f"missing({written})"))
    alike = len({group.label for group in groups}) < len(groups)  # a level "(missing)", atoms that differ late
    return [replace(group, label=group.condition) for group in groups] if alike else groups


def check_groups(column: Column, bins: int | Sequence[float] | None, most: int = MOST_GROUPS) -> None:
    """ValueError where a column has more groups than `most`, or its ranges would leave out too many atoms to be written."""
    if isinstance(column, Number):
        ranges = len(column.atom_codes) + len(column.edges) if bins is None else bins
        count = ranges if isinstance(ranges, int) else len(ranges)
    elif isinstance(column, Tree):
        count = len(column.groups(_depth(column, bins)))
    else:
        count = len(getattr(column, "levels", ()))
    if count > most:
        raise ValueError(
            f"{column.name} has {count:,} groups, and at most {most:,} are answered at once: each has an error of its own to "
            "compute. Ask for single levels or ranges with probability(...) or `kmeanalyst expect`, or pass fewer bins."
        )


def _depth(column: Tree, bins: int | Sequence[float] | None) -> int:
    if bins is None:
        return column.deepest()
    if not isinstance(bins, int):
        raise ValueError(f"{column.name} has a tree of codes: bins are the most groups, got {bins!r:.80}. Pass a number.")
    return column.deepest(bins)


def _node_groups(column: Tree, written: str, bins: int | Sequence[float] | None) -> list[Group]:
    """A group for each node of a depth; an inner node that rows may hold, above it, without the codes below."""
    nodes = column.groups(_depth(column, bins))
    groups, starts = [], [*(column.span(node)[0] for node in nodes), len(column.levels)]  # type: ignore[index]
    for node, (start, stop) in zip(nodes, pairwise(starts), strict=True):
        condition = f"{written} == {words.literal(node)}"
        single = {"column": column.name, "code": start} if stop - start == 1 else {}
        if column.span(node) != (start, stop):
            children = ", ".join(words.literal(code) for code, parent in column.parents if parent == node)
            node, condition = f"{node} (unspecified)", f"{condition} and {written} not in [{children}]"
        groups.append(Group(node, condition, **single))  # type: ignore[arg-type]
    return groups


def _number_groups(column: Number, written: str, bins: int | Sequence[float] | None) -> list[Group]:
    if bins is not None:
        return _ranges(column, written, _equal(column, bins) if isinstance(bins, int) else _given(column, bins), "")
    atoms = _values(column, column.atom_codes)
    if column.edges:
        codes = {float(code): edge for code, edge in zip(column.cuts(column.edges), column.edges, strict=True)}
        low, high = column.bounds
        edges = [column.lower, *(codes[code] for code in sorted(codes) if low < code < high), column.upper]
    elif (whole := _few_values(column)) is not None:
        return [_one(column, written, value) for value in whole]
    else:
        edges = _equal(column, _RANGES)
    listed = ", ".join(_text(column, atom) for atom in atoms)
    others = f" and {written} not in [{listed}]" if atoms else ""
    if len(others) > LONGEST:
        raise ValueError(
            f"{column.name} has {len(atoms):,} atoms, too many to be left out of each range: an expression has at most {LONGEST:,} "
            "characters. Pass bins, which do not keep atoms separate, or ask for single ranges with probability(...)."
        )
    return [_one(column, written, atom) for atom in atoms] + _ranges(column, written, edges, others)


def _equal(column: Number, n: int) -> list[Any]:
    """n + 1 edges that divide the column's bounds evenly on its scale, in natural units; fewer if there are fewer values."""
    if n < 1:
        raise ValueError(f"bins must be at least 1, got {n}: it is a number of ranges. Pass e.g. 10, or a list of edges.")
    low, high = column.bounds
    edges = _values(column, column.rounded(np.linspace(low, high, n + 1)))
    if isinstance(column, Cyclic):
        edges[-1] = column.upper  # the same value as lower on the circle: it would divide nothing
    return list(dict.fromkeys(edges))


def _given(column: Number, bins: Sequence[float]) -> list[Any]:
    if isinstance(column, Date):
        raise ValueError(
            f"{column.name} is a column of days, and a list of numbers cannot divide it. Pass a number of bins, or declare edges."
        )
    return [float(edge) for edge in increasing(bins)]


def increasing(bins: Sequence[float]) -> list[float]:
    edges = list(bins)
    if len(edges) < 2 or not all(a < b for a, b in pairwise(edges)):
        raise ValueError(f"bins must be a number, or at least two increasing edges, got {edges!r:.80}. Sort them.")
    return edges


def _few_values(column: Number) -> list[Any] | None:
    if column.spacing is None or isinstance(column, Date):
        return None
    codes = column.every_value(_FEW + column.missing)
    return None if codes is None else _values(column, codes[np.isfinite(codes)])


def _values(column: Column, codes: Any) -> list[Any]:
    decoded = column.decode(np.asarray(codes, dtype=float))
    if isinstance(column, Date):
        return [day.date().isoformat() for day in decoded]
    return [x.item() for x in decoded.to_numpy()]


def _ranges(column: Number, written: str, edges: Sequence[Any], others: str) -> list[Group]:
    groups, shown = [], _shown(edges)
    for k, (a, b) in enumerate(pairwise(edges)):
        sign, end = ("<=", "]") if k == len(edges) - 2 else ("<", ")")
        condition = f"{_text(column, a)} <= {written} {sign} {_text(column, b)}{others}"
        groups.append(Group(f"[{shown[k]}, {shown[k + 1]}{end}", condition, a, b))
    return groups


def _one(column: Number, written: str, value: Any) -> Group:
    return Group(_shown([value])[0], f"{written} == {_text(column, value)}", value, value)


def _text(column: Column, value: Any) -> str:
    if isinstance(column, Date):
        return words.literal(str(value))
    return repr(value.item() if isinstance(value, np.generic) else value)


def _shown(values: Sequence[Any]) -> list[str]:
    """Values for readers: numbers with six digits, or with as many more as distinguish them."""
    for digits in (6, 9, 12, 17):
        texts = [f"{value:.{digits}g}" if isinstance(value, float) else str(value) for value in values]
        if len(set(texts)) == len(texts):
            break
    return texts
