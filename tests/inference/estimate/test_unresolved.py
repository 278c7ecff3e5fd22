"""Single values that no row has, and notes on what a measurement does not show."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from representation_cases import measured
from simulated_releases import measured_release

import kmeanalyst as ka
from kmeanalyst.inference.estimate.unresolved import _names, mass_of_pair, single_values, unresolved_mass, what_would_help
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.rules.compiled import asked_of, rules_of
from kmeanalyst.releases.rules.rule import Rule
from release_side import publish
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

DOMAIN = Domain((
    Real(name="dose", lower=0, upper=10, atoms=(0,)), Integer(name="age", lower=0, upper=89),
    Categorical(name="sex", levels=("f", "m")), Categorical(name="job", levels=("a", "b", "c")),
))  # fmt: skip


def rows(n: int, rng: np.random.Generator) -> np.ndarray:
    dose = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0, 10, n))
    return np.column_stack([dose, rng.integers(0, 90, n), rng.integers(0, 2, n), rng.integers(0, 3, n)]).astype(float)


def released(sets: list[tuple[int, ...]] | None = None, noise: float = 0.0002) -> ka.Release:
    rng = np.random.default_rng(0)
    features = MarginFeatures(with_sets(margin_kernel(DOMAIN), sets or []))
    return measured_release(measured(features, rows(4000, rng), noise_scale=noise), DOMAIN, rows(3500, rng))


@pytest.fixture(scope="module")
def margins() -> ka.Release:
    return released()


def test_a_value_that_no_row_has_may_have_all_the_mass_of_its_cell(margins):
    """As much as its noisy count leaves possible."""
    kernel = margins.measurement.feature_map.kernel
    edges = np.array([0.0, *(kernel.fine[0] or kernel.edges[0]), 10.0])
    of_value = int(np.searchsorted(edges, 3.14159, side="right"))
    cell = margins.probability(f"dose >= {edges[of_value - 1]} and dose < {edges[of_value]}")
    found = margins.probability("dose == 3.14159")
    assert found.value == 0 and found.interval()[0] == 0 and cell.value <= found.interval()[1] < 2 * cell.value
    assert found.parts["privacy"] == found.parts["sampling"] == 0
    assert any("no row of the release has this value" in note for note in found.notes)
    both = found + margins.probability("dose == 0")  # an atom is a cell of its own
    atom = margins.probability("dose == 0").standard_error
    assert both.standard_error == pytest.approx(np.hypot(found.standard_error, atom))
    assert margins.probability("dose == 3.14159 or 7.7 == dose").standard_error > 1.5 * found.standard_error


def test_a_value_is_told_from_others_as_little_in_a_list_and_times_a_number(margins):
    alone, other = (margins.probability(f"dose == {value}") for value in (3.14159, 7.77777))
    for same in ("dose * 2 == 6.28318", "dose in (3.14159,)", "1 - dose == -2.14159", "3.14159 == dose / 1"):
        assert margins.probability(same).interval() == pytest.approx(alone.interval())
    both = margins.probability("dose in (3.14159, 7.77777)")
    assert both.interval()[1] == pytest.approx(alone.interval()[1] + other.interval()[1])


def test_the_median_of_values_that_heap_reaches_to_the_ends_of_their_range():
    """Four of five have 65,000, the first value of a range, and the rows that stand for them are anywhere in it."""
    pay = np.where(np.arange(3000) % 5 > 0, 65_000, np.random.default_rng(0).integers(20_000, 180_000, 3000))
    column = Integer(name="pay", lower=0, upper=200_000, edges=(30_000, 50_000, 65_000, 80_000))
    table, domain = pd.DataFrame({"pay": pay, "sex": ["f", "m"] * 1500}), Domain((column, DOMAIN["sex"]))
    for seed in range(3):
        release = publish(table, domain, epsilon=1.0, delta=1e-6, uncounted=True, rehearsal=seed)
        low, high = release.median("pay").interval()
        assert low == 65_000 < high < 66_000
    plain = publish(table.assign(pay=np.arange(3000) * 60), domain, epsilon=1.0, delta=1e-6, uncounted=True, rehearsal=0)
    median = plain.median("pay")
    assert median.interval_by.ranges[:, 2].max() < 0.1 and 70_000 < median.interval()[0] < 90_000 < median.interval()[1] < 110_000


def test_a_value_that_few_rows_have_may_have_none_or_all_of_its_cell(margins):
    """How many rows the release has at a value says nothing of how many of its cell are there; an interval ends at 0."""
    there = float(margins.to_frame("fitted")["dose"].iloc[0])
    some = margins.probability(f"dose == {there!r}")
    assert some.value > 0 and some.interval()[0] == 0 and some.interval()[1] > 1.9 * some.value


def test_a_value_outside_the_bounds_has_no_mass_and_one_among_rows_its_own_error(margins):
    assert margins.probability("dose == 11").standard_error == 0
    assert margins.probability("age == 40").parts["sampling"] > 0
    assert not any("no row" in note for note in margins.probability("age == 40").notes)


@pytest.mark.parametrize("where", [None, "sex == 'f'"])
def test_what_all_rows_meet_has_the_error_of_its_denial(where):
    """With levels that few rows have and values beyond all rows; 1 ± 0 only by logic or by the domain."""
    rare = rows(300, np.random.default_rng(0)) % [11, 60, 2, 2]  # no dose above 10, no age from 60 on, no job "c"
    release = measured_release(measured(MarginFeatures(with_sets(margin_kernel(DOMAIN), [])), rare, noise_scale=0.02), DOMAIN, rare)
    usual = ("age < 85", "job in ['a', 'b']", "job != 'c'", "2 <= age + 2 and age <= 85", "age < 3 or age >= 2 and job != 'c'")
    for condition in usual:
        met, denied = (release.probability(text, where=where) for text in (condition, f"not ({condition})"))
        assert met.value + denied.value == pytest.approx(1) and met.standard_error == pytest.approx(denied.standard_error, rel=1e-3)
        assert met.standard_error > 0.001
    for certain in ("age <= 89", "job != 'a' or job != 'b'", "sex in ['f', 'm']", "age != 33.5 or age > 40"):
        assert release.probability(certain, where=where).interval() == pytest.approx((1, 1))
    assert release.mean("age", where="age == 33").interval() == pytest.approx((33, 33))  # a number, not a condition
    for condition, given in (("age > 30", "age > 40"), ("job != 'b'", "job == 'a'"), ("age != 7", "age > 40 and sex == 'f'")):
        assert release.probability(condition, where=given).interval() == pytest.approx((1, 1))


def test_a_flag_and_a_missing_cell_that_no_row_has_may_have_what_the_noise_leaves():
    domain = Domain((Boolean(name="flag"), Integer(name="age", lower=0, upper=89, missing=True), DOMAIN.columns[2]))
    encoded = rows(4000, np.random.default_rng(0))[:, :3] * [0, 1, 1]
    release = measured_release(measured(MarginFeatures(margin_kernel(domain)), encoded, noise_scale=0.002), domain, encoded)
    frame, weights = release.frame, np.full(len(release.frame), 1 / len(release.frame))
    for question in ("flag", "flag == true", "missing(age)", "flag or missing(age)"):
        assert 0.001 < unresolved_mass(release, parse(question), frame, weights) < 0.1
        assert unresolved_mass(release, parse(question), frame, weights, 1e-4, [parse("sex == 'f'")]) == 1
    assert unresolved_mass(release, parse("flag"), frame, weights, 1.0, [parse("not flag")]) == 0
    assert unresolved_mass(release, parse("missing(age)"), frame, weights, 1.0, [parse("age > 3")]) == 0


def test_two_levels_of_a_measured_pair_have_what_the_noise_of_their_cell_leaves(margins):
    assert 0.16 < mass_of_pair(margins, ["sex == 'f'", "job == 'b'"]) < 0.2  # a sixth of the table, and measured well
    assert mass_of_pair(margins, ["sex == 'f'", "age > 3"]) is None


def test_levels_that_no_row_joins_are_no_more_probable_than_each(rough_representation):
    levels = [Categorical(name=name, levels=("usual", "rare")) for name in "abcd"]
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({name: np.where(rng.permutation(2000) < 12, "rare", "usual") for name in "abcd"})
    domain = Domain(tuple(levels))
    release = publish(frame, domain, epsilon=5.0, delta=1e-6, kernel="adaptive", points=4000, rehearsal=1)
    alone = {name: release.probability(f"{name} == 'rare'").interval(0.95)[1] for name in "abcd"}
    pairs = {(i, j): release.probability(f"{i} == 'rare' and {j} == 'rare'") for i, j in combinations("abcd", 2)}
    unseen = {pair: found for pair, found in pairs.items() if found.value == 0}
    assert unseen  # a pair has 0.14 rows in expectation
    for pair, found in unseen.items():
        assert found.standard_error > 0 and found.interval(0.95)[1] <= min(alone[name] for name in pair) * (1 + 1e-9)
    assert release.probability("a == 'rare' and a == 'usual'").standard_error == 0  # no cell has two values


def test_several_answers_at_once_have_the_errors_of_each(margins):
    together = margins.expectations(["dose == 3.14159", "dose", "age"])
    for answer, question in zip(together, ("dose == 3.14159", "dose", "age"), strict=True):
        assert answer.standard_error == pytest.approx(margins.expectation(question).standard_error, rel=0.02)


def test_a_smooth_measurement_does_not_tell_near_values_apart(mixed_release):
    found = mixed_release.probability("income == 12345.678")
    assert found.value == 0 and found.standard_error > 0


def test_where_resolution_dominates_a_note_names_the_measurement_that_would_help(margins, mixed_release):
    def note(release: ka.Release, question: str) -> str:
        return " ".join(text for text in release.probability(question).notes if "is resolution" in text)

    three = "sex == 'f' and job == 'a' and age < 30"
    assert "age × sex × job was not counted together" in note(margins, three) and "--target" in note(margins, three)
    assert "within the ranges of age" in note(margins, "job == 'a' and age > 33 and age < 35")
    assert note(margins, "sex == 'f'") == "" == note(margins, "sex == 'f' and job == 'a'")
    assert "--kernel adaptive counts cells of age" in note(mixed_release, "age < 33 and age > 31")
    assert "not counted together" not in note(released([(1, 2, 3)]), three)


def test_names_in_texts_are_no_columns_and_derived_columns_stand_for_theirs(margins):
    assert _names(margins, "`job` == 'age' and dose > 3") >= {"job", "dose"}
    assert "age" not in _names(margins, "`job` == 'age' and dose > 3")
    derived = margins.transform({"young": "age > 33 and age < 35"})
    found = derived.probability("young and job == 'a' and job != 'b'")
    assert any("within the ranges of age" in text for text in found.notes)


def test_a_value_whose_own_count_is_noise_may_have_what_its_range_has():
    """Temperatures in tenths that were Fahrenheit: a value has .03 where an even share of its range is .004."""
    domain = Domain(
        (
            Real(name="t", lower=0.0, upper=30.0, edges=(5.0, 10.0, 15.0, 20.0, 25.0), step=0.1),
            Categorical(name="g", levels=("a", "b")),
        )
    )
    rng = np.random.default_rng(1)
    table = np.column_stack([np.rint((rng.integers(32, 86, 4000) - 32) / 1.8 * 10) / 10, rng.integers(0, 2, 4000)])
    spread = np.column_stack([np.rint(rng.uniform(0, 29.9, 6000) * 10) / 10, rng.integers(0, 2, 6000)])
    kernel = margin_kernel(domain)
    for noise, widest in ((0.003, 0.3), (2e-5, 0.05)):
        rows = spread if noise > 0.001 else table
        release = measured_release(measured(MarginFeatures(kernel), table, noise_scale=noise), domain, rows)
        ten, a = table[:, 0] == 10, table[:, 1] == 0
        for question, holds in (
            ("t == 10", ten), ("t != 10", ~ten), ("10 == t and g == 'a'", ten & a), ("t == 10 or g == 'a'", ten | a),
            ("t in [10, 20]", ten | (table[:, 0] == 20)),
        ):  # fmt: skip
            low, high = release.probability(question).interval()
            assert low <= holds.mean() <= high and high - low < widest, (question, noise, low, holds.mean(), high)


def pays(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Half of the pays stay as they were; the others rise a little."""
    old = np.rint(rng.uniform(1_000, 90_000, n)).astype(int)
    return pd.DataFrame({"old": old, "new": old + np.where(rng.random(n) < 0.5, 0, rng.integers(1, 900, n))})


def released_pays(domain: Domain) -> ka.Release:
    rng = np.random.default_rng(3)
    kernel, table = margin_kernel(domain), domain.encode(pays(6000, rng))
    model = measured(MarginFeatures(kernel), table, noise_scale=0.0003)
    return measured_release(model, domain, domain.encode(pays(5000, rng)))


def test_that_two_columns_are_equal_may_be_as_probable_as_that_their_ranges_meet():
    """Where no column holds their difference; before, the answer was 0 ± .001 for .5."""
    edges = tuple(range(10_000, 90_000, 10_000))
    domain = Domain(tuple(Integer(name=name, lower=0, upper=100_000, edges=edges) for name in ("old", "new")))
    equal = released_pays(domain).probability("new == old")
    assert equal.interval()[0] == 0 and 0.5 < equal.interval()[1] <= 1
    assert any("ranges of old and new" in note for note in equal.notes)
    # each value is a range
    few = Domain(tuple(Integer(name=name, lower=0, upper=2, edges=(1, 2)) for name in ("a", "b")))
    rng = np.random.default_rng(0)
    cells = rng.integers(0, 3, (4000, 2)).astype(float)
    table = measured(MarginFeatures(margin_kernel(few)), cells, noise_scale=0.0005)
    known = measured_release(table, few, rng.integers(0, 3, (3000, 2)).astype(float))
    assert known.probability("a == b").standard_error < 0.02 and known.probability("a == 1").standard_error < 0.02
    asked = parse("a == 1 and b == 2")  # a cell of their table, which says what there is
    assert not list(single_values(known, asked, known.frame, known.weights))


@pytest.fixture(scope="module")
def rises() -> ka.Release:
    rise = Integer(name="rise", lower=-100, upper=1000, edges=(0, 1, 300, 600))
    own = [Integer(name=name, lower=0, upper=100_000, edges=(30_000, 60_000)) for name in ("old", "new")]
    return released_pays(Domain((*own, rise), rules=(Rule("derive", "new - old", ("rise",)),)))


@pytest.mark.parametrize(
    ("question", "same"),
    [("new == old", "rise == 0"), ("old < new", "rise > 0"), ("new - old > 300", "rise > 300"), ("old >= new", "rise <= 0"),
     ("abs(old - new) > 90", "abs(rise) > 90"), ("not old - new < -300", "not rise > 300"), ("300 < new - old", "rise > 300")],
)  # fmt: skip
def test_a_question_that_compares_two_columns_is_answered_by_the_derived_column_of_their_difference(rises, question, same):
    one, two = rises.probability(question), rises.probability(same)
    assert one.value == pytest.approx(two.value, abs=1e-12) and one.standard_error == pytest.approx(two.standard_error)
    assert one.standard_error < 0.03 and question in repr(one)


def test_a_question_that_compares_with_the_first_value_of_a_range_may_meet_a_heap_there():
    """A sixth of the rows from 50,000 on are at it, so that > and >= differ by as much, and rows do not show it."""
    rng = np.random.default_rng(0)
    edges = tuple(range(10_000, 90_000, 10_000))
    domain = Domain((Integer(name="pay", lower=0, upper=99_999, edges=edges), Categorical(name="sex", levels=("f", "m"))))

    def some(n: int) -> np.ndarray:
        pay = rng.integers(0, 100_000, n).astype(float)
        heaped = np.where((pay >= 50_000) & (rng.random(n) < 1 / 6), 50_000, pay)
        return np.column_stack([heaped, rng.integers(0, 2, n)])

    # rows know of no heap
    even = np.column_stack([rng.integers(0, 100_000, 5000), rng.integers(0, 2, 5000)]).astype(float)
    release = measured_release(measured(MarginFeatures(margin_kernel(domain)), some(20_000), noise_scale=0.0001), domain, even)
    above, from_it = (release.probability(f"pay {q}") for q in ("> 50000", ">= 50000"))
    assert above.standard_error > 1.5 * from_it.standard_error
    assert above.value == pytest.approx(from_it.value, abs=0.002)
    assert abs(from_it.value - 0.5) < 2 * from_it.standard_error
    assert release.probability("pay <= 50000").standard_error == pytest.approx(above.standard_error)
    assert release.probability("pay > 50000 and sex == 'f'").standard_error < above.standard_error
    assert release.mean("where(pay > 50000, 2, 0)").standard_error == pytest.approx(2 * above.standard_error, rel=0.01)


def test_columns_that_depend_on_each_other_are_compared_within_ranges_with_an_error_that_says_so():
    """New is old less about .7, and the rows know of ranges of 5 alone; a column apart from both is compared as its ranges say."""
    rng = np.random.default_rng(0)
    names = ("old", "new", "apart")
    domain = Domain(tuple(Real(name=name, lower=15, upper=60, step=0.1, edges=tuple(range(20, 60, 5))) for name in names))
    old = rng.normal(27, 4, 20_000).clip(15, 58)
    private = np.column_stack([old, old - rng.normal(0.7, 0.8, 20_000), rng.uniform(15, 60, 20_000)]).round(1).clip(15, 60)
    kernel = margin_kernel(domain)
    cells = kernel.cells(private)
    rows = np.column_stack([rng.uniform(low, low + 4.9).round(1) for low in 15 + 5.0 * cells.T])
    release = measured_release(measured(MarginFeatures(kernel), private, noise_scale=0.0005), domain, rows)
    x, y, z = private.T
    for question, true in (
        ("new < old", y < x),
        ("abs(new - old) > 2", abs(y - x) > 2),
        ("old - new > 2 and apart > 30", (x - y > 2) & (z > 30)),
    ):
        low, high = release.probability(question).interval()
        assert low <= true.mean() <= high and high - low > 0.3, question
    assert release.probability("apart > old").standard_error < 0.02 < release.probability("new < old").standard_error
    assert release.mean("new - old").standard_error < 0.1


def test_a_question_that_cuts_a_range_in_which_values_heap_may_have_the_heap_on_either_side():
    """A third is 7.5 in a column without a step; the rows have it at 7.51, so that only the error holds what is true."""
    rng = np.random.default_rng(0)
    domain = Domain((Real(name="score", lower=0, upper=10),))
    even = rng.uniform(0, 10, (20_000, 1))
    private, rows = (np.where(rng.random((20_000, 1)) < 1 / 3, heap, even) for heap in (7.5, 7.51))
    release = measured_release(measured(MarginFeatures(margin_kernel(domain)), private, noise_scale=0.0005), domain, rows)
    for question, true in (("score <= 7.5", private <= 7.5), ("score > 7.505", private > 7.505), ("score == 7.5", private == 7.5)):
        low, high = release.probability(question).interval()
        assert low <= true.mean() <= high and high - low > 0.3, question
    for question, true in (("score < 7.5", private < 7.5), ("score > 7.6", private > 7.6), ("score > 3.51", private > 3.51)):
        low, high = release.probability(question).interval()
        assert low <= true.mean() <= high and high - low < 0.05, question
    assert any("an atom where values heap" in note for note in release.probability("score <= 7.5").notes)


def test_a_condition_that_cuts_a_range_in_which_values_heap_may_hold_for_none_of_it():
    """Nine tenths have no gain, and the bounds alone are known: rows of the first range have some, so that all meet gain > 0."""
    rng = np.random.default_rng(0)
    domain = Domain(
        (
            Real(name="capital-gain", lower=0, upper=100_000),
            Categorical(name="rich", levels=("n", "y")),
            Real(name="age", lower=0, upper=99),
        )
    )
    some = rng.random(20_000) < 0.1
    rich = np.where(some, rng.random(20_000) < 0.7, rng.random(20_000) < 0.2)
    gain, age = np.where(some, rng.uniform(1_000, 90_000, 20_000), 0.0), np.where(some, 55, 35) + rng.normal(0, 5, 20_000)
    rows = np.column_stack([np.where(some, gain, rng.uniform(1, 300, 20_000)), rich, age])
    table = measured(MarginFeatures(margin_kernel(domain)), np.column_stack([gain, rich, age]), noise_scale=0.0005)
    release = measured_release(table, domain, rows)
    asked = {"where": "`capital-gain` > 0"}
    for found, true in (
        (release.probability("rich == 'y'", **asked), rich[some].mean()), (release.mean("age", **asked), age[some].mean()),
        (release.quantile("age", 0.5, **asked), np.median(age[some])), (release.std("age", **asked), age[some].std()),
        (release.mean("capital-gain", **asked), gain[some].mean()), (release.var("age", **asked), age[some].var()),
    ):  # fmt: skip
        low, high = found.interval()
        assert low <= true <= high, found
    exact = release.probability("rich == 'y'", where="`capital-gain` >= 0")
    assert exact.standard_error < 0.02 and exact.interval()[0] <= rich.mean() <= exact.interval()[1]
    assert release.median("capital-gain").interval()[0] == 0


def test_a_day_may_have_the_mass_of_its_range_and_the_first_of_a_range_a_heap():
    """A tenth of the rows from 2022 on are of its first day, and rows know of no heap; a day beyond the bounds has no mass."""
    rng, day = np.random.default_rng(0), 18993.0  # 2022-01-01
    domain = Domain((Date(name="d", lower="2020-01-01", upper="2023-12-31", edges=("2021-01-01", "2022-01-01")),))

    def some(n: int, heap: float) -> np.ndarray:
        days = rng.integers(18262, 19723, n).astype(float)
        return np.where((days >= day) & (rng.random(n) < heap), day, days)[:, None]

    private, features = some(20_000, 0.1), MarginFeatures(margin_kernel(domain))
    release = measured_release(measured(features, private, noise_scale=0.0001), domain, some(5000, 0.0))
    for question, truth in (("d == '2022-01-01'", private == day), ("d != '2022-01-01'", private != day),
                            ("d <= '2022-01-01'", private <= day), ("d < '2022-01-01'", private < day)):  # fmt: skip
        low, high = release.probability(question).interval()
        assert low <= truth.mean() <= high and high - low < 0.5, question
    below, to_it = (release.probability(f"d {sign} '2022-01-01'") for sign in ("<", "<="))
    assert to_it.standard_error > 1.5 * below.standard_error
    outside, inside = (release.probability(f"d == '{at}'") for at in ("1999-12-31", "2021-05-03"))
    assert outside.standard_error == 0 < inside.standard_error


@pytest.mark.parametrize(
    "question",
    ["new - old > 1000", "new - old < -200", "abs(new - old) > 300", "new - old - 5 > 3", "new > old > 5", "new > 5", "new - old"],
)
def test_a_question_that_the_derived_column_does_not_answer_is_asked_as_it_is(rises, question):
    """Beyond its bounds cells are clamped; a chain, a sum and a number are no comparison of the difference. A note names it."""
    assert "rise" not in asked_of(rises, question).columns
    assert question != "new - old" or "rise = new - old was measured: ask it" in what_would_help(rises, question)


def test_a_derived_column_with_other_steps_or_without_missing_cells_answers_for_no_other():
    own = [Integer(name=name, lower=0, upper=100_000, missing=True) for name in ("old", "new")]
    coarse = Real(name="rise", lower=-100, upper=1000, step=5, missing=True)
    for sides, rise in ((own, Integer(name="rise", lower=-100, upper=1000)), (own, coarse)):
        domain = Domain((sides[0], replace(sides[1], name="new"), rise), rules=(Rule("derive", "new - old", ("rise",)),))
        assert asked_of(SimpleNamespace(domain=domain), "new < old").columns == ("new", "old")


@pytest.mark.parametrize("bounds", [(0, 10), (-3, 30), (-40, 40)])
@pytest.mark.parametrize("missing", [False, True])
def test_a_question_by_a_derived_column_is_true_of_the_same_rows(bounds, missing):
    sides = [Integer(name=name, lower=0, upper=20, missing=missing) for name in "abc"]
    apart = Integer(name="d", lower=bounds[0], upper=bounds[1], missing=missing)
    domain = Domain((*sides, apart), rules=(Rule("derive", "a - b", ("d",)),))
    frame = domain.decode(rules_of(domain).with_derived(domain.draw(2000, np.random.default_rng(0))))
    answered = 0
    for text in (
        "a < b", "b >= a", "a == b", "not a != b", "a - b > {}", "{} >= b - a", "abs(b - a) <= {}", "-{} < a - b", "a < b or c > 3",
        "not (b - a > {} and c < 9)", "a < b < c", "c - (a - b) > {}", "a - b - c > {}", "where(a - b > {}, c, 0)", "a - b",
    ):  # fmt: skip
        for number in (0, 1, 9, 12):
            asked = asked_of(SimpleNamespace(domain=domain), text.format(number))
            answered += "d" in asked.columns
            np.testing.assert_array_equal(asked.evaluate(frame, domain), parse(asked.text).evaluate(frame, domain), asked.text)
    assert answered >= 4


def test_a_value_without_rows_given_a_column_that_it_was_not_counted_with_may_be_all_there(monkeypatch: pytest.MonkeyPatch):
    """Of broken sensors no row says -40, as 1 % of all do: if both were not counted together, that says nothing."""
    rng = np.random.default_rng(0)
    broken = rng.random(4000) < 0.02
    temp = np.where(~broken & (rng.random(4000) < 0.005), -40, rng.integers(0, 30, 4000))
    domain = Domain((Integer(name="temp", lower=-40, upper=40, atoms=(-40,)), Boolean(name="broken")))
    table = pd.DataFrame({"temp": temp, "broken": broken})
    release = publish(table, domain, epsilon=10.0, delta=1e-6, uncounted=True, rehearsal=0)
    kept = ~(release.frame["broken"] & (release.frame["temp"] == -40)).to_numpy()
    weights = release.weights[kept] / release.weights[kept].sum()
    release = release.replaced(points=release.frame[kept], weights=weights, weight_view="probability")
    counted = release.probability("temp == -40", where="broken").interval()[1]
    monkeypatch.setattr(Measurement, "counted_together", lambda *_: False)
    most = release.probability("temp == -40").interval()[1] / release.probability("broken").value
    assert release.probability("temp == -40", where="broken").interval()[1] == pytest.approx(most, rel=1e-3) and most > 5 * counted


def test_nodes_within_those_that_a_pair_was_counted_by_are_said():
    rng, leaves = np.random.default_rng(0), [f"{a}{b}{c}" for a in "ABCDEF" for b in range(6) for c in range(5)]
    parents = {leaf: leaf[:2] for leaf in leaves} | {leaf[:2]: leaf[0] for leaf in leaves}
    code = rng.choice(leaves, 4000)
    sex = np.where(rng.random(4000) < np.where(code == "A30", 0.05, 0.5), "f", "m")
    domain = Domain((Tree(name="code", levels=tuple(leaves), parents=parents), DOMAIN["sex"]))
    table = pd.DataFrame({"code": code, "sex": sex})
    release = publish(table, domain, epsilon=3.0, delta=1e-6, uncounted=True, rehearsal=0)
    within, coarse = (release.probability("sex == 'f'", where=f"code == '{node}'") for node in ("A30", "A3"))
    assert any("counted in coarser nodes of code" in note for note in within.notes), within.notes
    assert not coarse.notes


def test_a_question_that_has_no_value_at_rows_beyond_its_condition_is_answered():
    """Where values may heap in the range that the condition cuts, rows of it could meet the condition that have no logarithm."""
    rng = np.random.default_rng(0)
    amount = np.where(rng.random(4000) < 0.3, 0, np.rint(rng.lognormal(3, 1, 4000)) - 15).clip(-50, 1000)
    domain = Domain((Integer(name="amount", lower=-50, upper=1000, edges=(-25, 25, 100, 400)), DOMAIN["sex"]))
    table = pd.DataFrame({"amount": amount.astype(int), "sex": rng.choice(["f", "m"], 4000)})
    release = publish(table, domain, epsilon=1.0, delta=1e-6, uncounted=True, rehearsal=0)
    assert 0 < release.mean("log(amount)", where="amount > 0").value < 7
