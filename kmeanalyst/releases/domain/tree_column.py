"""Columns of codes with a public tree: ICD-10, NACE, PUMA within county within state.

A row holds a leaf of the tree. Levels are in depth-first order, so that the codes below any node are neighbours: a
node is a range of encoded values, and the nodes of one depth cut the column into ranges. A tree is therefore measured as numbers
are, by ranges and finer ranges, and every node can be asked about.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.column import DomainError, check_name
from kmeanalyst.releases.domain.levels import Categorical

MOST_CODES, MOST_DEPTHS = 20_000, 12
USUAL_NODES = 60  # groups that a column is divided into, at most, where no number is named


@dataclass(frozen=True, kw_only=True)
class Tree(Categorical):
    """A code of a public tree; a question about an inner node is one about every code below it.

    parents  (code, parent) of each code that has one, or a table of code → parent. What is only a parent is at the top;
             so is a code whose parent is "". At most 20,000 codes, at most 12 deep.
    inner    whether a row may hold an inner node too, "unspecified below": a code of its own, before those below it.
    levels   what rows may hold, in depth-first order; they follow from the tree.

    >>> icd = Tree(name="cause", parents={"I10": "I10-I15", "I11": "I10-I15", "I20": "I20-I25", "I10-I15": "I", "I20-I25": "I"})
    >>> icd.levels, icd.span("I10-I15"), icd.depths
    (('I10', 'I11', 'I20'), (0, 2), 3)
    >>> icd.starts(1), icd.ends, icd.nodes[:3]
    (array([0, 2]), (-0.5, 2.5), ('I', 'I10-I15', 'I10'))
    """

    levels: tuple[str, ...] = field(default=(), repr=False)
    parents: Any = field(repr=False)
    inner: bool = False
    kind: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        self._check_flag("inner")
        parent_of = _parent_of(self.name, self.parents)
        object.__setattr__(self, "parents", tuple(parent_of.items()))
        inside = set(parent_of.values())
        levels = tuple(code for code in self._depth_of if self.inner or code not in inside)
        if tuple(self.levels) not in ((), levels):
            raise DomainError(f"column {self.name}: the levels of a tree follow from its parents. Remove levels.")
        pairs = [(code, parent_of.get(code, "")) for code in self._depth_of]
        object.__setattr__(self, "parents", tuple((code, up) for code, up in pairs if up or code not in inside))
        object.__setattr__(self, "levels", levels)
        for code in inside - {""}:
            check_name(f"column {self.name}: a code", code)
        super().__post_init__()

    @cached_property
    def _depth_of(self) -> dict[str, int]:
        return _depth_first(self.name, dict(self.parents))

    @cached_property
    def _spans(self) -> dict[str, tuple[int, int]]:
        held, count = set(self.levels), 0
        spans: dict[str, tuple[int, int]] = {}
        open_nodes: list[tuple[str, int]] = []
        for code, depth in [*self._depth_of.items(), ("", 0)]:
            while len(open_nodes) > depth:
                ended, start = open_nodes.pop()
                spans[ended] = (start, count)
            open_nodes.append((code, count))
            count += code in held
        return spans

    def span(self, code: str) -> tuple[int, int] | None:
        """The levels at or below a node: the first, and one past the last; None for a text that is not a node.

        >>> ka.Tree(name="x", parents={"a1": "a", "a2": "a", "b1": "b"}).span("a")
        (0, 2)
        """
        return self._spans.get(code, self._spans.get(code.strip()))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All codes of the tree, in depth-first order."""
        return tuple(self._depth_of)

    @property
    def depths(self) -> int:
        """The number of codes from the top to the deepest one."""
        return 1 + max(self._depth_of.values())

    def groups(self, depth: int) -> list[str]:
        """The nodes that the levels are divided into at a depth, 0 at the top: those of this depth, and leaves above it.

        >>> ka.Tree(name="x", parents={"a1": "a", "a2": "a", "b": ""}).groups(1)
        ['a1', 'a2', 'b']
        """
        held = set(self.levels)
        return [code for code, own in self._depth_of.items() if own == depth or (own < depth and code in held)]

    def starts(self, depth: int) -> Array:
        """The first level of each of these groups: a node above the depth that rows may hold is a group of its own.

        >>> ka.Tree(name="x", parents={"a1": "a", "a2": "a", "b": ""}).starts(0)
        array([0, 2])
        """
        return np.array([self._spans[code][0] for code in self.groups(depth)])

    def group_of(self, codes: Array, depth: int) -> Array:
        """The group at a depth of each encoded value (n,); NaN for a missing one.

        >>> ka.Tree(name="x", parents={"a1": "a", "a2": "a", "b": ""}).group_of(np.array([0.0, 1, 2]), 0)
        array([0., 0., 1.])
        """
        return np.where(np.isnan(codes), np.nan, np.searchsorted(self.starts(depth), codes, side="right") - 1)

    def deepest(self, most: int = USUAL_NODES) -> int:
        """The largest depth with at most so many groups; the top if it has more.

        >>> ka.Tree(name="x", parents={"a1": "a", "a2": "a", "b": ""}).deepest(2)
        0
        """
        few = [depth for depth in range(self.depths) if len(self.groups(depth)) <= most]
        return max(few, default=0)

    @property
    def ends(self) -> tuple[float, float]:
        """(−½, levels − ½): rounded uniform draws between them are uniform over the levels."""
        return -0.5, len(self.levels) - 0.5

    def _extent(self) -> str:
        top = self.groups(0)
        shown = ", ".join(top[:6]) + (", ..." if len(top) > 6 else "")
        return f"{shown} ({len(self.levels)} codes, {self.depths} deep)"

    def to_dict(self) -> dict[str, Any]:
        written = super().to_dict()
        del written["levels"]  # they follow from the tree
        return written


def _parent_of(name: str, parents: Any) -> dict[str, str]:
    """Code → parent, "" at the top, from what a domain gives; DomainError unless it is a table, or pairs of texts."""
    given = list(parents.items()) if isinstance(parents, Mapping) else parents
    whole = isinstance(given, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in given)
    if not whole or not given:
        raise DomainError(
            f'column {name}: parents must give the parent of each code, got {parents!r:.80}. Write code = "parent" for each, '
            "or name a CSV file with the columns code and parent."
        )
    found: dict[str, str] = {}
    for code, up in ((text_of(code), text_of(up)) for code, up in given):
        if not code or up is None or code in found:
            raise DomainError(
                f"column {name}: each code needs a text and one parent, and {code!r:.80} is listed twice or is not a text. "
                "List it once."
            )
        found[code] = up
    return found


def parents_in(path: Path) -> list[tuple[str, str]]:
    """The pairs of a CSV file with the columns code and parent; DomainError if it has none."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = list(csv.DictReader(file))
        return [(line["code"].strip(), line["parent"].strip()) for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DomainError(f"{path} could not be read as a tree of codes: {error}. Name a CSV file.") from None
    except (KeyError, AttributeError):
        raise DomainError(
            f"{path} is not a tree of codes: it needs the columns code and parent, and both in every line. Add them."
        ) from None


def parents_by_prefixes(name: str, levels: Any, prefixes: Any) -> list[tuple[str, str]]:
    """The pairs of codes whose parent is their beginning, of so many characters.

    >>> parents_by_prefixes("puma", ["0600101", "0600102"], [2, 5])
    [('06001', '06'), ('0600101', '06001'), ('0600102', '06001')]
    """
    whole = isinstance(prefixes, list) and prefixes and all(type(length) is int and length > 0 for length in prefixes)
    if not whole or prefixes != sorted(set(prefixes)) or not isinstance(levels, list):
        raise DomainError(
            f"column {name}: prefixes must be increasing numbers of characters, with levels, got {prefixes!r:.80}. "
            "Write e.g. prefixes = [2, 5]."
        )
    found: dict[str, str] = {}
    for level in (text_of(level) or "" for level in levels):
        path = [*(level[:length] for length in prefixes if length < len(level)), level]
        found |= dict(pairwise(reversed(path))) or {level: ""}
    return sorted(found.items(), key=lambda pair: len(pair[0]))


def _depth_first(name: str, parent_of: Mapping[str, str]) -> dict[str, int]:
    """Node → its depth, depth first, siblings in the order of the domain; DomainError unless it is a tree of limited size."""
    below: dict[str, list[str]] = {}
    for code, parent in parent_of.items():
        below.setdefault(parent, []).append(code)
    top = [code for code in dict.fromkeys([*parent_of.values(), *parent_of]) if code and not parent_of.get(code)]
    depth_of: dict[str, int] = {}
    waiting = [(code, 0) for code in reversed(top)]
    while waiting:
        code, depth = waiting.pop()
        depth_of[code] = depth
        waiting += [(child, depth + 1) for child in reversed(below.get(code, []))]
    nodes = set(parent_of) | set(below) - {""}
    if circular := sorted(nodes - set(depth_of)):
        raise DomainError(f"column {name}: {circular[0]!r:.80} is below itself, so parents are no tree. Correct its parent.")
    if len(nodes) > MOST_CODES or max(depth_of.values()) >= MOST_DEPTHS:
        raise DomainError(
            f"column {name}: a tree has at most {MOST_CODES:,} codes, {MOST_DEPTHS} deep, got {len(nodes):,}, "
            f"{1 + max(depth_of.values())} deep. Leave out its deepest codes."
        )
    return depth_of
