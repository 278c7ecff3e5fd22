"""Scores of a model on a release or a sample: values, errors, views, notes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
import simulated_releases as sim
import sklearn.metrics as sk
from evaluation_cases import DOMAIN, JOBS, POINTS, SICK, SIGNED, Classifier, High, Regressor, measured, points, weighted
from every import every
from sklearn.linear_model import LogisticRegression

from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.learning.scoring.evaluation import score
from kmeanalyst.learning.training.pipeline import digest
from kmeanalyst.learning.training.training import fit
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.file import write_release

ILL, INPUT = POINTS["ill"].to_numpy(dtype=bool), POINTS.drop(columns="ill")


@pytest.fixture(scope="module")
def plain() -> Release:
    return weighted(np.abs(SIGNED) / np.abs(SIGNED).sum())


@pytest.fixture(scope="module")
def signed() -> Release:
    return weighted(SIGNED)


class Number:
    """x1 guessed from x0."""

    target = "x1"

    def predict(self, frame: pd.DataFrame) -> np.ndarray:
        return 0.2 + 0.6 * frame["x0"].to_numpy()


def test_scores_are_scikit_learns_on_the_released_rows(plain):
    w, p, predicted = plain.weights, SICK.predict_proba(INPUT)[:, 1], SICK.predict(INPUT)
    jobs, abbots = JOBS.predict(POINTS.drop(columns="job")), POINTS["job"] == "abbot"
    wages = Regressor().predict(POINTS)
    expected = [
        (score(SICK, plain), sk.roc_auc_score(ILL, p, sample_weight=w)),
        (score(SICK, plain, positive=False), sk.roc_auc_score(ILL, p, sample_weight=w)),
        (score(SICK, plain, "f1"), sk.f1_score(ILL, p > 0.5, sample_weight=w)),
        (score(SICK, plain, "recall"), sk.recall_score(ILL, predicted, sample_weight=w)),
        (score(SICK, plain, "recall", positive=False), sk.recall_score(ILL, predicted, sample_weight=w, pos_label=False)),
        (score(JOBS, plain), sk.accuracy_score(POINTS["job"].astype(str), jobs, sample_weight=w)),
        (score(JOBS, plain, "precision", positive="abbot"), sk.precision_score(abbots, jobs == "abbot", sample_weight=w)),
        (score(Regressor(), plain), sk.r2_score(POINTS["wage"], wages, sample_weight=w)),
        (score(SICK, plain, lambda truth, predicted: np.where(truth & ~predicted, 10.0, predicted & ~truth)),
         w @ (10.0 * (ILL & ~predicted) + (predicted & ~ILL))),
    ]  # fmt: skip
    for found, value in expected:
        assert found.value == pytest.approx(value), found.question


def test_a_score_under_a_condition_is_of_its_rows(plain):
    frame = plain.to_frame().query("n > 3 and x < 2")
    truth, p = frame["ill"].astype(bool), SICK.predict_proba(frame.drop(columns="ill"))[:, 1]
    found = score(SICK, plain, where=["n > 3", "x < 2"])
    assert found.value == pytest.approx(sk.roc_auc_score(truth, p, sample_weight=frame["weight"]))
    assert found.question == "roc_auc(ill) | (n > 3) and (x < 2) and (not missing(ill))"


def test_the_model_predicts_once_for_all_metrics_and_views(signed):
    model = Classifier("ill", [False, True])
    found = score(model, signed, ["accuracy", "f1", "log_loss", "roc_auc", "average_precision"])
    assert isinstance(found, Estimates)
    assert sorted(model.calls) == ["predict", "predict_proba"]
    assert [e.view for e in found] == ["signed", "signed", "signed", "probability", "probability"]
    frame = found.to_frame()
    assert list(frame.index[:2]) == ["accuracy(ill) | not missing(ill)", "f1(ill) | not missing(ill)"]
    assert {"value", "standard_error", "low", "high", "sampling"} <= set(frame.columns)
    assert found[1].value == score(SICK, signed, "f1").value


def test_a_fitted_scikit_learn_model_is_shown_its_own_columns(plain):
    model = LogisticRegression().fit(POINTS[["x", "n"]], ILL)
    expected = sk.roc_auc_score(ILL, model.decision_function(POINTS[["x", "n"]]), sample_weight=plain.weights)
    assert score(model, plain, target="ill").value == pytest.approx(expected)
    with pytest.raises(ValueError, match=r'lack "?n"?, which the model was fitted with.*Add the columns'):
        score(model, POINTS.drop(columns="n"), target="ill")


def test_a_score_of_a_measured_release_has_its_error_in_parts():
    found = score(High(), measured(0), ["accuracy", "roc_auc"])
    for e in found:
        assert all(part is not None and part > 0 for part in e.parts.values())
        low, high = e.interval(kind="robust")
        assert low <= e.interval()[0] < e.interval()[1] <= high


def test_the_accuracy_is_the_expectation_of_being_right(mixed_release):
    model = Classifier("married", [False, True], features=None)
    model.predict_proba = lambda frame: np.column_stack([frame["age"] <= 50, frame["age"] > 50]).astype(float)  # type: ignore[method-assign]
    model.predict = lambda frame: (frame["age"] > 50).to_numpy()  # type: ignore[method-assign]
    found = score(model, mixed_release, "accuracy")
    by_hand = mixed_release.expectation(lambda f: (f["age"] > 50) == f["married"])
    assert found.value == pytest.approx(by_hand.value)
    assert found.parts == pytest.approx(by_hand.parts, rel=1e-6)


def test_two_models_on_one_release_are_compared_with_their_correlation():
    release = measured(1)
    first, second = score(High(), release, "accuracy"), score(_moved(0.1), release, "accuracy")
    assert (first - first).standard_error == 0
    assert (first - second).standard_error < 0.7 * np.hypot(first.standard_error, second.standard_error)


def _moved(by: float) -> High:
    model = High()
    model.predict = lambda frame: frame["x0"].to_numpy() > by  # type: ignore[method-assign]
    return model


@pytest.mark.slow
@every(("view", "epsilon"), [("signed", 1.0), ("probability", 0.1)])
def test_intervals_hold_the_scores_on_the_population(view, epsilon):
    """24 releases, 95 %: 19 or fewer covered has probability 0.006 for one metric. At ε = 1 they are not too wide."""
    everyone = pd.DataFrame(sim.population(200_000, np.random.default_rng(0)), columns=["x0", "x1"])
    everyone["high"] = everyone["x1"] > 0
    classes, numbers = ["accuracy", "f1", "log_loss", "balanced_accuracy"], ["r2", "mean_absolute_error"]
    ranks = ["roc_auc", "average_precision"] if epsilon == 1.0 else []  # at 0.1 a view may have no event at all
    truth = [e.value for e in (*score(High(), everyone, classes + ranks), *score(Number(), everyone, numbers))]
    held, widths, errors = [], [], []
    for seed in range(24):
        release = measured(seed, view, epsilon)
        found = [*score(High(), release, classes + ranks), *score(Number(), release, numbers)]
        held.append([low <= t <= high for t, (low, high) in zip(truth, (e.interval() for e in found), strict=True)])
        widths.append([e.standard_error for e in found])
        errors.append([e.value - t for e, t in zip(found, truth, strict=True)])
    assert np.sum(held, axis=0).min() >= 20, np.sum(held, axis=0)
    if epsilon == 1.0:
        accuracy, seen = np.mean(widths, axis=0)[0], np.sqrt(np.mean(np.square(errors), axis=0))[0]
        assert accuracy < 2 * seen and np.mean(widths, axis=0)[4:6].max() < 0.3


def test_a_note_on_an_infeasible_score_gives_that_of_the_probability_view():
    release = weighted(np.where(SICK.predict(INPUT) == ILL, 0.03, -0.01))
    found, feasible = (score(SICK, release, "accuracy", view=view) for view in ("signed", "probability"))
    assert found.value > 1
    note = f"{found.value:.4g} is not a possible accuracy: signed weights can give one. The probability view gives"
    assert f"{note} {feasible.value:.4g}." in found.notes
    misses = np.abs(POINTS["wage"] - Regressor().predict(POINTS)).to_numpy()
    negative_at_misses = weighted(np.linspace(0.05, -0.016, 60)[np.argsort(np.argsort(misses))])
    negative = score(Regressor(), negative_at_misses, "root_mean_squared_error")
    assert np.isnan(negative.value) and np.isnan(negative.standard_error)
    assert "root_mean_squared_error is undefined: signed weights can give one" in negative.notes[0]


def test_ranks_are_of_the_probability_view_and_refuse_signed_weights(signed, plain):
    assert score(SICK, signed).view == "probability"
    assert score(SICK, signed).value == score(SICK, signed, view="probability").value
    with pytest.raises(ValueError, match=r'ranks was asked with view="signed".*cannot be ranked.*pass view='):
        score(SICK, signed, view="signed")
    assert score(SICK, plain, view="signed").value == pytest.approx(score(SICK, plain).value)


def test_the_fitted_view_scores_the_population_that_the_errors_start_from():
    release = measured(2)
    for name in ("accuracy", "roc_auc"):
        found = score(High(), release, name, view="fitted")
        assert found.view == "fitted" and 0.5 < found.value < 1
    by_hand = release.expectation(lambda f: (f["x0"] > 0) == (f["x1"] > 0), view="fitted")
    assert score(High(), release, "accuracy", view="fitted").value == pytest.approx(by_hand.value)


def test_a_score_on_the_release_it_was_trained_on_is_refused(plain, signed):
    model = Classifier("ill", [False, True], report=SimpleNamespace(release_digest=digest(plain)))
    with pytest.raises(ValueError, match=r"trained on this very release.*sample of real rows, or on a second release"):
        score(model, plain)
    assert len(score(model, signed).notes) == len(score(model, POINTS).notes) == 1  # other rows are scored


def test_a_sample_coded_otherwise_is_refused_and_recoded(plain):
    frame = points(50, 1)
    model = Classifier("ill", [False, True], domain=DOMAIN)
    truth = score(model, frame).value
    coded = frame.assign(job=frame["job"].astype(str).str.upper()).rename(columns={"x": "height"})
    jobs = {job.upper(): job for job in frame["job"].astype(str).unique()}
    with pytest.raises(DomainError, match=r"job \(categorical.*50 of 50 cells.*recode=\{'job': \{'"):
        score(model, coded, rename={"height": "x"})
    assert score(model, coded, rename={"height": "x"}, recode={"job": jobs}).value == truth
    with pytest.raises(ValueError, match="release or an array"):
        score(model, plain, recode={"job": jobs})


def test_a_digest_is_of_weights_points_and_measurement(mixed_release, plain, signed, tmp_path):
    write_release(mixed_release, tmp_path / "a.kme")
    assert digest(read_release(tmp_path / "a.kme")) == digest(mixed_release)
    assert digest(plain.transform({"twice": "2 * x"})) == digest(plain)
    assert len({digest(plain), digest(signed), digest(mixed_release), digest(weighted(plain.weights, points(60, 4)))}) == 4
    a, b = measured(3), measured(4)
    same_points = Release(
        points=a.to_frame().drop(columns=["weight", "high"]), weights=a.weights, measurement=b.measurement, kernel=a.kernel,
        domain=a.domain, statement=b.statement,
    )  # fmt: skip
    assert digest(same_points) != digest(a)


def test_rows_without_a_target_are_left_out_with_a_note():
    frame = points(60, 3, missing=True)
    w = np.abs(SIGNED) / np.abs(SIGNED).sum()
    known = frame["ill"].notna().to_numpy(dtype=bool)
    p = SICK.predict_proba(frame.drop(columns="ill"))[known, 1]
    expected = sk.roc_auc_score(frame["ill"][known].astype(bool), p, sample_weight=w[known])
    on_release, on_sample = score(SICK, weighted(w, frame)), score(SICK, frame)
    assert on_release.value == pytest.approx(expected)
    assert on_release.question == on_sample.question == "roc_auc(ill) | not missing(ill)"
    assert "5 of 60 rows have no ill, and are left out" in on_sample.notes
    assert on_sample.value == pytest.approx(sk.roc_auc_score(frame["ill"][known].astype(bool), p))


def test_a_sample_has_the_error_of_sampling_alone_and_does_not_mention_privacy():
    frame = points(400, 8)
    found = score(SICK, frame, "accuracy")
    right = SICK.predict(frame.drop(columns="ill")) == frame["ill"].to_numpy(dtype=bool)
    assert found.value == pytest.approx(right.mean())
    assert found.standard_error == pytest.approx(right.std() / 20)
    assert found.parts == {"privacy": None, "sampling": pytest.approx(right.std() / 20), "resolution": None}
    assert found.notes == ("on a sample of 400 rows, taken as independent draws: its error is that of sampling",)
    assert "privacy" not in repr(found) and "unknown" not in repr(found) and "sampling 0.0" in repr(found)
    with pytest.raises(ValueError, match=r"a sample has none.*Ask kind="):
        found.interval(kind="robust")


def test_errors_on_samples_are_the_spread_of_samples():
    """80 samples: their spread is known to 8 %, so a true error differs by 32 % with probability 1e-4; half of it by 100 %."""
    truth = np.array([e.value for e in score(SICK, points(60_000, 0), METRICS)])
    found = [score(SICK, points(300, seed + 1), METRICS) for seed in range(80)]
    values, errors = (np.array([[getattr(e, what) for e in row] for row in found]) for what in ("value", "standard_error"))
    assert values.std(axis=0) == pytest.approx(errors.mean(axis=0), rel=0.32)
    assert (np.abs(values.mean(axis=0) - truth) < 5 * errors.mean(axis=0) / np.sqrt(80)).all()


def test_scores_of_few_rows_have_possible_intervals_and_perfect_ones_an_error():
    frame = points(400, 8)
    right = SICK.predict(frame.drop(columns="ill")) == frame["ill"].to_numpy(dtype=bool)
    some = score(SICK, pd.concat([frame[right][:4], frame[~right][:1]]), "accuracy")
    perfect = score(SICK, frame[right][:6], ["accuracy", "recall"])
    assert some.interval()[1] == 1 and some.interval()[0] == pytest.approx(0.8 - 1.96 * (0.16 / 5) ** 0.5, abs=1e-4)
    assert perfect[0].interval() == (pytest.approx(6 / (6 + 1.96**2), abs=1e-3), 1)  # Wilson's
    assert perfect[1].standard_error > perfect[0].standard_error  # of fewer rows
    assert (perfect[0] - some).standard_error == pytest.approx(np.hypot(perfect[0].standard_error, some.standard_error))
    assert score(SICK, frame[:5], "brier_score_loss").interval()[0] >= 0


def test_a_metric_of_two_classes_says_that_a_sample_has_one():
    frame = points(60, 8)
    found = score(SICK, frame[frame["ill"].astype(bool)], "roc_auc")
    assert np.isnan(found.value)
    assert found.notes[0].startswith("roc_auc is undefined: the target has one class in these rows. Ask for accuracy")


METRICS = ["accuracy", "f1", "balanced_accuracy", "log_loss", "roc_auc", "average_precision"]


def test_a_release_and_a_sample_are_compared_as_independent_in_either_order():
    release, rows = measured(5), pd.DataFrame(sim.population(500, np.random.default_rng(3)), columns=["x0", "x1"])
    rows["high"] = rows["x1"] > 0
    for metric, view in (("accuracy", "signed"), ("roc_auc", "probability")):
        here, there = score(High(), release, metric), score(High(), rows, metric)
        gap: Estimate = there - here
        assert gap.standard_error == pytest.approx(np.hypot(here.standard_error, there.standard_error))
        assert gap.view == (here - there).view == view
        assert gap.parts["privacy"] == pytest.approx(here.parts["privacy"])


@pytest.mark.parametrize("domain", [None, DOMAIN])
def test_a_sample_can_be_a_file(tmp_path, domain):
    frame = points(120, 6, missing=True)
    model = Classifier("ill", [False, True], domain=domain)
    expected = score(SICK, frame, METRICS, where="n > 2 and job == 'baker'")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for sample in (tmp_path / "rows.csv", str(tmp_path / "rows.parquet"), [frame[:50], frame[50:]]):
        found = score(model, sample, METRICS, where="n > 2 and job == 'baker'")
        assert [e.value for e in found] == pytest.approx([e.value for e in expected])
        assert [e.standard_error for e in found] == pytest.approx([e.standard_error for e in expected])


def test_a_note_counts_the_values_of_a_sample_that_the_domain_clamps():
    frame = points(50, 6)
    frame.loc[:3, "x"] = 80.0
    found = score(Classifier("ill", [False, True], domain=DOMAIN), frame.assign(id=range(50)))
    assert "x: 4 of 50 values were outside the bounds and were clamped" in found.notes
    assert found.value == score(SICK, frame.assign(x=frame["x"].clip(-5, 5))).value


@every("domain", [None, DOMAIN])
def test_unknown_levels_are_refused(domain):
    frame = points(50, 6).astype({"job": str})
    frame.loc[3, "job"] = "Baker"
    model = Classifier("job", ["abbot", "baker", "clerk"], domain=domain)
    with pytest.raises(ValueError, match=r"'Baker'.*Whether (the model|it) is right about them is unknown\. Correct"):
        score(model, frame)
    if domain is not None:  # a target in other codes
        with pytest.raises(ValueError, match=r"recode=\{'job': \{'0': '\.\.\.', '1': '\.\.\.'\}\}"):
            score(model, frame.assign(job=np.arange(50) % 2))


def test_a_model_that_lacks_a_level_can_be_scored_on_the_others(plain):
    assert 0.5 < score(Classifier("job", ["baker", "clerk"]), plain, where="job != 'abbot'").value < 1


def test_a_model_and_data_that_do_not_fit_together_are_refused_with_a_fix(plain):
    names = globals() | {"plain_rows": plain}
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, names))


def _named(model: Any, **attributes: Any) -> Any:
    model.__dict__.update(attributes)
    return model


def test_ranks_are_scored_where_a_class_was_never_learned():
    frame = POINTS[POINTS["job"] != "abbot"]
    model = fit(LogisticRegression(), weighted(np.full(len(frame), 1 / len(frame)), frame), "job")
    assert np.isneginf(model.decision_function(frame)[:, 0]).all()
    assert 0.5 < score(model, frame, "roc_auc").value < 1


@every("metric", ["roc_auc", "accuracy", "log_loss"])
@every("view", [None, "probability"])
def test_scores_and_their_errors_do_not_depend_on_the_sum_of_external_weights(metric, view):
    weights = np.random.default_rng(2).uniform(0.1, 3, 60)
    shares, counts = (score(SICK, weighted(some), metric, view=view) for some in (weights / weights.sum(), weights))
    assert counts.value == pytest.approx(shares.value, abs=1e-12)
    assert counts.standard_error == pytest.approx(shares.standard_error, rel=1e-9)
    assert 0.01 < counts.standard_error < 0.1
    release = weighted(np.full(60, 3.0))
    assert (score(SICK, release) - score(SICK, release)).standard_error == pytest.approx(0, abs=1e-12)


def test_r2_of_a_target_of_one_value_is_undefined_and_says_why():
    sample = pd.DataFrame({"x0": [0.1, 0.4, -0.3], "x1": 0.5})
    found = score(Number(), sample, "r2")
    assert not np.isfinite(found.value) and "the target has one value in these rows" in found.notes[0]
    assert np.isfinite(score(Number(), sample, "mean_absolute_error").value)
