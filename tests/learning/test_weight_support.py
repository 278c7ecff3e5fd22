"""What an estimator makes of signed weights is seen by fitting it."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import DBSCAN, KMeans
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from kmeanalyst.learning.training.weight_support import WeightSupport, weight_support

KNOWN = {
    "exact": [linear_model.LogisticRegression(), GaussianNB(), MultinomialNB(), linear_model.HuberRegressor(),
              linear_model.PoissonRegressor(), DummyRegressor(), PolynomialFeatures()],
    "nonnegative_only": [linear_model.Ridge(), linear_model.LinearRegression(), RandomForestClassifier(n_estimators=5),
                         KMeans(n_clusters=2)],
    "silently_wrong": [DecisionTreeClassifier(), DecisionTreeRegressor(), linear_model.ElasticNet(),
                       MLPClassifier(max_iter=20), HistGradientBoostingClassifier(max_iter=5),
                       GradientBoostingRegressor(n_estimators=5)],
    "none": [KNeighborsClassifier()],
}  # fmt: skip


class Centroids(ClassifierMixin, BaseEstimator):
    """The nearest weighted mean; `power` of the weights is not theirs where it is not 1."""

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def fit(self, X, y, sample_weight):
        used = np.sign(sample_weight) * np.abs(sample_weight) ** self.power
        self.classes_ = np.unique(y)
        self.means_ = np.stack([np.average(X[y == c], axis=0, weights=used[y == c]) for c in self.classes_])
        return self

    def decision_function(self, X):
        return np.subtract(*(((X - mean) ** 2).sum(axis=1) for mean in self.means_[::-1]))

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


@pytest.mark.parametrize(
    ("verdict", "estimator"), [(v, e) for v, some in KNOWN.items() for e in some], ids=lambda x: type(x).__name__
)
def test_the_verdict_is_what_the_fit_makes_of_cancelling_rows(verdict, estimator):
    before = repr(estimator)
    found = weight_support(estimator)
    assert found == verdict, found.reason
    assert found.nonnegative_ok == (verdict != "none") and repr(estimator) == before
    assert not any(name.endswith("_") and not name.startswith("_") for name in vars(estimator))  # not fitted


def test_estimators_of_others_are_fitted_too_and_a_pipeline_is_judged_by_its_parts():
    assert weight_support(Centroids()) == "exact"
    assert weight_support(Centroids(power=2.0)) == "silently_wrong"
    assert weight_support(make_pipeline(StandardScaler(), linear_model.LogisticRegression())) == "exact"
    assert weight_support(make_pipeline(StandardScaler(), linear_model.Ridge())) == "nonnegative_only"


def test_a_verdict_is_a_text_that_is_copied_with_its_reason():
    found = weight_support(linear_model.Ridge)
    for other in (copy.copy(found), pickle.loads(pickle.dumps(found))):
        assert isinstance(other, WeightSupport) and (other, other.reason) == (found, found.reason)
    assert repr(found).startswith("<nonnegative_only: negative weights end in an error")


def test_what_has_no_fit_and_what_cannot_be_fitted_are_refused():
    with pytest.raises(TypeError, match="expected an estimator with a fit method, got str"):
        weight_support("Ridge")
    for estimator, why in ((linear_model.Ridge(alpha=-1.0), "alpha"), (DBSCAN(), "says nothing of other rows")):
        with pytest.raises(ValueError, match=f"fitted to none of the test tables .*{why}.* Check its parameters"):
            weight_support(estimator)
