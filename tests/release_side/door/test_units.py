"""Units at the door: all rows of a person together change the exact sum by no more than one row would.

As in test_door.py the noise is replaced by a recorder; a unit's average is compared with Python's own integers.
"""

from __future__ import annotations

import datetime
import decimal
import importlib
import uuid
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contracts import FeatureCase
from door_cases import (
    COORDINATE,
    HOSTILE,
    Claimed,
    Recorder,
    assert_integers_fit,
    every_map,
    grouped,
    measured,
    recorded,
    squared_distance,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.measurement import GRID
from release_side.door.private_mean import integer_features, private_mean, unit_averages
from release_side.private_rows import rows as rows_module
from release_side.private_rows import unit_rows as room
from release_side.private_rows.rows import open_private
from release_side.private_rows.unit_buckets import NO_IDENTIFIER, digests, identifier

door = importlib.import_module("release_side.door.private_mean")


def average(rows: Array, feature_map: FeatureMap) -> list[int]:
    """One unit's integers as PROOF.md has them: the mean of its rows' integers, towards zero."""
    z = [[int(v) for v in integer_features(row[None], feature_map)[0]] for row in rows]
    return [int(Fraction(sum(column), len(z))) for column in zip(*z, strict=True)]


def assert_within_the_sensitivity(one: Recorder, other: Recorder) -> None:
    assert one.sensitivity == other.sensitivity
    assert squared_distance(one.exact_sum, other.exact_sum) <= Fraction(one.sensitivity) ** 2


@every_map
def test_the_sum_is_that_of_the_units_averages_towards_zero(maps: list[FeatureCase], monkeypatch: pytest.MonkeyPatch):
    """By hand: for every map the sum over units of int(Σz/m), whatever the sizes of the pieces."""
    for case in maps:
        feature_map, rng = case.build(12), np.random.default_rng(3)
        rows, codes = case.case.rows(rng, 60), rng.integers(0, 17, 60)
        codes[:25] = 4
        expected = [average(rows[codes == code], feature_map) for code in np.unique(codes)]
        for entries in (2**17, 2 * feature_map.width, 7 * feature_map.width):
            monkeypatch.setattr(door, "_BLOCK_ENTRIES", entries)
            assert measured(codes, rows, feature_map).exact_sum.tolist() == [sum(column) for column in zip(*expected, strict=True)]


@every_map
def test_units_of_one_row_give_the_sum_of_rows_bit_for_bit(maps: list[FeatureCase]):
    for case in maps:
        feature_map, rng = case.build(30), np.random.default_rng(0)
        rows = case.case.rows(rng, 80)
        rows[:3] = [[np.inf], [1e308], [-0.0]]
        one, other = measured(rng.permutation(80), rows, feature_map), recorded(rows, feature_map)
        np.testing.assert_array_equal(one.exact_sum, other.exact_sum)
        assert one.sensitivity == other.sensitivity


@every_map
def test_the_sum_depends_on_no_order_name_piece_thread_or_repetition(maps: list[FeatureCase], monkeypatch: pytest.MonkeyPatch):
    """Nor does it show how many rows there are: each row written 2 or 11 times gives the same."""
    for case in maps:
        feature_map, rng = case.build(30), np.random.default_rng(2)
        rows, codes = case.case.rows(rng, 150), rng.integers(0, 40, 150) ** 2
        expected = measured(codes, rows, feature_map).exact_sum
        for entries, workers, times in ((2**17, 1, 2), (2**17, 3, 11), (377, 1, 1), (377, 3, 2)):
            monkeypatch.setattr(door, "_BLOCK_ENTRIES", entries)
            order = np.tile(rng.permutation(150), times)
            found = measured(-codes[order], rows[order], feature_map, workers=workers).exact_sum
            np.testing.assert_array_equal(found, expected)


@every_map
def test_a_unit_with_one_row_or_ten_thousand_hostile_ones_stays_within_the_sensitivity(maps: list[FeatureCase]):
    for case in maps:
        for size in [2, 40]:
            feature_map, rng = case.build(size), np.random.default_rng(1)
            rows, codes = case.case.rows(rng, 30), np.repeat(np.arange(10), 3)
            table = measured(codes, rows, feature_map)
            for many in (1, 2, 10_000):
                other = case.case.rows(rng, many)
                other[rng.random(other.shape) < 0.3] = rng.choice(HOSTILE)
                for replacement in (other, np.repeat(other[:1], many, axis=0)):
                    neighbour = measured(
                        np.concatenate([codes[3:], np.zeros(many, dtype=int)]), np.vstack([rows[3:], replacement]),
                        feature_map,
                    )  # fmt: skip
                    assert_within_the_sensitivity(table, neighbour)


def test_the_sensitivity_is_reached_by_units_of_many_rows():
    """Opposite units: a smaller claim would be false; and were rows summed instead, ten of them would exceed it."""
    claimed = Claimed(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    one, other = (measured([0] * 10, np.full((10, 1), row), claimed) for row in (0.0, 1.0))
    reached = np.sqrt(float(squared_distance(one.exact_sum, other.exact_sum)))
    assert (1 - 1e-5) * one.sensitivity < reached <= one.sensitivity
    summed = [recorded(np.full((10, 1), row), claimed) for row in (0.0, 1.0)]
    assert squared_distance(summed[0].exact_sum, summed[1].exact_sum) > Fraction(one.sensitivity) ** 2


@given(features=arrays(np.float64, (6, 4), elements=COORDINATE), nonnegative=st.booleans(), size=st.integers(1, 6))
def test_any_features_average_to_integers_within_the_bound(features, nonnegative, size):
    claimed = Claimed(features, nonnegative=nonnegative)
    units = grouped(np.zeros(size, dtype=int), claimed.all_rows[:size])
    averaged = unit_averages(units, claimed)
    assert_integers_fit(averaged, nonnegative=nonnegative)
    assert averaged.tolist() == [average(claimed.all_rows[:size], claimed)]


def test_averages_at_the_bound_are_not_rounded_beyond_it():
    """Rows of norm exactly GRID, which `within_norm` accepts: rounding to nearest would leave the ball, towards zero does not."""
    half = GRID * np.sqrt(0.5)
    z = np.floor(np.array([[half, half], [np.nextafter(half, 0), half]]))
    claimed = Claimed(z / (GRID * door.SHRINK))
    for several in ([0, 1], [0, 0, 1], [0, 1, 1, 1]):
        rows = claimed.all_rows[several]
        assert_integers_fit(unit_averages(grouped([0] * len(rows), rows), claimed))


def test_of_a_unit_with_more_rows_than_64_bits_can_sum_the_first_count(monkeypatch: pytest.MonkeyPatch):
    claimed = Claimed(np.array([[1.0], [-1.0]]))
    rows, codes = np.array([[0.0], [1.0], [0.0], [1.0], [1.0], [0.0]]), np.array([0, 1, 0, 0, 0, 1])
    whole = measured(codes, rows, claimed).exact_sum
    monkeypatch.setattr(room, "MOST_ROWS", 2)
    assert grouped(codes, rows).sizes.tolist() == [2, 2]
    found = measured(codes, rows, claimed).exact_sum
    assert found.tolist() == [average(rows[[0, 2]], claimed)[0] + average(rows[[1, 5]], claimed)[0]] != whole.tolist()


def test_progress_counts_units_and_is_the_same_for_any_number_of_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "_BLOCK_ENTRIES", 4)
    claimed, heard = Claimed(np.array([[1.0], [-1.0]])), []
    for sizes in ([1, 1, 1, 1, 1], [1, 900, 1, 3, 40]):
        units, steps = grouped(np.repeat(np.arange(5), sizes), np.zeros((sum(sizes), 1))), []
        private_mean(
            [units], claimed, Recorder(), n_rows=5, progress=lambda *step, steps=steps: steps.append(step)  # type: ignore[arg-type]
        )  # fmt: skip
        heard.append(steps)
    assert heard[0] == heard[1] == [("reading rows", each / 100) for each in range(1, 101)]


SAME = [13, 13.0, "13", np.int32(13), np.float32(13), decimal.Decimal("13.00")]
NO_PERSON = ["", None, np.nan, pd.NA, pd.NaT, decimal.Decimal("NaN"), decimal.Decimal("sNaN"), np.datetime64("NaT"),
             b"", object(), [], {}, (1,),
             np.timedelta64(13, "s"), 1 + 2j]  # fmt: skip
DISTINCT = [
    "13", "013", " 13", "13 ", "A", "a", "A\0", "\ud800", "é", "e\u0301", b"13", b"A", 2**53, 2**53 + 1, -(2**53) - 1,
    10**400, 10**400 + 1, 10**5000, 10**5000 + 1, 0.1, 1e300, float("inf"), decimal.Decimal("1e999999"), "True",
    datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), uuid.UUID(int=7), "x" * 10**6, "x" * 10**6 + "y",
]  # fmt: skip


def test_identifiers_are_compared_as_text_and_exactly():
    """Whole numbers beyond 2^53 too, which floats would merge; what identifies no person is one unit."""
    assert {identifier(cell) for cell in SAME} == {"13"}
    assert identifier(True) == identifier(np.True_) == "True" and identifier(-0.0) == identifier(0) == "0"
    assert {identifier(cell) for cell in NO_PERSON} == {NO_IDENTIFIER}
    assert len({identifier(cell) for cell in DISTINCT}) == len(DISTINCT)


class _Raises(int):
    def __index__(self) -> int:
        raise RuntimeError("a private value")

    __int__ = __abs__ = __index__


def test_an_identifier_that_cannot_be_read_raises_nothing():
    assert identifier(_Raises(3)) in (NO_IDENTIFIER, "3")


X = Domain((Integer(name="x", lower=0, upper=99),))


def partition(table: Any) -> list[int]:
    """The units of a table's rows, numbered in the order of their first rows."""
    found = [digests(cells, b"key") for cells, _ in open_private(table).identified("who", X)]
    numbers: dict[bytes, int] = {}
    return [numbers.setdefault(each.tobytes(), len(numbers)) for each in np.concatenate(found)]


def test_the_rows_of_a_unit_may_lie_anywhere_in_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows_module.PrivateTable, "piece", 2)
    (tmp_path / "a.csv").write_text('who,x\n7,1\n"b, c",2\n,3\n7,4\n07,5\n', encoding="utf-8")
    (tmp_path / "b.csv").write_text('x,who\n6,"b, c"\n7\n8,7\n', encoding="utf-8")
    pq.write_table(pa.table({"who": pa.array([7, None, 8]), "x": [9, 10, 11]}), tmp_path / "c.parquet")
    assert partition(tmp_path) == [0, 1, 2, 0, 3, 1, 2, 0, 0, 2, 4]


def test_an_empty_cell_does_not_merge_other_persons(tmp_path: Path):
    """A column of whole numbers with an empty cell, read as an array, becomes floats: 2^53 + 1 would become 2^53."""
    who = [2**53, 2**53 + 1, 2**53 + 2]
    for last, expected in ((2**53 + 3, [0, 1, 2, 3]), (None, [0, 1, 2, 3])):
        pq.write_table(pa.table({"who": pa.array([*who, last], pa.int64()), "x": [0] * 4}), tmp_path / "t.parquet")
        assert partition(tmp_path / "t.parquet") == expected
    frame = pd.DataFrame({"who": pd.array([*who, None], dtype="Int64"), "x": 0})
    assert partition(frame) == [0, 1, 2, 3]


def test_identifiers_of_bytes_and_categories_distinguish_persons(tmp_path: Path):
    pq.write_table(pa.table({"who": [b"\xff\x00", b"\xff\x01", b"\xff\x00", None], "x": [0] * 4}), tmp_path / "t.parquet")
    assert partition(tmp_path / "t.parquet") == [0, 1, 0, 2]
    assert partition(pd.DataFrame({"who": pd.Categorical(["a", "b", None, "a"]), "x": 0})) == [0, 1, 2, 0]


def test_a_hostile_identifier_changes_no_other_one(tmp_path: Path):
    for hostile in ["", "nan", "\ud800", "A\0", "9" * 400, '"', "\r", "1e999", "\\N"]:
        lines = ["who,x", "A,1", "?,2", "B,3", "A,4", "C,5", "B,6"]
        lines[2] = f"{hostile},2"
        (tmp_path / "t.csv").write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
        assert partition(tmp_path / "t.csv") == [0, 1, 2, 0, 3, 2]


def test_different_identifiers_have_different_digests():
    assert len({each.tobytes() for each in digests(DISTINCT, b"key")}) == len(DISTINCT)
    assert len({each.tobytes() for each in digests(SAME, b"key")}) == 1
    assert (digests(SAME[:1], b"key") != digests(SAME[:1], b"other")).all()


def test_objects_with_private_rows_do_not_show_them():
    piece = grouped([0, 1, 1], np.full((3, 1), 271.5))
    assert "271.5" not in repr(piece) and "[" not in repr(piece)
