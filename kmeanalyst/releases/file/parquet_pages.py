"""The pages of points.parquet, under headers of our own: what pyarrow reads has no number that a stranger wrote.

A page's header is believed in nothing that its bytes do not bear out: sizes must add up, counts must make the rows,
and encodings are the few that common writers use and that cannot unfold: plain values, run lengths, dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterator

from kmeanalyst.releases.file.limits import limits, refusal, too_large
from kmeanalyst.releases.file.parquet_footer import BOOLEAN, OPTIONAL, REQUIRED, Chunk
from kmeanalyst.releases.file.thrift import FALSE, I32, I64, LIST, STRUCT, TEXT, Field, Reader, Struct, struct_bytes

_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3  # kinds of pages
_PLAIN, _OLD_INDICES, _RUN_LENGTHS, _INDICES = 0, 2, 3, 8  # encodings
_MAGIC = b"PAR1"


def plain_parquet(data: bytes | memoryview, groups: list[list[Chunk]]) -> bytearray:
    """A Parquet file of the same cells, whose columns are called 0, 1, ... and whose every header is written here."""
    out = bytearray(_MAGIC)
    room = limits().pages
    row_groups = []
    for chunks in groups:
        begin, columns = len(out), []
        for place, chunk in enumerate(chunks):
            start, first_data = len(out), 0
            for is_dictionary, header, body in _pages(data, chunk):
                room -= 1
                if room < 0:
                    raise too_large(f"{chunk.what} has too many pages", f"at most {limits().pages} are read in all")
                first_data = first_data if is_dictionary or first_data else len(out)
                out += header
                out += body
            columns.append(_column(chunk, place, start, first_data or len(out), len(out)))
        row_groups.append([(1, LIST, (STRUCT, columns)), (2, I64, len(out) - begin), (3, I64, chunks[0].n_rows)])
    footer = struct_bytes([
        (1, I32, 1),
        (2, LIST, (STRUCT, _schema(groups[0]))),
        (3, I64, sum(chunks[0].n_rows for chunks in groups)),
        (4, LIST, (STRUCT, row_groups)),
    ])  # fmt: skip
    out += footer + len(footer).to_bytes(4, "little") + _MAGIC
    return out


def _schema(chunks: list[Chunk]) -> list[list[Field]]:
    leaves = [
        [
            (1, I32, chunk.leaf.physical),
            (3, I32, OPTIONAL if chunk.optional else REQUIRED),
            (4, TEXT, b"%d" % place),
            *([(6, I32, chunk.leaf.converted)] if chunk.leaf.converted is not None else []),
        ]
        for place, chunk in enumerate(chunks)
    ]
    return [[(4, TEXT, b"schema"), (5, I32, len(chunks))], *leaves]


def _column(chunk: Chunk, place: int, start: int, first_data: int, stop: int) -> list[Field]:
    """The description of a chunk that now lies from start to stop, its first page of data at `first_data`."""
    dictionary: list[Field] = [(11, I64, start)] if first_data > start else []
    described = [
        (1, I32, chunk.leaf.physical), (2, LIST, (I32, [_PLAIN, _RUN_LENGTHS, _INDICES])),
        (3, LIST, (TEXT, [b"%d" % place])), (4, I32, 0), (5, I64, chunk.n_rows), (6, I64, stop - start),
        (7, I64, stop - start), (9, I64, first_data), *dictionary,
    ]  # fmt: skip
    return [(2, I64, 0), (3, STRUCT, described)]


def _pages(data: bytes | memoryview, chunk: Chunk) -> Iterator[tuple[bool, bytes, bytes | memoryview]]:
    """(whether it is the dictionary, a header of ours, the body) for each page of a chunk, which they fill."""
    reader, n_rows, has_dictionary = Reader(data, chunk.start, chunk.stop), 0, False
    while reader.place < chunk.stop:
        first = reader.place == chunk.start
        told = reader.struct()
        begin, size = reader.place, told[3]
        if told[2] != size or not 0 <= size <= chunk.stop - begin:
            raise refusal(chunk.what, "a page's size does not fit the file")
        reader.place += size
        if told[1] == _DICTIONARY and first:
            has_dictionary, header = True, _dictionary_header(chunk, told[7], size)
        else:
            n_rows, header = n_rows + _n_cells(told), _data_header(chunk, told, size, has_dictionary)
        yield first and has_dictionary, header, data[begin : reader.place]
    if n_rows != chunk.n_rows:
        raise refusal(chunk.what, f"its pages make {n_rows} rows of {chunk.n_rows}")


def _n_cells(told: Struct) -> int:
    """How many cells a page of data says it has."""
    if told[1] not in (_DATA, _DATA_V2):
        raise ValueError(f"a page of kind {told[1]}")
    return int(told[5][1] if told[1] == _DATA else told[8][1])


def _dictionary_header(chunk: Chunk, told: Struct, size: int) -> bytes:
    if told[2] not in (_PLAIN, _OLD_INDICES) or not 0 <= 4 * told[1] <= size:  # an entry takes four bytes or more
        raise refusal(chunk.what, f"a dictionary of {told[1]} entries does not fit its {size} bytes")
    described = [(1, I32, told[1]), (2, I32, _PLAIN)]
    return struct_bytes([(1, I32, _DICTIONARY), (2, I32, size), (3, I32, size), (7, STRUCT, described)])


def _data_header(chunk: Chunk, told: Struct, size: int, has_dictionary: bool) -> bytes:
    """A header for a page of data that has cells, in an encoding that cannot unfold."""
    n_cells, newer = _n_cells(told), told[1] == _DATA_V2
    described = told[8] if newer else told[5]
    encoding = described[4] if newer else described[2]
    known = {_PLAIN} | ({_INDICES, _OLD_INDICES} if has_dictionary else set())
    known |= {_RUN_LENGTHS} if chunk.leaf.physical == BOOLEAN else set()
    has_levels_of_old = chunk.optional and not newer and described[3] != _RUN_LENGTHS
    if encoding not in known or has_levels_of_old:
        raise refusal(
            f"{chunk.what} has pages of another encoding",
            "the pages of a release hold plain values, run lengths and indices into a dictionary",
            "Ask its maker to write it with plain or dictionary encodings",
        )
    if not 0 < n_cells <= chunk.n_rows:
        raise refusal(chunk.what, f"a page of {n_cells} cells, of {chunk.n_rows} rows")
    encoding = _INDICES if encoding == _OLD_INDICES else encoding
    head: list[Field] = [(1, I32, told[1]), (2, I32, size), (3, I32, size)]
    if newer:
        return struct_bytes([*head, (8, STRUCT, _newer_fields(chunk, described, encoding, size))])
    fields = [(1, I32, n_cells), (2, I32, encoding), (3, I32, _RUN_LENGTHS), (4, I32, _RUN_LENGTHS)]
    return struct_bytes([*head, (5, STRUCT, fields)])


def _newer_fields(chunk: Chunk, told: Struct, encoding: int, size: int) -> list[Field]:
    """What a page of the second version says of itself: its levels have a length of their own."""
    n_cells, nulls, n_rows, length = told[1], told[2], told[3], told[5]
    if told[6] != 0 or n_rows != n_cells or not (0 <= length <= size and 0 <= nulls <= n_cells):
        raise refusal(chunk.what, "a page's levels do not fit it")
    return [
        (1, I32, n_cells), (2, I32, nulls), (3, I32, n_rows), (4, I32, encoding), (5, I32, length), (6, I32, 0),
        (7, FALSE, None),
    ]  # fmt: skip
