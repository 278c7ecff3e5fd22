"""Smoothed classes: probabilities of classes on releases of margins, and what models learn from them."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from every import every
from learning_cases import release_around
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import kmeanalyst as ka
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.learning.rows.labels import find_labels
from kmeanalyst.learning.rows.smoothed_classes import _Rows, _thinned, fit_smoothed_classes
from kmeanalyst.learning.rows.training_rows import _drawn_labels, target_of, training_rows
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.measurement import feature_mean
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

EDGES = (-1.5, -0.75, 0.0, 0.75, 1.5)
GRADES = ("none", "mild", "severe", "fatal", "unheard")
DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3, edges=EDGES),
    Real(name="b", lower=-3, upper=3, edges=EDGES),
    Categorical(name="city", levels=("Zug", "Bern", "Basel")),
    Boolean(name="ill"),
    Ordinal(name="grade", levels=GRADES, missing=True),
))  # fmt: skip
N = 4_000


def table(n: int, seed: int) -> pd.DataFrame:
    """A grade of "fatal" is rare, and "unheard" never happens; illness depends on the product of two columns."""
    rng = np.random.default_rng(seed)
    a, b, city = rng.normal(size=(2, n)).clip(-3, 3)[0], rng.normal(size=n).clip(-3, 3), rng.integers(0, 3, n)
    ill = rng.random(n) < 1 / (1 + np.exp(-(a + 1.5 * np.sign(a * b) + (city == 0))))
    z = a + 0.8 * (city == 1) + rng.logistic(size=n)
    grade = np.array(GRADES, dtype=object)[np.searchsorted([0.5, 2.0, 6.0], z)]
    grade[rng.random(n) < 0.1] = None
    return pd.DataFrame({"a": a, "b": b, "city": np.array(["Zug", "Bern", "Basel"])[city], "ill": ill, "grade": grade})


def released(target: str | None, noise: float = 1e-4, points: pd.DataFrame | None = None) -> Release:
    """All one- and two-way tables, and those of three columns with the target if there is one, around rows of one distribution."""
    kernel = Margins(
        edges=(EDGES, EDGES, (0.5, 1.5), (0.5,), (0.5, 1.5, 2.5, 3.5)), atoms=((),) * 5,
        missing=(False, False, False, False, True),
        shares=(0.3, 0.7, 0),
    )  # fmt: skip
    own = -1 if target is None else DOMAIN.position(target)
    feature_map = MarginFeatures(with_sets(kernel, [each for each in combinations(range(5), 3) if own in each]))
    vector = feature_mean(feature_map, DOMAIN.encode(table(N, 1)))
    vector = vector + noise * np.random.default_rng(2).normal(size=len(vector))
    rows = table(N, 3) if points is None else points
    return release_around(vector, feature_map, DOMAIN, rows, noise=noise, n_rows=N, method="random-features")


@pytest.fixture(scope="module")
def ill() -> Release:
    return released("ill")


@pytest.fixture(scope="module")
def grades() -> Release:
    return released("grade")


UNSEEN = table(3_000, 9)


def test_models_of_smoothed_labels_are_better_than_those_of_drawn_ones(ill: Release):
    truth = UNSEEN["ill"].to_numpy(dtype=bool)
    for estimator, gain in ((DecisionTreeClassifier(random_state=0), 0.1), (KNeighborsClassifier(), -0.02)):
        scores = []
        for labels in (None, "released"):
            model = ka.fit(estimator, ill, "ill", labels=labels)
            scores.append(roc_auc_score(truth, model.predict_proba(UNSEEN)[:, 1]))
        assert scores[0] > scores[1] + gain
    assert ka.fit(DecisionTreeClassifier(), ill, "ill").report.labels == "smoothed"


def test_columns_that_act_together_are_learned(ill: Release):
    """Additive models see nothing of sign(a b)."""
    smooth = fit_smoothed_classes(ill, "ill")
    assert smooth.classes_.tolist() == [False, True]
    at = pd.DataFrame({"a": [1.0, 1.0], "b": [1.0, -1.0], "city": "Bern", "grade": "none"})
    together, apart = smooth.predict_proba(at)[:, 1]
    assert together > apart + 0.3


def test_models_stop_near_the_measurement_and_not_at_the_rows_labels(ill: Release):
    """The truth's misfit is 1 on average; labels that were drawn independently of the table have more: 1.3 here."""
    rows = _Rows.of(ill, "ill", np.array([0, 1]), N)
    own = rows.misfit(np.eye(2)[rows.codes], rows.singles)
    assert 1.1 < own < 1.5
    assert rows.misfit(np.full((N, 2), 0.5), rows.singles) > 10
    smooth = fit_smoothed_classes(ill, "ill")
    assert rows.misfit(smooth.predict_proba(ill.frame), rows.singles) < own + 0.15
    assert smooth.boosted.max_iter < 300


def test_a_column_that_is_not_the_target_is_smoothed_by_the_pairs_that_have_it(ill: Release):
    """Where none is named, where another one is, and where the column is measured with nothing."""
    truth = (UNSEEN["grade"] == "none")[UNSEEN["grade"].notna()]
    for release in (released(None), ill):
        model = ka.fit(DecisionTreeClassifier(random_state=0), release, "grade")
        assert model.report.labels == "smoothed"
        none = model.predict_proba(UNSEEN)[UNSEEN["grade"].notna(), model.classes_.tolist().index("none")]
        assert roc_auc_score(truth, none) > 0.72


def test_every_level_has_a_probability_even_one_without_rows(grades: Release):
    sample = UNSEEN[UNSEEN["grade"].notna()]
    for estimator in (LogisticRegression(max_iter=300), DecisionTreeClassifier()):
        model = ka.fit(estimator, grades, "grade")
        assert model.classes_.tolist() == sorted(GRADES)
        said = pd.DataFrame(model.predict_proba(UNSEEN), columns=model.classes_)
        assert 0 < said["unheard"].mean() < 1e-2
        np.testing.assert_allclose(
            said.mean(), sample["grade"].value_counts(normalize=True).reindex(said.columns, fill_value=0), atol=0.03
        )
        assert not any("no row of" in note for note in model.report.notes)


def test_rare_and_absent_classes_do_not_end_a_fit():
    """Boosting stops by a stratified fold on more than 10,000 rows, and a class of one row cannot be in both folds."""
    rows = table(10_500, 4).assign(grade="none")
    rows.loc[rows["a"] > 0, "grade"] = "mild"
    rows.loc[0, "grade"] = "fatal"
    release = released("grade", points=rows)
    for labels in (None, "released"):
        model = ka.fit(HistGradientBoostingClassifier(max_iter=1), release, "grade", labels=labels)
        assert model.predict_proba(UNSEEN).shape == (len(UNSEEN), 5)
        assert any("early_stopping is off" in note for note in model.report.notes)
    asked = ka.fit(HistGradientBoostingClassifier(max_iter=1, early_stopping=True), release, "grade")
    assert asked["model"].early_stopping is True and not any("early_stopping" in note for note in asked.report.notes)


def test_thinned_labels_keep_the_sums_of_each_class():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([5, 1, 0.5, 0.5, 0.3, 0.2, 0.1], size=60_000)
    thin = _thinned(p)
    np.testing.assert_allclose(thin.sum(axis=0), p.sum(axis=0), atol=1)
    assert (thin > 0).sum() < 0.8 * (p > 1e-6).sum()
    assert np.abs((thin - p).reshape(600, 100, -1).mean(axis=1)).max() < 0.1
    assert ((thin > 0).sum(axis=0) >= 0.25 * np.minimum(60_000, (p > 0).sum(axis=0))).all()
    two = rng.dirichlet([1, 200], size=1000)
    np.testing.assert_array_equal(_thinned(two), two)


def test_rows_of_an_estimator_without_weights_have_labels_drawn_from_the_probabilities(ill: Release):
    source = find_labels("smoothed", ill, DOMAIN["ill"], "classification", ("a",))
    rows = training_rows(ill, target_of(ill, "ill"), "resampled", labels=source)
    assert len(rows.frame) == N
    p: Any = source.predict_proba(rows.frame)[:, 1]
    assert np.corrcoef(p, rows.cells)[0, 1] < 0.9  # labels cut at one quantile of all rows would follow p
    near_half = np.abs(p - 0.5) < 0.2
    assert 0.3 < rows.cells[near_half & (p > 0.5)].mean() < 0.75


@every(("target", "task", "why"), [("a", "classification", "it is a real"), ("ill", "regression", "it is a boolean")])
def test_columns_that_cannot_be_smoothed_are_refused(ill: Release, target: str, task: str, why: str):
    with pytest.raises(ValueError, match=rf'cannot be "smoothed" here: {why}.*take "released"'):
        find_labels("smoothed", ill, DOMAIN[target], task, ("city",))


def test_rows_of_one_class_have_nothing_to_smooth():
    release = released("ill", points=table(50, 0).assign(ill=True))
    with pytest.raises(ValueError, match="all rows have one class of 'ill'"):
        fit_smoothed_classes(release, "ill")
    with pytest.raises(ValueError, match="no classes to separate"):
        ka.fit(DecisionTreeClassifier(), release, "ill")


def test_boosting_of_smoothed_labels_has_a_penalty_unless_the_user_names_one(ill: Release):
    """Also inside another estimator, where a search may set it."""

    def penalty(model: HistGradientBoostingClassifier, labels: Any = None) -> tuple[float, bool]:
        fitted = ka.fit(model, ill, "ill", labels=labels)
        return fitted["model"].l2_regularization, any("l2_regularization is 10" in note for note in fitted.report.notes)

    assert penalty(HistGradientBoostingClassifier(max_iter=1)) == (10.0, True)
    assert penalty(HistGradientBoostingClassifier(max_iter=1, l2_regularization=0.5)) == (0.5, False)
    assert penalty(HistGradientBoostingClassifier(max_iter=1), "released") == (0.0, False)
    search = GridSearchCV(HistGradientBoostingClassifier(max_iter=1), {"l2_regularization": [0.1, 3.0]}, cv=2)
    assert ka.fit(search, ill, "ill")["model"].best_params_["l2_regularization"] in (0.1, 3.0)


def test_trees_of_a_forest_see_all_smoothed_labels_unless_the_user_says_otherwise(ill: Release):
    truth = UNSEEN["ill"].to_numpy(dtype=bool)
    forest = ka.fit(RandomForestClassifier(20, random_state=0), ill, "ill")
    assert forest["model"].bootstrap is False and any("bootstrap is off" in note for note in forest.report.notes)
    asked = ka.fit(RandomForestClassifier(20, random_state=0, max_samples=1.0), ill, "ill")
    assert asked["model"].bootstrap is True and not asked.report.notes
    losses = [log_loss(truth, model.predict_proba(UNSEEN)[:, 1]) for model in (forest, asked)]
    assert losses[0] < losses[1]
    assert ka.fit(RandomForestClassifier(5), ill, "ill", labels="released")["model"].bootstrap is True


def test_drawn_labels_do_not_follow_the_order_in_which_the_rows_were_made():
    """Publishing orders cells of rows by a permutation, and its seed may be that of a fit: 0 by default."""
    n, rng = 2_000, np.random.default_rng(0)
    rng.random()
    share = (rng.permutation(n) + 0.5) / n
    chosen = _drawn_labels(np.repeat(np.arange(n), 2), np.column_stack([1 - share, share]).ravel(), None, 0)
    assert (chosen // 2 == np.arange(n)).all()
    assert roc_auc_score(chosen % 2, share) == pytest.approx(5 / 6, abs=0.03)  # of labels of these shares
    assert (chosen % 2).mean() == pytest.approx(0.5, abs=0.03)
