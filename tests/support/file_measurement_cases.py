"""What tests of file measurement share with others."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from file_tools import Members


def npy(array: np.ndarray, **options: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **({"version": (1, 0)} | options))
    return out.getvalue()


def array_of(members: Members, name: str) -> np.ndarray:
    return np.load(io.BytesIO(members[f"measurement/{name}.npy"]), allow_pickle=False)
