"""Files made to harm their reader: pages that lie, headers that explode, pipes that never end; and plain damage.

A bomb is read in a child process that may take little memory and less time, so that a reader that believes it fails
the test instead of the machine.
"""

from __future__ import annotations

import copy
import io
import json
import os
import re
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paths
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from file_tools import AGAIN, LARGE, Members, forged, members_of, refused, same, zipped
from parquet_forge import Forge, at, closed, put, sized, uvarint

from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file import FileRefused, parquet_footer, parquet_pages
from kmeanalyst.releases.file.points import points_and_weights

HERE = paths.TESTS
UNIX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory as Linux tells it")
POINTS = "points.parquet"

# ---------------------------------------------------------------------- pages that lie

Edit = Callable[[Forge], None]


def with_points(edit: Edit, *, pages: bool = True, **options: Any) -> Callable[[dict[str, Any], Members], None]:
    """Forge the points: as the file has them, or written anew with pyarrow's options."""

    def forge(header: dict[str, Any], members: Members) -> None:
        data = rewritten(members[POINTS], **options) if options else members[POINTS]
        parts = Forge(data)
        edit(parts)
        members[POINTS] = parts.with_pages() if pages else parts.with_footer()

    return forge


def rewritten(data: bytes, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pq.read_table(io.BytesIO(data)), out, **({"compression": "none", "store_schema": False} | options))
    return out.getvalue()


AGE, CITY = 0, 4  # whole numbers in plain pages; texts in a dictionary


def page(column: int, *numbers: int, to: Any, which: int = -1) -> Edit:
    """A field of a page's header set."""
    return lambda parts: put(parts.groups[0][column][which][0], *numbers, to=to)


def both_sizes(column: int, by: int) -> Edit:
    def edit(parts: Forge) -> None:
        header = parts.groups[0][column][-1][0]
        for number in (2, 3):
            put(header, number, to=at(header, number) + by)

    return edit


def dictionary_twice(parts: Forge) -> None:
    parts.groups[0][CITY].insert(1, copy.deepcopy(parts.groups[0][CITY][0]))


def dictionary_last(parts: Forge) -> None:
    parts.groups[0][CITY].reverse()


def no_dictionary(parts: Forge) -> None:
    del parts.groups[0][CITY][0]


def page_twice(parts: Forge) -> None:
    parts.groups[0][AGE].append(copy.deepcopy(parts.groups[0][AGE][0]))


def no_pages(parts: Forge) -> None:
    del parts.groups[0][AGE][:]


def half_a_header(parts: Forge) -> None:
    parts.groups[0][AGE] = [[parts.groups[0][AGE][0][0][:2], b""]]


FIT, SIZE = "points.parquet, column 'age'", "a page's size does not fit the file"
OTHER_ENCODING = r"column '\w+' has pages of another encoding"
PLAIN_VALUES = "plain values, run lengths and indices into a dictionary"
ENTRIES, LEVELS = "points.parquet, column 'city'", "a page's levels do not fit it"
NEWER = {"data_page_version": "2.0"}
PAGES: dict[str, tuple[Callable[..., None], str, str]] = {
    "a page of two thousand million bytes": (with_points(page(AGE, 3, to=2**31 - 1)), FIT, SIZE),
    "a page that unfolds": (with_points(page(AGE, 2, to=2**31 - 1)), FIT, SIZE),
    "a page of less than no bytes": (with_points(page(AGE, 3, to=-1)), FIT, SIZE),
    "a page into the next column": (with_points(both_sizes(AGE, 8)), FIT, SIZE),
    "a page that ends early": (with_points(both_sizes(AGE, -8)), r"points\.parquet: ", "it does not make sense"),
    "more cells than rows": (with_points(page(AGE, 5, 1, to=2**31 - 1)), FIT, "a page of 2147483647 cells, of 60 rows"),
    "less than no cells": (with_points(page(AGE, 5, 1, to=-1)), FIT, "a page of -1 cells"),
    "no cells": (with_points(page(AGE, 5, 1, to=0)), FIT, "a page of 0 cells"),
    "fewer cells than rows": (with_points(page(AGE, 5, 1, to=59)), FIT, "its pages make 59 rows of 60"),
    "a page twice": (with_points(page_twice), FIT, "its pages make 120 rows of 60"),
    "no pages": (with_points(no_pages), FIT, "its pages make 0 rows of 60"),
    "half a header": (with_points(half_a_header), r"points\.parquet: ", r"it does not make sense \(3\)"),
    "a page of an index": (with_points(page(AGE, 1, to=1)), r"points\.parquet: ", "a page of kind 1"),
    "a dictionary of many entries": (
        with_points(page(CITY, 7, 1, to=2**31 - 1, which=0)), ENTRIES, "of 2147483647 entries does not fit its 53 bytes",
    ),
    "a dictionary of less than none": (
        with_points(page(CITY, 7, 1, to=-1, which=0)), ENTRIES, "of -1 entries does not fit",
    ),
    "a dictionary of indices": (with_points(page(CITY, 7, 2, to=8, which=0)), ENTRIES, "of 4 entries does not fit"),
    "a dictionary twice": (with_points(dictionary_twice), r"points\.parquet: ", "a page of kind 2"),
    "a dictionary at the end": (with_points(dictionary_last), OTHER_ENCODING, PLAIN_VALUES),
    "indices into nothing": (with_points(no_dictionary), OTHER_ENCODING, PLAIN_VALUES),
    "whole numbers of run lengths": (with_points(page(AGE, 5, 2, to=3)), OTHER_ENCODING, PLAIN_VALUES),
    "levels packed the old way": (with_points(page(AGE, 5, 3, to=4)), OTHER_ENCODING, PLAIN_VALUES),
    "levels longer than the page": (with_points(page(AGE, 8, 5, to=9999), **NEWER), FIT, LEVELS),
    "levels of less than nothing": (with_points(page(AGE, 8, 5, to=-1), **NEWER), FIT, LEVELS),
    "levels of lists": (with_points(page(AGE, 8, 6, to=2), **NEWER), FIT, LEVELS),
    "more nulls than cells": (with_points(page(AGE, 8, 2, to=61), **NEWER), FIT, LEVELS),
    "other rows than cells": (with_points(page(AGE, 8, 3, to=61), **NEWER), FIT, LEVELS),
}  # fmt: skip


@pytest.mark.parametrize("case", PAGES)
def test_a_page_that_does_not_bear_out_its_header_is_refused(case, mixed_path, tmp_path):
    edit, what, why = PAGES[case]
    hint = "write it with plain or dictionary encodings." if what == OTHER_ENCODING else AGAIN
    refused(forged(mixed_path, edit), tmp_path, what, why, hint)


@pytest.mark.parametrize(
    ("column", "encoding"),
    [("age", "DELTA_BINARY_PACKED"), ("income", "BYTE_STREAM_SPLIT"), ("city", "DELTA_LENGTH_BYTE_ARRAY"),
     ("city", "DELTA_BYTE_ARRAY")],
)  # fmt: skip
def test_encodings_that_unfold_are_refused(column, encoding, mixed_path, tmp_path):
    """DELTA_BYTE_ARRAY makes ten gigabytes of two hundred kilobytes: each text repeats the one before it."""
    edit = with_points(lambda parts: None, use_dictionary=False, column_encoding={column: encoding})
    refused(
        forged(mixed_path, edit), tmp_path, OTHER_ENCODING, PLAIN_VALUES, "write it with plain or dictionary encodings."
    )


# ---------------------------------------------------------------------- a footer that lies


def chunk(column: int, number: int, to: Any) -> Edit:
    """A field of a column's description set, or added."""

    def edit(parts: Forge) -> None:
        described = at(parts.footer, 4, 1, 1, column + 1, 3)
        described[:] = sorted([f for f in described if f[0] != number] + [[number, 6, to]])

    return edit


def all_at_age(number: int) -> Edit:
    """The second column's pages are the first's."""

    def edit(parts: Forge) -> None:
        columns = at(parts.footer, 4, 1, 1)[1]
        for field in (number, 6, 7):
            put(columns[1], 3, field, to=at(columns[0], 3, field))

    return edit


def deep(parts: Forge) -> None:
    """A column within twenty thousand groups: older pyarrow crashed."""
    root, *leaves = at(parts.footer, 2)[1]
    groups = [[[3, 5, 1], [4, 8, b"g"], [5, 5, 1]] for _ in range(20_000)]
    put(parts.footer, 2, to=(12, [root, *groups, *leaves]))


def element(number: int, to: Any, column: int = AGE) -> Edit:
    """A field of a column's entry in the schema set, or added."""

    def edit(parts: Forge) -> None:
        leaf = at(parts.footer, 2)[1][column + 1]
        leaf[:] = sorted([f for f in leaf if f[0] != number] + [[number, 12 if isinstance(to, list) else 5, to]])

    return edit


def bare(parts: Forge) -> None:
    """A text that does not say that it is one."""
    leaf = at(parts.footer, 2)[1][CITY + 1]
    leaf[:] = [f for f in leaf if f[0] not in (6, 10)]


PLACES, NESTED = "its pages lie outside the file, or where another column's are", "has nested columns"
TYPES = "has other columns than declared"
FOOTERS: dict[str, tuple[Edit, str, str]] = {
    "pages that are another column's": (all_at_age(9), "column 'children'", PLACES),
    "pages in the footer": (chunk(AGE, 9, 3900), "column 'age'", PLACES),
    "pages before the file": (chunk(AGE, 9, -5), "column 'age'", PLACES),
    "pages in the file's first bytes": (chunk(AGE, 9, 0), "column 'age'", PLACES),
    "pages far behind": (chunk(AGE, 9, 2**62), "column 'age'", PLACES),
    "a dictionary in another column": (chunk(CITY, 11, 4), "column 'age'", PLACES),
    "two sizes": (chunk(AGE, 6, 9), "column 'age'", "its description does not fit the file"),
    "a size below zero": (lambda p: (chunk(AGE, 6, -1)(p), chunk(AGE, 7, -1)(p)), "column 'age'", "does not fit"),
    "columns nested deep": (deep, NESTED, "one value"),
    "a group in the place of a column": (element(5, 1), NESTED, "one value"),
    "a repeated column": (element(3, 2), NESTED, "one value"),
    "more columns than there are": (lambda p: put(p.footer, 2, 1, 5, to=2**31 - 1), "11 columns", "that it has 2147483647"),
    "fewer than no columns": (lambda p: put(p.footer, 2, 1, 5, to=-1), "has 11 columns", "and says that it has -1"),
    "numbers without a sign": (element(6, 14), TYPES, "age INT64 does not fit the domain"),
    "times of day": (element(10, [[7, 12, []]]), TYPES, "age INT64 does not fit the domain"),
    "numbers of 8 bits": (
        element(10, [[10, 12, [[1, 3, 8], [2, 1, True]]]]), TYPES, "age INT64 does not fit the domain",
    ),
    "texts that are bytes": (bare, TYPES, "city BYTE_ARRAY does not fit the domain"),
    "texts that are JSON": (element(6, 19, CITY), TYPES, "city BYTE_ARRAY does not fit the domain"),
    "a type beyond all": (element(1, 77), r"points\.parquet: ", "out of range"),
}  # fmt: skip


@pytest.mark.parametrize("case", FOOTERS)
def test_a_footer_that_lies_is_refused(case, mixed_path, tmp_path):
    edit, what, why = FOOTERS[case]
    refused(forged(mixed_path, with_points(edit, pages=False)), tmp_path, what, why)


def crowded(parts: Forge) -> None:
    """Everything that a footer may say beside what is needed: statistics, names, indexes, what is not yet invented."""
    described = at(parts.footer, 4, 1, 1, CITY + 1, 3)
    described[:] = sorted([f for f in described if f[0] != 12] + [[12, 12, [[1, 8, b"\xff" * 9000], [3, 6, -5]]]])
    put(parts.footer, 4, 1, 1, AGE + 1, 3, 2, to=(5, [99] * 1000))  # encodings, which pages say for themselves
    at(parts.footer, 4, 1, 1, 1).extend([[4, 6, -9], [5, 5, 2**31 - 1]])
    put(parts.footer, 1, to=77)
    put(parts.footer, 6, to=b"\xff\xfe made by nobody")
    parts.footer.extend([[9, 8, b"key"], [23, 12, [[1, 6, 1]]]])


def test_what_a_footer_says_beside_the_needed_reaches_no_library(mixed_path, mixed_release):
    """pyarrow is given a description that was written here: the same bytes, whatever the file's own one adds."""
    domain, data = mixed_release.domain, members_of(mixed_path)[POINTS]
    columns = [("text" if c.kind in ("categorical", "ordinal") else c.kind) for c in domain.columns] + ["real"]
    columns = list(zip([*domain.names, "weight"], columns, strict=True))

    def plain(data: bytes) -> bytes:
        return bytes(parquet_pages.plain_parquet(data, parquet_footer.chunks_of(data, columns, len(mixed_release))))

    parts = Forge(data)
    crowded(parts)
    assert parts.with_footer() != data and plain(parts.with_footer()) == plain(data)
    assert pq.read_schema(io.BytesIO(plain(data))).names == [str(j) for j in range(11)]
    for number in (5, 6, 7):  # whatever it says about itself in words
        assert number not in [field[0] for field in Forge(plain(data)).footer]


WRITERS: dict[str, dict[str, Any]] = {
    "pyarrow": {},
    "pyarrow, newer pages": {"data_page_version": "2.0"},
    "pyarrow, newer pages without dictionaries": {"data_page_version": "2.0", "use_dictionary": False},
    "pyarrow, version 1": {"version": "1.0"},
    "pyarrow, no dictionaries": {"use_dictionary": False},
    "pyarrow, many pages and groups": {"row_group_size": 7, "data_page_size": 8, "write_batch_size": 2},
    "pyarrow, indexes and checksums": {"write_page_index": True, "write_page_checksum": True},
}


@pytest.mark.parametrize("writer", WRITERS)
def test_points_of_common_writers_are_read(writer, mixed_path, mixed_release):
    def rewrite(header: dict[str, Any], members: Members) -> None:
        members[POINTS] = rewritten(members[POINTS], **WRITERS[writer])

    mixed_path.write_bytes(forged(mixed_path, rewrite))
    same(mixed_release, read_release(mixed_path))


def test_columns_that_cannot_be_null_are_read(numeric_path, numeric_release):
    """Without nulls there are no levels in a page."""

    def rewrite(header: dict[str, Any], members: Members) -> None:
        table, out = pq.read_table(io.BytesIO(members[POINTS])), io.BytesIO()
        schema = pa.schema([field.with_nullable(False) for field in table.schema])
        pq.write_table(table.cast(schema), out, compression="none", store_schema=False)
        parts = Forge(out.getvalue())
        for pages in parts.groups[0]:
            put(pages[-1][0], 5, 3, to=4)  # the encoding of levels that are not there, as older writers name it
        members[POINTS] = parts.with_pages()

    numeric_path.write_bytes(forged(numeric_path, rewrite))
    same(numeric_release, read_release(numeric_path))


@pytest.mark.parametrize("path", sorted((HERE / "golden/parquet").glob("*.parquet")), ids=lambda path: path.stem)
def test_points_of_other_writers_are_read(path):
    """Files of DuckDB, fastparquet and polars; polars adds an ARROW:schema entry, which is not of the format."""
    from golden.make_parquet import DOMAIN, N_POINTS, cells

    data, expected, domain = path.read_bytes(), cells(), DOMAIN
    if path.stem == "fastparquet":
        domain = Domain(tuple(column for column in DOMAIN.columns if column.kind != "date"))
    if path.stem == "polars":
        with pytest.raises(FileRefused, match=r"has an ARROW:schema entry: .* those of Parquet itself"):
            points_and_weights(data, domain, N_POINTS)
        parts = Forge(data)
        parts.footer[:] = [field for field in parts.footer if field[0] != 5]
        data = parts.with_footer()
    frame, weights = points_and_weights(data, domain, N_POINTS)
    assert weights.tolist() == expected["weight"]
    for column in domain.columns:
        found = frame[column.name].astype(object).where(frame[column.name].notna(), None)
        days = column.kind == "date"
        assert [cell.date() if days and cell else cell for cell in found] == expected[column.name], column.name


# ---------------------------------------------------------------------- bombs, in a child process

READ_BOMBS = """
import json, resource, sys, time
from pathlib import Path
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.release import read_release

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

folder = Path(sys.argv[1])
read_release(folder / "sound.kme")  # what a sound file takes, imports among it, is no bomb's doing
resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30,) * 2)
for path in sorted(folder.glob("bomb-*")):
    before, began = peak(), time.perf_counter()
    try:
        said = f"read {len(read_release(path))} points"
    except FileRefused as refusal:
        said = str(refusal)
    print(json.dumps([path.name[5:], said, time.perf_counter() - began, peak() - before]), flush=True)
"""


def header_text(path: Path, **raw: str) -> bytes:
    """The file with fields of its header replaced by text that need not be JSON."""
    members = members_of(path)
    header = json.loads(members["release.json"]) | {name: f"@{name}@" for name in raw}
    text = json.dumps(header)
    for name, value in raw.items():
        text = text.replace(f'"@{name}@"', value)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in (members | {"release.json": text.encode()}).items():
            archive.writestr(name, data)
    return out.getvalue()


def footed(footer: bytes) -> Callable[..., None]:
    return lambda header, members: members.update({POINTS: closed(b"PAR1", footer)})


def one_text(size: int, n_rows: int, groups: int, *, shared: bool) -> tuple[str, bytes]:
    """(the text, points) of one column whose n_rows × groups cells are one text of `size` letters, and of a weight.

    Cells are one run of indices into a dictionary of one entry, so that rows take no bytes. With `shared`, every row
    group has the pages of the first.
    """
    text, out = "x" * size, io.BytesIO()
    pq.write_table(pa.table({"c": [text], "weight": [1.0]}), out, compression="none", store_schema=False)
    parts = Forge(out.getvalue())
    for place, pages in enumerate(parts.groups[0]):
        levels = uvarint(n_rows << 1) + b"\1"
        sized(pages[1], struct.pack("<I", len(levels)) + levels + b"\1" + uvarint(n_rows << 1) + b"\0")
        put(pages[1][0], 5, 1, to=n_rows)
        put(parts.footer, 4, 1, 1, place + 1, 3, 5, to=n_rows)
    put(parts.footer, 4, 1, 3, to=n_rows)
    put(parts.footer, 3, to=n_rows * groups)
    if shared:
        parts = Forge(parts.with_pages())
    (group,) = at(parts.footer, 4)[1]
    put(parts.footer, 4, to=(12, [copy.deepcopy(group) for _ in range(groups)]))
    parts.groups *= groups
    return text, parts.with_footer() if shared else parts.with_pages()


def one_column(text: str, points: bytes, n_points: int) -> Callable[..., None]:
    def edit(header: dict[str, Any], members: Members) -> None:
        members[POINTS] = points
        header["columns"] = [{"name": "c", "kind": "categorical", "levels": [text]}]
        header["kernel"], header["n_points"] = {"name": "indicator", "levels": 1}, n_points

    return edit


def kernel(value: dict[str, Any]) -> Callable[..., None]:
    return lambda header, members: header.update(kernel=value)


def wide(header: dict[str, Any], members: Members) -> None:
    header["columns"] = [{"name": str(j), "kind": "boolean"} for j in range(5001)]


def basis(n_points: int, n_lengthscales: int) -> Callable[..., None]:
    """A subspace of many points, under a kernel of many lengthscales."""

    def edit(header: dict[str, Any], members: Members) -> None:
        for name, array in (("points", np.zeros((n_points, 2))), ("noisy_sum", np.zeros(n_points, dtype="<i8"))):
            out = io.BytesIO()
            np.lib.format.write_array(out, array, version=(1, 0))
            members[f"measurement/{name}.npy"] = out.getvalue()
        header["kernel"] = {"name": "multi-scale", "lengthscales": [1.0] * n_lengthscales}
        header["measurement"]["feature_map"] |= {"dimension": n_points, "arrays": {"points": [n_points, 2]}}

    return edit


def many_of_one_name() -> bytes:
    """Ten thousand members of five thousand names."""
    return zipped([(f"measurement/a{i // 2:05}.npy", b"") for i in range(10_000)])


def zip_bomb(n: int) -> bytes:
    """A sixth of a gigabyte in a hundred and sixty kilobytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("release.json", b" " * n)
        archive.writestr(POINTS, b"")
    return out.getvalue()


def bombs(foreign: Path, numeric: Path, mixed: Path) -> dict[str, tuple[bytes, str]]:
    """name → file, and what its reader says."""
    levels, fifty = one_text(200, 250_000, 1, shared=False), one_text(200, 20, 500, shared=True)
    doubles = b"\x19\xf7" + uvarint(2**40)
    sums = {"name": "sum", "terms": [{"name": "gaussian", "lengthscale": 1.0}] * 10_000}
    return {
        "a packed member": (zip_bomb(160_000_000), r"member 'release\.json' is compressed"),
        "ten thousand members": (many_of_one_name(), r"the members \['measurement/a00000\.npy', .* occur twice"),
        "a hundred thousand keys twice": (
            header_text(foreign, versions="{" + ",".join(f'"{i // 2}":""' for i in range(200_000)) + "}"),
            r"has the keys \['0', '1', .* twice",
        ),
        "a million empty lists": (
            header_text(foreign, versions="[" + "[]," * 1_000_000 + "0]"),
            r"has 200\d{4} commas and brackets: at most 262144 are read",
        ),
        "five thousand columns": (forged(foreign, wide), "has 5001 columns: at most 3000 are read"),
        "a kernel of many lengthscales": (
            forged(foreign, kernel({"name": "multi-scale", "lengthscales": [1.0] * 100_000})),
            "parts that take 100010 passes over the points: at most 100000",
        ),
        "a kernel of many kernels": (forged(foreign, kernel(sums)), "parts that take 100001 passes over the points"),
        "a subspace of many lengthscales": (
            forged(numeric, basis(2000, 2500)), r"takes 10008000000 steps on them .* at most 600000000",
        ),
        "numbers beyond the end": (forged(mixed, footed(doubles)), "a list is longer than what follows"),
        "a text a quarter of a million times": (
            forged(foreign, one_column(*levels, 250_000)), "read 250000 points",
        ),
        "a text in five hundred groups": (
            forged(foreign, one_column(*fifty, 10_000)), f"column 'c': {PLACES}",
        ),
        "a dictionary of two thousand million texts": (
            forged(mixed, with_points(page(CITY, 7, 1, to=2**31 - 1, which=0))), "entries does not fit its 53 bytes",
        ),
    }  # fmt: skip


@UNIX
def test_no_file_takes_more_time_or_memory_than_its_size_warrants(foreign_release, numeric_path, mixed_path, tmp_path):
    """Each took ten seconds, a gigabyte, or for ever, when one line of the reader was missing."""
    foreign_release.write(tmp_path / "foreign.kme")
    folder = tmp_path / "bombs"
    folder.mkdir()
    (folder / "sound.kme").write_bytes(mixed_path.read_bytes())
    cases = bombs(tmp_path / "foreign.kme", numeric_path, mixed_path)
    for name, (data, _) in cases.items():
        (folder / f"bomb-{name}").write_bytes(data)
    os.mkfifo(folder / "bomb-pipe")
    (folder / "bomb-zeros").symlink_to("/dev/zero")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", READ_BOMBS, str(folder)], capture_output=True, text=True, timeout=120,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-500:] + run.stderr[-2000:]
    results = {name: rest for name, *rest in map(json.loads, run.stdout.splitlines())}
    pipe = "it is a pipe or a device: nothing was read, for it may have no end. Name a file."
    expected = {name: said for name, (_, said) in cases.items()} | {"pipe": pipe, "zeros": pipe}
    assert set(results) == set(expected)
    for name, (said, seconds, megabytes) in results.items():
        assert re.search(expected[name], said), (name, said)
        assert said.endswith((AGAIN, LARGE, "Name a file.", " points")), (name, said)
        assert len(said) < 1000 + len(str(folder)), name
        assert seconds < 5 and megabytes < 250, (name, seconds, megabytes)


@UNIX
def test_four_thousand_damaged_and_forged_files_end_in_a_refusal_or_in_a_sound_release(
    mixed_release, numeric_release, levels_release, tmp_path
):
    """In one process, which a crash would end; a file that is only damaged is refused, or is the release it was."""
    for i, release in enumerate((mixed_release, numeric_release, levels_release)):
        release.write(tmp_path / f"{i}.kme")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(paths.SUPPORT / "damaged_files.py"), str(tmp_path), "4200"],
        capture_output=True, text=True, timeout=200, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    tally = json.loads(run.stdout)
    assert tally.pop("slowest") < 2
    assert sum(tally.values()) == 4200 and tally["cut refused"] == 840
    assert tally["flip refused"] > 1500 and tally["sealed refused"] > 900 and tally["sealed read"] > 200
