"""Files made to harm their reader: points that explode, headers that explode, pipes that never end; and plain damage.

A bomb is read in a child process that may take little memory and less time, so that a reader that trusts it fails
the test and not the machine.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_tools import AGAIN, LARGE, Edit, Members, forged, members_of, npy, outcomes_of_damage, setting, zipped

from kmeanalyst.releases.file import archive

UNIX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measures memory as Linux reports it")
POINTS = "points.csv"

# ---------------------------------------------------------------------- bombs, in a child process

READ_BOMBS = """
import json, resource, sys, time
from pathlib import Path
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.release import read_release

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) // 1024

folder = Path(sys.argv[1])
read_release(folder / "sound.kme")  # what a sound file takes, imports included, is not caused by a bomb
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
    return zipped(list((members | {"release.json": text.encode()}).items()))


def one_column(text: str, line: bytes, n_points: int, *, declared: int | None = None) -> Edit:
    """Points of one column of one level, whose lines are all the same."""

    def edit(header: dict[str, Any], members: Members) -> None:
        members[POINTS] = b"c,weight\n" + line * n_points
        header["columns"] = [{"name": "c", "kind": "categorical", "levels": [text]}]
        header["kernel"], header["n_points"] = {"name": "indicator", "levels": 1}, declared or n_points

    return edit


def basis(n_points: int, n_lengthscales: int) -> Edit:
    """A subspace of many points, under a kernel of many lengthscales."""

    def edit(header: dict[str, Any], members: Members) -> None:
        members["measurement/points.npy"] = npy(np.zeros((n_points, 2)))
        members["measurement/noisy_sum.npy"] = npy(np.zeros(n_points, dtype="<i8"))
        header["kernel"] = {"name": "multi-scale", "lengthscales": [1.0] * n_lengthscales}
        header["measurement"]["feature_map"] |= {"dimension": n_points, "arrays": {"points": [n_points, 2]}}

    return edit


def many_of_one_name() -> bytes:
    """Ten thousand members of five thousand names."""
    return zipped([(f"measurement/a{i // 2:05}.npy", b"") for i in range(10_000)])


def zip_bomb(name: str, n: int) -> bytes:
    """A member of n bytes in a thousandth of them."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member in ("release.json", POINTS):
            archive.writestr(member, b" " * n if member == name else b"", zipfile.ZIP_DEFLATED if member == name else 0)
    return out.getvalue()


def deflated_points(path: Path, edit: Edit) -> bytes:
    return archive.zipped(members_of(io.BytesIO(forged(path, edit))))


def bombs(foreign: Path, numeric: Path, mixed: Path) -> dict[str, tuple[bytes, str]]:
    """name → file, and what its reader says."""
    long, quoted = "x" * 200, b'"' + b'""' * 200 + b'",1\n'
    sums = {"name": "sum", "terms": [{"name": "gaussian", "lengthscale": 1.0}] * 10_000}
    return {
        "a packed member": (zip_bomb("release.json", 160_000_000), r"member 'release\.json' is compressed"),
        "points of a byte too many": (zip_bomb(POINTS, 2**28 + 1), "has 268435457 bytes: at most 268435456 are read"),
        "points of a quarter of a gigabyte": (zip_bomb(POINTS, 2**28), r"release\.json: it does not make sense"),
        "ten thousand members": (many_of_one_name(), r"the members \['measurement/a00000\.npy', .* occur twice"),
        "a hundred thousand keys twice": (
            header_text(foreign, versions="{" + ",".join(f'"{i // 2}":""' for i in range(200_000)) + "}"),
            r"has the keys \['0', '1', .* twice",
        ),
        "a million empty lists": (
            header_text(foreign, versions="[" + "[]," * 1_000_000 + "0]"),
            r"has 200\d{4} commas and brackets: at most 262144 are read",
        ),
        "five thousand columns": (
            forged(foreign, setting("columns", to=[{"name": str(j), "kind": "boolean"} for j in range(5001)])),
            "has 5001 columns: at most 3000 are read",
        ),
        "a kernel of many lengthscales": (
            forged(foreign, setting("kernel", to={"name": "multi-scale", "lengthscales": [1.0] * 100_000})),
            "parts that take 100010 passes over the points: at most 100000",
        ),
        "a kernel of many kernels": (forged(foreign, setting("kernel", to=sums)), "parts that take 100001 passes over the points"),
        "a subspace of many lengthscales": (
            forged(numeric, basis(2000, 2500)), r"takes 10008000000 steps on them .* at most 600000000",
        ),
        "a level a quarter of a million times": (
            deflated_points(foreign, one_column(long, long.encode() + b",1\n", 250_000)), "read 250000 points",
        ),
        "a level of quotation marks": (
            deflated_points(foreign, one_column('"' * 200, quoted, 100_000)), "read 100000 points",
        ),
        "more rows than declared": (
            deflated_points(foreign, one_column("a", b"a,1\n", 8_000_000, declared=250_000)), "more than 250000 rows",
        ),
        "one line without end": (
            deflated_points(foreign, one_column("a", b"a" * 64_000_000, 1)), r"a line of more than \d+ bytes",
        ),
        "one quoted cell without end": (
            deflated_points(foreign, one_column("a", b'"' + b"a\n" * 16_000_000, 1)), "a quotation mark that does not",
        ),
        "a row of commas": (
            deflated_points(foreign, one_column("a", b"," * 8_000_000 + b"\n", 1)), "it does not make sense",
        ),
        "empty lines": (deflated_points(foreign, one_column("a", b"\n", 32_000_000, declared=100)), "it has an empty line"),
        "a number of seven million digits": (
            deflated_points(foreign, one_column("a", b"a," + b"9" * 7_000_000 + b"\n", 1)), "infinite",
        ),
    }  # fmt: skip


@UNIX
def test_no_file_takes_more_time_or_memory_than_its_size_warrants(foreign_release, numeric_path, mixed_path, tmp_path):
    """Each took ten seconds, a gigabyte, or did not end, when one line of the reader was missing."""
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
@pytest.mark.parametrize("how_many", [600, pytest.param(4200, marks=pytest.mark.slow)])
def test_damaged_and_forged_files_end_in_a_refusal_or_in_a_sound_release(
    mixed_release, numeric_release, levels_release, tmp_path, how_many
):
    """In one process, which a crash would end; a file that is only damaged is refused, or is the release it was."""
    for i, release in enumerate((mixed_release, numeric_release, levels_release)):
        release.write(tmp_path / f"{i}.kme")
    tally = outcomes_of_damage(tmp_path, how_many)
    assert sum(tally.values()) == how_many and tally["cut refused"] == how_many // 5
    assert tally["flip refused"] > how_many / 3
    assert tally["sealed refused"] > how_many / 5 and tally["sealed read"] > how_many / 21
