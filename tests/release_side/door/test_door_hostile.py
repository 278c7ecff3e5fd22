"""Hostile rows at the door: findings of an adversarial review, as tests."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import paths
import pyarrow as pa
import pyarrow.parquet as pq

from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import GRID
from release_side.door.private_mean import _shrink_to_bound, integer_features, within_norm
from release_side.private_rows.rows import open_private

LETTERS = Categorical(name="x", levels=("A", "B", "'\\udcff'"), default="B")
KINDS = [
    LETTERS, Integer(name="x", lower=0, upper=100, default=7), Real(name="x", lower=0, upper=100, missing=True),
    Date(name="x", lower="1900-01-01", upper="2100-01-01"),
]  # fmt: skip
LOOKALIKES = [
    "A", "A\0", "A\0B", "\udcff", "'\\udcff'", "50", "50\0", "50.0", " 50", "", "\0", "2000-01-01", "2000-01-01\0",
]  # fmt: skip


def test_the_code_of_a_text_does_not_depend_on_the_texts_before_it():
    for column in KINDS:
        alone = {text: column.encode([text])[0][0] for text in LOOKALIKES}
        rng = np.random.default_rng(0)
        for _ in range(50):
            cells = rng.permutation(np.array(LOOKALIKES * 3, dtype=object))
            np.testing.assert_array_equal(column.encode(cells)[0], [alone[text] for text in cells])


FRAMES = {
    "days beyond Python's calendar, with a zone": pd.Series(
        np.array([0, 2**55], dtype="M8[us]")).dt.tz_localize("UTC").dt.tz_convert("Europe/Paris"),
    "the last nanosecond, with a zone": pd.Series([pd.Timestamp(0, tz="UTC"), pd.Timestamp.max.tz_localize("UTC")]
        ).dt.tz_convert("Europe/Paris"),
    "arrow days beyond the calendar": pd.Series(pd.arrays.ArrowExtensionArray(pa.array([0, 2**31 - 1], pa.date32()))),
    "arrow text that is not UTF-8": pd.Series(pd.arrays.ArrowExtensionArray(
        pa.array([b"A", b"\xff"], pa.binary()).view(pa.string()))),
    "durations": pd.Series(np.array([0, "NaT"], dtype="m8[ns]")),
    "durations as objects": pd.Series([np.timedelta64(3, "D"), np.timedelta64("NaT", "s")], dtype=object),
    "long doubles": pd.Series(np.array([1, "1e4000"], dtype=np.longdouble)),
    "signalling NaN": pd.Series(np.array([0x3F800000, 0x7F800001], dtype=np.uint32).view(np.float32)),
    "everything": pd.Series([None, [], {}, b"A", 1j, object(), datetime.time(1), 10**5000, float("nan"), pd.NA], dtype=object),
}  # fmt: skip


def test_no_cell_of_a_frame_raises_or_warns():
    for column in KINDS:
        for cells in FRAMES.values():
            domain = Domain((column,))
            frame = pd.DataFrame({"x": cells})
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                together = np.concatenate(list(open_private(frame).encoded(domain)))
                alone = [next(open_private(frame.iloc[i : i + 1]).encoded(domain)) for i in range(len(frame))]
            np.testing.assert_array_equal(together, np.concatenate(alone))


def test_a_parquet_file_with_a_signalling_nan_warns_of_nothing(tmp_path):
    values = np.array([0x3F800000, 0x7F800001], dtype=np.uint32).view(np.float32)
    pq.write_table(pa.table({"x": pa.array(values)}), tmp_path / "a.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = np.concatenate(list(open_private(tmp_path / "a.parquet").encoded(Domain((KINDS[2],)))))
    np.testing.assert_array_equal(rows, [[1.0], [np.nan]])


def test_the_norm_is_enforced_in_integers_and_not_only_in_rounded_squares():
    """2⁵⁶ + 1 is 2⁵⁶ in double precision: the row is longer than GRID, by less than its squares can show."""
    row = np.array([[float(GRID), 1.0]])
    assert (row**2).sum() == GRID**2
    assert not within_norm(row, nonnegative=False)[0]


def test_a_row_that_must_be_shortened_is_shortened_alone():
    """Norms are summed in an order that depends on the width alone: a row's integers never depend on its block."""
    for width in [7, 8193, 20_000]:
        rng = np.random.default_rng(1)
        z = np.rint(rng.normal(size=(6, width)) * GRID)
        together = within_norm(z, nonnegative=False), _shrink_to_bound(z, nonnegative=False)
        for i in range(len(z)):
            assert within_norm(z[i : i + 1], nonnegative=False)[0] == together[0][i]
            np.testing.assert_array_equal(_shrink_to_bound(z[i : i + 1], nonnegative=False)[0], together[1][i])


def test_row_features_do_not_depend_on_the_other_rows():
    domain = Domain((Integer(name="a", lower=0, upper=90), LETTERS, Real(name="c", lower=0, upper=1)))
    features = RandomFourier.draw(table_kernel(domain), n_columns=3, dimension=9000, rng=0)
    rows = domain.draw(40, 1)
    together = integer_features(rows, features)
    for i in range(len(rows)):
        np.testing.assert_array_equal(integer_features(rows[i : i + 1], features)[0], together[i])


def test_row_features_do_not_depend_on_their_batch_without_vector_units_either():
    """The machine's own vector unit is tested everywhere; here numpy runs without it, as on older machines."""
    program = """
import numpy as np
from contracts import SOME_MAPS
from release_side.door.private_mean import integer_features
for case in SOME_MAPS:
    feature_map, rows = case.build(64), case.case.rows(np.random.default_rng(1), 35)
    whole = integer_features(rows, feature_map)
    for size in (1, 7, 16, 33):
        parts = [integer_features(rows[i : i + size], feature_map) for i in range(0, 35, size)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
"""
    plain = {"NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX2 FMA3 AVX512F", "PYTHONPATH": str(paths.SUPPORT)}
    command = [sys.executable, "-W", "ignore", "-c", program]  # numpy warns about names that this build does not know
    result = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
