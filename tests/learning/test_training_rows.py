"""Which rows and columns a model learns from, and with what weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every
from learning_cases import DOMAIN, UNSEEN, measured, table, weighted
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

import kmeanalyst as ka
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.learning.rows.training_rows import effective_size, target_of, training_rows
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.rules.rule import Rule


def test_weights_sum_to_the_effective_size_of_the_points():
    weights = np.concatenate([np.full(100, 3.0), np.full(100, 1.0)])
    release = weighted(table(200, 0), weights)
    model = ka.fit(Ridge(), release, "cost")
    assert model.report.effective_rows == pytest.approx(400**2 / (100 * 9 + 100))
    assert ka.fit(Ridge(), release, "cost", effective_rows=50).report.effective_rows == 50
    data = release.to_sklearn("cost")
    assert data.sample_weight.sum() == pytest.approx(effective_size(weights))
    assert len(ka.fit(KNeighborsClassifier(), release, "risk", effective_rows=30)["model"]._fit_X) == 30


@every("view", ["signed", "probability"])
def test_a_constant_factor_and_rows_of_weight_zero_change_no_bit_of_the_weights(view: Any):
    frame, weights = table(120, 0), np.random.default_rng(1).normal(1, 0.6, 120)
    first = weighted(frame, weights).to_sklearn("risk", view=view).sample_weight
    more = pd.concat([frame.iloc[:7], frame], ignore_index=True)
    for factor in (-3.0, 1e12, 1e-12, 0.1):
        release = weighted(more, np.concatenate([np.zeros(7), factor * weights]))
        assert (release.to_sklearn("risk", view=view).sample_weight == first).all()


def test_rows_too_light_to_count_are_left_out():
    i = np.arange(120)
    release = weighted(table(120, 0), np.where(i == 0, 1e14, np.where(i < 40, 1e13, 1.0)))
    data = release.to_sklearn("risk", view="signed")
    assert len(data.X) == len(data.y) == len(data.sample_weight) == 40 and data.sample_weight.min() > 0


def test_counts_as_weights_have_the_probability_view_of_their_shares():
    counts = np.arange(1, 301)
    np.testing.assert_allclose(weighted(table(300, 0), counts).to_frame("probability")["weight"], counts / counts.sum())


def test_rows_without_a_target_are_left_out_with_a_note():
    domain = Domain((DOMAIN["a"], Real(name="y", lower=-10, upper=10, missing=True)))
    rows = pd.DataFrame({"a": np.linspace(-3, 3, 100)})
    rows["y"] = np.where(np.arange(100) < 25, np.nan, 2 * rows["a"])
    model = ka.fit(LinearRegression(), weighted(rows, domain=domain), "y")
    assert model.report.rows == 75 and "0.25 of the population" in model.report.notes[0]
    np.testing.assert_allclose(model.predict(rows), 2 * rows["a"], atol=1e-9)


def test_to_sklearn_gives_features_target_and_weights():
    release = measured()
    X, y, weight = release.to_sklearn("risk")
    assert list(X) == ["a", "n", "city=Zug", "city=Bern", "city=Basel", "smokes", "cost"]
    assert set(y) == {"low", "high"} and weight.min() > 0 and weight.sum() == pytest.approx(200)
    LogisticRegression().fit(X, y, sample_weight=weight)
    assert list(release.to_sklearn("cost", columns=["city"], encoding="natural").X) == ["city"]
    assert len(release.to_sklearn("risk", view="resampled", effective_rows=50).y) == 50
    goal = target_of(release, "cost")
    assert training_rows(release, goal, "fitted").frame.shape[0] > 1000


def test_a_column_is_not_predicted_from_its_sources_or_from_what_is_computed_from_them():
    release = weighted(table(200, 0)).transform(
        {"dear": "cost > 8", "double": "2 * a", "very": "cost + 1", "bern": "city == 'Bern'", "hint": "a * (bern == true)"}
    )
    for estimator, target in ((LogisticRegression(), "dear"), (Ridge(), "cost")):
        assert ka.fit(estimator, release, target).report.columns == (
            "a", "n", "city", "smokes", "risk", "double", "bern", "hint",
        )  # fmt: skip
    for columns, message in ((["a", "cost"], "is the target"), (["a", "colour"], "columns must be a list")):
        with pytest.raises(ValueError, match=message):
            ka.fit(Ridge(), release, "cost", columns=columns)
    for name in ("bern", "hint"):
        with pytest.raises(ValueError, match=f"{name} is computed from city, the target"):
            ka.fit(LogisticRegression(), release, "city", columns=["a", name])


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


def test_columns_that_a_rule_derives_are_computed_where_a_frame_lacks_them():
    domain = Domain((*DOMAIN.columns, Real(name="sum", lower=-20, upper=40)), rules=(Rule("derive", "a + n", ("sum",)),))
    frame = table(200, 0)
    release = weighted(frame.assign(sum=frame["a"] + frame["n"]), domain=domain).transform({"twice": "2 * sum"})
    model = ka.fit(Ridge(), release, "cost", columns=["city", "sum", "twice"])
    both = UNSEEN.assign(sum=UNSEEN["a"] + UNSEEN["n"], twice=2 * (UNSEEN["a"] + UNSEEN["n"]))
    np.testing.assert_allclose(model.predict(UNSEEN), model.predict(both))
    assert ka.score(model, UNSEEN).value == pytest.approx(ka.score(model, both).value)
    assert ka.fit(Ridge(), release, "sum").report.columns == ("city", "smokes", "risk", "cost")  # none that tells it
    with pytest.raises(ValueError, match="sum is computed from a, the target"):
        ka.fit(Ridge(), release, "a", columns=["sum"])
