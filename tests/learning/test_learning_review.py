"""Training and scoring where people stumbled: options, kinds of estimators, names of features, weights, and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder
from sklearn.svm import SVC

from kmeanalyst.learning.column_law.embedding_models import fit_embedding
from kmeanalyst.learning.rows.encoder import DomainEncoder
from kmeanalyst.learning.rows.labels import measured_labels, measured_model
from kmeanalyst.learning.scoring.evaluation import TRAINED_HERE, score
from kmeanalyst.learning.scoring.importance import feature_importance
from kmeanalyst.learning.training import pipeline
from kmeanalyst.learning.training.pipeline import read_model, write_model
from kmeanalyst.learning.training.refits import Refits, refit
from kmeanalyst.learning.training.training import fit
from kmeanalyst.release import Release, from_frame
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real

DOMAIN = Domain(
    (
        Real(name="x", lower=-3, upper=3),
        Real(name="v", lower=0, upper=1),
        Categorical(name="job", levels=("clerk", "baker", "abbot", "dancer")),
        Boolean(name="ill"),
    )
)
N = 120


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Rows without a dancer."""
    rng = np.random.default_rng(0)
    x, job = rng.normal(size=N).clip(-3, 3), rng.integers(0, 3, N)
    jobs = np.array(["clerk", "baker", "abbot"])[job]
    return pd.DataFrame({"x": x + 0.5 * job - 0.5, "v": rng.random(N), "job": jobs, "ill": x + rng.normal(size=N) > 0})


def weighted(frame: pd.DataFrame, weights: np.ndarray) -> Release:
    return from_frame(frame.assign(weight=weights), domain=DOMAIN)


@pytest.fixture(scope="module")
def plain(frame: pd.DataFrame) -> Release:
    return weighted(frame, np.full(N, 1 / N))


def test_histogram_boosting_inside_another_estimator_keeps_its_own_loss_as_the_score(plain: Release) -> None:
    boosted = make_pipeline(MinMaxScaler(), HistGradientBoostingClassifier(max_iter=3))
    assert fit(boosted, plain, "ill", view="probability").report is not None


def test_whole_numbers_are_classified_by_the_points_own_labels(mixed_release: Release) -> None:
    model = fit(LogisticRegression(max_iter=300), mixed_release, "children", columns=["age", "married"])
    assert model.report is not None and model.report.labels == "released"
    with pytest.raises(ValueError, match="quantiles, which are not all its values"):
        fit(LogisticRegression(), mixed_release, "children", columns=["age", "married"], labels="measured")


def test_measured_labels_of_numbers_are_within_the_public_bounds(mixed_release: Release) -> None:
    column = mixed_release.domain["capital.gain"]
    _, cells, _ = measured_labels(
        measured_model(mixed_release, "capital.gain"), column, "regression", mixed_release.to_frame()
    )
    assert cells.min() >= 0 and cells.max() <= 99999


@pytest.mark.parametrize("option", ["encoding", "missing", "task", "labels"])
def test_an_unknown_option_of_to_sklearn_is_refused(plain: Release, option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} must be one of .*, got 'bogus'. Leave it out"):
        plain.to_sklearn("ill", **{option: "bogus"})


def test_an_unknown_encoding_is_refused_in_training(plain: Release) -> None:
    with pytest.raises(ValueError, match="encoding must be one of onehot, cells, codes, natural, got 'one-hot'"):
        fit(LogisticRegression(), plain, "ill", encoding="one-hot")  # type: ignore[arg-type]


def test_a_clusterer_is_given_no_target(plain: Release) -> None:
    with pytest.raises(ValueError, match=r"KMeans is unsupervised, so target='ill' would be ignored.*Leave target out"):
        fit(KMeans(2), plain, "ill")


def test_what_is_no_release_is_refused_by_name(frame: pd.DataFrame) -> None:
    with pytest.raises(TypeError, match=r"trained on a Release, got a DataFrame. Read one"):
        fit(LogisticRegression(), frame, "ill")  # type: ignore[arg-type]


def test_a_column_computed_from_the_target_is_no_predictor(plain: Release) -> None:
    told = plain.transform({"baker": "job == 'baker'", "hint": "x * (baker == true)"})
    for name in ("baker", "hint"):
        with pytest.raises(ValueError, match=f"{name} is computed from job, the target"):
            fit(LogisticRegression(), told, "job", columns=["x", name])


def test_votes_of_pipelines_that_encode_columns_are_given_natural_columns(plain: Release) -> None:
    columns = ColumnTransformer([("job", OneHotEncoder(), ["job"])], remainder="passthrough")
    votes = VotingClassifier([("one", make_pipeline(columns, LogisticRegression()))])
    model = fit(votes, plain, "ill")
    assert model.report is not None and model.report.encoding == "natural"


def test_ranks_are_scored_where_a_class_was_never_learned(plain: Release, frame: pd.DataFrame) -> None:
    model = fit(LogisticRegression(), plain, "job")
    assert np.isneginf(model.decision_function(frame)[:, 3]).all()
    assert 0.5 < score(model, frame, "roc_auc").value < 1


def test_scores_of_pairs_of_classes_are_not_taken_for_scores_of_classes(plain: Release, frame: pd.DataFrame) -> None:
    four = weighted(frame.assign(job=np.where(np.arange(N) < 20, "dancer", frame["job"])), np.full(N, 1 / N))
    model = fit(SVC(decision_function_shape="ovo"), four, "job")
    assert model.decision_function(frame).shape == (N, 6)
    with pytest.raises(ValueError, match=r'6 scores for 4 classes.*decision_function_shape="ovr"'):
        score(model, four, "roc_auc")


def test_importance_is_of_the_columns_that_the_model_was_fitted_with(plain: Release, frame: pd.DataFrame) -> None:
    model = fit(LogisticRegression(), plain, "ill", columns=["x", "job"])
    assert set(feature_importance(model, frame, repeats=1).index) == {"x", "job"}


def test_cells_between_near_edges_are_features_of_their_own() -> None:
    edges = (1234561, 1234562, 1234563)
    encoder = DomainEncoder([Integer(name="n", lower=0, upper=3000000, edges=edges).to_dict()], encoding="cells")
    cells = encoder.transform(pd.DataFrame({"n": [5, *edges]})).iloc[:, 1:].to_numpy()
    assert (cells == np.eye(4)).all() and len(encoder.get_feature_names_out()) == 5


def test_columns_whose_features_would_share_a_name_lose_none() -> None:
    columns = [Real(name="a", lower=0, upper=1, missing=True), Boolean(name="a missing")]
    encoder = DomainEncoder([column.to_dict() for column in columns])
    features = encoder.transform(pd.DataFrame({"a": [0.25, np.nan], "a missing": [True, False]}))
    assert features.to_numpy().tolist() == [[0.25, 0, 1], [0.5, 1, 0]]
    assert list(features.columns) == list(encoder.get_feature_names_out())


@pytest.mark.parametrize("view", ["signed", "probability"])
def test_weights_are_the_same_to_the_last_bit_times_a_constant_and_beside_rows_of_weight_zero(
    frame: pd.DataFrame, view: str
) -> None:
    weights = np.random.default_rng(1).normal(1, 0.6, N)
    first = weighted(frame, weights).to_sklearn("ill", view=view).sample_weight  # type: ignore[arg-type]
    more = pd.concat([frame.iloc[:7], frame], ignore_index=True)
    for factor in (-3.0, 1e12, 1e-12, 0.1):
        release = weighted(more, np.concatenate([np.zeros(7), factor * weights]))
        assert (release.to_sklearn("ill", view=view).sample_weight == first).all()  # type: ignore[arg-type]


def test_rows_too_light_to_count_are_left_out(frame: pd.DataFrame) -> None:
    release = weighted(frame, np.where(np.arange(N) == 0, 1e14, np.where(np.arange(N) < 40, 1e13, 1.0)))
    data = release.to_sklearn("ill", view="signed")
    assert len(data.X) == len(data.y) == len(data.sample_weight) == 40 and data.sample_weight.min() > 0


def test_the_report_of_negative_weights_throughout_is_that_of_their_opposites(
    plain: Release, frame: pd.DataFrame
) -> None:
    model = fit(LogisticRegression(), weighted(frame, np.full(N, -2.0)), "ill")
    assert model.report is not None and model.report.view == "probability"


def test_a_slice_of_a_model_is_a_plain_pipeline_that_works(plain: Release, frame: pd.DataFrame) -> None:
    model = fit(LogisticRegression(), plain, "ill")
    features = model[:-1].transform(frame)
    assert (model[-1:].predict(features) == model.predict(frame)).all()


def test_scikit_learn_can_cross_validate_copies_of_a_model(plain: Release, frame: pd.DataFrame) -> None:
    model = fit(LogisticRegression(), plain, "ill")
    found = cross_val_score(model, frame, frame["ill"], cv=3, scoring="roc_auc", error_score="raise")
    assert np.isfinite(found).all()


def test_a_clusterer_is_not_refitted(mixed_release: Release) -> None:
    model = fit(KMeans(2, n_init=1), mixed_release)
    with pytest.raises(ValueError, match=r"KMeans has no target.*Refit a classifier or regressor"):
        refit(model, mixed_release, redraws=2)


def test_refits_say_that_a_score_is_on_the_release_learned_from(plain: Release, frame: pd.DataFrame) -> None:
    model = fit(LogisticRegression(), plain, "ill")
    refits = Refits(model, (model, model))
    assert TRAINED_HERE in refits.score(plain, "accuracy").loc["accuracy", "note"]
    assert TRAINED_HERE not in refits.score(frame, "accuracy").loc["accuracy", "note"]


@pytest.mark.parametrize("metric", ["roc_auc", "accuracy", "log_loss"])
@pytest.mark.parametrize("view", [None, "probability"])
def test_scores_and_their_errors_do_not_hang_on_what_weights_from_elsewhere_sum_to(
    plain: Release, frame: pd.DataFrame, metric: str, view: str | None
) -> None:
    weights = np.random.default_rng(2).uniform(0.1, 3, N)
    model = fit(LogisticRegression(), plain, "ill")
    shares, counts = (
        score(model, weighted(frame, some), metric, view=view)  # type: ignore[arg-type]
        for some in (weights / weights.sum(), weights)
    )
    assert counts.value == pytest.approx(shares.value, abs=1e-12)
    assert counts.standard_error == pytest.approx(shares.standard_error, rel=1e-9)
    assert 0.01 < counts.standard_error < 0.1


def test_models_scored_on_the_same_weights_from_elsewhere_keep_their_correlation(
    plain: Release, frame: pd.DataFrame
) -> None:
    model, release = fit(LogisticRegression(), plain, "ill"), weighted(frame, np.full(N, 3.0))
    assert (score(model, release) - score(model, release)).standard_error == pytest.approx(0, abs=1e-12)


def test_a_model_from_the_embedding_says_that_it_is_scored_on_its_own_release(mixed_release: Release) -> None:
    model = fit_embedding(mixed_release, "married")
    assert TRAINED_HERE in score(model, mixed_release, "accuracy").notes


def test_a_file_whose_model_has_no_report_of_training_is_refused(plain: Release, tmp_path: Path) -> None:
    model = fit(LogisticRegression(), plain, "ill")
    model.report = "ε = 0.001, trust me"  # type: ignore[assignment]
    write_model(model, tmp_path / "forged.skops")
    with pytest.raises(ValueError, match=r"without the report of its training.*Ask for the file"):
        read_model(tmp_path / "forged.skops")


def test_a_refitted_score_has_students_t_for_its_share_of_the_refits_alone(plain: Release, frame: pd.DataFrame) -> None:
    """Power: with t for all of the error, an interval that the refits add nothing to would be 6.5 times as wide."""
    model = fit(LogisticRegression(), plain, "ill")
    found = Refits(model, (model, model)).score(frame, "accuracy").loc["accuracy"]
    assert found["of_training"] == 0
    assert found["high"] - found["value"] == pytest.approx(1.959964 * found["of_evaluation"], rel=1e-5)
    assert Refits(model, (model, model))._degrees_of_freedom(1.0) == 1


def test_a_model_file_that_would_fill_the_memory_is_refused_unread(
    plain: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_model(fit(LogisticRegression(), plain, "ill"), tmp_path / "model.skops")
    monkeypatch.setattr(pipeline, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"unpacks to [\d,]+ bytes.*could fill the memory.*read it with skops"):
        read_model(tmp_path / "model.skops")
