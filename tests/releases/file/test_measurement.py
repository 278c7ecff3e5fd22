"""Refusals of the .kme file's measurement: arrays other than declared, or unfit for the domain."""

from __future__ import annotations

import struct

import numpy as np
from file_tools import check_refusals, forged, narrow, opened, refused


def padded_header(values: np.ndarray) -> bytes:
    """An npy file with a header of 5000 bytes."""
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {values.shape}, }}".ljust(4999) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + values.tobytes()


NOT_NPY, INFINITE = "it is not an npy 1.0 array of little-endian numbers in C order", "infinite or not a number"


def test_arrays_other_than_declared_or_unfit_for_the_domain_are_refused(mixed_path, levels_path, tmp_path):
    paths = {"mixed": mixed_path, "levels": levels_path}
    listed = "arrays"
    check_refusals(listed, lambda case: opened(forged(*case), tmp_path), **globals() | paths)


def test_a_basis_too_large_to_factorise_is_refused(levels_path, tmp_path, monkeypatch):
    narrow(monkeypatch, basis_points=5)
    refused(levels_path.read_bytes(), tmp_path, r"points\.npy has \d+ rows", "a subspace of at most 5 is read")
