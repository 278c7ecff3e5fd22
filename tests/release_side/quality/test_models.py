"""Models on both sides: which target, what is compared, and that a release that is the table trains what the table trains."""

from __future__ import annotations

import math

import numpy as np
import pytest
from quality_cases import DOMAIN, people

import kmeanalyst as ka
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.column import Column
from release_side.errors import PublishError
from release_side.quality import models
from release_side.quality.models import chosen_target, compare_models

THREE = models.estimators_of


def release_of(*columns: Column) -> Release:
    domain = ka.Domain(columns)
    return ka.from_frame(domain.decode(domain.draw(20, 0)).assign(weight=0.05), domain=domain)


def test_the_default_target_is_the_last_column_of_few_levels_else_the_last_number():
    number, levels = ka.Real(name="x", lower=0, upper=1), ka.Categorical(name="a", levels=("u", "v"))
    other = ka.Categorical(name="many", levels=tuple(map(str, range(30))))
    assert chosen_target(release_of(levels, number, other), None) == "a"
    assert chosen_target(release_of(other, number), None) == "x"
    assert chosen_target(release_of(other, ka.Text(name="t", length=2, alphabet="ab")), None) is None
    assert chosen_target(release_of(levels), None) is None


@pytest.mark.parametrize("name", ["nothing", "many"])
def test_what_no_model_here_predicts_is_refused(name: str):
    release = release_of(ka.Categorical(name="many", levels=tuple(map(str, range(30)))), ka.Boolean(name="b"))
    with pytest.raises(PublishError, match="is not a column of the release with 2 to 20 levels"):
        chosen_target(release, name)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "metric"), [("ill", "roc_auc"), ("town", "roc_auc"), ("hours-per-week", "r2")])
def test_a_release_of_the_tables_own_rows_trains_models_as_good_as_the_tables(monkeypatch, target: str, metric: str):
    monkeypatch.setattr(models, "estimators_of", THREE)
    sample = DOMAIN.decode(DOMAIN.encode(people(1200)))
    other = DOMAIN.decode(DOMAIN.encode(people(1200, seed=3)))  # the release has other rows of the same population
    release = ka.from_frame(other.assign(weight=1 / 1200), domain=DOMAIN)
    found = compare_models(release, target, sample)
    assert (found.target, found.metric, found.rows) == (target, metric, 1200)
    assert len({each.estimator for each in found.models}) == 3
    for each in found.models:
        assert each.release == pytest.approx(each.table, abs=0.06), each
        assert 0 < each.table_deviation < 0.1


def test_rows_without_the_target_are_left_out():
    sample = DOMAIN.decode(DOMAIN.encode(people(400)))
    release = ka.from_frame(sample.assign(weight=1 / 400), domain=DOMAIN)
    found = compare_models(release, "pay", sample)
    assert found.rows == int(sample["pay"].notna().sum()) < 400
    assert found.metric == "r2" and 0.5 < found.models[0].table <= found.models[0].release + 0.1


def test_a_score_that_cannot_be_computed_says_why(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    sample = DOMAIN.decode(DOMAIN.encode(people(60))).assign(ill=False)  # one class
    (each,) = compare_models(release, "ill", sample).models
    assert math.isnan(each.table) and each.note


def test_the_tables_models_are_scored_on_rows_that_did_not_train_them(monkeypatch):
    """A tree without a limit knows its own rows; of labels by chance it knows no others."""
    from sklearn.tree import DecisionTreeClassifier

    monkeypatch.setattr(models, "estimators_of", lambda is_class: [DecisionTreeClassifier(random_state=0)])
    sample = DOMAIN.decode(DOMAIN.encode(people(500)))
    sample["ill"] = np.random.default_rng(0).random(500) < 0.5
    release = ka.from_frame(sample.assign(weight=1 / 500), domain=DOMAIN)
    (each,) = compare_models(release, "ill", sample).models
    assert abs(each.table - 0.5) < 4 * 0.5 / np.sqrt(500) < 0.1 < each.release - each.table


def test_the_folds_are_the_same_each_time(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    sample = DOMAIN.decode(DOMAIN.encode(people(200)))
    first, again = (compare_models(release, "ill", sample).models[0] for _ in range(2))
    np.testing.assert_array_equal([first.table, first.release], [again.table, again.release])
