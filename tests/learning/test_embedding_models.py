"""Models straight from the measurement: what they compute, how they behave, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from learning_cases import release_around
from sklearn.base import clone, is_classifier, is_regressor

from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.learning.column_law import measured_law
from kmeanalyst.learning.column_law.embedding_models import (
    EmbeddingClassifier,
    EmbeddingRegressor,
    fit_embedding,
)
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel, table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.measurement import feature_mean

N = 20_000
NOISE = 2e-4
DOMAIN = Domain((
    Real(name="a", lower=-3, upper=3),
    Categorical(name="y", levels=("zebra", "ant", "mole")),
    Real(name="b", lower=-3, upper=3, missing=True),
    Boolean(name="g"),
    Real(name="t", lower=-4, upper=4, missing=True),
))  # fmt: skip
SMALL = Domain((DOMAIN["a"], DOMAIN["g"], DOMAIN["t"]))
ROWS = 300  # to predict


def probabilities(frame: pd.DataFrame) -> np.ndarray:
    """P(ant), P(mole), P(zebra) given a and g: the classes in the order of their names."""
    score = np.column_stack([2 * frame["a"], np.where(frame["g"], 1.0, -1.0), np.zeros(len(frame))])
    shares = np.exp(score)
    return shares / shares.sum(axis=1, keepdims=True)


def mean(frame: pd.DataFrame) -> np.ndarray:
    return np.sin(1.5 * frame["a"].to_numpy(dtype=float)) + np.where(frame["g"], 0.5, -0.5)


def table(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.uniform(-3, 3, n), "b": rng.uniform(-3, 3, n), "g": rng.random(n) < 0.5})
    below = probabilities(frame).cumsum(axis=1)
    frame["y"] = np.array(["ant", "mole", "zebra"])[(rng.random((n, 1)) > below[:, :2]).sum(axis=1)]
    frame["t"] = np.clip(mean(frame) + 0.3 * rng.normal(size=n), -4, 4)
    frame.loc[rng.random(n) < 0.1, "b"] = np.nan
    frame.loc[rng.random(n) < 0.1, "t"] = np.nan
    return frame


MAPS: dict[str, FeatureMap] = {
    "random features": RandomFourier.draw(
        table_kernel(DOMAIN), n_columns=5, dimension=600, missing_columns=(2, 4), rng=1
    ),
    "margins": MarginFeatures(margin_kernel(DOMAIN, "y")),
    "small": RandomFourier.draw(table_kernel(SMALL), n_columns=3, dimension=200, missing_columns=(2,), rng=1),
}
WITH_LEVELS = ("random features", "margins")
UNSEEN = table(ROWS, 5)


def noisy_release(of: str, target: str = "y", noise: float = NOISE) -> Release:
    """Of a table of N rows; the points have the distribution of its other columns, unrelated to the target."""
    domain, feature_map, rng = (SMALL if of == "small" else DOMAIN), MAPS[of], np.random.default_rng(0)
    vector = feature_mean(feature_map, domain.encode(table(N, 10)))
    points = table(300 if of == "small" else 600, 20)
    points[target] = rng.permutation(points[target].to_numpy())
    vector = vector + noise * rng.normal(size=len(vector))
    return release_around(vector, feature_map, domain, points, noise=noise, n_rows=N)


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    return {of: noisy_release(of, "t" if of == "small" else "y") for of in MAPS}


@pytest.fixture(scope="module")
def classifier(releases: dict[str, Release]) -> EmbeddingClassifier:
    return EmbeddingClassifier("y").fit(releases["random features"])


@pytest.fixture(scope="module")
def regressor(releases: dict[str, Release]) -> EmbeddingRegressor:
    return EmbeddingRegressor("t").fit(releases["small"])


# ---------------------------------------------------------------- the fitted distribution


@pytest.mark.parametrize("of", WITH_LEVELS)
def test_the_distribution_is_found_though_the_points_labels_carry_no_information(of: str, releases: dict[str, Release]):
    model = EmbeddingClassifier("y").fit(releases[of])
    found, truth = model.predict_proba(UNSEEN), probabilities(UNSEEN)
    away = np.sqrt(((found - truth) ** 2).mean())
    constant = np.sqrt(((truth - truth.mean(axis=0)) ** 2).mean())
    assert away < 0.45 * constant  # the points' own labels, unrelated to the rest, give nothing better than 1


def test_a_mean_is_found_and_rows_whose_number_is_missing_are_left_out(regressor: EmbeddingRegressor):
    assert DOMAIN["t"].missing
    found = regressor.predict(UNSEEN)
    assert 1 - ((found - mean(UNSEEN)) ** 2).mean() / mean(UNSEEN).var() > 0.9


def test_a_dependence_hidden_by_noise_is_not_claimed():
    """With fixed prior spreads, probabilities of one class range over 0.9 here."""
    drowned = EmbeddingClassifier("y").fit(noisy_release("random features", noise=0.3))
    assert np.ptp(drowned.predict_proba(UNSEEN), axis=0).max() < 0.05


def test_standard_errors_are_the_spread_of_answers_over_theta(classifier: EmbeddingClassifier):
    """Draws of θ from a hundredth of its covariance, where first order holds: spreads a tenth, known to 3.5 %."""
    law, rng, few = classifier.law_, np.random.default_rng(0), UNSEEN.iloc[:5]
    stated, mode = classifier.standard_errors(few), law.theta.copy()
    root = np.linalg.cholesky(law.covariance) / 10
    drawn = []
    for _ in range(400):
        object.__setattr__(law, "theta", mode + (root @ rng.normal(size=mode.size)).reshape(mode.shape))
        drawn.append(classifier.predict_proba(few))
    object.__setattr__(law, "theta", mode)
    assert np.allclose(10 * np.std(drawn, axis=0), stated, rtol=0.2)


def test_more_noise_gives_larger_errors(regressor: EmbeddingRegressor):
    noisier = EmbeddingRegressor("t").fit(noisy_release("small", "t", 10 * NOISE))
    assert noisier.standard_errors(UNSEEN).mean() > 1.2 * regressor.standard_errors(UNSEEN).mean()


# ---------------------------------------------------------------- as scikit-learn has it


def test_classes_are_all_levels_in_order_and_columns_follow_them(classifier: EmbeddingClassifier):
    assert classifier.classes_.tolist() == ["ant", "mole", "zebra"]
    found = classifier.predict_proba(UNSEEN)
    assert found.shape == (ROWS, 3) and (found >= 0).all() and np.allclose(found.sum(axis=1), 1)
    assert (classifier.predict(UNSEEN) == classifier.classes_[found.argmax(axis=1)]).all()
    right = classifier.predict(UNSEEN) == UNSEEN["y"].to_numpy()
    assert classifier.score(UNSEEN, UNSEEN["y"]) == right.mean() > 0.5


def test_the_target_chooses_the_model(regressor: EmbeddingRegressor, releases: dict[str, Release]):
    again = fit_embedding(releases["small"], "t")
    assert isinstance(again, EmbeddingRegressor) and is_regressor(again)
    assert np.array_equal(again.predict(UNSEEN), regressor.predict(UNSEEN))
    boolean: Any = fit_embedding(releases["random features"], "g")
    assert is_classifier(boolean) and clone(boolean).get_params() == {"target": "g"}
    assert boolean.classes_.tolist() == [False, True] and boolean.classes_.dtype == bool
    assert set(boolean.predict(UNSEEN)) == {False, True}


def test_a_frame_is_known_by_its_columns_names(classifier: EmbeddingClassifier):
    others = UNSEEN[["t", "g", "b", "a"]].assign(weight=1.0)
    assert np.array_equal(classifier.predict_proba(others), classifier.predict_proba(UNSEEN))
    assert classifier.feature_names_in_.tolist() == ["a", "b", "g", "t"] and classifier.n_features_in_ == 4


def test_a_logarithmic_target_is_predicted_in_its_own_units():
    domain = Domain((Boolean(name="g"), Real(name="t", lower=1, upper=1000, scale="log")))
    rng = np.random.default_rng(0)
    g = rng.random(4000) < 0.5
    frame = pd.DataFrame({"g": g, "t": np.where(g, 100.0, 10.0) * np.exp(0.1 * rng.normal(size=4000))})
    feature_map = MarginFeatures(margin_kernel(domain, "t"))
    vector = feature_mean(feature_map, domain.encode(frame))
    release = release_around(vector, feature_map, domain, frame[:1000], noise=1e-4, n_rows=N)
    found = EmbeddingRegressor("t").fit(release).predict(pd.DataFrame({"g": [False, True]}))
    assert np.allclose(found, [10, 100], rtol=0.15)


# ---------------------------------------------------------------- refusals


def test_a_release_without_measurement_is_refused():
    external = from_frame(table(50, 0).assign(weight=1 / 50), domain=DOMAIN)
    for model in (EmbeddingClassifier("y"), EmbeddingRegressor("t")):
        with pytest.raises(ValueError, match=r"no measurement.*points from elsewhere.*Train a model on its rows"):
            model.fit(external)
    with pytest.raises(ValueError, match=r"fitted to a Release, got a DataFrame.*Pass the release"):
        EmbeddingClassifier("y").fit(table(5, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (EmbeddingClassifier("w").fit, r"no column 'w'.*of a, y, b, g, t.*Name one"),
        (EmbeddingRegressor("w").fit, r"no column 'w'.*of a, y, b, g, t.*Name one"),
        (lambda release: fit_embedding(release, "w"), r"no column 'w'"),
        (EmbeddingClassifier("t").fit, r"'t' is real.*for a column of levels.*another target"),
        (EmbeddingRegressor("y").fit, r"'y' is categorical.*for a column of numbers.*another target"),
    ],
)
def test_an_unknown_target_or_one_of_the_wrong_kind_is_refused(fit: Any, message: str, releases: dict[str, Release]):
    with pytest.raises(ValueError, match=message):
        fit(releases["margins"])


@pytest.mark.parametrize(
    ("domain", "model", "message"),
    [
        (Domain((Boolean(name="g"),)), EmbeddingClassifier("g"), r"only column.*Release others"),
        (
            Domain((Boolean(name="g"), Integer(name="t", lower=0, upper=9))), EmbeddingRegressor("t"),
            r"one value 3 at all points.*another target",
        ),
    ],
    ids=["alone", "of one value"],
)  # fmt: skip
def test_a_target_alone_or_of_one_value_is_refused(domain: Domain, model: Any, message: str):
    cells = MarginFeatures(margin_kernel(domain, model.target))
    points = pd.DataFrame({"g": [True, False], "t": [3, 3]})[list(domain.names)]
    release = release_around(np.zeros(cells.dimension), cells, domain, points, noise=1e-3, n_rows=N)
    with pytest.raises(ValueError, match=message):
        model.fit(release)


def test_rows_that_are_no_frame_of_the_columns_are_refused(classifier: EmbeddingClassifier):
    with pytest.raises(ValueError, match=r"must be a DataFrame, got a ndarray.*names.*a, b, g, t"):
        classifier.predict_proba(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r'frame of rows to predict lacks "g"'):
        classifier.predict(UNSEEN.drop(columns="g"))


def test_too_many_levels_are_refused(monkeypatch: pytest.MonkeyPatch, releases: dict[str, Release]):
    monkeypatch.setattr(measured_law, "_MOST_NUMBERS", 5)
    with pytest.raises(ValueError, match=r"numbers to fit from .* moments.*too long.*rows instead"):
        EmbeddingClassifier("y").fit(releases["margins"])
