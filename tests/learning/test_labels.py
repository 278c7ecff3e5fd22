"""Labels from the measurement: where they come from, and what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from learning_cases import DOMAIN, UNSEEN, measured, table, weighted
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import kmeanalyst as ka
from kmeanalyst.learning.rows.labels import measured_labels, measured_model
from kmeanalyst.release import Release


@pytest.fixture(scope="module")
def release() -> Release:
    return measured()


@pytest.mark.slow
def test_models_learn_from_measured_labels_and_not_from_the_points(release: Release):
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
    model = ka.fit(Ridge(), release, "smokes", labels="measured")
    assert np.corrcoef(model.predict(UNSEEN), UNSEEN["smokes"])[0, 1] > 0.2


def test_measured_labels_have_the_distribution_given_the_row(release: Release):
    frame = release.to_frame().drop(columns="weight")
    model: Any = ka.fit_embedding(release, "risk")
    rows, cells, p = measured_labels(measured_model(release, "risk"), DOMAIN["risk"], "classification", frame)
    np.testing.assert_allclose(np.bincount(rows, p), 1)
    high = np.bincount(rows, p * (cells == "high"))
    np.testing.assert_allclose(high, model.predict_proba(frame)[:, list(model.classes_).index("high")], atol=1e-5)
    rows, cells, p = measured_labels(measured_model(release, "cost"), DOMAIN["cost"], "regression", frame)
    np.testing.assert_allclose(np.bincount(rows, p), 1)
    np.testing.assert_allclose(np.bincount(rows, p * cells), ka.fit_embedding(release, "cost").predict(frame))


def test_measured_labels_of_numbers_are_within_the_public_bounds(mixed_release: Release):
    column = mixed_release.domain["capital.gain"]
    _, cells, _ = measured_labels(
        measured_model(mixed_release, "capital.gain"), column, "regression", mixed_release.to_frame()
    )
    assert cells.min() >= 0 and cells.max() <= 99999


def test_labels_that_cannot_be_measured_are_the_points_own_or_refused(mixed_release: Release):
    plain = weighted(table(100, 0))
    derived = measured().transform({"dear": "cost > 8"})
    for release, target in ((plain, "risk"), (derived, "dear"), (measured(method="subspace"), "risk")):
        assert ka.fit(GaussianNB(), release, target).report.labels == "released"
    for release, target, labels, message in (
        (plain, "risk", "measured", r'cannot be "measured" here: there is no measurement'),
        (plain, "risk", "true", "labels must be one of drawn, measured, released"),
        (mixed_release, "children", "measured", "quantiles, which are not all its values"),
    ):
        with pytest.raises(ValueError, match=message):
            ka.fit(
                GaussianNB(), release, target, columns=None if release is plain else ["age", "married"], labels=labels
            )
    model = ka.fit(LogisticRegression(max_iter=300), mixed_release, "children", columns=["age", "married"])
    assert model.report.labels == "released"
