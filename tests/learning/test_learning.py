"""ka.fit: which rows and weights a model learns from, what it predicts, and what it refuses."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import all_estimators

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.learning.rows.labels import measured_labels, measured_model
from kmeanalyst.learning.rows.training_rows import effective_size, target_of, training_rows
from kmeanalyst.learning.training.training import UnsoundWeights
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.measurement import Measurement, feature_mean
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.redraw import redraw
from release_side import publish

DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3),
    Integer(name="n", lower=0, upper=9, edges=(3, 6), atoms=(0,)),
    Categorical(name="city", levels=("Zug", "Bern", "Basel")),
    Boolean(name="smokes"),
    Categorical(name="risk", levels=("low", "high")),
    Real(name="cost", lower=0, upper=40),
))  # fmt: skip
N = 5_000


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, count, city = rng.normal(size=n).clip(-3, 3), rng.integers(0, 10, n), rng.integers(0, 3, n)
    smokes = rng.random(n) < 0.4
    z = 1.5 * a + 0.3 * (count - 4.5) + np.where(city == 0, 1.0, -0.5)
    risk = np.where(rng.random(n) < 1 / (1 + np.exp(-z)), "high", "low")
    cost = (8 + 2 * a + count + 3 * smokes + rng.normal(size=n)).clip(0.1, 40)
    names = np.array(["Zug", "Bern", "Basel"])[city]
    return pd.DataFrame({"a": a, "n": count, "city": names, "smokes": smokes, "risk": risk, "cost": cost})


UNSEEN = table(300, 9)


def weighted(frame: pd.DataFrame, weights: Any, domain: Domain = DOMAIN) -> Release:
    return from_frame(frame.assign(weight=weights), domain=domain)


def signed(seed: int = 0, n: int = 150) -> tuple[Release, Release]:
    """A release with positive weights, and one of the same measure: rows that cancel, and rows in two parts of both signs."""
    rows, junk = table(n, seed), table(40, seed + 1)
    weights = np.random.default_rng(seed).uniform(0.5, 2, n)
    split = rows.iloc[:30]
    more = pd.concat([rows, junk, junk, split], ignore_index=True)
    parts = np.concatenate([weights, np.full(40, 0.7), np.full(40, -0.7), -weights[:30]])
    parts[:30] *= 2
    return weighted(rows, weights / weights.sum()), weighted(more, parts / weights.sum())


def said(model: Any, frame: pd.DataFrame = UNSEEN) -> np.ndarray:
    if hasattr(model, "predict_proba"):
        return model.predict_proba(frame)
    return model.decision_function(frame) if hasattr(model, "decision_function") else np.ravel(model.predict(frame))


def measured(noise: float = 2e-4, seed: int = 0, domain: Domain = DOMAIN, method: str = "random-features") -> Release:
    """A release of random features around a measurement of N rows, its points in no relation to their labels."""
    rng = np.random.default_rng(seed)
    feature_map = RandomFourier.draw(table_kernel(domain), n_columns=len(domain), dimension=400, rng=1)
    vector = feature_mean(feature_map, domain.encode(table(N, 10))) + noise * rng.normal(size=400)
    measurement = Measurement(
        vector=vector, noise_scale=noise, noise_law="discrete gaussian", n_rows=N, feature_map=feature_map,
        noisy_sum=np.zeros(400, dtype=np.int64),
    )  # fmt: skip
    statement = PrivacyStatement(
        epsilon=1.0, delta=1e-6, neighbouring="replace-one", mechanism="discrete gaussian", sensitivity=2 / N,
        noise_scale=noise, calibration="analytic", rho=0.5 * (2 / N / noise) ** 2, n_rows=N,
    )  # fmt: skip
    points = table(200, 20 + seed)
    for name in ("risk", "cost"):
        points[name] = rng.permutation(points[name].to_numpy())
    return Release(
        points=domain.decode(domain.encode(points)), weights=np.full(200, 1 / 200), measurement=measurement,
        kernel=feature_map.kernel, domain=domain, statement=statement, method=method,
    )  # fmt: skip


@pytest.fixture(scope="module")
def release() -> Release:
    return measured()


# ---------------------------------------------------------------- no model is silently wrong

NOT_ALONE = {
    "ClassifierChain", "FixedThresholdClassifier", "MultiOutputClassifier", "OneVsOneClassifier", "OneVsRestClassifier",
    "OutputCodeClassifier", "StackingClassifier", "TunedThresholdClassifierCV", "VotingClassifier", "MultiOutputRegressor",
    "RegressorChain", "StackingRegressor", "VotingRegressor", "SelfTrainingClassifier", "FrozenEstimator",
}  # fmt: skip
KINDS = [(name, kind) for name, kind in all_estimators(["classifier", "regressor"]) if name not in NOT_ALONE]
WITH: dict[str, dict[str, Any]] = {
    "MLPClassifier": {"solver": "lbfgs", "alpha": 1.0, "hidden_layer_sizes": 10},
    "MLPRegressor": {"solver": "lbfgs", "alpha": 1.0, "hidden_layer_sizes": 10},
    "RadiusNeighborsClassifier": {"radius": 1.5},
    "RadiusNeighborsRegressor": {"radius": 1.5},
    "IsotonicRegression": {"out_of_bounds": "clip"},
    "RANSACRegressor": {"min_samples": 20},
}
COLUMNS = {"CategoricalNB": ["city", "smokes"], "IsotonicRegression": ["a"]}
REFUSED = {  # by scikit-learn itself: several targets, more components than targets, more columns than ranks
    "CCA", "MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "PLSCanonical",
    "QuadraticDiscriminantAnalysis",
}  # fmt: skip

EXACT = {
    "BernoulliNB", "CategoricalNB", "ComplementNB", "DummyClassifier", "DummyRegressor", "GammaRegressor", "GaussianNB",
    "HuberRegressor", "LogisticRegression", "MultinomialNB", "PoissonRegressor", "TweedieRegressor",
}  # fmt: skip
CONSTANT = {  # or nearly so, by their defaults, on private rows as well
    "DummyClassifier", "DummyRegressor", "GammaRegressor", "QuantileRegressor", "GaussianProcessRegressor",
    "IsotonicRegression", "CategoricalNB", "Lasso", "LassoLars", "OrthogonalMatchingPursuit",
}  # fmt: skip


def fitted(name: str, kind: Any, release: Release) -> tuple[Any, str]:
    """A small model of the release, and its target."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations cut short, and of classes that scikit-learn retires
        estimator = kind(**WITH.get(name, {}))
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=0)
        target = "risk" if is_classifier(estimator) else "cost"
        return ka.fit(estimator, release, target, columns=COLUMNS.get(name)), target


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=[name for name, _ in KINDS])
@pytest.mark.slow(but="MultiTaskElasticNet")
def test_no_model_sees_how_a_measure_is_written(name: str, kind: Any):
    """Rows that cancel, rows in parts of both signs, zero weights, another unit: the same model, or the same refusal."""
    plain, written = signed()
    rows, weights = written.to_frame().drop(columns="weight"), written.weights
    padded = pd.concat([table(20, 3), rows], ignore_index=True)
    unit = weighted(padded, -321.7 * np.append(np.zeros(20), weights))
    if name in REFUSED:
        for each in (plain, written, unit):
            with pytest.raises(ValueError, match=r"mono-task|n_components|full rank"):
                fitted(name, kind, each)
        return
    (one, _), (other, _), (third, _) = (fitted(name, kind, each) for each in (plain, written, unit))
    scale = max(1.0, float(np.abs(said(one)).max()))
    np.testing.assert_allclose(said(other), said(one), rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(said(third), said(one), rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(
    ("name", "kind"), [k for k in KINDS if k[0] not in REFUSED], ids=lambda k: k if isinstance(k, str) else ""
)
@pytest.mark.slow(but="Lars-")
def test_no_model_of_weights_that_are_really_signed_is_nonsense(name: str, kind: Any):
    rows, rng = table(400, 5), np.random.default_rng(0)
    release = weighted(rows, rng.normal(1, 1, 400))  # a sixth of them negative
    model, target = fitted(name, kind, release)
    exact = model.report.support == "exact"
    assert exact == (name in EXACT)
    assert model.report.view in (("signed",) if exact else ("probability", "resampled"))
    answers = said(model)
    assert np.isfinite(answers).all()
    if name in CONSTANT:
        return
    if target == "cost":
        assert np.corrcoef(np.ravel(answers), UNSEEN["cost"])[0, 1] > 0.5
        return
    if hasattr(model, "predict_proba"):
        assert answers.min() >= 0 and answers.max() <= 1
    high = answers[:, list(model.classes_).index("high")] if answers.ndim == 2 else -answers  # of "low", the second
    assert roc_auc_score(UNSEEN["risk"] == "high", high) > 0.6


def test_exact_estimators_get_signed_weights_as_released():
    rows, rng = table(300, 2), np.random.default_rng(1)
    weights = rng.normal(1, 0.6, 300)
    model = ka.fit(LogisticRegression(), weighted(rows, weights), "risk", effective_rows=250)
    assert model.report.view == "signed"
    X = model["columns"].transform(rows)
    direct = LogisticRegression().fit(X, rows["risk"], sample_weight=weights / weights.sum() * 250)
    np.testing.assert_allclose(model["model"].coef_, direct.coef_, atol=1e-5)
    positive = LogisticRegression().fit(X, rows["risk"], sample_weight=np.maximum(weights, 0) / weights.sum() * 250)
    assert np.abs(direct.coef_ - positive.coef_).max() > 0.02  # leaving the negative ones out would show


def test_signed_weights_without_a_sound_problem_give_way_to_probabilities_and_it_says_so():
    rows = table(200, 2)
    weights = np.where(rows["city"] == "Zug", -1.0, 1.0)  # a level of negative mass
    release = weighted(rows, weights)
    model = ka.fit(LogisticRegression(), release, "risk")
    assert model.report.view == "probability"
    assert "second moments" in model.report.why
    with pytest.raises(UnsoundWeights, match=r'second moments.*view="probability"'):
        ka.fit(LogisticRegression(), release, "risk", view="signed")
    with pytest.raises(UnsoundWeights, match="of high have weights that sum to -"):
        ka.fit(GaussianNB(), weighted(rows, np.where(rows["risk"] == "high", -1.0, 3.0)), "risk", view="signed")


def test_a_view_that_would_give_a_wrong_model_is_refused_with_the_mend():
    rows = table(100, 2)
    release = weighted(rows, np.random.default_rng(0).normal(1, 1, 100))
    with pytest.raises(ValueError, match=r'wrong model.*"probability"'):
        ka.fit(LinearSVC(), release, "risk", view="signed")
    with pytest.raises(ValueError, match=r'wrong model.*view="resampled"'):
        ka.fit(KNeighborsClassifier(), release, "risk", view="probability")
    with pytest.raises(ValueError, match="view must be one of signed"):
        ka.fit(LogisticRegression(), release, "risk", view="raw")


# ---------------------------------------------------------------- weights and their size


def test_weights_sum_to_what_the_points_are_worth():
    weights = np.concatenate([np.full(100, 3.0), np.full(100, 1.0)])
    release = weighted(table(200, 0), weights)
    model = ka.fit(Ridge(), release, "cost")
    assert model.report.effective_rows == pytest.approx(400**2 / (100 * 9 + 100))
    assert ka.fit(Ridge(), release, "cost", effective_rows=50).report.effective_rows == 50
    data = release.to_sklearn("cost")
    assert data.sample_weight.sum() == pytest.approx(effective_size(weights))
    assert len(ka.fit(KNeighborsClassifier(), release, "risk", effective_rows=30)["model"]._fit_X) == 30


def test_penalties_are_weighed_against_the_effective_rows():
    release = weighted(table(200, 0), np.full(200, 1 / 200))
    small, large = (
        np.abs(ka.fit(LogisticRegression(), release, "risk", effective_rows=rows)["model"].coef_).max()
        for rows in (1, 200)
    )
    assert small < 0.2 * large  # weights that sum to one leave hardly anything but the penalty


def test_weights_reach_the_estimators_inside_a_search_and_its_scores():
    class Weighed(ClassifierMixin, BaseEstimator):
        """Predicts one class, and is right by the weight that class has."""

        seen: list[float] = []  # noqa: RUF012

        def __init__(self, guess: str = "low") -> None:
            self.guess = guess

        def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
            self.classes_ = np.unique(y)
            Weighed.seen.append(0.0 if sample_weight is None else float(np.ptp(sample_weight)))
            return self

        def predict(self, X: Any) -> Any:
            return np.full(len(X), self.guess, dtype=object)

    rows = table(300, 0)
    release = weighted(
        rows, np.where(rows["risk"] == "high", 9.0, 1.0)
    )  # few weigh as much as they do by weights alone
    rare = (rows["risk"] == "high").mean()
    search = GridSearchCV(Weighed(), {"guess": ["low", "high"]}, scoring="accuracy", cv=3)
    model = ka.fit(search, release, "risk", view="probability")
    assert 0.3 < rare < 0.7 and model["model"].best_params_ == {"guess": "high"}
    assert model["model"].best_score_ == pytest.approx(9 * rare / (9 * rare + 1 - rare), abs=0.02)
    assert Weighed.seen[-1] > 0
    piped = ka.fit(make_pipeline(StandardScaler(), LogisticRegression()), release, "risk")
    mean = np.average(piped["columns"].transform(rows)["a"], weights=release.weights)
    assert piped["model"]["standardscaler"].mean_[0] == pytest.approx(mean)


# ---------------------------------------------------------------- columns


def test_a_column_is_not_predicted_from_what_it_is_made_of_or_from_what_is_made_of_it():
    release = weighted(table(200, 0), np.full(200, 1 / 200)).transform(
        {"dear": "cost > 8", "double": "2 * a", "very": "cost + 1"}
    )
    assert ka.fit(LogisticRegression(), release, "dear").report.columns == (
        "a",
        "n",
        "city",
        "smokes",
        "risk",
        "double",
    )
    assert ka.fit(Ridge(), release, "cost").report.columns == ("a", "n", "city", "smokes", "risk", "double")
    with pytest.raises(ValueError, match="is the target"):
        ka.fit(Ridge(), release, "cost", columns=["a", "cost"])
    with pytest.raises(ValueError, match="columns must be a list"):
        ka.fit(Ridge(), release, "cost", columns=["a", "colour"])


def test_derived_columns_are_computed_where_a_frame_lacks_them():
    release = weighted(table(200, 0), np.full(200, 1 / 200)).transform({"double": "2 * a", "again": "double + n"})
    model = ka.fit(Ridge(), release, "cost", columns=["city", "again"])
    bare = model.predict(UNSEEN)
    np.testing.assert_allclose(bare, model.predict(UNSEEN.assign(again=2 * UNSEEN["a"] + UNSEEN["n"])))
    assert np.abs(bare - model.predict(UNSEEN.assign(again=3.0))).max() > 0.1


def test_features_are_of_the_domain_and_not_of_the_rows():
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


def test_cells_follow_public_edges_and_atoms():
    encoder = DomainEncoder([DOMAIN["n"].to_dict()], encoding="cells")
    frame = encoder.transform(pd.DataFrame({"n": [0, 2, 3, 6, 9]}))
    assert (
        list(frame) == ["n", "n in 0..3", "n in 3..6", "n in 6..9", "n=0"] == encoder.get_feature_names_out().tolist()
    )
    assert frame.iloc[:, 1:].to_numpy().argmax(axis=1).tolist() == [3, 0, 1, 2, 2]
    assert (frame.iloc[:, 1:].sum(axis=1) == 1).all()


def test_cells_that_are_no_values_of_their_column_are_warned_of():
    model = ka.fit(LogisticRegression(), weighted(table(100, 0), np.full(100, 1.0)), "risk")
    odd = UNSEEN.assign(city=["Atlantis", *UNSEEN["city"][1:]], n=np.append(77, UNSEEN["n"][1:]))
    with pytest.warns(UserWarning, match=r"n: 1 of 300 values were outside.*city: 1 of 300 cells had no value"):
        model.predict(odd)
    with pytest.raises(ValueError, match='lacks "city"'):
        model.predict(UNSEEN.drop(columns="city"))
    np.testing.assert_array_equal(model.predict(UNSEEN.assign(other=1)[["other", *UNSEEN]]), model.predict(UNSEEN))


def test_estimators_get_levels_as_they_like_them():
    release = weighted(table(200, 0), np.full(200, 1.0))
    columns = ["a", "city"]
    assert ka.fit(LogisticRegression(), release, "risk", columns=columns).report.encoding == "onehot"
    assert (
        ka.fit(make_pipeline(StandardScaler(), RandomForestClassifier(3)), release, "risk").report.encoding == "codes"
    )
    own = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"), LogisticRegression()
    )
    natural = ka.fit(own, release, "risk", columns=columns)
    assert natural.report.encoding == "natural" and natural.predict(UNSEEN).shape == (300,)
    assert list(natural["columns"].transform(UNSEEN)) == columns
    with pytest.raises(ValueError, match="CategoricalNB takes levels"):
        ka.fit(CategoricalNB(), release, "risk")


# ---------------------------------------------------------------- targets


def test_classes_are_all_the_levels_of_the_domain():
    domain = Domain((DOMAIN["a"], Categorical(name="grade", levels=("C", "A", "D", "B"))))
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=200).clip(-3, 3)})
    rows["grade"] = np.where(rows["a"] > 0.5, "A", np.where(rows["a"] < -0.5, "D", "C"))
    model = ka.fit(LogisticRegression(), weighted(rows, np.ones(200), domain), "grade")
    assert model.classes_.tolist() == ["A", "B", "C", "D"]
    chances = model.predict_proba(rows)
    assert chances.shape == (200, 4) and (chances[:, 1] == 0).all() and np.allclose(chances.sum(axis=1), 1)
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(rows)).all()
    assert (model.decision_function(rows)[:, 1] == -np.inf).all()
    assert "no row of B" in model.report.notes[0]
    two = rows[rows["grade"] != "C"]
    scores = ka.fit(LinearSVC(), weighted(two, np.ones(len(two)), domain), "grade").decision_function(rows)
    assert scores.shape == (200, 4)
    assert (np.array(["A", "B", "C", "D"])[scores.argmax(axis=1)] == np.where(rows["a"] > 0, "A", "D")).mean() > 0.9


@pytest.mark.parametrize(("target", "classes"), [("smokes", [False, True]), ("n", list(range(10)))])
def test_booleans_and_whole_numbers_are_classified_as_what_they_are(target: str, classes: list[Any]):
    model = ka.fit(GaussianNB(), weighted(table(400, 0), np.ones(400)), target)
    assert model.classes_.tolist() == classes
    assert set(model.predict(UNSEEN).tolist()) <= set(classes)


def test_targets_that_do_not_fit_are_refused_with_the_mend():
    release = weighted(table(100, 0), np.ones(100))
    with pytest.raises(ValueError, match=r"needs classes.*transform\(\{\"high\": \"cost"):
        ka.fit(LogisticRegression(), release, "cost")
    with pytest.raises(ValueError, match="a regression needs numbers"):
        ka.fit(LinearRegression(), release, "city")
    days = Domain((DOMAIN["a"], Date(name="day", lower="2020-01-01", upper="2020-12-31")))
    dated = weighted(table(100, 0).assign(day="2020-02-02"), np.ones(100), days)
    with pytest.raises(ValueError, match="no model predicts days"):
        ka.fit(LinearRegression(), dated, "day")
    with pytest.raises(ValueError, match="no column wages"):
        ka.fit(LinearRegression(), release, "wages")
    with pytest.raises(ValueError, match="learns to predict a column, and no target is named"):
        ka.fit(LinearRegression(), release)
    with pytest.raises(ValueError, match="no classes to separate"):
        ka.fit(LogisticRegression(), weighted(table(100, 0).assign(risk="low"), np.ones(100)), "risk")
    with pytest.raises(TypeError, match="an instance with a fit method"):
        ka.fit(LogisticRegression, release, "risk")


def test_rows_without_a_target_are_left_out_and_it_says_so():
    domain = Domain((DOMAIN["a"], Real(name="y", lower=-10, upper=10, missing=True)))
    rows = pd.DataFrame({"a": np.linspace(-3, 3, 100)})
    rows["y"] = np.where(np.arange(100) < 25, np.nan, 2 * rows["a"])
    model = ka.fit(LinearRegression(), weighted(rows, np.ones(100), domain), "y")
    assert model.report.rows == 75 and "0.25 of the population" in model.report.notes[0]
    np.testing.assert_allclose(model.predict(rows), 2 * rows["a"], atol=1e-9)


def test_a_sample_is_read_by_the_models_domain():
    rows = table(300, 0)
    model = ka.fit(GaussianNB(), weighted(rows, np.ones(300)).transform({"twice": "2 * a"}), "smokes")
    written = UNSEEN.assign(smokes=np.where(UNSEEN["smokes"], "yes", "no"), n=UNSEEN["n"].astype(str))
    assert model.domain.names == ("a", "n", "city", "risk", "cost", "twice", "smokes")
    assert ka.score(model, written, "accuracy").value == pytest.approx(
        (model.predict(UNSEEN) == UNSEEN["smokes"]).mean()
    )


def test_counts_as_weights_have_the_probability_view_of_their_shares():
    rows, counts = table(300, 0), np.arange(1, 301)
    release = weighted(rows, counts)
    np.testing.assert_allclose(release.view_weights("probability"), counts / counts.sum())


def test_estimators_that_need_no_target_need_none():
    model = ka.fit(KMeans(3, random_state=0, n_init=1), weighted(table(200, 0), np.ones(200)))
    assert model.target is None and model.predict(UNSEEN).max() <= 2
    with pytest.raises(AttributeError):
        _ = model.classes_


# ---------------------------------------------------------------- labels from the measurement
@pytest.mark.slow
def test_measured_labels_tell_what_the_points_do_not(release: Release):
    """The points' labels are shuffled; the measurement is of rows whose label depends on the other columns."""
    truth = UNSEEN["risk"] == "high"
    wanted = {LogisticRegression(): 0.8, DecisionTreeClassifier(random_state=0): 0.68, KNeighborsClassifier(): 0.66}
    for estimator, least in wanted.items():
        model = ka.fit(estimator, release, "risk")
        assert model.report.labels == "measured" and "measured" in str(model.report)
        assert roc_auc_score(truth, model.predict_proba(UNSEEN)[:, 0]) > least
        own = ka.fit(estimator, release, "risk", labels="released")
        assert roc_auc_score(truth, own.predict_proba(UNSEEN)[:, 0]) < 0.62
    assert ka.fit(Ridge(), release, "cost").report.labels == "drawn"
    for regressor, best in ((LinearRegression(), 0.85), (DecisionTreeRegressor(min_samples_leaf=20), 0.7)):
        model = ka.fit(regressor, release, "cost")
        assert np.corrcoef(model.predict(UNSEEN), UNSEEN["cost"])[0, 1] > best
    chance = ka.fit(Ridge(), release, "smokes", labels="measured")
    assert np.corrcoef(chance.predict(UNSEEN), UNSEEN["smokes"])[0, 1] > 0.2


def test_measured_labels_are_the_law_given_the_row(release: Release):
    frame = release.to_frame().drop(columns="weight")
    model = ka.fit_embedding(release, "risk")
    places, cells, chances = measured_labels(measured_model(release, "risk"), DOMAIN["risk"], "classification", frame)
    np.testing.assert_allclose(np.bincount(places, chances), 1)
    high = np.bincount(places, chances * (cells == "high"))
    np.testing.assert_allclose(high, model.predict_proba(frame)[:, list(model.classes_).index("high")], atol=1e-5)
    places, cells, chances = measured_labels(measured_model(release, "cost"), DOMAIN["cost"], "regression", frame)
    np.testing.assert_allclose(np.bincount(places, chances * cells), ka.fit_embedding(release, "cost").predict(frame))


def test_labels_that_cannot_be_measured_are_the_points_own_or_refused():
    foreign = weighted(table(100, 0), np.ones(100))
    assert ka.fit(GaussianNB(), foreign, "risk").report.labels == "released"
    with pytest.raises(ValueError, match=r'cannot be "measured" here: there is no measurement'):
        ka.fit(GaussianNB(), foreign, "risk", labels="measured")
    derived = measured().transform({"dear": "cost > 8"})
    assert ka.fit(GaussianNB(), derived, "dear").report.labels == "released"
    assert ka.fit(GaussianNB(), measured(method="subspace"), "risk").report.labels == "released"
    with pytest.raises(ValueError, match="labels must be one of drawn, measured, released"):
        ka.fit(GaussianNB(), foreign, "risk", labels="true")


# ---------------------------------------------------------------- noise drawn again
@pytest.mark.slow
def test_a_redrawn_release_has_the_noise_of_the_first(release: Release):
    first = release.measurement
    assert first is not None
    mean = feature_mean(first.feature_map, release.encoded_points, release.weights)
    drawn = [redraw(release, rng=seed) for seed in range(3)]
    noise = np.concatenate([one.measurement.vector - mean for one in drawn])  # type: ignore[union-attr]
    assert noise.std() == pytest.approx(first.noise_scale, rel=0.06)
    assert abs(noise.mean()) < 4 * first.noise_scale / np.sqrt(noise.size)
    assert len(drawn[0]) == len(release) and drawn[0].statement == release.statement
    wider = redraw(release, sampling=True, rng=0).measurement
    assert np.linalg.norm(wider.vector - mean) > 1.1 * np.linalg.norm(drawn[0].measurement.vector - mean)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="no noise that could be drawn again"):
        redraw(weighted(table(50, 0), np.ones(50)))


@pytest.mark.slow
def test_refits_spread_with_the_noise_and_know_their_release(release: Release):
    errors = []
    for noise in (2e-4, 2e-2):
        one = measured(noise)
        model = ka.fit(LogisticRegression(), one, "risk")
        refits = ka.refit(model, one, redraws=4)
        found = refits.predict(UNSEEN)
        np.testing.assert_array_equal(found["prediction"], model.predict_proba(UNSEEN)[:, -1])
        assert ((found["low"] <= found["prediction"]) & (found["prediction"] <= found["high"])).all()
        assert found["low"].min() >= 0 and found["high"].max() <= 1
        errors.append(found["standard_error"].mean())
    assert errors[1] > 1.7 * errors[0]
    scores = refits.score(UNSEEN, ["accuracy", "roc_auc"])
    np.testing.assert_allclose(scores["standard_error"] ** 2, scores["of_evaluation"] ** 2 + scores["of_training"] ** 2)
    assert scores.loc["accuracy", "value"] == ka.score(model, UNSEEN, "accuracy").value
    with pytest.raises(ValueError, match="trained on another release"):
        ka.refit(model, release)
    with pytest.raises(ValueError, match="redraws must be at least 2"):
        ka.refit(model, one, redraws=1)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "estimator",
    [LogisticRegression(), LinearDiscriminantAnalysis(), SVC(), Ridge(), GaussianNB()],
    ids=lambda e: type(e).__name__,
)
def test_a_model_comes_back_from_its_file(estimator: Any, tmp_path: Path):
    release = weighted(table(120, 0), np.ones(120)).transform({"double": "2 * a"})
    model = ka.fit(estimator, release, "risk" if is_classifier(estimator) else "cost")
    model.write(tmp_path / "model.skops")
    back = ka.read_model(tmp_path / "model.skops")
    np.testing.assert_array_equal(back.predict(UNSEEN), model.predict(UNSEEN))
    assert back.report == model.report and back.target == model.target
    assert is_classifier(estimator) == (back.levels_ is not None)


def test_types_that_could_do_harm_must_be_trusted_by_name(tmp_path: Path):
    model = ka.fit(RandomForestRegressor(2, random_state=0), weighted(table(60, 0), np.ones(60)), "cost")
    ka.write_model(model, tmp_path / "model.skops")
    with pytest.raises(ValueError, match=r"Tree.*pass trusted=\('sklearn.tree._tree.Tree',\)"):
        ka.read_model(tmp_path / "model.skops")
    back = ka.read_model(tmp_path / "model.skops", trusted=("sklearn.tree._tree.Tree",))
    np.testing.assert_array_equal(back.predict(UNSEEN), model.predict(UNSEEN))


class Bomb:
    """What a pickle would run."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


def test_files_that_are_no_models_are_refused_and_nothing_is_run(tmp_path: Path):
    (tmp_path / "pickle.skops").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "text.skops").write_text("model")
    with zipfile.ZipFile(tmp_path / "zip.skops", "w") as archive:
        archive.writestr("schema.json", "{}")
    for name in ("pickle", "text", "zip"):
        with pytest.raises(ValueError, match="is not a model file"):
            ka.read_model(tmp_path / f"{name}.skops")
    with pytest.raises(ValueError, match=r"Name model\.skops"):
        ka.write_model(ka.fit(Ridge(), weighted(table(60, 0), np.ones(60)), "cost"), tmp_path / "model.pkl")


def test_to_sklearn_hands_out_the_parts(release: Release):
    X, y, weight = release.to_sklearn("risk")
    assert list(X) == ["a", "n", "city=Zug", "city=Bern", "city=Basel", "smokes", "cost"]
    assert set(y) == {"low", "high"} and weight.min() > 0 and weight.sum() == pytest.approx(200)
    LogisticRegression().fit(X, y, sample_weight=weight)
    assert len(release.to_sklearn("risk", labels="measured").y) > 350
    assert list(release.to_sklearn("cost", columns=["city"], encoding="natural").X) == ["city"]
    assert len(release.to_sklearn("risk", view="resampled", effective_rows=50).y) == 50
    goal = target_of(release, "cost")
    assert training_rows(release, goal, "fitted").frame.shape[0] > 1000


def test_stateless_steps_and_unconverged_signed_fits_are_told_apart():
    release = weighted(table(200, 0), np.random.default_rng(0).normal(1, 0.7, 200))
    steps = make_pipeline(FunctionTransformer(np.sqrt), LogisticRegression())
    assert ka.fit(steps, release, "risk").report.view == "signed"
    with pytest.warns(ConvergenceWarning):
        model = ka.fit(LogisticRegression(max_iter=1), release, "risk")
    assert "does not converge" in model.report.why


def test_trees_see_missing_numbers_as_missing():
    domain = Domain((Real(name="x", lower=0, upper=1, missing=True), DOMAIN["risk"]))
    rows = pd.DataFrame({"x": [None, 0.5] * 60, "risk": ["high", "low"] * 60})
    model = ka.fit(HistGradientBoostingClassifier(max_iter=5), weighted(rows, np.ones(120), domain), "risk")
    assert model.predict(pd.DataFrame({"x": [None, 0.5]})).tolist() == ["high", "low"]
    assert model["columns"].transform(rows).isna().any(axis=None)


# ---------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("train") / "r.kme"
    publish(table(2000, 0), DOMAIN, epsilon=5, delta=1e-6, features=200, points=60, output=path)
    return str(path)


def test_train_writes_a_model_and_scores_it_on_real_rows(published: str, tmp_path: Path):
    UNSEEN.to_csv(tmp_path / "sample.csv", index=False)
    common = ["train", published, "--target", "risk", "--output", str(tmp_path / "m.skops")]
    told = CliRunner().invoke(main, [*common, "--test", str(tmp_path / "sample.csv"), "--json"])
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    model = ka.read_model(tmp_path / "m.skops")
    assert answer["estimator"] == "LogisticRegression" and answer["labels"] == "measured"
    assert answer["test"]["accuracy"]["value"] == pytest.approx((model.predict(UNSEEN) == UNSEEN["risk"]).mean())
    assert answer["classes"] == ["high", "low"] and answer["epsilon"] == 5.0
    shown = CliRunner().invoke(main, [*common, "--estimator", "SVC", "--set", "C=0.5", "--columns", "a, n"])
    assert "SVC for risk (classification) from 2 columns" in shown.stdout
    assert ka.read_model(tmp_path / "m.skops")["model"].C == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "risk", "--estimator", "LogisticRegresion"], "Did you mean LogisticRegression"),
        (["--target", "risk", "--estimator", "LogisticRegression", "--set", "D=1"], "could not be made"),
        (["--target", "risk", "--set", "C"], "--set takes name=value"),
        (["--target", "risk", "--metric", "accuracy"], "Add --test SAMPLE"),
        (["--target", "wages"], "no column wages"),
        (["--target", "risk", "--output", "m.pkl"], "Name model.skops"),
        (["--target", "cost", "--estimator", "SVC"], "needs classes"),
    ],
)
def test_train_says_what_does_not_fit_before_it_writes(
    options: list[str], message: str, published: str, tmp_path: Path
):
    output = [] if "--output" in options else ["--output", str(tmp_path / "m.skops")]
    told = CliRunner().invoke(main, ["train", published, *options, *output])
    assert told.exit_code == 1 and message in told.stderr and "Traceback" not in told.output
    assert not (tmp_path / "m.skops").exists()
