"""Combinations: texts, cyclic columns, units, drawn tables, families of features and functions, each with the others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file import FileRefused
from kmeanalyst.releases.file.measurement import binning, maclaurin
from kmeanalyst.releases.function import function_of
from kmeanalyst.releases.statement import REPLACE_UNIT, StatementError
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import PublishError

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
CODE = Text(name="code", length=6, alphabet="ACGT")
LAB, MASS = Categorical(name="lab", levels=("basel", "bern")), Real(name="mass", lower=0, upper=10)
TEXTS = Domain((CODE, LAB, MASS))
HOUR = Cyclic(name="hour", lower=0, upper=24)
SMALL = Domain((Integer(name="x", lower=0, upper=3), Boolean(name="ill")))


def text_rows(n: int, seed: int) -> pd.DataFrame:
    return TEXTS.decode(TEXTS.draw(n, seed))


def small_rows(n: int) -> pd.DataFrame:
    x = np.random.default_rng(0).integers(0, 4, n)
    return pd.DataFrame({"x": x, "ill": x > 1})


@pytest.fixture(scope="module")
def strings() -> ka.Release:
    return release_side.publish(text_rows(300, 0), TEXTS, method="subspace", public_points=text_rows(60, 1), **BUDGET)


@pytest.fixture(scope="module")
def drawn() -> ka.Release:
    return release_side.publish(small_rows(400), SMALL, epsilon=50.0, delta=0.0, method="exponential", points=6, weak=True)


def test_models_leave_texts_out_and_refuse_them_by_name(strings: ka.Release):
    model = ka.fit(LogisticRegression(), strings, "lab")
    assert model.report is not None
    assert (model.report.columns, model.report.labels) == (("mass",), "released")
    with pytest.raises(ValueError, match=r"code is a column of texts, which no feature is made of.*Leave it out"):
        ka.fit(LogisticRegression(), strings, "lab", columns=["code", "mass"])
    with pytest.raises(ValueError, match=r"code .*a classifier needs classes. Derive a condition first"):
        ka.fit(LogisticRegression(), strings, "code")
    with pytest.raises(ValueError, match=r"code .*a regression needs numbers"):
        ka.fit(Ridge(), strings, "code")
    few = ka.from_frame(strings.to_frame()[["code", "lab", "weight"]], domain=Domain((CODE, LAB)))
    with pytest.raises(ValueError, match=r"all other columns are texts \(code\).*Derive a condition first"):
        ka.fit(LogisticRegression(), few, "lab")


def test_a_condition_on_a_text_is_a_column_to_learn_from(strings: ka.Release):
    text = str(strings.to_frame()["code"].iloc[0])
    model = ka.fit(DecisionTreeClassifier(), strings.transform({"known": f"code == '{text}'"}), "lab")
    assert model.report is not None and model.report.columns == ("mass", "known")
    assert len(model.predict(text_rows(5, 2))) == 5


@pytest.mark.parametrize("encoding", ["onehot", "cells", "codes"])
def test_the_encoder_makes_no_feature_of_texts(encoding: Any):
    encoder = DomainEncoder(TEXTS.to_dict(), encoding=encoding)
    for ask in (lambda: encoder.transform(text_rows(3, 0)), encoder.get_feature_names_out):
        with pytest.raises(DomainError, match="code is a column of texts, which no feature is made of"):
            ask()


def test_the_natural_encoding_leaves_texts_as_they_are():
    frame = text_rows(4, 0)
    assert list(DomainEncoder(TEXTS.to_dict(), encoding="natural").transform(frame)["code"]) == list(frame["code"])


def test_functions_refuse_texts():
    for kind, target in (("density", None), ("logistic", "lab"), ("ridge", "mass")):
        with pytest.raises(PublishError, match="code is a column of texts, and functions are released of numbers"):
            release_side.publish_function(text_rows(50, 0), TEXTS, kind=kind, target=target, **BUDGET)


def test_rows_with_texts_are_drawn_from_a_grid_and_from_nothing_else(tmp_path):
    grid = text_rows(12, 3)
    options: dict[str, Any] = {"epsilon": 5.0, "delta": 0.0, "method": "exponential"}
    release = release_side.publish(text_rows(100, 0), TEXTS, public_points=grid, points=2, **options, output=tmp_path / "drawn.kme")
    assert set(release.to_frame()["code"]) <= set(grid["code"])
    assert ka.read_release(tmp_path / "drawn.kme").statement == release.statement
    with pytest.raises(PublishError, match=r"code is a column of texts.*Name public points"):
        release_side.publish(text_rows(100, 0), TEXTS, points=2, **options)


@pytest.mark.parametrize("family", [binning, maclaurin])
def test_no_file_has_strings_in_families_of_numbers(family: Any):
    names = {binning: "widths", maclaurin: "signs"}
    with pytest.raises(FileRefused, match=r"strings have no .* features, as in column 'code'"):
        family(Gaussian(1.0), TEXTS, {names[family]: np.zeros((3, 1))})


def test_an_hour_is_a_feature_within_its_bounds_and_wraps():
    encoder = DomainEncoder([HOUR.to_dict()])
    assert encoder.transform(pd.DataFrame({"hour": [0.0, 6.0, 25.0]}))["hour"].tolist() == [0, 0.25, 1 / 24]


@pytest.mark.parametrize("family", ["fourier", "binning"])
@pytest.mark.slow(but="fourier")
@pytest.mark.usefixtures("rough_representation")
def test_points_of_cyclic_columns_stay_on_the_circle_in_every_family(family: str):
    domain = Domain((HOUR, MASS))
    frame = domain.decode(domain.draw(500, 0))
    kernel = "table" if family == "fourier" else "laplacian:lengthscale=3"
    release = release_side.publish(frame, domain, family=family, kernel=kernel, points=40, features=200, **BUDGET)
    assert (release.to_frame()["hour"] >= 0).all() and (release.to_frame()["hour"] < 24).all()


def test_a_draw_has_no_units_and_no_family():
    frame = small_rows(50).assign(person=[str(i // 2) for i in range(50)])
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 0.0, "method": "exponential", "points": 2}
    with pytest.raises(PublishError, match=r"unit protects units.*counts single rows. Leave it out"):
        release_side.publish(frame, SMALL, unit="person", **options)
    with pytest.raises(PublishError, match="family does not go with the exponential mechanism"):
        release_side.publish(frame, SMALL, family="fourier", **options)


def test_a_drawn_table_protects_rows_and_not_units(drawn: ka.Release):
    assert drawn.statement is not None
    with pytest.raises(StatementError, match="neighbouring must be one of"):
        replace(drawn.statement, neighbouring=REPLACE_UNIT)


def test_models_learn_from_drawn_rows_and_inherit_their_guarantee(drawn: ka.Release):
    model = ka.fit(LogisticRegression(), drawn, "ill")
    report = model.report
    assert report is not None and (report.labels, report.epsilon, report.delta) == ("released", 50.0, 0.0)
    assert list(model.predict(pd.DataFrame({"x": [0, 3]}))) == [False, True]
    answer = ka.score(model, drawn.replaced(weights=np.linspace(0.5, 1.5, len(drawn)) / len(drawn)), "accuracy")
    assert 0 <= answer.value <= 1 and any("exponential mechanism" in note for note in answer.notes)
    with pytest.raises(ValueError, match="exponential mechanism drew"):
        ka.fit(LogisticRegression(), drawn, "ill", view="fitted")
    with pytest.raises(ValueError, match='cannot be "smoothed" here: there is no measurement'):
        ka.fit(LogisticRegression(), drawn, "ill", labels="smoothed")


def test_a_model_of_a_release_of_units_has_its_guarantee(rough_representation):
    frame = small_rows(120).assign(person=[str(i // 3) for i in range(120)])
    options = BUDGET | {"unit": "person", "rehearsal": 0}  # fresh noise may leave one class of ten points
    release = release_side.publish(frame, SMALL, points=10, features=60, **options)
    model = ka.fit(LogisticRegression(), release, "ill")
    assert model.report is not None and model.report.epsilon == 1.0


def test_a_function_protects_no_units():
    domain = Domain((Real(name="x", lower=0, upper=1),))
    function = release_side.publish_function(domain.decode(domain.draw(50, 0)), domain, kind="density", **BUDGET)
    fields: dict[str, Any] = {
        "form": function.form, "domain": function.domain, "basis": function.basis, "noisy_sum": function.noisy_sum
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"protects single rows.*replace-one-unit"):
        function_of(**fields, statement=replace(function.statement, neighbouring=REPLACE_UNIT, unit="person"))


def test_persons_have_texts_and_share_no_ledger_with_functions(tmp_path):
    book = tmp_path / "budget.ledger"
    Ledger(book).init("codes", 5.0, 1e-5)
    counted: dict[str, Any] = {"ledger": book, "table": "codes"}
    frame = text_rows(90, 0).assign(person=[str(i // 3) for i in range(90)])
    release = release_side.publish(
        frame, TEXTS, unit="person", method="subspace", public_points=text_rows(20, 1), **BUDGET, **counted
    )
    assert release.statement is not None and (release.statement.n_rows, release.statement.counted) == (
        30, "units of 'person'",
    )  # fmt: skip
    with pytest.raises(PublishError, match="person"):
        release_side.publish_function(frame, Domain((MASS,)), kind="density", **BUDGET, **counted)
    assert len(Ledger(book).account("codes").releases) == 1
