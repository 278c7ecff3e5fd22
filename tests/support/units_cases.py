"""What tests of units share with others."""

from __future__ import annotations

from typing import Any

import numpy as np
from door_cases import Recorder

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from release_side.door.private_mean import private_mean
from release_side.private_rows.units import UnitRows, Units


def grouped(codes: Any, rows: Array) -> UnitRows:
    """The rows of a table, by unit."""
    codes = np.unique(np.asarray(codes), return_inverse=True)[1]
    (piece,) = Units(codes, int(codes.max()) + 1).grouped([rows])
    return piece


def measured(codes: Any, rows: Array, feature_map: FeatureMap, *, workers: int = 1) -> Recorder:
    """What the mechanism is given for a table of units."""
    recorder, units = Recorder(), grouped(codes, rows)
    private_mean([units], feature_map, recorder, n_rows=len(units), workers=workers)  # type: ignore[arg-type]
    assert recorder.exact_sum is not None and recorder.exact_sum.dtype == np.int64
    return recorder
