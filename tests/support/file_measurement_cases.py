"""Edits of the arrays in a .kme file, for the tests that forge one."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from file_tools import Edit, Members


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


def cell(value: float, *index: int) -> Callable[[np.ndarray], np.ndarray]:
    """An array with another number at the index, or else in its first cell."""

    def make(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[index or (0,) * values.ndim] = value
        return values

    return make
