"""Expressions over columns of releases, evaluated at combinations of the releases' rows.

A node is a column or a function of other nodes. It depends on Release objects by identity: two nodes of one object are
functions of the same row, nodes of different objects are functions of independent rows. So X - X is zero for every X, and
X + Y of two releases is a convolution. A node of one release is evaluated once at its rows. A node of several releases is
evaluated by numpy's broadcasting, or on flattened rows if its function may not broadcast.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import one_measurement, shared_measurement
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.expressions import parse, words
from kmeanalyst.releases.expressions.arrays import days_of
from kmeanalyst.releases.release import ReleaseData

Kind = Literal["number", "condition", "levels"]


@dataclass(frozen=True, eq=False)
class Node:
    """A function of rows: of a column's cells, or of other nodes' values.

    text       the expression, for readers.
    kind       "number": float64, NaN where undefined. "condition": bool. "levels": text, "" where missing.
    releases   those whose rows it depends on.
    function   of the rows of a frame, for a column; else of the arguments' values, arrays (n,) or constants.
    arguments  nodes and constants.
    broadcasts whether the function is elementwise and broadcasts its arguments; else it gets flat arrays of one length.
    """

    text: str
    kind: Kind
    releases: tuple[ReleaseData, ...]
    function: Callable[..., Any] = field(repr=False)
    arguments: tuple[Any, ...] = field(default=(), repr=False)
    broadcasts: bool = True
    atomic: bool = True  # whether its text needs no parentheses inside another
    column: str | None = None  # the name, of a plain column

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(argument for argument in self.arguments if isinstance(argument, Node))

    @property
    def exclusion(self) -> str:
        """How points at which it is undefined are excluded, for messages."""
        return f"given, such as x.given(~x.missing()) or, for a quotient, x.given(y != 0), x being {self.text:.60}"

    def __call__(self, frame: pd.DataFrame) -> Any:
        """The values at the rows of a frame of its one release."""
        return _Evaluation(self, {release: frame for release in self.releases}).on_frame(self)


def column_node(release: ReleaseData, name: str) -> Node:
    """A column of a release; days count from 1970-01-01, a boolean column is a condition (missing cells do not hold)."""
    column, written = release.columns[name], words.column(name)
    if column.has_levels and not isinstance(column, Boolean):
        return Node(written, "levels", (release,), lambda frame: _levels(frame[name]), column=name)
    if column.is_text:
        raise ValueError(
            f"{name} is a column of texts, which nothing can be calculated with. Ask the release itself: "
            f'probability("{words.example(column)}").'
        )
    if isinstance(column, Date):
        return Node(written, "number", (release,), lambda frame: days_of(frame[name]), column=name)
    return replace(expression_node(release, written), column=name, atomic=True)


def expression_node(release: ReleaseData, text: str) -> Node:
    """An expression over the columns of one release, as `Release.expectation` reads it."""
    expression = parse(text)
    kind: Kind = expression.check(release.columns)
    return Node(text, kind, (release,), lambda frame: expression.evaluate(frame, release.columns), atomic=False)


def number_node(node: Node) -> Node:
    if node.kind == "levels":
        raise TypeError(
            f"{node.text} has levels, which have no numbers. Ask a comparison, such as "
            '(variable == "a level").probability(), or the histogram.'
        )
    return node


def missing_node(node: Node) -> Node:
    if node.column is not None:
        return expression_node(node.releases[0], f"missing({words.column(node.column)})")
    return applied(lambda v: ~np.isfinite(np.asarray(v, dtype=float)), [node], text=f"missing({node.text})", kind="condition")


def applied(
    function: Callable[..., Any], arguments: Sequence[Any], *, text: str, kind: Kind, broadcasts: bool = True,
    atomic: bool = True,
) -> Node:  # fmt: skip
    """A function of nodes and constants; ValueError where two releases rest on one measurement."""
    releases = joined(argument.releases for argument in arguments if isinstance(argument, Node))
    return Node(text, kind, releases, function, tuple(arguments), broadcasts, atomic)


def joined(each: Any) -> tuple[ReleaseData, ...]:
    """All releases, each once, in order of first mention; ValueError where two cannot be independent."""
    found: list[ReleaseData] = []
    for release in (release for releases in each for release in releases):
        if any(release is other for other in found):
            continue
        if any(one_measurement(release, other) for other in found):
            raise shared_measurement("variables")
        found.append(release)
    return tuple(found)


def inside(operand: Any) -> str:
    if isinstance(operand, Node):
        return operand.text if operand.atomic else f"({operand.text})"
    return f"{operand:g}" if isinstance(operand, int | float | np.number) else repr(operand)


# ---------------------------------------------------------------- evaluation


@dataclass(frozen=True, eq=False)
class RowGrid:
    """Rows of several releases, combined: all combinations along the axes; releases on one axis are matched row by row.

    rows   for each release, the positions of its rows.
    axes   for each release, its axis.
    """

    rows: dict[ReleaseData, Array]
    axes: dict[ReleaseData, int]

    @property
    def shape(self) -> tuple[int, ...]:
        lengths = {self.axes[release]: len(rows) for release, rows in self.rows.items()}
        return tuple(lengths[axis] for axis in sorted(lengths))

    def on_axis(self, release: ReleaseData, values: Array) -> Array:
        """Values (n,) or (n, d) at all rows of a release's frame, at its rows here, along its axis."""
        axis, dimensions = self.axes[release], len(self.shape)
        shape = (*([1] * axis), -1, *([1] * (dimensions - axis - 1)))
        return values[self.rows[release]].reshape(shape + values.shape[1:])


def values_at(node: Node, frames: dict[ReleaseData, pd.DataFrame], grids: Sequence[RowGrid]) -> Iterator[Array]:
    """The node's values (n,), or (n, d), on each of several grids; what depends on one release alone is computed once."""
    evaluation = _Evaluation(node, frames)
    for grid in grids:
        values = evaluation.at(node, grid, {})
        rest = values.shape[len(grid.shape) :]
        yield np.broadcast_to(values, grid.shape + rest).reshape(-1, *rest)


class _Evaluation:
    """One walk through an expression: parts that occur several times are evaluated once."""

    def __init__(self, root: Node, frames: dict[ReleaseData, pd.DataFrame]) -> None:
        self.frames = frames
        self.uses = Counter(node for parent in _every(root) for node in parent.nodes)
        self.known: dict[Node, Any] = {}

    def on_frame(self, node: Node) -> Any:
        """Values (n,) of a node of one release at the rows of its frame."""
        if node not in self.known and not node.arguments:
            self.known[node] = node.function(self.frames[node.releases[0]])
        elif node not in self.known:
            values = [self.on_frame(a) if isinstance(a, Node) else a for a in node.arguments]
            self.known[node] = _computed(node, values)
        return self.known[node]

    def at(self, node: Node, grid: RowGrid, known: dict[Node, Any]) -> Any:
        """Values on the grid, in a shape that broadcasts to the grid's."""
        if node in known:
            return known[node]
        if len(node.releases) == 1:
            return grid.on_axis(node.releases[0], self.on_frame(node))
        values = [self.at(a, grid, known) if isinstance(a, Node) else a for a in node.arguments]
        if not node.broadcasts:
            flat = [np.broadcast_to(v, grid.shape).ravel() if isinstance(v, np.ndarray) else v for v in values]
            found = _computed(node, flat)
            found = found.reshape(grid.shape + found.shape[1:])
        else:
            found = _computed(node, values)
        if self.uses[node] > 1:
            known[node] = found
        return found


def _every(root: Node) -> Iterator[Node]:
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        yield node
        new = {inner for inner in node.nodes if inner not in seen}
        seen |= new
        waiting.extend(new)


def _computed(node: Node, values: Sequence[Any]) -> Any:
    with np.errstate(all="ignore"):
        return node.function(*values)


def _levels(cells: pd.Series) -> Array:
    return cells.astype(object).where(cells.notna(), "").to_numpy().astype(str)
