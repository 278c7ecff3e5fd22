"""The table's own answers, over pieces; questions drawn from the domain; what holds and how far off the others are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from quality_cases import DOMAIN, people

import kmeanalyst as ka
from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.expressions import parse
from release_side.choices.workload import WorkloadQuestion, read_workload
from release_side.errors import PublishError
from release_side.quality import models
from release_side.quality.models import chosen_target, compare_models
from release_side.quality.questions import Compared, TableAnswers, chosen_questions, compare_answers, drawn_questions

LINES = [
    "age", "age > 50 and town == 'A'", "pay | not missing(pay)", "var(age)", "std(`hours-per-week`)",
    "cov(age, `hours-per-week`)", "corr(age, `hours-per-week`)", "quantile(age, 0.25)", "quantile(age, 1) | ill == true",
    "age | town == 'never'",
]  # fmt: skip


@pytest.fixture(autouse=True)
def fifty(quick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("release_side.quality.questions.MOST_QUESTIONS", 50)


def answered(lines: list[str], rows: Array, weights: Array | None = None, pieces: int = 7) -> list[float]:
    found = TableAnswers(read_workload(lines, DOMAIN).questions, DOMAIN, DOMAIN.decode)
    for part in np.array_split(np.arange(len(rows)), pieces):
        found.add(rows[part], None if weights is None else weights[part])
    return found.answers()


def test_answers_over_pieces_are_those_of_the_whole_table():
    frame = people(180)
    rows = DOMAIN.encode(frame)
    age, hours = rows[:, 1], rows[:, 3]
    ill = rows[:, 4] == 1
    pay = rows[:, 2]
    wanted = [
        age.mean(), np.mean((age > 50) & (frame["town"] == "A")), np.nanmean(pay), age.var(), hours.std(),
        np.cov(age, hours, ddof=0)[0, 1], np.corrcoef(age, hours)[0, 1], np.quantile(age, 0.25, method="inverted_cdf"),
        age[ill].max(), math.nan,
    ]  # fmt: skip
    for pieces in (1, 7, 60):
        np.testing.assert_allclose(answered(LINES, rows, pieces=pieces), wanted, rtol=1e-11)


def test_a_row_of_weight_2_is_two_rows():
    rows = DOMAIN.encode(people(300))
    weights = np.random.default_rng(0).integers(1, 4, 300)
    repeated = answered(LINES, np.repeat(rows, weights, axis=0))
    np.testing.assert_allclose(answered(LINES, rows, weights.astype(float)), repeated, rtol=1e-11)


def test_the_table_answers_as_a_release_of_its_own_rows_does():
    """Both sides read a question alike: the release whose points are the table has the table's answers."""
    frame = DOMAIN.decode(DOMAIN.encode(people(400)))
    release = ka.from_frame(frame.assign(weight=1 / 400), domain=DOMAIN)
    source, questions = chosen_questions(release, None)
    own = TableAnswers(questions, DOMAIN, DOMAIN.decode)
    own.add(DOMAIN.encode(frame), None)
    compared = compare_answers(release, source, questions, own.answers())
    known = [each for each in compared.compared if math.isfinite(each.release)]
    assert len(known) > 40
    for each in known:
        assert each.release == pytest.approx(each.table, abs=1e-9), each.question
    assert compared.known == 0 and all(each.note for each in compared.compared)  # no measurement, no noise interval


def test_fifty_questions_follow_from_the_domain_alone_and_fit_it():
    questions = drawn_questions(DOMAIN)
    assert [each.text for each in questions] == [each.text for each in drawn_questions(DOMAIN)]
    assert len(questions) == len({each.text for each in questions}) == 50
    for each in questions:
        parse(each.arguments[0]).check(DOMAIN)
        assert each.where is None or parse(each.where).check(DOMAIN) == "condition"
    kinds = [(each.where is not None, " and " in each.text) for each in questions]
    assert len(set(kinds)) > 2


def test_a_domain_of_one_column_has_fewer_questions():
    questions = drawn_questions(ka.Domain((ka.Categorical(name="a", levels=("x", "y")),)))
    assert sorted(each.text for each in questions) == ["a == 'x'", "a == 'y'"]


def test_the_tables_of_a_workload_are_asked_cell_by_cell(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    source, questions = chosen_questions(release, ["table(town, ill)", "age"])
    assert len(questions) == 4 * 2 + 1 and "workload" in source
    assert questions[0].text == "(town == 'A') and (ill == 'False')"
    source, questions = chosen_questions(release, [f"age > {k}" for k in range(80)])
    assert len(questions) == 50 and "80" in source


def test_atoms_that_make_long_conditions_are_left_out_and_texts_have_no_table():
    many = ka.Real(name="x", lower=0, upper=1e6, atoms=tuple(range(900)), edges=(1000, 2000))
    domain = ka.Domain((many, ka.Boolean(name="b"), ka.Text(name="t", length=2, alphabet="ab")))
    questions = drawn_questions(domain)
    assert len(questions) == 50 and not any("not in" in each.text for each in questions)
    release = ka.from_frame(domain.decode(domain.draw(5, 0)).assign(weight=0.2), domain=domain)
    with pytest.raises(ValueError, match="t is a column of texts"):
        chosen_questions(release, ["table(t)"])


def test_the_distance_is_in_standard_errors_and_beyond_196_is_not_held():
    cases = [(0.5, True, 0.0), (0.59, True, 0.9), (0.31, False, 1.9), (math.nan, None, math.nan)]
    for table, held, distance in cases:
        compared = Compared("a", table, 0.5, 0.4, 0.6)
        assert compared.held is held
        np.testing.assert_allclose(compared.distance, 1.959963984540054 * distance)


def test_an_interval_of_width_0_holds_the_same_answer_and_no_other():
    assert Compared("a", 0.25, 0.25 + 1e-12, 0.25 + 1e-12, 0.25 + 1e-12).held is True
    other = Compared("a", 0.26, 0.25, 0.25, 0.25)
    assert other.held is False and other.distance == math.inf


def test_the_interval_is_without_the_part_for_sampling_and_the_farthest_stand_first(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    question = read_workload(["age", "ill == true", "town == 'A'"], DOMAIN).questions
    values = [release.expectation(each.arguments[0]) for each in question]
    own = [each.value + times * each.standard_error for each, times in zip(values, (0, 9, -5), strict=True)]
    found = compare_answers(release, "here", question, own)
    assert [each.question for each in found.compared] == ["ill == true", "town == 'A'", "age"]
    assert (found.held, found.known) == (1, 3)
    age = found.compared[-1]
    assert (age.low, age.high) == values[0].interval(0.95, kind="noise") != values[0].interval(0.95)


def test_a_question_that_the_release_cannot_answer_says_why(compared):
    release = read_release(compared.release, allow_rehearsal=True)
    undefined = WorkloadQuestion("log(age - 200)", "mean", ("log(age - 200)",), None, (1,), ())
    (each,) = compare_answers(release, "here", [undefined], [1.0]).compared
    assert each.held is None and "no finite value" in each.note


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
