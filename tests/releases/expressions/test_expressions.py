"""Expressions as text: what each form means, and every refusal with its hint. test_random_expressions.py compares with numpy."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from contracts import every
from expression_cases import DOMAIN, random_frame
from hypothesis import given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.expressions import DEEPEST, Expression, ExpressionError, parse
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of


def rows(*cells: dict[str, Any]) -> pd.DataFrame:
    """A decoded frame with these cells; what is not named is the column's default."""
    texts = {name: [str(row.get(name, "")) for row in cells] for name in DOMAIN.names}
    return DOMAIN.decode(DOMAIN.encode(texts))


def value(text: str, **cells: Any) -> Any:
    return parse(text).evaluate(rows(cells), DOMAIN)[0]


def refusal(text: str) -> ExpressionError:
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(rows({}), DOMAIN)
    return caught.value


def marked(error: ExpressionError) -> str:
    """What the carets of a message point at."""
    line, carets = str(error).splitlines()[-2:]
    return line[carets.index("^") : len(carets)]


# ------------------------------------------------------------------ a case worked by hand


def test_a_small_table_worked_by_hand():
    frame = rows({"age": 41, "sex": "Male", "wage": 2}, {"age": 20, "sex": "Female", "wage": -1}, {"age": 70})
    answers = {
        "age": [41, 20, 70], "age * 2 + 1": [83, 41, 141], "wage": [2, -1, np.nan],
        "age > 30 and sex == 'Male'": [True, False, False], "17 <= age < 41": [False, True, False],
        "sex in ['Male', 'Female']": [True, True, False], "missing(sex) or wage < 0": [False, True, True],
        "where(missing(wage), 0, wage)": [2, -1, 0], "3": [3, 3, 3], "true": [True, True, True],
    }  # fmt: skip
    for text, expected in answers.items():
        got = parse(text).evaluate(frame, DOMAIN)
        np.testing.assert_array_equal(got, expected, err_msg=text)
        assert got.dtype == (bool if isinstance(expected[0], bool) else np.float64), text


def test_number_reads_a_level_as_the_number_it_is_written_as_and_others_as_missing():
    assert [value("number(code)", code=code) for code in ("13", "1.0", "-4")] == [13.0, 1.0, -4.0]
    assert np.isnan(value("number(code)", code="it's")) and np.isnan(value("number(code)", code="True"))
    assert value("number(code) > 5 or number(code) <= 5", code="True") == False  # noqa: E712
    assert value("-number(code) ** 2 + age", code="13", age=9) == -160.0
    years = Domain((Ordinal(name="year", levels=("2020", "2021"), missing=True),))
    found = parse("number(year) - 2000").evaluate(years.decode(np.array([[1.0], [np.nan], [0.0]])), years)
    np.testing.assert_array_equal(found, [21, np.nan, 20])
    amounts = Domain((Categorical(name="x", levels=("1e3", "+2.", "1e999", "inf", "1_0", "２", " 7"[1:], "nan")),))
    found = parse("number(x)").evaluate(amounts.decode(np.arange(8.0)[:, None]), amounts)
    np.testing.assert_array_equal(found, [1000, 2, np.nan, np.nan, np.nan, np.nan, 7, np.nan])


# ------------------------------------------------------------------ names, texts, numbers as written


def test_columns_are_named_once_in_order_of_first_mention():
    assert parse("wage + age * wage > `hours-per-week`").columns == ("wage", "age", "hours-per-week")
    assert parse("1 + 1").columns == ()


def test_a_column_may_have_the_name_of_a_function_or_of_a_word():
    domain = Domain(tuple(Real(name=name, lower=0, upper=9) for name in ("min", "and", "a`b", "größe", "__class__")))
    frame = pd.DataFrame({"min": [1.0], "and": [2.0], "a`b": [3.0], "größe": [4.0], "__class__": [5.0]})
    text = "min + 10 * `and` + 100 * `a``b` + 1000 * größe + 10000 * __class__"
    assert parse(text).evaluate(frame, domain) == 54321
    assert parse("min(min, 0)").evaluate(frame, domain) == 0


WRITABLE = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"]), min_size=1, max_size=200).filter(
    lambda text: not (flaw_of(text) or spacing_flaw_of(text))
)  # what names and levels may hold


@given(WRITABLE, st.sampled_from("'\""))
def test_any_level_can_be_written_as_a_text_with_its_quotes_doubled(level, quote):
    domain = Domain((Categorical(name="c", levels=(level, level + "x")),))
    frame = domain.decode(np.array([[0.0], [1.0]]))
    text = f"c == {quote}{level.replace(quote, quote * 2)}{quote}"
    np.testing.assert_array_equal(parse(text).evaluate(frame, domain), [True, False])


@given(WRITABLE.filter(lambda name: name != "weight"))
def test_any_column_can_be_named_in_backticks(name):
    domain = Domain((Real(name=name, lower=0, upper=9),))
    text = "`" + name.replace("`", "``") + "` + 1"
    assert parse(text).columns == (name,)
    assert parse(text).evaluate(pd.DataFrame({name: [2.0]}), domain) == 3


@every(["3", "3.", "0.3", ".3", "3e2", "3E+2", "3.5e-2", "007.5", "1e-999"], of="text")
def test_numbers_are_read_as_python_reads_them(text):
    assert value(text) == float(text)


@every(
    [("1", "1"), ("1.0", "1.0"), ("13.0", "13"), ("1.3e1", "13"), ("-4", "-4"), ("- 4", "-4"), ("--13", "13"),
     ('"it\'s"', "it's"), ("'it''s'", "it's"), ("true", "True"), ("'True'", "True"), ("' 13 '", "13")],
    of="text, level",
)  # fmt: skip
def test_a_level_is_matched_as_written_or_as_the_cell_it_would_be(text, level):
    for holds in (f"code == {text}", f"{text} == code", f"code in [{text}]", f"not code != {text}"):
        assert value(holds, code=level)


def test_lists_may_stand_in_parentheses_and_end_with_a_comma():
    assert value("age in (1, 2,)", age=2) and value("age in [-1, +2]", age=2) and value("age not in [1]", age=2)
    assert value("joined in ['2020-01-31']", joined="2020-01-31")
    assert value("married in [true, 0]", married="false")
    assert value("(age > 3) in [true]", age=4)
    assert value("1 < age in [2, 3]", age=3) and not value("5 < age in [2, 3]", age=3)


def test_columns_of_levels_compare_by_level_and_not_by_code():
    assert value("sex == `old sex`", sex="Male", **{"old sex": "Male"})
    assert not value("sex == `old sex`", sex="Female", **{"old sex": "Male"})
    assert value("`old sex` != sex", sex="Female", **{"old sex": "Other"})
    assert value("sex != `old sex`", sex="Female", **{"old sex": "Other"})
    assert not value("sex != `old sex`", sex="", **{"old sex": "Other"})
    assert value("married == veteran", married="true", veteran="true")


def test_booleans_and_conditions_compare_with_each_other():
    assert value("married == (age > 3)", married="true", age=4)
    assert value("(age > 3) != married", married="true", age=2)
    assert value("(age > 3) == (wage > 3)", age=2, wage=1)
    assert value("(age > 3) == true", age=4) and value("(age > 3) == 0", age=2)
    assert value("where(age > 3, married, veteran)", age=2, married="false", veteran="true")


def test_dates_compare_with_days_and_with_dates():
    assert value("'2019-12-31' < joined <= '2020-01-01'", joined="2020-01-01")
    assert value("born < joined", born="1970-01-02", joined="2020-01-01")
    assert value("year(joined) * 100 + month(joined)", joined="1969-12-31") == 196912


def test_the_difference_of_two_dates_is_a_number_of_days():
    assert value("joined - born", born="2019-12-30", joined="2020-01-02") == 3
    assert value("joined - born + 4 * 2", born="2020-01-02", joined="2019-12-30") == 5
    assert np.isnan(value("joined - born", born="2020-01-02", joined=""))
    assert value("joined - '2019-12-30'", joined="2020-01-02") == -value("'2019-12-30' - joined", joined="2020-01-02") == 3
    assert parse("joined - '1950-01-01'").extent(DOMAIN).low == float(np.datetime64(DOMAIN["joined"].lower).astype(int) + 7305)
    for text in ("joined + born", "1 - joined", "joined - 1", "joined - born - born", "joined * 2"):
        with pytest.raises(ExpressionError, match="is a column of days, and a number is needed here"):
            parse(text).check(DOMAIN)


# ------------------------------------------------------------------ missing and undefined


SIGNS = ("==", "!=", "<", "<=", ">", ">=")
COMPARED = ["wage {} 1", "1 {} wage", "wage {} wage", "wage + 1 {} 2", "log(-1) {} 0",
            "grade {} 'mid'", "grade {} former_grade", "joined {} '2020-01-01'"]  # fmt: skip
NEITHER = ["sex in ['Male']", "sex not in ['Male']", "wage in [1]", "wage not in [1]", "married", "married == true",
           "married != true", "joined not in ['2020-01-01']"]  # fmt: skip


@every([*(text.format(sign) for text in COMPARED for sign in SIGNS), *NEITHER], of="text")
def test_nothing_holds_of_a_missing_cell_and_not_is_plain_negation(text):
    assert not value(text) and value(f"not ({text})")


def test_undefined_results_are_nan_or_infinite_without_a_warning():  # warnings are errors here
    for text in ("log(0 - 1)", "sqrt(-1)", "0 / 0", "(-8) ** (1 / 3)", "5 % 0", "log1p(-2)"):
        assert np.isnan(value(text)), text
    for text in ("1 / 0", "-log(0)", "exp(1e9)", "10.0 ** 999"):
        assert value(text) == np.inf, text


# ------------------------------------------------------------------ frames, values


def test_frames_that_kept_the_values_but_lost_the_dtypes_give_the_same_answers():
    frame = random_frame(0, 40)
    loose = frame.astype({name: object for name in ("sex", "grade", "married", "children", "wage", "old sex")})
    reordered = frame.assign(sex=frame["sex"].cat.reorder_categories(["Male", "Female"]), weight=1.0)
    for text in ("sex == 'Male'", "grade < 'high'", "married", "children + wage", "sex == `old sex`", "missing(sex)"):
        expected = parse(text).evaluate(frame, DOMAIN)
        np.testing.assert_array_equal(parse(text).evaluate(loose, DOMAIN), expected)
        np.testing.assert_array_equal(parse(text).evaluate(reordered, DOMAIN), expected)


def test_answers_are_new_arrays_and_the_frame_stays_as_it_was():
    frame = random_frame(0, 5)
    before = frame.copy(deep=True)
    for text in ("age", "`hours-per-week`", "veteran", "3"):
        answer = parse(text).evaluate(frame, DOMAIN)
        answer[:] = 0
    pd.testing.assert_frame_equal(frame, before)


def test_a_frame_without_a_column_is_refused_by_name():
    with pytest.raises(ExpressionError, match=r"the frame lacks `hours-per-week`.*it has age.*Pass a frame"):
        parse("age + `hours-per-week`").evaluate(rows({})[["age"]], DOMAIN)


def test_an_expression_is_a_frozen_value():
    expression = parse("age > 3")
    assert expression == parse("age > 3") != parse("age > 4") and hash(expression) == hash(parse("age > 3"))
    assert repr(expression) == "Expression(text='age > 3', columns=('age',))"
    with pytest.raises(AttributeError):
        expression.text = "age > 4"  # type: ignore[misc]
    for twin in (pickle.loads(pickle.dumps(expression)), copy.deepcopy(expression)):
        assert isinstance(twin, Expression) and twin.evaluate(rows({"age": 4}), DOMAIN)


@every(
    [("age > 3", True), ("married", True), ("not married", True), ("sex in ['Male']", True),
     ("age > 3 and married", True), ("true", True),
     ("missing(age)", True), ("where(veteran, age > 3, false)", True), ("(((age > 3)))", True), ("age", False),
     ("where(veteran, age > 3, 2)", False), ("-age", False), ("abs(age > 3)", False), ("(age > 3) + 1", False)],
    of="text, is_condition",
)  # fmt: skip
def test_check_tells_conditions_from_numbers(text, is_condition):
    assert parse(text).check(DOMAIN) == ("condition" if is_condition else "number")


# ------------------------------------------------------------------ refusals: what, why, hint, and where


def refuse(text: str) -> None:
    """Raise the refusal, with what its carets mark in the end: a part of the text at the error's position."""
    error = refusal(text)
    assert error.text == text and text.startswith(marked(error).strip("^"), error.position)
    raise ExpressionError(f"{error}\nmarks {marked(error)!r}")


def test_a_refusal_says_what_why_and_how_to_fix_it_and_points_at_the_position():
    refusals.check(Path(__file__).parent / "refusals.txt", refuse)
    with pytest.raises(ExpressionError, match="This domain has no date column: leave it out"):
        parse("year(x)").check(Domain((Real(name="x", lower=0, upper=1),)))
    assert "the expression is empty" in str(refusal("   ")) and "such as age > 50" in str(refusal("   "))


def test_the_caret_finds_its_position_in_many_lines_and_in_long_ones():
    lines = str(refusal("age +\n  agee * 2\n  + wage")).splitlines()
    assert lines[-2:] == ["      agee * 2", "      ^^^^"]
    error = refusal("age + " * 100 + "agee" + " + age" * 100)
    assert marked(error) == "agee" and error.position == 600
    line = str(error).splitlines()[-2]
    assert line.startswith("    ...") and line.endswith("...") and len(line) < 140


def test_the_message_never_repeats_a_control_character():
    for text in ("age == '\x1b[31m'", "\x1b[2J", "`\u202eega` > 1", "sex == '\x00'", "sex == '\ud800'"):
        assert all(c.isprintable() for line in str(refusal(text)).splitlines() for c in line)


# ------------------------------------------------------------------ hostile texts: an ExpressionError, never more


def refuse_quickly(text: str) -> None:
    start = time.perf_counter()
    error = refusal(text)
    assert time.perf_counter() - start < 2 and len(str(error)) < 1000
    raise error


def test_hostile_texts_are_refused_quickly_with_a_short_message():
    refusals.check(Path(__file__).parent / "refusals_hostile.txt", lambda text: refuse_quickly(eval(text, globals())))


@every([None, 3, b"age > 3", ["age"], len], of="thing")
def test_what_is_not_a_text_is_refused(thing):
    with pytest.raises(ExpressionError, match=r"must be text, got \w+. Write it in quotes: 'age > 50'."):
        parse(thing)


ALPHABET = [
    *"()[],.'\"`+-*/%<>=!&|^~ \n\0é٣", "and ", "or ", "not ", "in ", "true", "age", "sex", "'Male'", "married",
    "joined", "'2020-01-01'", "1", "1e9", "where(", "missing(", "year(", "__class__", "**", "==",
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join))
def test_any_text_whatever_is_answered_or_refused_by_an_expression_error(text):
    try:
        answer = parse(text).evaluate(random_frame(0, 3), DOMAIN)
    except ExpressionError:
        return
    assert answer.shape == (3,) and answer.dtype in (np.float64, bool)


def at_depth(frames: int, action: Callable[[], Any]) -> Any:
    return action() if frames == 0 else at_depth(frames - 1, action)


DEEP = {
    "parentheses": ("(" * (DEEPEST - 1) + "age" + ")" * (DEEPEST - 1)), "signs": "-" * (DEEPEST - 1) + "age",
    "calls": "abs(" * (DEEPEST - 2) + "age" + ")" * (DEEPEST - 2), "powers": "age" + "**age" * (DEEPEST - 2),
    "conditions": "where(" * (DEEPEST - 3) + "age > 3" + ", true, false)" * (DEEPEST - 3),
    "every level": "(" * 9 + "age" + " ** 1 * 1 + 1 == 1 and true or true)" * 9,
}  # fmt: skip


@every(DEEP.values(), of="text")
def test_the_deepest_expressions_that_are_read_leave_room_on_the_stack(text):
    assert at_depth(400, lambda: parse(text).evaluate(random_frame(0, 3), DOMAIN)).shape == (3,)


def test_long_flat_expressions_are_evaluated_whatever_their_number_of_terms():
    frame = random_frame(0, 3)
    np.testing.assert_array_equal(parse("age" + "+age" * 2000).evaluate(frame, DOMAIN), frame["age"] * 2001)
    assert parse("age >= 0" + " and age >= 0" * 700).evaluate(frame, DOMAIN).all()
    assert parse("0 <= age" + " <= age" * 1000).evaluate(frame, DOMAIN).all()
    assert parse(f"age in {list(range(1500))}").evaluate(frame, DOMAIN).all()


def test_nested_chains_are_evaluated_once_each_and_not_twice_for_each_level():
    text = "age"
    for _ in range(DEEPEST // 3):
        text = f"0 <= where({text} >= 0, 1, 0) <= 1"
    start = time.perf_counter()
    assert parse(text).evaluate(random_frame(0, 3), DOMAIN).shape == (3,)
    assert time.perf_counter() - start < 2  # 2^20 evaluations would take minutes


def test_an_error_survives_pickling():
    error = refusal("agee > 3")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) and twin.position == error.position and isinstance(twin, ValueError)
