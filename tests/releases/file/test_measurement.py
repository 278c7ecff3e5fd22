"""Refusals of the .kme file's measurement: arrays other than declared, or unfit for the domain."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from file_tools import Edit, Members, array, cell, forged, narrow, npy, refused


def renamed(name: str, other: str) -> Edit:
    def edit(header: dict[str, Any], members: Members) -> None:
        arrays = header["measurement"]["feature_map"]["arrays"]
        arrays[other] = arrays.pop(name)
        members[f"measurement/{other}.npy"] = members.pop(f"measurement/{name}.npy")

    return edit


def padded_header(values: np.ndarray) -> bytes:
    """An npy file with a header of 5000 bytes."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {values.shape}, }}".ljust(4999) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + values.tobytes()


NOT_NPY, INFINITE = "it is not an npy 1.0 array of little-endian numbers in C order", "infinite or not a number"
ARRAYS: dict[str, tuple[Edit, str, str]] = {
    "nothing": (array("linear", lambda a: b""), r"linear\.npy", NOT_NPY),
    "a pickle": (
        array("linear", lambda a: npy(np.array([print], dtype=object), allow_pickle=True)), r"linear\.npy", NOT_NPY,
    ),
    "npy 2.0": (array("linear", lambda a: npy(a, version=(2, 0))), r"linear\.npy", NOT_NPY),
    "big endian": (array("linear", lambda a: a.astype(">f8")), r"linear\.npy", NOT_NPY),
    "Fortran order": (array("linear", np.asfortranarray), r"linear\.npy", NOT_NPY),
    "float32": (array("linear", lambda a: a.astype("<f4")), r"linear\.npy", NOT_NPY),
    "a long header": (array("linear", padded_header), r"linear\.npy", NOT_NPY),
    "code in the header": (
        array("linear", lambda a: npy(a).replace(b"(10, 100)", b"(1+9, 99)")), r"linear\.npy", NOT_NPY,
    ),
    "integers": (array("linear", lambda a: a.astype("<i8")), r"linear\.npy", "should hold <f8 .* got <i8"),
    "a float sum": (array("noisy_sum", lambda a: a.astype("<f8")), r"noisy_sum\.npy", "should hold <i8 .* got <f8"),
    "a shorter sum": (array("noisy_sum", lambda a: a[:-1]), r"noisy_sum\.npy", r"shape \[200\] .* shape \[199\]"),
    "a sum of two axes": (
        array("noisy_sum", lambda a: a[:, None]), r"noisy_sum\.npy", r"shape \[200\] .* \[200, 1\]",
    ),
    "bytes behind": (
        array("linear", lambda a: npy(a) + b"x"), r"linear\.npy", r"nothing else, got .* in 8129 bytes",
    ),
    "bytes missing": (array("linear", lambda a: npy(a)[:-8]), r"linear\.npy", r"in 8120 bytes"),
    "an infinite frequency": (array("linear", cell(np.inf)), r"linear\.npy", INFINITE),
    "a NaN phase": (array("table_4", cell(np.nan)), r"table_4\.npy", INFINITE),
    "a frequency of 1e308": (array("linear", cell(1e308, 2, 0)), r"linear\.npy", "phases are infinite"),
    "one column less": (array("linear", lambda a: a[1:], declare=True), r"linear\.npy", "9 rows, .* 10 columns"),
    "a table of too few levels": (
        array("table_4", lambda a: a[:-1], declare=True), r"table_4\.npy has shape \(4, 100\)",
        "city needs 5 or 1 rows",
    ),
    "a table of too many levels": (
        array("table_4", lambda a: np.vstack([a, a]), declare=True), r"table_4\.npy has shape", "city needs 5 or 1",
    ),
    "a table of fewer phases": (
        array("table_4", lambda a: a[:, 1:].copy(), declare=True), r"shape \(5, 99\)", "rows of 100 phases",
    ),
    "a table of levels for numbers": (
        array("table_1", lambda a: np.vstack([a, a]), declare=True), r"table_1\.npy has shape",
        "children needs 1 rows",
    ),
    "a table of one axis": (
        array("table_4", lambda a: a[0], declare=True), "feature_map, field arrays", "linear and table_j",
    ),
    "a table of no column": (renamed("table_4", "table_10"), "feature_map, field arrays", "table_j, j a column"),
    "a table of column 04": (renamed("table_4", "table_04"), "feature_map, field arrays", "table_j, j a column"),
    "no frequencies": (renamed("linear", "points"), "feature_map, field arrays", "random Fourier features have linear"),
}  # fmt: skip


OUTSIDE = "values or codes outside the domain"
BASES: dict[str, tuple[Edit, str, str]] = {
    "a code too high": (array("points", cell(4.0)), r"points\.npy, column city", OUTSIDE),
    "a code below zero": (array("points", cell(-1.0)), r"points\.npy, column city", OUTSIDE),
    "half a code": (array("points", cell(0.5)), r"points\.npy, column city", OUTSIDE),
    "a missing cell undeclared": (array("points", cell(np.nan)), r"points\.npy, column city", OUTSIDE),
    "an infinite number": (array("points", cell(np.inf, 0, 2)), r"points\.npy, column capital\.gain", OUTSIDE),
    "a number out of bounds": (array("points", cell(12.0, 0, 2)), r"points\.npy, column capital\.gain", OUTSIDE),
    "a basis point twice": (
        array("points", lambda a: np.vstack([a[1:], a[1:2]])), "the release", "not linearly independent",
    ),
    "one column of the basis less": (
        array("points", lambda a: a[:, :2].copy(), declare=True), "field arrays",
        "points of 3 columns, and nothing else",
    ),
    "another name": (renamed("points", "linear"), "field arrays", "a subspace has points of 3 columns"),
}  # fmt: skip


@pytest.mark.parametrize("case", [*ARRAYS, *BASES])
def test_arrays_other_than_declared_or_unfit_for_the_domain_are_refused(case, mixed_path, levels_path, tmp_path):
    edit, what, why = (ARRAYS | BASES)[case]
    refused(forged(mixed_path if case in ARRAYS else levels_path, edit), tmp_path, what, why)


def test_a_basis_too_large_to_factorise_is_refused(levels_path, tmp_path, monkeypatch):
    narrow(monkeypatch, basis_points=5)
    refused(levels_path.read_bytes(), tmp_path, r"points\.npy has \d+ rows", "a subspace of at most 5 is read")
