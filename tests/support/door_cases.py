"""Row tables, mechanisms and feature maps for tests of the door: a mechanism that records, hostile cells, units."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import mpmath
import numpy as np
import pytest
from contracts import FEATURE_MAPS, SOME_MAPS
from hypothesis import strategies as st

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.releases.measurement import GRID
from kmeanalyst.releases.statement import GAUSSIAN
from release_side.door.private_mean import private_mean
from release_side.private_rows.unit_rows import UnitRows


def unread() -> Iterator[Array]:
    """Rows that may not be read."""
    raise AssertionError("a row was read")
    yield


@dataclass
class Recorder:
    """A mechanism that adds nothing and remembers what it was asked for."""

    name: str = GAUSSIAN
    exact_sum: Array | None = None
    sensitivity: float | None = None

    def deviation(self, sensitivity: float) -> float:
        return 1.0

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        self.exact_sum, self.sensitivity = exact_sum.copy(), sensitivity
        return exact_sum


@contextmanager
def record_lines(files: Collection[str | None]) -> Iterator[list[tuple[str, int]]]:
    """Every line of these files that runs, in order."""
    lines: list[tuple[str, int]] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event in ("line", "exception"):
            lines.append((frame.f_code.co_name + ":" + event, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(before)


def recorded(rows: Array, feature_map: FeatureMap, *, pieces: list[Any] | None = None, workers: int = 1) -> Recorder:
    """What the mechanism is given for these rows."""
    recorder = Recorder()
    pieces = [rows] if pieces is None else pieces
    private_mean(pieces, feature_map, recorder, n_rows=sum(map(len, pieces)), workers=workers)  # type: ignore[arg-type]
    assert recorder.exact_sum is not None and recorder.exact_sum.dtype == np.int64
    return recorder


def squared_distance(a: Array, b: Array) -> int:
    """‖a − b‖² in Python's integers."""
    return sum((int(x) - int(y)) ** 2 for x, y in zip(a, b, strict=True))


every_map = pytest.mark.parametrize("maps", [SOME_MAPS, pytest.param(FEATURE_MAPS, marks=pytest.mark.product)], ids=["some", "all"])
HOSTILE = [np.nan, np.inf, -np.inf, 1e308, -1e308, -0.0, 5e-324, 1e22, -1.0, 0.0, 2.0, 7.0, 2.0**63]


@dataclass(frozen=True, eq=False)
class Claimed(FeatureMap):
    """A feature map that returns given features and claims a given bound."""

    features: Array
    norm_bound: float = 1.0
    nonnegative: bool = False
    kernel = Gaussian(1.0)  # which nothing uses
    name = "claimed"

    def __call__(self, X: Array) -> Array:
        return self.features[X[:, 0].astype(int)].copy()

    @property
    def dimension(self) -> int:
        return self.features.shape[1]

    @property
    def all_rows(self) -> Array:
        return np.arange(len(self.features), dtype=float)[:, None]

    def arrays(self) -> dict[str, Array]:
        return {}


def assert_integers_fit(z: Array, *, nonnegative: bool = False) -> None:
    """Whole numbers with Σz² ≤ GRID² in Python's integers, for each row."""
    for row in z:
        whole = [int(v) for v in row]
        assert whole == list(row)
        assert sum(v * v for v in whole) <= GRID**2
        assert not nonnegative or min(whole) >= 0


HUGE = st.sampled_from([np.nan, np.inf, -np.inf, 1e308, -1e308, 1e154, 1e160, 5e-324, -0.0, 2.0**30, 2.0**31, 2.0**63, 1.0, -1.0])
COORDINATE = st.floats(width=64) | HUGE | st.floats(-1, 1) | st.floats(0.999999, 1.000001)


def exact_delta(epsilon: object, multiplier: object) -> mpmath.mpf:
    """δ of Gaussian noise by Balle & Wang 2018, Theorem 8, in 60 digits."""
    with mpmath.workdps(60):
        s, e = mpmath.mpf(multiplier), mpmath.mpf(epsilon)
        return mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)


def grouped(codes: Any, rows: Array) -> UnitRows:
    """The rows of a table, by unit."""
    return UnitRows.grouped(rows, np.unique(np.asarray(codes), return_inverse=True)[1][:, None])


def measured(codes: Any, rows: Array, feature_map: FeatureMap, *, workers: int = 1) -> Recorder:
    """What the mechanism is given for a table of units."""
    return recorded(rows, feature_map, pieces=[grouped(codes, rows)], workers=workers)
