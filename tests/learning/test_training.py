"""ka.fit: which view an estimator gets, what the model predicts, and what is refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from click.testing import CliRunner
from every import every
from learning_cases import DOMAIN, NOT_ALONE, UNSEEN, table, weighted
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score
from sklearn.naive_bayes import CategoricalNB, GaussianNB  # noqa: F401  # refusals name the first
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import all_estimators

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.learning.training.weights import why_unweighted
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date, Real
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK
from release_side import publish


def signed_twins(seed: int = 0, n: int = 150) -> tuple[Release, Release]:
    """A release with positive weights, and one of the same measure: rows that cancel, and rows in two parts of both signs."""
    rows, junk = table(n, seed), table(40, seed + 1)
    weights = np.random.default_rng(seed).uniform(0.5, 2, n)
    split = rows.iloc[:30]
    more = pd.concat([rows, junk, junk, split], ignore_index=True)
    parts = np.concatenate([weights, np.full(40, 0.7), np.full(40, -0.7), -weights[:30]])
    parts[:30] *= 2
    return weighted(rows, weights / weights.sum()), weighted(more, parts / weights.sum())


def answers_of(model: Any, frame: pd.DataFrame = UNSEEN) -> np.ndarray:
    if hasattr(model, "predict_proba"):
        return model.predict_proba(frame)
    return model.decision_function(frame) if hasattr(model, "decision_function") else np.ravel(model.predict(frame))


# ---------------------------------------------------------------- no model is silently wrong

KINDS = [(name, kind) for name, kind in all_estimators(["classifier", "regressor"]) if name not in NOT_ALONE]
WITH: dict[str, dict[str, Any]] = {
    "MLPClassifier": {"solver": "lbfgs", "alpha": 1.0, "hidden_layer_sizes": 10},
    "MLPRegressor": {"solver": "lbfgs", "alpha": 1.0, "hidden_layer_sizes": 10},
    "RadiusNeighborsClassifier": {"radius": 1.5}, "RadiusNeighborsRegressor": {"radius": 1.5},
    "IsotonicRegression": {"out_of_bounds": "clip"}, "RANSACRegressor": {"min_samples": 20},
}  # fmt: skip
COLUMNS = {"CategoricalNB": ["city", "smokes"], "IsotonicRegression": ["a"]}
REFUSED = {  # by scikit-learn itself: several targets, more components than targets, more columns than ranks
    "CCA", "MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "PLSCanonical",
    "QuadraticDiscriminantAnalysis",
}  # fmt: skip
CONSTANT = {  # or nearly so, by their defaults, on private rows as well
    "DummyClassifier", "DummyRegressor", "GammaRegressor", "QuantileRegressor", "GaussianProcessRegressor",
    "IsotonicRegression", "CategoricalNB", "Lasso", "LassoLars", "OrthogonalMatchingPursuit",
}  # fmt: skip


def fit_small(name: str, kind: Any, release: Release, effective_rows: float | None = None) -> tuple[Any, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of iterations cut short, and of classes that scikit-learn retires
        estimator = kind(**WITH.get(name, {}))
        if "random_state" in estimator.get_params():
            estimator.set_params(random_state=0)
        target = "risk" if is_classifier(estimator) else "cost"
        return ka.fit(estimator, release, target, columns=COLUMNS.get(name), effective_rows=effective_rows), target


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=[name for name, _ in KINDS])
@pytest.mark.slow(but="MultiTaskElasticNet")
def test_no_model_depends_on_how_a_measure_is_written(name: str, kind: Any):
    """Rows that cancel, rows in parts of both signs, zero weights, another unit: the same model, or the same refusal."""
    plain, written = signed_twins()
    rows, weights = written.to_frame().drop(columns="weight"), written.weights
    padded = pd.concat([table(20, 3), rows], ignore_index=True)
    unit = weighted(padded, -321.7 * np.append(np.zeros(20), weights))
    if name in REFUSED:
        for each in (plain, written, unit):
            with pytest.raises(ValueError, match=r"mono-task|n_components|full rank"):
                fit_small(name, kind, each)
        return
    (one, _), (other, _), (third, _) = (fit_small(name, kind, each) for each in (plain, written, unit))
    scale = max(1.0, float(np.abs(answers_of(one)).max()))
    np.testing.assert_allclose(answers_of(other), answers_of(one), rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose(answers_of(third), answers_of(one), rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize(("name", "kind"), [k for k in KINDS if k[0] not in REFUSED], ids=lambda k: k if isinstance(k, str) else "")
@pytest.mark.slow(but="Lars-")
def test_no_model_of_weights_that_are_really_signed_is_nonsense(name: str, kind: Any):
    rows, rng = table(400, 5), np.random.default_rng(0)
    release = weighted(rows, rng.normal(1, 1, 400))  # a sixth of them negative
    model, target = fit_small(name, kind, release)
    answers = answers_of(model)
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


KNOWN = [
    (make_pipeline(PolynomialFeatures(), "passthrough", Ridge()), ""),
    (make_pipeline(make_column_transformer((OneHotEncoder(), [0]), remainder="passthrough"), LogisticRegression()), ""),
    (make_pipeline(OneHotEncoder(min_frequency=5), LogisticRegression()), "OneHotEncoder takes no"),
    (make_pipeline(PCA(), LogisticRegression()), "PCA takes no"),
    (make_pipeline(FeatureUnion([("a", PCA()), ("b", StandardScaler())]), SVC()), "PCA takes no"),
    (GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}), ""),
    (GridSearchCV(make_pipeline(Ridge()), {"ridge": [Ridge(), PCA()]}), "PCA takes no"),
    (RandomizedSearchCV(SVC(), {"class_weight": [None, "balanced"]}, n_iter=2), "SVC misuses"),
    (CalibratedClassifierCV(), ""),
    (VotingClassifier([("a", LogisticRegression()), ("b", KNeighborsClassifier())]), "KNeighborsClassifier takes no"),
    (StackingClassifier([("a", LogisticRegression())]), ""),
    (TransformedTargetRegressor(PoissonRegressor(), func=np.sqrt, inverse_func=np.square), ""),
    (make_pipeline(StandardScaler(), SVC(probability=True)), "SVC misuses"),
    (FunctionTransformer(), "FunctionTransformer takes no"),
]


@every(("estimator", "reason"), KNOWN)
def test_a_whole_takes_weights_where_all_of_its_parts_do(estimator: Any, reason: str):
    found = why_unweighted(estimator)
    assert reason in found if reason else not found


VARY = ("AdaBoostR", "Bagging", "ExtraTree", "HistG", "NuSVC", "RandomForest", "SGD")  # by seeds, or by rows in a leaf
STEADY = [(name, kind) for name, kind in KINDS if name not in REFUSED and not name.startswith(VARY)]


@pytest.mark.parametrize(("name", "kind"), STEADY, ids=[name for name, _ in STEADY])
@pytest.mark.slow(but="LinearSVC")
def test_weights_do_what_repeated_rows_do(name: str, kind: Any):
    rows, rng = table(300, 6), np.random.default_rng(0)
    repeats = 1 + 5 * ((rows["risk"] == "high") & (rows["a"] > 0)) + rng.integers(0, 2, 300)
    repeated = rows.loc[rows.index.repeat(repeats)].reset_index(drop=True)
    releases = weighted(rows, repeats), weighted(repeated), weighted(rows)
    model, same, other = (fit_small(name, kind, each, float(repeats.sum()))[0] for each in releases)
    gap, effect = (np.abs(answers_of(model) - answers_of(each)).mean() for each in (same, other))
    assert model.report.view == "resampled" or gap <= 0.5 * effect + 1e-9


def test_negative_weights_become_the_nearest_that_are_not_negative():
    rows = table(200, 2)
    model = ka.fit(LogisticRegression(), weighted(rows, np.random.default_rng(0).normal(1, 0.7, 200)), "risk")
    assert model.report.view == "probability" and "nearest ones that are not negative" in model.report.why
    assert ka.fit(LogisticRegression(), weighted(rows, -2.0), "risk").report.why.startswith("as released")
    with pytest.raises(ValueError, match="view must be one of probability, resampled, fitted, got 'signed'"):
        ka.fit(LogisticRegression(), weighted(rows), "risk", view="signed")
    with pytest.raises(ValueError, match=r'wrong model.*view="resampled"'):
        ka.fit(KNeighborsClassifier(), weighted(rows), "risk", view="probability")


# ---------------------------------------------------------------- weights inside estimators


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
    release = weighted(rows, np.where(rows["risk"] == "high", 9.0, 1.0))
    rare = (rows["risk"] == "high").mean()
    search = GridSearchCV(Weighed(), {"guess": ["low", "high"]}, scoring="accuracy", cv=3)
    model = ka.fit(search, release, "risk", view="probability")
    assert 0.3 < rare < 0.7 and model["model"].best_params_ == {"guess": "high"}
    assert model["model"].best_score_ == pytest.approx(9 * rare / (9 * rare + 1 - rare), abs=0.02)
    assert Weighed.seen[-1] > 0
    piped = ka.fit(make_pipeline(StandardScaler(), LogisticRegression()), release, "risk")
    mean = np.average(piped["columns"].transform(rows)["a"], weights=release.weights)
    assert piped["model"]["standardscaler"].mean_[0] == pytest.approx(mean)


def test_histogram_boosting_inside_another_estimator_keeps_its_own_loss_as_the_score():
    boosted = make_pipeline(MinMaxScaler(), HistGradientBoostingClassifier(max_iter=3))
    assert ka.fit(boosted, weighted(table(120, 0)), "smokes", view="probability").report is not None


# ---------------------------------------------------------------- columns


def test_each_estimator_gets_the_encoding_that_suits_it():
    release, columns = weighted(table(200, 0)), ["a", "city"]
    own = make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough")
    natural = ka.fit(make_pipeline(own, LogisticRegression()), release, "risk", columns=columns)
    votes = VotingClassifier([("one", make_pipeline(own, LogisticRegression()))])
    trees = make_pipeline(StandardScaler(), RandomForestClassifier(3))
    assert ka.fit(LogisticRegression(), release, "risk", columns=columns).report.encoding == "onehot"
    assert ka.fit(trees, release, "risk").report.encoding == "codes"
    assert natural.report.encoding == "natural" == ka.fit(votes, release, "risk", columns=columns).report.encoding
    assert natural.predict(UNSEEN).shape == (300,) and list(natural["columns"].transform(UNSEEN)) == columns


def test_trees_see_missing_numbers_as_missing():
    domain = Domain((Real(name="x", lower=0, upper=1, missing=True), DOMAIN["risk"]))
    rows = pd.DataFrame({"x": [None, 0.5] * 60, "risk": ["high", "low"] * 60})
    model = ka.fit(HistGradientBoostingClassifier(max_iter=5), weighted(rows, domain=domain), "risk")
    assert model.predict(pd.DataFrame({"x": [None, 0.5]})).tolist() == ["high", "low"]
    assert model["columns"].transform(rows).isna().any(axis=None)


# ---------------------------------------------------------------- targets


def test_classes_are_all_the_levels_of_the_domain():
    domain = Domain((DOMAIN["a"], Categorical(name="grade", levels=("C", "A", "D", "B"))))
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=200).clip(-3, 3)})
    rows["grade"] = np.where(rows["a"] > 0.5, "A", np.where(rows["a"] < -0.5, "D", "C"))
    model = ka.fit(LogisticRegression(), weighted(rows, domain=domain), "grade")
    assert model.classes_.tolist() == ["A", "B", "C", "D"]
    found = model.predict_proba(rows)
    assert found.shape == (200, 4) and (found[:, 1] == 0).all() and np.allclose(found.sum(axis=1), 1)
    assert (model.classes_[found.argmax(axis=1)] == model.predict(rows)).all()
    assert (model.decision_function(rows)[:, 1] == -np.inf).all()
    assert "no row of B" in model.report.notes[0]
    two = rows[rows["grade"] != "C"]
    scores = ka.fit(LinearSVC(), weighted(two, domain=domain), "grade").decision_function(rows)
    assert scores.shape == (200, 4)
    assert (np.array(["A", "B", "C", "D"])[scores.argmax(axis=1)] == np.where(rows["a"] > 0, "A", "D")).mean() > 0.9


@every(("target", "classes"), [("smokes", [False, True]), ("n", list(range(10)))])
def test_booleans_and_whole_numbers_are_classified_as_what_they_are(target: str, classes: list[Any]):
    model = ka.fit(GaussianNB(), weighted(table(400, 0)), target)
    assert model.classes_.tolist() == classes
    assert set(model.predict(UNSEEN).tolist()) <= set(classes)


ROWS = table(100, 0)
WITHOUT_COSTS = Domain((DOMAIN["a"], Real(name="cost", lower=0, upper=40, missing=True)))
DATED = Domain((DOMAIN["a"], Date(name="day", lower="2020-01-01", upper="2020-12-31")))


def test_data_targets_and_options_that_determine_no_model_are_refused():
    refusals.check(Path(__file__).parent / "refusals_of_models.txt", lambda text: eval(text, globals()))


def test_a_date_is_predicted_in_days_since_1970():
    day = pd.Timestamp("2020-06-01") + pd.to_timedelta((20 * ROWS["a"]).round(), unit="D")
    rows = ROWS.assign(day=day.dt.strftime("%Y-%m-%d"))
    release = weighted(rows[["a", "day"]], domain=DATED)
    model = ka.fit(LinearRegression(), release, "day")
    days = (day - pd.Timestamp("1970-01-01")).dt.days.to_numpy()
    np.testing.assert_allclose(model.predict(rows), days, atol=0.6)  # days are whole, and the line is not
    np.testing.assert_array_equal(release.to_sklearn("day").y, days)
    assert any("days since 1970-01-01" in note for note in model.report.notes)
    for data in (weighted(rows[["a", "day"]].iloc[1:].reset_index(drop=True), domain=DATED), rows[["a", "day"]]):
        assert ka.score(model, data).value > 0.999
        assert ka.score(model, data, "mean_absolute_error").value < 0.5


def test_estimators_that_need_no_target_need_none():
    model = ka.fit(KMeans(3, random_state=0, n_init=1), weighted(table(200, 0)))
    assert model.target is None and model.predict(UNSEEN).max() <= 2
    with pytest.raises(AttributeError):
        _ = model.classes_


def test_a_model_works_as_a_scikit_learn_pipeline():
    """Its slices are plain pipelines, and copies of it can be cross-validated."""
    model = ka.fit(LogisticRegression(), weighted(table(120, 0)), "smokes")
    assert (model[-1:].predict(model[:-1].transform(UNSEEN)) == model.predict(UNSEEN)).all()
    found = cross_val_score(model, UNSEEN, UNSEEN["smokes"], cv=3, scoring="roc_auc", error_score="raise")
    assert np.isfinite(found).all()


# ---------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("train") / "r.kme"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", QUICK)
        publish(table(2000, 0), DOMAIN, epsilon=5, delta=1e-6, features=200, points=60, output=path)
    return str(path)


def test_train_writes_a_model_and_scores_it_on_real_rows(published: str, tmp_path: Path):
    UNSEEN.to_csv(tmp_path / "sample.csv", index=False)
    common = ["train", published, "--target", "risk", "--output", str(tmp_path / "m.skops")]
    found = CliRunner().invoke(main, [*common, "--test", str(tmp_path / "sample.csv"), "--json"])
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    model = ka.read_model(tmp_path / "m.skops")
    assert answer["estimator"] == "LogisticRegression" and answer["labels"] == "released"
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
def test_train_refuses_options_that_do_not_fit_before_it_writes(options: list[str], message: str, published: str, tmp_path: Path):
    output = [] if "--output" in options else ["--output", str(tmp_path / "m.skops")]
    found = CliRunner().invoke(main, ["train", published, *options, *output])
    assert found.exit_code == 1 and message in found.stderr and "Traceback" not in found.output
    assert not (tmp_path / "m.skops").exists()
