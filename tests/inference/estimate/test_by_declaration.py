"""Rules in answers: what they decide is exact, what they exclude has no mass, and intervals hold the population given the rules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ruled_tables import HOSPITAL, NEVER, RULES, hospital, with_rules

import kmeanalyst as ka
from kmeanalyst.inference.declared import Declared, declared
from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.inference.questions.expectation import expectations
from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.kernels_for_domain import adaptive_kernel
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.releases.rules.violations import violations_of
from kmeanalyst.representation import wanted
from kmeanalyst.representation.tables.allowed_cells import independent_rows
from release_side import publish

QUESTIONS = (
    "age > 60", "employed == 'yes'", "employed == 'yes' and age < 30", "education == 'doctorate' and employed == 'no'",
    "missing(wage) and age > 60", "hours > 35", "state == 'B' and age < 30", "city == 'D2'", "stay > 7", "stay == 0",
    "admitted < '2021-01-01'", "discharged < '2021-01-01'", "education == 'college' and hours > 30", "hours > 30 and age > 50",
    "age < 15 and education == 'school'", "age < 15", "age", "education == 'none' and age < 20",
)  # fmt: skip


@pytest.fixture(scope="module")
def release() -> ka.Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", wanted.QUICK)
        return publish(hospital(6000), HOSPITAL, epsilon=0.7, delta=1e-6, rehearsal=1)


def test_what_rules_decide():
    for question, where, expected in [
        ("age < 15 and education == 'doctorate'", (), Declared(False, (0,))),
        ("education == 'doctorate'", ("age < 9",), Declared(False, (0,))),
        ("age >= 12", ("education == 'doctorate'",), Declared(True, (0,))),
        ("age >= 16", ("education == 'doctorate'",), None),
        ("missing(wage)", ("employed == 'no'",), Declared(True, (4,))),
        ("missing(wage)", ("age < 10",), Declared(True, (1, 4))),  # children are not employed, who have no wage
        ("hours == 0", ("age < 10",), Declared(True, (1, 2))),
        ("state == 'A'", ("city == 'A1'",), Declared(True, (5,))),
        ("state in ['A', 'B']", ("city in ['A0', 'B2']",), Declared(True, (5,))),
        ("discharged < admitted", (), Declared(False, (3,))),
        ("discharged >= '2021-05-01'", ("admitted >= '2021-05-01'",), Declared(True, (3,))),
        ("stay >= 0", (), None),  # certain by the domain alone
        ("stay > 3", ("discharged > admitted",), None),
        ("wage * 2 > 10", ("employed == 'no'",), None),  # arithmetic is not proved
        ("age < 15 or age >= 15", (), None),
        ("age > 40", (), None),
        ("1 == 1", ("true",), None),  # no column, so no rule
    ]:
        assert declared(HOSPITAL, question, where) == expected
    # more columns than a question may
    many = Rule("never", "age < 15 and hours > 0 and employed == 'no' and state == 'A'")
    where = ("hours > 3", "employed == 'no'", "state == 'A'")
    assert declared(replace(with_rules(), rules=(many,)), "age >= 15", where) == Declared(True, (0,))


def test_a_question_that_rules_decide_is_answered_exactly_and_says_why(release: ka.Release):
    found = release.probability("age < 15 and education == 'doctorate'")
    assert (found.value, found.standard_error, found.interval()) == (0.0, 0.0, (0.0, 0.0))
    (note,) = found.notes
    rule = "rule 1 (never age < 15 and education == 'doctorate')"
    assert note.startswith(f"by declaration ({rule}): exact given the rules.")
    assert "may be off by v/(1 - v), v the share of its rows" in note
    certain = release.probability("missing(wage)", where="age < 10")
    assert (certain.value, certain.standard_error) == (1.0, 0.0)
    assert "rule 2 (" in certain.notes[0] and "rule 5 (" in certain.notes[0]


def test_without_the_rule_the_same_question_has_an_error(rough_representation: None):
    plain = publish(hospital(6000), with_rules(NEVER), epsilon=0.7, delta=1e-6, rehearsal=1)
    found = plain.probability("missing(wage)", where="age < 10")
    assert found.standard_error > 0 and not any("declaration" in note for note in found.notes)


def test_a_condition_that_no_row_can_meet_is_named(release: ka.Release):
    with pytest.raises(ValueError, match=r"no row can meet the condition, by declaration: rule 1 .*Ask another"):
        release.mean("hours", where="age < 15 and education == 'doctorate'")


def test_the_rows_of_every_answer_keep_the_rules(release: ka.Release, rough_representation: None):
    """Those of a fit through cells are the released ones; those of fewer rows' fit are blurred and drawn as well."""
    few = publish(hospital(1500), HOSPITAL, epsilon=1.0, delta=1e-6, rehearsal=1, points=200)
    for kept, on_points in ((release, True), (few, False)):
        model = fitted_model(kept)
        assert model.posterior.on_points == on_points
        rows = replace(HOSPITAL, rules=()).encode(model.frame)
        assert not rules_of(HOSPITAL).broken(rows).any()


def test_cells_that_rules_exclude_have_no_part_in_answers(release: ka.Release):
    """Their noisy shares are in the measurement: changed at will, they change no answer."""
    measurement = release.measurement
    assert measurement is not None
    before = [one.value for one in expectations(release, QUESTIONS)]
    empty = np.asarray(fitted_model(release).posterior.equations.covariance.mean) == 0  # type: ignore[attr-defined]
    assert empty.sum() > 20
    vector = measurement.vector + np.where(empty, 0.01, 0.0)
    changed = release.replaced(measurement=replace(measurement, vector=vector))
    after = expectations(changed, QUESTIONS)
    spread = [one.standard_error for one in after]
    assert np.abs(np.array([one.value for one in after]) - before).max() < 0.35 * max(spread)


def test_independent_rows_keep_the_rules_and_the_columns_and_forget_the_rest():
    domain = with_rules(*RULES[:3], *RULES[4:6])
    rows, kernel = domain.encode(hospital(4000)), adaptive_kernel(domain)
    assert isinstance(kernel, Margins)
    found = independent_rows(rows, domain, kernel, np.random.default_rng(0))
    assert not rules_of(domain).broken(found).any()
    assert np.array_equal(np.sort(found, axis=0), np.sort(rows, axis=0), equal_nan=True)
    employed, hours, age = (found[:, domain.position(name)] for name in ("employed", "hours", "age"))
    adults, working = age >= 15, employed == 1
    assert abs(np.corrcoef(age[adults], employed[adults])[0, 1]) < 0.05  # as independent as the rule on children allows
    assert abs(np.corrcoef(age[working], hours[working])[0, 1]) < 0.06
    assert (employed[~adults] == 0).all()


def test_a_rule_that_the_measurement_contradicts_is_named_in_every_answer(rough_representation: None):
    frame = hospital(3000, breaking=0.06)
    domain = with_rules(RULES[1])
    found = publish(frame, domain, epsilon=5.0, delta=1e-6, rehearsal=1, workload=["table(age, employed)"])
    (violation,) = violations_of(domain, found.measurement)
    assert violation.is_contradicted
    for answer in (found.mean("age"), found.probability("employed == 'yes'", view="probability")):
        said = "the measurement contradicts a rule that the answer assumes: rule 1"
        assert any(said in note for note in answer.notes)
    kept = publish(hospital(3000), domain, epsilon=5.0, delta=1e-6, rehearsal=1, workload=["table(age, employed)"])
    assert not any("contradicts" in note for note in kept.mean("age").notes)


def test_questions_about_added_columns_are_not_decided_by_rules_of_others(release: ka.Release):
    transformed = release.transform({"young": "age < 15"})
    found = transformed.probability("young and education == 'doctorate'")
    assert not any("declaration" in note for note in found.notes)


@pytest.mark.levels
@pytest.mark.parametrize(("epsilon", "draws"), [(1.0, 20), (5.0, 24)])
def test_intervals_hold_the_population_that_keeps_the_rules(epsilon: float, draws: int):
    """Releases of tables drawn from one population: 95 % intervals of 18 questions hold its values, 93 of 100 at least."""
    plain = replace(HOSPITAL, rules=())
    people = plain.decode(plain.encode(hospital(300_000, 99)))
    truth = np.array([parse(question).evaluate(people, plain).mean() for question in QUESTIONS])
    held, values = [], []
    for seed in range(draws):
        published = publish(hospital(6000, 1000 + seed), HOSPITAL, epsilon=epsilon, delta=1e-6, rehearsal=seed)
        answers = expectations(published, QUESTIONS)
        low, high = np.array([one.interval() for one in answers]).T
        held.append((low <= truth) & (truth <= high))
        values.append([one.value for one in answers])
    assert np.mean(held) >= 0.93
    errors = np.array([one.standard_error for one in answers])
    # no answer has a bias far above its error; that of stay > 7, which cuts a range of a skewed number, is 1.2 to 1.4 at ε = 5
    assert np.abs((np.mean(values, axis=0) - truth) / errors).max() < 1.6


@pytest.mark.levels
def test_rows_that_break_a_rule_move_answers_by_no_more_than_said():
    """Two rows of a hundred are employed children: answers given the rules are within v/(1 - v) of the table's, and noise."""
    share = 0.02
    for seed in range(5):
        frame = hospital(6000, seed, breaking=share)
        published = publish(frame, HOSPITAL, epsilon=5.0, delta=1e-6, rehearsal=seed)
        plain = replace(HOSPITAL, rules=())
        table = plain.decode(plain.encode(frame))
        for question in ("age < 15", "employed == 'yes'", "age < 15 and employed == 'yes'", "hours > 35"):
            true = float(parse(question).evaluate(table, plain).mean())
            answer = published.probability(question)
            assert abs(answer.value - true) < share / (1 - share) + 3.5 * answer.standard_error
