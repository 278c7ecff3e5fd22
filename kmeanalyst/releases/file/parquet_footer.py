"""Parquet's own description of points.parquet, read and held against the header before any of it is believed.

A forged description has ended the process (an uncaught C++ exception in pyarrow's metadata classes) and made small
files unfold to gigabytes. So it is parsed here, and pyarrow never sees it: `parquet_pages` writes a new one around
the pages that passed. Fields are numbered as in parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.releases.file.archive import POINTS
from kmeanalyst.releases.file.limits import MOST_FOOTER_BYTES, MOST_ROW_GROUPS, refusal
from kmeanalyst.releases.file.thrift import Reader, Struct

REQUIRED, OPTIONAL = 0, 1


@dataclass(frozen=True)
class Leaf:
    """How Parquet holds the cells of a kind of column.

    physical    the number of its type.
    converted   the older annotation of what it means, if there is one.
    logical     the newer annotation.
    annotated   whether one of the two must be there.
    """

    physical: int
    converted: int | None = None
    logical: Struct | None = None
    annotated: bool = False

    def is_held_by(self, element: Struct) -> bool:
        """Whether an entry of the schema says so."""
        converted, logical = element.get(6), element.get(10)
        fits = converted in (None, self.converted) and logical in (None, self.logical)
        return element.get(1) == self.physical and fits and not (self.annotated and converted is logical is None)


_PHYSICAL = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
BOOLEAN = 0
LEAVES = {
    "boolean": Leaf(BOOLEAN),
    "date": Leaf(1, converted=6, logical={6: {}}, annotated=True),
    "integer": Leaf(2, converted=18, logical={10: {1: 64, 2: True}}),
    "real": Leaf(5),
    "text": Leaf(6, converted=0, logical={1: {}}, annotated=True),
}


@dataclass(frozen=True)
class Chunk:
    """The part of a column that lies in one row group.

    what          how messages call it.
    leaf          what its cells are.
    optional      whether cells may be null.
    start, stop   where its pages lie.
    n_rows        how many cells they make.
    """

    what: str
    leaf: Leaf
    optional: bool
    start: int
    stop: int
    n_rows: int


def chunks_of(data: bytes | memoryview, columns: Sequence[tuple[str, str]], n_points: int) -> list[list[Chunk]]:
    """For each row group its columns' chunks, of a file that holds the (name, kind) columns and nothing else.

    Refuses unless rows, columns, types and sizes are as declared, with nothing compressed, nested or held twice.
    """
    end, footer = _footer(data)
    if footer[3] != n_points:
        raise refusal(f"{POINTS} has {footer[3]} rows", f"the header declares {n_points}")
    if any(entry[1] == b"ARROW:schema" for entry in footer.get(5, ())):
        raise refusal(f"{POINTS} has an ARROW:schema entry", "the types of a release are those of Parquet itself")
    optional = _checked_schema(footer[2], columns)
    groups = footer[4]
    if len(groups) > MOST_ROW_GROUPS:
        raise refusal(f"{POINTS} has {len(groups)} row groups", f"at most {MOST_ROW_GROUPS} are read")
    whole = all(group[3] >= 0 and len(group[1]) == len(columns) for group in groups)
    if not whole or sum(group[3] for group in groups) != n_points:
        raise refusal(f"{POINTS} has row groups", f"they do not make {n_points} rows of {len(columns)} columns")
    chunks = [
        [_chunk(c, kind, may, group[3]) for c, (_, kind), may in zip(group[1], columns, optional, strict=True)]
        for group in groups
    ]
    _check_places([chunk for group in chunks for chunk in group], end)
    return chunks


def _footer(data: bytes | memoryview) -> tuple[int, Struct]:
    """Where the footer begins, and its fields."""
    size = int.from_bytes(data[-8:-4], "little")
    if not (data[:4] == data[-4:] == b"PAR1" and 0 < size <= min(len(data) - 12, MOST_FOOTER_BYTES)):
        raise ValueError("not a Parquet file, or its footer does not fit")
    begin = len(data) - 8 - size
    return begin, Reader(data, begin, begin + size).struct()


def _checked_schema(schema: list[Struct], columns: Sequence[tuple[str, str]]) -> list[bool]:
    """Whether each column may be null, of a schema that has these columns, flat and in order."""
    leaves = schema[1:]
    if any(leaf.get(5) or leaf.get(3) not in (REQUIRED, OPTIONAL) for leaf in leaves):
        raise refusal(f"{POINTS} has nested columns", "a cell of a release is one value")
    if len(leaves) != len(columns):
        raise refusal(f"{POINTS} has {len(leaves)} columns", f"domain and weight make {len(columns)}")
    if schema[0].get(5) != len(leaves):
        raise refusal(f"{POINTS} has {len(leaves)} columns", f"and says that it has {schema[0].get(5)!r:.40}")
    found, kinds = [leaf[4].decode() for leaf in leaves], dict(columns)
    odd = [
        f"{name} {_PHYSICAL[leaf[1]]}"
        for name, leaf in zip(found, leaves, strict=True)
        if name not in kinds or not LEAVES[kinds[name]].is_held_by(leaf)
    ]
    if odd or found != [name for name, _ in columns]:
        raise refusal(
            f"{POINTS} has other columns than declared", f"{', '.join(odd) or 'order':.200} does not fit the domain"
        )
    return [leaf[3] == OPTIONAL for leaf in leaves]


def _chunk(chunk: dict[int, Any], kind: str, optional: bool, n_rows: int) -> Chunk:
    described = chunk[3]
    what = f"{POINTS}, column {b'.'.join(described[3]).decode()!r:.80}"
    if described[4] != 0:
        raise refusal(f"{what} is compressed", "its size cannot be known beforehand")
    elsewhere = {1, 8, 9} & set(chunk)  # another file's path, or encryption
    start, dictionary = described[9], described.get(11, 0)
    if elsewhere or described[5] != n_rows or not 0 <= described[7] == described[6]:
        raise refusal(what, "its description does not fit the file")
    start = min(start, dictionary) if dictionary > 0 else start
    return Chunk(what, LEAVES[kind], optional, start, start + described[7], n_rows)


def _check_places(chunks: list[Chunk], end: int) -> None:
    """No byte belongs to two chunks, so that a file cannot be larger in memory than on disk by repeating itself."""
    place = len(b"PAR1")
    for chunk in sorted(chunks, key=lambda chunk: (chunk.start, chunk.stop)):
        if not place <= chunk.start <= chunk.stop <= end:
            raise refusal(chunk.what, "its pages lie outside the file, or where another column's are")
        place = chunk.stop
