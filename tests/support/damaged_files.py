"""Reads thousands of damaged and forged files in one process, which a crash would end. See test_file_hostile.py.

    python damaged_files.py FOLDER HOW_MANY

Every .kme file in FOLDER is damaged in turn: bits flipped and ends cut off, as a bad disk would, and members edited
and sealed again, as a forger would. What came of it is printed as JSON.
"""

from __future__ import annotations

import collections
import hashlib
import io
import json
import re
import struct
import sys
import time
from pathlib import Path

import numpy as np
from file_tools import members_of, zipped

from kmeanalyst.release import Release
from kmeanalyst.releases.file import FileRefused, write_release
from kmeanalyst.releases.file.archive import members_in
from kmeanalyst.releases.file.reading import release_of

KINDS = ("flip", "sealed", "cut", "flip", "sealed")
WORDS = [0, 1, 127, 128, 255]
MESSAGE = re.compile(r".+: .+\. [A-Z][^.]+\.")


def edited(data: bytes, rng: np.random.Generator) -> bytes:
    """A few bits, bytes, words or lengths of the data changed; every other time where the data describes itself."""
    out, first = bytearray(data), max(0, len(data) - 1500) if rng.random() < 0.5 else 0
    for _ in range(int(rng.integers(1, 4))):
        index, kind = int(rng.integers(first, len(out))) if len(out) > first else 0, rng.random()
        if kind < 0.4:
            out[index] ^= 1 << int(rng.integers(8))
        elif kind < 0.7:
            out[index] = int(rng.choice(WORDS))
        elif kind < 0.8:
            out[index : index + 4] = struct.pack("<i", int(rng.choice([0, -1, 2**31 - 1])))[: len(out) - index]
        elif kind < 0.9:
            out[index:index] = bytes([int(rng.choice(WORDS))])
        else:
            del out[index]
    return bytes(out)


def sealed(members: dict[str, bytes], rng: np.random.Generator) -> bytes:
    """The file with one member edited, and every checksum recomputed."""
    name = str(rng.choice([*members, "points.csv"]))  # twice as often the points, where a library reads
    members = members | {name: edited(members[name], rng)}
    header = members["release.json"]
    for other, data in members.items():
        entry = re.compile(rb'"' + re.escape(other.encode()) + rb'":\{"bytes":\d+,"sha256":"[0-9a-f]{64}"\}')
        digest = hashlib.sha256(data).hexdigest()
        header = entry.sub(f'"{other}":{{"bytes":{len(data)},"sha256":"{digest}"}}'.encode(), header)
    return zipped([*(members | {"release.json": header}).items()])


def check_sound(release: Release) -> None:
    """What every release keeps, whoever made its file."""
    assert release.weights.shape == (len(release),) and np.isfinite(release.weights).all()
    assert release.encoded_points.shape == (len(release), len(release.domain))
    assert not np.isinf(release.encoded_points).any()
    assert (release.measurement is None) == (release.statement is None)
    if release.statement is not None and release.measurement is not None:
        release.statement.check_arithmetic()
        assert np.isfinite(release.measurement.vector).all()


def main(folder: Path, how_many: int) -> None:
    wholes = [path.read_bytes() for path in sorted(folder.glob("*.kme"))]
    parts = [members_of(io.BytesIO(whole)) for whole in wholes]
    rng, tally, slowest = np.random.default_rng(20), collections.Counter[str](), 0.0
    for i in range(how_many):
        whole, kind = wholes[i % len(wholes)], KINDS[i // len(wholes) % len(KINDS)]
        if kind == "flip":
            data = bytearray(whole)
            data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        elif kind == "cut":
            data = bytearray(whole[: int(rng.integers(len(whole)))])
        else:
            data = bytearray(sealed(parts[i % len(wholes)], rng))
        began = time.perf_counter()
        try:
            release = release_of(members_in(bytes(data)), Release)
        except FileRefused as refusal:
            assert MESSAGE.fullmatch(str(refusal)) and str(refusal).isprintable(), str(refusal)
            outcome = "refused"
        else:
            outcome = "read"
            check_sound(release)
            if kind != "sealed":
                write_release(release, folder / "again")
                assert (folder / "again").read_bytes() == whole, f"case {i}: another release was read"
        slowest = max(slowest, time.perf_counter() - began)
        tally[f"{kind} {outcome}"] += 1
    print(json.dumps({"slowest": slowest, **tally}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
