"""Columns as features: by the domain alone, with names of their own, whatever the rows are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every
from learning_cases import DOMAIN, UNSEEN, table, weighted
from sklearn.linear_model import LogisticRegression, Ridge

import kmeanalyst as ka
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real


def test_features_come_from_the_domain_and_not_from_the_rows():
    domain = Domain((
        Real(name="x", lower=0, upper=10, missing=True),
        Date(name="day", lower="2020-01-01", upper="2020-01-11"),
        Ordinal(name="size", levels=("S", "M", "L")),
        Categorical(name="two", levels=("u", "v")),
        Categorical(name="city", levels=("Zug", "Bern", "Basel"), missing=True),
        Boolean(name="yes"),
    ))  # fmt: skip
    frame = pd.DataFrame({
        "x": [5, None], "day": ["2020-01-02", "2020-01-11"], "size": ["L", "M"], "two": ["v", "u"],
        "city": ["Bern", None], "yes": [True, False],
    })  # fmt: skip
    marked = DomainEncoder(domain.to_dict()).transform(frame)
    expected = {
        "x": [0.5, 0.5], "x missing": [0, 1], "day": [0.1, 1], "size": [1, 0.5], "two=v": [1, 0], "city=Zug": [0, 0],
        "city=Bern": [1, 0], "city=Basel": [0, 0], "city missing": [0, 1], "yes": [1, 0],
    }  # fmt: skip
    pd.testing.assert_frame_equal(marked, pd.DataFrame(expected, dtype=float))
    coded = DomainEncoder(domain.to_dict(), encoding="codes", missing="nan").transform(frame)
    assert coded.iloc[1].isna().tolist() == [True, False, False, False, True, False]
    assert coded.iloc[0].tolist() == [0.5, 0.1, 2, 1, 1, 1]
    assert DomainEncoder(domain.to_dict(), encoding="codes").transform(frame)["city"].tolist() == [1, 3]


@every(
    ("column", "cells", "names", "expected"),
    [
        (DOMAIN["n"], [0, 2, 3, 6, 9], ["n", "n in 0..3", "n in 3..6", "n in 6..9", "n=0"], [3, 0, 1, 2, 2]),
        (
            Integer(name="n", lower=0, upper=3000000, edges=(1234561, 1234562, 1234563)), [5, 1234561, 1234562, 1234563],
            ["n", "n in 0..1234561", "n in 1234561..1234562", "n in 1234562..1234563", "n in 1234563..3000000"],
            [0, 1, 2, 3],
        ),
    ],
)  # fmt: skip
def test_cells_follow_public_edges_and_atoms(column: Any, cells: list[int], names: list[str], expected: list[int]):
    encoder = DomainEncoder([column.to_dict()], encoding="cells")
    frame = encoder.transform(pd.DataFrame({"n": cells}))
    assert list(frame) == names == encoder.get_feature_names_out().tolist()
    assert (frame.iloc[:, 1:] == np.eye(len(names) - 1)[expected]).all(axis=None)


def test_columns_whose_features_would_share_a_name_keep_all_features():
    columns = [Real(name="a", lower=0, upper=1, missing=True), Boolean(name="a missing")]
    encoder = DomainEncoder([column.to_dict() for column in columns])
    features = encoder.transform(pd.DataFrame({"a": [0.25, np.nan], "a missing": [True, False]}))
    assert features.to_numpy().tolist() == [[0.25, 0, 1], [0.5, 1, 0]]
    assert list(features.columns) == list(encoder.get_feature_names_out())


def test_a_warning_counts_cells_that_are_no_values_of_their_column():
    model = ka.fit(LogisticRegression(), weighted(table(100, 0)), "risk")
    odd = UNSEEN.assign(city=["Atlantis", *UNSEEN["city"][1:]], n=np.append(77, UNSEEN["n"][1:]))
    with pytest.warns(UserWarning, match=r"n: 1 of 300 values were outside.*city: 1 of 300 cells had no value"):
        model.predict(odd)
    with pytest.raises(ValueError, match='lacks "city"'):
        model.predict(UNSEEN.drop(columns="city"))
    np.testing.assert_array_equal(model.predict(UNSEEN.assign(other=1)[["other", *UNSEEN]]), model.predict(UNSEEN))


def test_derived_columns_are_computed_where_a_frame_lacks_them():
    release = weighted(table(200, 0)).transform({"double": "2 * a", "again": "double + n"})
    model = ka.fit(Ridge(), release, "cost", columns=["city", "again"])
    bare = model.predict(UNSEEN)
    np.testing.assert_allclose(bare, model.predict(UNSEEN.assign(again=2 * UNSEEN["a"] + UNSEEN["n"])))
    assert np.abs(bare - model.predict(UNSEEN.assign(again=3.0))).max() > 0.1
