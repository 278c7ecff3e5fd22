"""Derived columns of private rows: computed from each row's other cells, whatever the table has in their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import release_side
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.rules.rule import Rule
from release_side.private_rows.rows import open_private

DOMAIN = Domain(
    (
        Date(name="came", lower="2020-01-01", upper="2024-12-31", missing=True),
        Integer(name="stay", lower=0, upper=60, missing=True),
        Date(name="left", lower="2020-01-01", upper="2024-12-31"),
        Real(name="rate", lower=0, upper=9, default=1),
        Boolean(name="long"),
    ),
    rules=(
        Rule("derive", "left - came", ("stay",)), Rule("derive", "log(stay - 30) / (stay - 40)", ("rate",)),
        Rule("derive", "stay > 30", ("long",)),
    ),
)  # fmt: skip
CELLS = st.sampled_from(
    ["2020-01-01", "2021-02-03", "2021-02-20", "2021-03-15", "2021-03-05", "", "x", "9999-12-31", "\ud800", "1e999"]
)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=8))
def test_a_row_is_encoded_as_if_it_were_alone(rows):
    came, left = zip(*rows, strict=True)
    together = DOMAIN.encode({"came": list(came), "left": list(left)})
    alone = [DOMAIN.encode({"came": [a], "left": [b]}) for a, b in rows]
    np.testing.assert_array_equal(together, np.vstack(alone))
    assert (together[:, 3] == 1).sum() >= np.isnan(together[:, 1]).sum()  # undefined: the default


FRAME = pd.DataFrame({"came": ["2021-02-03", "", "2022-01-01"] * 50, "left": ["2021-03-15", "2021-01-01", "2021-01-01"] * 50})


def test_the_table_need_not_have_a_derived_column_and_its_cells_are_not_read(tmp_path: Path):
    with_cells = FRAME.assign(stay="nonsense", rate=list(range(150)), long=["yes", "no", ""] * 50)
    FRAME.to_csv(tmp_path / "few.csv", index=False)
    with_cells.to_csv(tmp_path / "all.csv", index=False)
    with_cells.to_parquet(tmp_path / "all.parquet")
    few, *others = (list(open_private(tmp_path / name).encoded(DOMAIN)) for name in ("few.csv", "all.csv", "all.parquet"))
    for rows in others:
        np.testing.assert_array_equal(np.concatenate(rows), np.concatenate(few))


def test_the_type_of_a_derived_column_of_the_table_does_not_matter(tmp_path: Path):
    """Parquet columns of nested cells are refused by their type; a derived one is not read."""
    FRAME.assign(stay=[[1, 2]] * 150).to_parquet(tmp_path / "nested.parquet")
    rows = open_private(tmp_path / "nested.parquet")
    assert rows.check_columns(DOMAIN) == []
    assert sum(map(len, rows.encoded(DOMAIN))) == 150


def test_a_column_that_others_are_derived_from_is_needed():
    with pytest.raises(release_side.DomainError, match='lacks "came"'):
        release_side.publish(FRAME.drop(columns="came"), DOMAIN, epsilon=1, delta=1e-6, rehearsal=1)
