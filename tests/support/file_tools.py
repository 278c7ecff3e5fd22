"""Making, forging and comparing .kme files, for the tests of the file format."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import paths
import pytest
import refusals

from kmeanalyst.kernels import Gaussian
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.releases.file import limits as refusal

HERE = paths.TESTS
SCHEMA = json.loads((HERE.parent / "kmeanalyst/releases/schema_v1.json").read_text(encoding="utf-8"))
SCHEMA_TEST = jsonschema.Draft202012Validator(SCHEMA)
AGAIN = "Fetch the file again, or ask its maker for a sound one."
LARGE = "If you trust its maker, read it with --large (in Python large=True), which takes longer and more memory."
CORRECT = "Do not rely on it; ask its maker for a correct file."
UPGRADE, FUNCTION = "Upgrade kmeanalyst.", "Read it with kmeanalyst.read_release."
HINTS = (AGAIN, LARGE, CORRECT, UPGRADE, FUNCTION, "Check that it is a .kme file.", "(in Python allow_rehearsal=True).")
SENSELESS = r"it does not make sense"
NO_ZIP = ("the file is not a whole zip archive", "truncated, padded, or no release at all")

Members = dict[str, bytes]
Edit = Callable[..., None]  # of a header, or of a header and the members


def members_of(path: Path | io.BytesIO) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(members: list[tuple[str | zipfile.ZipInfo, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", compression) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of a name that occurs twice
        for name, data in members:
            archive.writestr(name, data)
    return out.getvalue()


def declared(members: Members) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
        if name != "release.json"
    }


def forged(path: Path, edit: Edit, *, resealed: bool = True) -> bytes:
    """The file at path with header and members edited, and checksums made good, as a forger would."""
    members = members_of(path)
    header = json.loads(members["release.json"])
    edit(header, members)
    if resealed:
        header["members"] = declared(members)
    members["release.json"] = json.dumps(header).encode()
    return zipped(list(members.items()))


def opened(data: bytes, folder: Path, read: Callable[[Path], Any] = read_release) -> Any:
    """What is read of these bytes. A refusal names the file, is one line that a terminal shows, and ends with a hint."""
    path = folder / "strange.kme"
    path.write_bytes(data)
    try:
        return read(path)
    except FileRefused as refused:
        message = str(refused)
        assert message.startswith(f"{path}: ") and message.isprintable() and message.endswith(HINTS), message
        assert not message.endswith(LARGE) or "at most" in message, message
        raise


def refused(data: bytes, folder: Path, what: str, why: str, hint: str = AGAIN) -> None:
    """The bytes are refused with all three parts of the message, after the file's name."""
    with pytest.raises(FileRefused, match=what) as caught:
        opened(data, folder)
    message = str(caught.value)
    assert re.search(why, message), message
    assert hint in message or (hint == AGAIN and message.endswith(LARGE)), message


def check_refusals(room: str, run: Callable[[Any], object], **names: Any) -> None:
    """`refusals.check` of a room of the file format; its inputs use the functions here and these names."""
    listed = HERE / "releases" / "file" / f"refusals_{room}.txt"
    refusals.check(listed, lambda text: run(eval(text, globals() | names)))


def header_of(data: bytes) -> dict[str, Any]:
    """The header of a file's bytes."""
    header: dict[str, Any] = json.loads(members_of(io.BytesIO(data))["release.json"])
    return header


def with_verdict_of_schema(data: bytes, folder: Path, schema: Any) -> Any:
    """As `opened`; a refusal also says whether the schema refuses the header, unless that takes minutes."""
    try:
        return opened(data, folder)
    except FileRefused as refused:
        if len(data) > 10**6:
            raise
        raise FileRefused(f"{refused} schema {'allows' if schema.is_valid(header_of(data)) else 'refuses'}") from None


def narrow(monkeypatch: pytest.MonkeyPatch, **limits: int) -> None:
    """Hold files to lower limits than usual."""
    monkeypatch.setattr(refusal, "USUAL", replace(refusal.USUAL, **limits))


def _changing(keys: tuple[Any, ...], change: Callable[[Any, Any], object]) -> Edit:
    """An edit of a header: `change(table, key)` of the table that the first keys lead to."""

    def edit(header: dict[str, Any], members: Members | None = None) -> None:
        for key in keys[:-1]:
            header = header[key]
        change(header, keys[-1])

    return edit


def setting(*keys: Any, to: Any) -> Edit:
    return _changing(keys, lambda table, key: table.__setitem__(key, to))


def dropping(*keys: Any) -> Edit:
    return _changing(keys, lambda table, key: table.pop(key))


def scaling(*keys: Any, by: float) -> Edit:
    return _changing(keys, lambda table, key: table.__setitem__(key, table[key] * by))


def all_of(*edits: Edit) -> Edit:
    def edit(header: dict[str, Any], members: Members | None = None) -> None:
        for each in edits:
            each(header, members)

    return edit


def same(a: Release, b: Release) -> None:
    """Two releases are one and the same, to the last bit."""
    pd.testing.assert_frame_equal(a.to_frame(), b.to_frame(), check_exact=True)
    assert a.encoded_points.tobytes() == b.encoded_points.tobytes()
    assert a.weights.tobytes() == b.weights.tobytes()
    assert (a.domain, a.kernel, a.statement) == (b.domain, b.kernel, b.statement)
    assert (a.method, a.weight_view, a.fit_distance) == (b.method, b.weight_view, b.fit_distance)
    if a.measurement is None or b.measurement is None:
        assert a.measurement is b.measurement
        return
    one, other = a.measurement, b.measurement
    assert one.noisy_sum.dtype == other.noisy_sum.dtype == np.int64
    assert one.noisy_sum.tobytes() == other.noisy_sum.tobytes()
    assert one.vector.tobytes() == other.vector.tobytes()
    assert (one.noise_scale, one.noise_law, one.n_rows) == (other.noise_scale, other.noise_law, other.n_rows)
    assert type(one.feature_map) is type(other.feature_map)
    assert one.feature_map(a.encoded_points).tobytes() == other.feature_map(b.encoded_points).tobytes()


def bare(points: pd.DataFrame, weights: Any, domain: Domain, **fields: Any) -> Release:
    """A release without a measurement."""
    usual = {"measurement": None, "kernel": Gaussian(1.0), "statement": None}
    return Release(points=points, weights=weights, domain=domain, **(usual | fields))


Row = list[str]
Forgery = Callable[[dict[str, Any], Members], None]
POINTS = "points.csv"


def edited_bytes(edit: Callable[[bytes], bytes]) -> Forgery:
    """The points with other bytes."""
    return lambda header, members: members.update({POINTS: edit(members[POINTS])})


def edited_points(edit: Callable[[list[Row]], list[Row]]) -> Forgery:
    """The points with other lines; the first is that of the names, and cells are texts."""

    def forge(header: dict[str, Any], members: Members) -> None:
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(edit(rows_of(members[POINTS])))
        members[POINTS] = out.getvalue().encode()

    return forge


def rows_of(points: bytes) -> list[Row]:
    return list(csv.reader(io.StringIO(points.decode())))


def with_cells(name: str, make: Callable[[str], str]) -> Callable[[list[Row]], list[Row]]:
    """The lines with every cell of a column made anew."""

    def edit(rows: list[Row]) -> list[Row]:
        place = rows[0].index(name)
        return [rows[0], *([*row[:place], make(row[place]), *row[place + 1 :]] for row in rows[1:])]

    return edit


def first(name: str, value: str) -> Callable[[list[Row]], list[Row]]:
    """The lines with another first cell in a column."""

    def edit(rows: list[Row]) -> list[Row]:
        return [*with_cells(name, lambda cell: value)(rows[:2]), *rows[2:]]

    return edit


def npy(array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **({"version": (1, 0)} | options))
    return out.getvalue()


def array_of(members: Members, name: str) -> np.ndarray:
    return np.load(io.BytesIO(members[f"measurement/{name}.npy"]), allow_pickle=False)


def array(name: str, make: Callable[[np.ndarray], Any], *, declare: bool = False) -> Edit:
    """An array replaced by what `make` makes of it, an array or bytes; with `declare` the header has its new shape."""

    def edit(header: dict[str, Any], members: Members) -> None:
        made = make(array_of(members, name))
        members[f"measurement/{name}.npy"] = made if isinstance(made, bytes) else npy(made)
        if declare:
            header["measurement"]["feature_map"]["arrays"][name] = list(made.shape)

    return edit


def renamed(name: str, other: str) -> Edit:
    """An array under another name, in the header and the archive."""

    def edit(header: dict[str, Any], members: Members) -> None:
        arrays = header["measurement"]["feature_map"]["arrays"]
        arrays[other] = arrays.pop(name)
        members[f"measurement/{other}.npy"] = members.pop(f"measurement/{name}.npy")

    return edit


def cell(value: float, *index: int) -> Callable[[np.ndarray], np.ndarray]:
    """An array with another number at the index, or else in its first cell."""

    def make(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[index or (0,) * values.ndim] = value
        return values

    return make


def outcomes_of_damage(folder: Path, how_many: int) -> dict[str, int]:
    """Read damaged and forged copies of a folder's files in one process, none for 2 seconds; see damaged_files.py."""
    run = subprocess.run(
        [sys.executable, "-W", "error", str(paths.SUPPORT / "damaged_files.py"), str(folder), str(how_many)],
        capture_output=True, text=True, timeout=200, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    tally: dict[str, int] = json.loads(run.stdout)
    assert tally.pop("slowest") < 2
    return tally
