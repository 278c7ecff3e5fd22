"""One reading of a table: every row goes everywhere, with the weight that the release gives it, and a public seed keeps some."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer, Real
from release_side.private_rows import reading as private_reading
from release_side.private_rows import unit_buckets
from release_side.private_rows.rows import open_private
from release_side.private_rows.table import PrivateTable
from release_side.quality import reading
from release_side.quality.reading import read_once

DOMAIN = Domain((Real(name="x", lower=0, upper=1e6), Integer(name="k", lower=0, upper=99)))


def table(n: int, units: Array | None = None) -> PrivateTable:
    frame = pd.DataFrame({"x": np.arange(n), "k": np.arange(n) % 100})
    return open_private(frame if units is None else frame.assign(person=units))


class Seen:
    def __init__(self) -> None:
        self.rows, self.weights = [], []

    def add(self, rows: Array, weights: Array | None) -> None:
        self.rows.append(rows)
        self.weights.append(np.ones(len(rows)) if weights is None else weights)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivateTable, "piece", 70)
    monkeypatch.setattr(reading, "CHUNK_ROWS", 13)
    monkeypatch.setattr(reading, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(private_reading, "_MOST_HELD", 10 * 32)  # so that units of more than ten rows stay on the disk
    monkeypatch.setattr(unit_buckets, "_MOST_BYTES", 10 * 32)


def test_every_row_is_handed_to_all_and_few_rows_are_all_kept_in_their_order(small_pieces: None):
    one, other = Seen(), Seen()
    size, kept = read_once(table(95), DOMAIN, None, [one.add, other.add])
    assert size.count == 95 and len(one.rows) == 2
    for rows in (np.concatenate(one.rows), np.concatenate(other.rows), kept):
        np.testing.assert_array_equal(rows[:, 0], np.arange(95))


def test_a_sample_is_without_repetition_in_order_and_the_same_each_time(small_pieces: None):
    kept = [read_once(table(1000), DOMAIN, None, [])[1] for _ in range(2)]
    assert len(kept[0]) == 100 and (np.diff(kept[0][:, 0]) > 0).all()
    np.testing.assert_array_equal(*kept)


def test_a_sample_is_drawn_evenly_from_the_whole_table(small_pieces: None):
    """The sum of 100 of the numbers 0..9999: 4 standard deviations of simple random sampling, exceeded one time in 16,000."""
    kept = read_once(table(10_000), DOMAIN, None, [])[1][:, 0]
    deviation = np.arange(10_000).std() / 10 * np.sqrt(1 - 100 / 10_000)
    assert abs(kept.mean() - 4999.5) < 4 * deviation
    assert np.histogram(kept, bins=4, range=(0, 10_000))[0].min() > 10  # 25 ± 4.3 each


def test_the_rows_of_a_unit_weigh_1_together_and_one_of_them_is_kept(small_pieces: None):
    units = np.repeat(np.arange(40), np.arange(1, 41))  # units of 1, 2, …, 40 rows
    order = np.random.default_rng(1).permutation(len(units))
    seen = Seen()
    size, kept = read_once(table(len(units), units[order]), DOMAIN, "person", [seen.add])
    rows, weights = np.concatenate(seen.rows), np.concatenate(seen.weights)
    unit_of = units[order][rows[:, 0].astype(int)]
    assert size.count == 40 and len(rows) == len(units)
    np.testing.assert_allclose(np.bincount(unit_of, weights), 1)
    kept_units = units[order][kept[:, 0].astype(int)]
    assert sorted(kept_units) == list(range(40))


def test_which_row_of_a_unit_is_kept_is_even():
    """100 units of 20 rows: the mean place is 9.5 ± 5.77 / 10."""
    units = np.repeat(np.arange(100), 20)
    kept = read_once(table(2000, units), DOMAIN, "person", [])[1][:, 0]
    assert abs((kept % 20).mean() - 9.5) < 4 * 0.577
    assert len(kept) == 100


def test_progress_ends_at_1(small_pieces: None):
    shown: list[float] = []
    report: Callable[[str, float], None] = lambda what, share: shown.append(share)  # noqa: E731
    read_once(table(200), DOMAIN, None, [], report)
    assert shown == sorted(shown) and shown[-1] == 1.0
