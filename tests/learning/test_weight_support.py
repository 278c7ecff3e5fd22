"""How scikit-learn's estimators treat signed weights: the table is derived again, and its probe is tested."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
from derive_weight_table import probe, table_estimators
from every import every
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from kmeanalyst.learning.weights import weight_support
from kmeanalyst.learning.weights.weight_support import Table, read_table, takes_weights

support = weight_support.weight_support
ESTIMATORS = table_estimators()
SHIPPED = read_table()
SAME_VERSION = SHIPPED.version == sklearn.__version__
OTHER_VERSION = pytest.mark.skipif(not SAME_VERSION, reason="the table was made for another scikit-learn")
LONG = ("AdaBoostR", "Bagging", "RandomForest", "ExtraTrees", "GradientB", "MLP", "SGD", "Perc", "HistG", "Ransac")


# ---------------------------------------------------------------------------------------------- known answers


class LeastSquares(RegressorMixin, BaseEstimator):
    """Exact, unless `read` changes the weights: weighted normal equations hold for any signs."""

    def __init__(self, read: Any = np.asarray) -> None:
        self.read = read

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LeastSquares:
        rows = np.column_stack([np.ones(len(X)), X])
        weights = self.read(np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight))
        self.slopes_ = np.linalg.solve(rows.T @ (weights[:, None] * rows), rows.T @ (weights * np.asarray(y)))
        return self

    def predict(self, X: Any) -> Any:
        return np.column_stack([np.ones(len(X)), X]) @ self.slopes_


def refuse_below(bound: float) -> Any:
    def read(weights: Any) -> Any:
        if np.min(weights) < bound:
            raise ValueError("no negative weights, please\nsecond line")
        return weights

    return read


class WithKeywords(LeastSquares):
    def fit(self, X: Any, y: Any, **fit_params: Any) -> LeastSquares:  # type: ignore[override]
        return super().fit(X, y, **fit_params)


class WithoutWeights(LeastSquares):
    def fit(self, X: Any, y: Any) -> LeastSquares:  # type: ignore[override]
        return super().fit(X, y)


class BelowZero(ClassifierMixin, BaseEstimator):
    """Weighted shares of the classes in the half planes: below 0 where the weights are."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> BelowZero:
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        self.classes_ = np.unique(y)
        cells = np.floor(np.asarray(X)[:, 0] * 2000)
        self.cells_ = {}
        for cell in np.unique(cells):
            inside = cells == cell
            self.cells_[cell] = [weights[inside & (y == label)].sum() for label in self.classes_]
        self.prior_ = np.array([weights[y == label].sum() for label in self.classes_]) / weights.sum()
        self.worst_ = min(min(one) for one in self.cells_.values())
        return self

    def predict_proba(self, X: Any) -> Any:
        answer = np.tile(self.prior_, (len(X), 1))
        return answer + min(self.worst_, 0.0) * np.array([1.0, -1.0]) if self.worst_ < -1e-9 else answer

    def predict(self, X: Any) -> Any:
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]


class Duck:
    """No scikit-learn base at all, and no estimator type."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> None:
        self.mean = np.average(y, weights=sample_weight)

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.mean)


class Broken(RegressorMixin, BaseEstimator):
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Broken:
        raise RuntimeError("the licence server is away\nand will not be back")


class Centred(TransformerMixin, BaseEstimator):
    """Learns from the rows, without weights."""

    def fit(self, X: Any, y: Any = None) -> Centred:
        self.mean_ = np.mean(X, axis=0)
        return self

    def transform(self, X: Any) -> Any:
        return np.asarray(X) - self.mean_


KNOWN = [
    (LeastSquares(), "exact", True, "change nothing"),
    (LeastSquares(np.abs), "silently_wrong", True, "cancel change the model"),
    (LeastSquares(lambda w: np.maximum(w, 0.0)), "silently_wrong", True, "cancel change the model"),
    (LeastSquares(lambda w: np.sign(w) * np.sqrt(np.abs(w))), "silently_wrong", False, "repeated"),
    (LeastSquares(refuse_below(0)), "nonnegative_only", True, "ValueError: no negative weights, please)"),
    (LeastSquares(refuse_below(-5)), "silently_wrong", True, "at times"),  # it cannot be relied on to refuse
    (LeastSquares(lambda w: np.ones(len(w))), "none", False, "unweighted"),
    (WithKeywords(), "exact", True, "change nothing"),
    (WithoutWeights(), "none", False, "takes no sample_weight"),
    (BelowZero(), "silently_wrong", True, "probabilities below 0"),
    (Duck(), "exact", True, "change nothing"),
    (Broken(), "none", False, "RuntimeError: the licence server is away)"),
    (Centred(), "none", False, "takes no sample_weight"),
]


@every(("estimator", "verdict", "nonnegative_ok", "reason"), KNOWN)
def test_the_probe_finds_the_known_answer(estimator: Any, verdict: str, nonnegative_ok: bool, reason: str):
    found = probe(estimator)
    assert (found.verdict, found.nonnegative_ok) == (verdict, nonnegative_ok)
    assert reason in found.reason
    assert found.reason.endswith(".") and "\n" not in found.reason


@every("estimator", [LeastSquares(), LeastSquares(np.abs), Duck(), Broken()])
def test_an_untested_estimator_gets_no_negative_weights(estimator: Any):
    found = support(estimator)
    assert (found, found.nonnegative_ok, found.source) == ("unknown", True, "not in the table")
    assert type(estimator).__name__ in found.reason and "negative weights is unknown." in found.reason


def test_the_estimator_asked_about_is_left_as_it_was():
    for model in (LeastSquares(), GaussianNB()):
        support(model)
        probe(model)
        assert not any(name.endswith("_") and not name.startswith("_") for name in vars(model))


def test_only_an_argument_sample_weight_counts_as_taking_weights():
    """Keywords may be ignored or handed on: rows drawn by the weights are right either way."""
    assert takes_weights(LeastSquares())
    for estimator in (WithKeywords(), WithoutWeights(), PCA()):
        found = support(estimator)
        assert not takes_weights(estimator) and (found, found.nonnegative_ok) == ("none", False)
    assert takes_weights(make_pipeline(PCA(), LogisticRegression())) and not takes_weights(KNeighborsClassifier)


# ---------------------------------------------------------------------------------------------- the table


def _cases() -> list[Any]:
    return [pytest.param(key, marks=[pytest.mark.slow] if key.startswith(LONG) else []) for key in sorted(ESTIMATORS)]


@OTHER_VERSION
@pytest.mark.parametrize("key", _cases())
@pytest.mark.estimators(but="AffinityPropagation")
def test_the_answer_is_what_the_probe_finds(key: str):
    found, answer = probe(ESTIMATORS[key])._asdict(), support(ESTIMATORS[key])
    assert (answer, answer.nonnegative_ok) == (found["verdict"], found["nonnegative_ok"]), found["reason"]
    assert answer.source == f"table, scikit-learn {sklearn.__version__}"


@OTHER_VERSION
def test_the_table_has_every_estimator_of_the_installed_scikit_learn():
    assert sorted(SHIPPED.entries) == sorted(ESTIMATORS)


def test_exactness_found_for_another_version_is_not_relied_on(monkeypatch):
    """The other verdicts stay: only "exact" claims something for negative weights that another version could break."""
    monkeypatch.setattr(weight_support, "read_table", lambda: Table("0.1", SHIPPED.entries))
    found = support(GaussianNB())
    assert (found, found.nonnegative_ok, found.source) == ("unknown", True, "table, scikit-learn 0.1")
    assert f"was tested with scikit-learn 0.1, and {sklearn.__version__} is installed" in found.reason
    assert support(Ridge()) == "nonnegative_only" and support(SVC()) == "silently_wrong" and support(PCA()) == "none"
    assert support(FunctionTransformer()) == "exact"  # which learns nothing


@every(("verdict", "estimators"), [
    ("silently_wrong", (LogisticRegression(solver="liblinear"), LinearSVC(), SVC(), Lasso(), DecisionTreeClassifier(max_depth=3))),
    ("exact", (LogisticRegression(C=3.0, max_iter=500), PoissonRegressor(alpha=0.1))),
    ("nonnegative_only", (RandomForestClassifier(n_estimators=7), KMeans(n_clusters=4), Ridge(alpha=2.0))),
])  # fmt: skip
def test_what_is_known_of_scikit_learn(verdict: str, estimators: tuple[Any, ...]):
    for estimator in estimators:
        found = support(estimator)
        assert found == verdict and found.nonnegative_ok, estimator
        assert not SAME_VERSION or found.source.startswith("table")


def test_parameters_that_may_matter_are_answered_by_the_worst_of_their_class():
    for estimator in (GaussianNB(priors=[0.4, 0.6]), Ridge(alpha=0.0)):
        found = support(estimator)
        assert (found, found.nonnegative_ok, found.source) == ("unknown", True, "not in the table")
    assert support(SVC(kernel="poly")) == "silently_wrong"
    balanced = support(DecisionTreeClassifier(criterion="entropy", class_weight="balanced"))
    assert balanced == "silently_wrong" and not balanced.nonnegative_ok


def test_a_transformer_that_needs_no_weights_needs_none_with_other_parameters():
    """The probe agrees; where rows are counted it does not, and no answer is given for them."""
    for exact in (PolynomialFeatures(include_bias=False), FunctionTransformer(np.log1p)):
        assert support(exact) == probe(exact).verdict == "exact"
    plain, counting = OneHotEncoder(handle_unknown="ignore"), OneHotEncoder(min_frequency=5)
    for encoder, nonnegative_ok in ((plain, True), (counting, False)):
        found, probed = support(encoder), probe(encoder)
        assert (found, found.nonnegative_ok) == (probed.verdict, probed.nonnegative_ok) == ("none", nonnegative_ok)


# ---------------------------------------------------------------------------------------------- parts


def _columns(transformer: Any) -> Any:
    return ColumnTransformer([("some", transformer, [0])], remainder="passthrough")


COMPOSITES = [
    (make_pipeline(StandardScaler(), LogisticRegression()), "exact", True),
    (make_pipeline(PolynomialFeatures(), "passthrough", Ridge()), "nonnegative_only", True),
    (make_pipeline(PCA(), LogisticRegression()), "none", False),
    (make_pipeline(MinMaxScaler(), LogisticRegression()), "silently_wrong", True),
    (make_pipeline(_columns(OneHotEncoder()), LogisticRegression()), "silently_wrong", True),
    (make_pipeline(_columns(FunctionTransformer()), LogisticRegression()), "exact", True),
    (make_pipeline(FeatureUnion([("a", PCA()), ("b", StandardScaler())]), SVC()), "none", False),
    (GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}), "silently_wrong", True),
    (GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}), "nonnegative_only", True),
    (RandomizedSearchCV(make_pipeline(PCA(), SVC()), {"svc__C": [1.0, 2.0]}, n_iter=9), "none", False),
    (CalibratedClassifierCV(), "silently_wrong", True),
    (OneVsRestClassifier(LogisticRegression()), "exact", True),
    (VotingClassifier([("a", LogisticRegression()), ("b", KNeighborsClassifier())]), "none", False),
    (VotingClassifier([("a", LogisticRegression()), ("b", GaussianNB())]), "exact", True),
    (StackingClassifier([("a", LogisticRegression())]), "silently_wrong", True),
    (TransformedTargetRegressor(PoissonRegressor(), func=np.sqrt, inverse_func=np.square), "exact", True),
]


@every(("whole", "verdict", "nonnegative_ok"), COMPOSITES)
def test_a_whole_is_as_good_as_its_worst_part(whole: Any, verdict: str, nonnegative_ok: bool):
    found = support(whole)
    assert (found, found.nonnegative_ok, found.source) == (verdict, nonnegative_ok, "its parts")


def test_a_search_is_judged_by_every_candidate_and_the_reason_names_the_deciding_part():
    found = support(GridSearchCV(LogisticRegression(), {"solver": ["lbfgs", "liblinear"]}))
    assert found == "silently_wrong" and "accepted" in found.reason
    assert "pca (PCA)" in support(make_pipeline(PCA(), LogisticRegression())).reason
    with_neighbours = GridSearchCV(make_pipeline(Ridge()), {"ridge": [Ridge(), PCA()]})
    assert support(with_neighbours) == "none"


# ---------------------------------------------------------------------------------------------- the answer itself


def test_the_answer_is_text_with_a_reason_that_survives_copying():
    found = support(GaussianNB())
    assert found == support(GaussianNB)  # a class stands for its defaults
    for same in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (same, same.reason, same.nonnegative_ok) == ("exact", found.reason, True)
    assert "exact" in repr(found) and found.reason in repr(found)


def test_probabilities_of_platts_method_ignore_weights():
    """Every point has both labels, and one of them hardly any weight."""
    rng = np.random.default_rng(0)
    X, y = np.repeat([[-1.0], [1.0]], 60, axis=0) + 0.1 * rng.normal(size=(120, 1)), np.repeat([0, 1], 60)
    twice, labels, weights = np.concatenate([X, X]), np.concatenate([y, 1 - y]), np.repeat([1.0, 1e-3], 120)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn 1.9 deprecates the parameter
        model = SVC(probability=True, random_state=0).fit(twice, labels, weights)
    assert abs(model.predict_proba(X)[:, 1] - 0.5).max() < 0.2
    found = support(make_pipeline(StandardScaler(), SVC(probability=True)))
    assert not found.nonnegative_ok and "Platt's method" in found.reason
    assert support(SVC(probability=False)).nonnegative_ok
