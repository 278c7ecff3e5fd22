"""Expressions as text: each operator against numpy, precedence against Python, every refusal with its hint."""

from __future__ import annotations

import copy
import datetime
import pickle
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import refusals
from contracts import every
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.expressions import DEEPEST, Expression, ExpressionError, parse
from kmeanalyst.releases.texts import flaw_of, spacing_flaw_of

DOMAIN = Domain(
    (
        Integer(name="age", lower=0, upper=99),
        Real(name="wage", lower=-5, upper=5, missing=True),
        Real(name="hours-per-week", lower=0, upper=80),
        Integer(name="children", lower=0, upper=9, missing=True),
        Categorical(name="sex", levels=("Female", "Male"), missing=True),
        Categorical(name="old sex", levels=("Male", "Other", "Female")),
        Ordinal(name="grade", levels=("low", "mid", "high"), missing=True),
        Ordinal(name="former_grade", levels=("low", "mid", "high"), missing=True),
        Ordinal(name="size", levels=("s", "m")),
        Boolean(name="married", missing=True),
        Boolean(name="veteran"),
        Date(name="joined", lower="1960-01-01", upper="2025-01-01", missing=True),
        Date(name="born", lower="1900-01-01", upper="2025-01-01"),
        Categorical(name="unordered", levels=("low", "mid", "high")),
        Categorical(name="code", levels=("1", "1.0", "13", "-4", "it's", "True")),
    )
)
GRADES = ("low", "mid", "high")


def rows(*cells: dict[str, Any]) -> pd.DataFrame:
    """A decoded frame with these cells; what is not named is the column's default."""
    texts = {name: [str(row.get(name, "")) for row in cells] for name in DOMAIN.names}
    return DOMAIN.decode(DOMAIN.encode(texts))


def value(text: str, **cells: Any) -> Any:
    """The expression on a single row."""
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
        "age": [41, 20, 70],
        "age * 2 + 1": [83, 41, 141],
        "wage": [2, -1, np.nan],
        "age > 30 and sex == 'Male'": [True, False, False],
        "17 <= age < 41": [False, True, False],
        "sex in ['Male', 'Female']": [True, True, False],
        "missing(sex) or wage < 0": [False, True, True],
        "where(missing(wage), 0, wage)": [2, -1, 0],
        "3": [3, 3, 3],
        "true": [True, True, True],
    }
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


# ------------------------------------------------------------------ every operator against numpy, on random trees

Part = tuple[str, Callable[[pd.DataFrame], Any]]  # an expression's text, and the same computed directly


def cells(frame: pd.DataFrame, name: str) -> np.ndarray:
    """A column of numbers, cell by cell."""
    return np.array([np.nan if pd.isna(cell) else float(cell) for cell in frame[name]], dtype=float)


def each(frame: pd.DataFrame, name: str, test: Callable[[Any], bool]) -> np.ndarray:
    """A test of every cell that is not missing; a missing one passes none."""
    return np.array([bool(not pd.isna(cell) and test(cell)) for cell in frame[name]], dtype=bool)


def power(a: Any, b: Any) -> Any:
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.power(a, b))


BINARY = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.mod, "**": power}
PAIRS = {"min": np.minimum, "max": np.maximum}
SINGLE = {
    "abs": np.abs, "log": np.log, "log1p": np.log1p, "exp": np.exp, "sqrt": np.sqrt,
    "floor": np.floor, "ceil": np.ceil, "round": np.round, "-": np.negative, "+": np.positive,
}  # fmt: skip
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: (a != b) & (a == a) & (b == b),
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip
blank = st.sampled_from(["", " ", "  ", "\n", "\t"])


@st.composite
def numbers(draw: st.DrawFn, depth: int) -> Part:
    forms = ["column", "literal"] if depth == 0 else ["binary", "single", "pair", "where", "truth"]
    form = draw(st.sampled_from(forms))
    if form == "column":
        name = draw(st.sampled_from(["age", "wage", "hours-per-week", "children"]))
        return (f"`{name}`" if "-" in name or draw(st.booleans()) else name), lambda f: cells(f, name)
    if form == "literal":
        number = draw(st.floats(0, 1e6) | st.integers(0, 20))
        return repr(number), lambda f: np.full(len(f), float(number))
    if form == "where":
        c, condition = draw(conditions(depth - 1))
        (a, left), (b, right) = draw(numbers(depth - 1)), draw(numbers(depth - 1))
        return f"where({c}, {a},{b})", lambda f: np.where(condition(f), left(f), right(f))
    if form == "truth":
        c, condition = draw(conditions(depth - 1))
        return f"(1 * (({c}) == true))", lambda f: condition(f).astype(float)
    a, left = draw(numbers(depth - 1))
    if form == "single":
        word, function = draw(st.sampled_from(sorted(SINGLE.items())))
        return f"({word}({a}))", lambda f: function(left(f))
    b, right = draw(numbers(depth - 1))
    sign, calculate = draw(st.sampled_from(sorted((BINARY if form == "binary" else PAIRS).items())))
    text = f"({a}{draw(blank)}{sign}{draw(blank)}{b})" if form == "binary" else f"{sign}({a},{b})"
    return text, lambda f: calculate(left(f), right(f))


@st.composite
def questions_of_columns(draw: st.DrawFn) -> Part:
    forms = ["level", "levels", "order", "orders", "boolean", "alone", "date", "missing", "year", "in"]
    form = draw(st.sampled_from(forms))
    sign = draw(st.sampled_from(sorted(COMPARE)))
    same = draw(st.sampled_from(["==", "!="]))
    if form == "level":
        level = draw(st.sampled_from(["Female", "Male"]))
        return f"(sex {same} '{level}')", lambda f: each(f, "sex", lambda cell: (cell == level) == (same == "=="))
    if form == "levels":
        levels = draw(st.lists(st.sampled_from(["Female", "Male"]), min_size=1))
        word = draw(st.sampled_from(["in", "not in"]))
        return f"(sex {word} {levels!r})", lambda f: each(f, "sex", lambda cell: (cell in levels) == (word == "in"))
    if form == "order":
        level = draw(st.sampled_from(GRADES))
        code, compare = GRADES.index(level), COMPARE[sign]
        return f'(grade {sign} "{level}")', lambda f: each(f, "grade", lambda cell: compare(GRADES.index(cell), code))
    if form == "orders":
        compare = COMPARE[sign]
        codes = [lambda f, n=n: np.array([GRADES.index(c) if c in GRADES else np.nan for c in f[n]], dtype=float)
                 for n in ("grade", "former_grade")]  # fmt: skip
        return f"(grade {sign} former_grade)", lambda f: compare(codes[0](f), codes[1](f))
    if form == "boolean":
        words = {"true": True, "False": False, "1": True, "0": False, "'yes'": True}
        word, truth = draw(st.sampled_from(list(words.items())))
        return f"({word} {same} married)", lambda f: each(f, "married", lambda cell: (cell == truth) == (same == "=="))
    if form == "alone":
        name = draw(st.sampled_from(["married", "veteran"]))
        return name, lambda f: each(f, name, bool)
    if form == "date":
        day = draw(st.dates(datetime.date(1960, 1, 1), datetime.date(2025, 1, 1)))
        compare = COMPARE[sign]
        return f"(joined {sign} '{day}')", lambda f: each(f, "joined", lambda cell: compare(cell, pd.Timestamp(day)))
    if form == "missing":
        name = draw(st.sampled_from(DOMAIN.names))
        return f"missing(`{name}`)", lambda f: f[name].isna().to_numpy(dtype=bool)
    if form == "year":
        word = draw(st.sampled_from(["year", "month"]))
        number = draw(st.integers(1, 12) if word == "month" else st.integers(1960, 2025))
        compare, of = COMPARE[sign], {"year": lambda cell: cell.year, "month": lambda cell: cell.month}[word]
        return f"({word}(joined) {sign} {number})", lambda f: each(f, "joined", lambda cell: compare(of(cell), number))
    some = draw(st.lists(st.integers(0, 9), min_size=1))
    return f"(children in {some!r})", lambda f: each(f, "children", lambda cell: cell in some)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Part:
    if depth == 0:
        return draw(questions_of_columns())
    form = draw(st.sampled_from(["compare", "chain", "and", "or", "not", "where"]))
    if form in ("compare", "chain"):
        parts = [draw(numbers(depth - 1)) for _ in range(2 if form == "compare" else 3)]
        signs = [draw(st.sampled_from(sorted(COMPARE))) for _ in parts[1:]]
        tail = [f"{draw(blank)}{sign} {part}" for sign, (part, _) in zip(signs, parts[1:], strict=True)]
        text = parts[0][0] + "".join(tail)

        def compared(f: pd.DataFrame) -> Any:
            values = [run(f) for _, run in parts]
            return np.all([COMPARE[s](a, b) for s, a, b in zip(signs, values, values[1:], strict=False)], axis=0)

        return f"({text})", compared
    a, left = draw(conditions(depth - 1))
    if form == "not":
        return f"(not {a})", lambda f: ~left(f)
    b, right = draw(conditions(depth - 1))
    if form == "where":
        return f"where(veteran, {a}, {b})", lambda f: np.where(each(f, "veteran", bool), left(f), right(f))
    return f"({a} {form} {b})", (lambda f: left(f) & right(f)) if form == "and" else (lambda f: left(f) | right(f))


def random_frame(seed: int, n: int) -> pd.DataFrame:
    return DOMAIN.decode(DOMAIN.draw(n, np.random.default_rng(seed)))


@every([(numbers, "number", np.float64), (conditions, "condition", bool)], of="parts, kind, dtype")
@settings(max_examples=300, deadline=None)
@given(data=st.data(), depth=st.integers(0, 3), seed=st.integers(0, 2**32), n=st.integers(0, 30))
@pytest.mark.slow
def test_expressions_are_what_numpy_computes(parts, kind, dtype, data, depth, seed, n):
    text, direct = data.draw(parts(depth))
    frame = random_frame(seed, n)
    got = parse(text).evaluate(frame, DOMAIN)
    assert got.dtype == dtype and got.shape == (n,)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, direct(frame))
    assert parse(text).check(DOMAIN) == kind


# ------------------------------------------------------------------ precedence is Python's

XYZ = Domain(tuple(Real(name=name, lower=-10, upper=10) for name in "xyz"))


class Cells(np.ndarray):
    """An array with the two rules for NaN in which expressions differ from numpy."""

    def __pow__(self, other: Any) -> Any:
        return power(self, other).view(Cells)

    def __ne__(self, other: Any) -> Any:
        return COMPARE["!="](np.asarray(self), np.asarray(other))


def bare_number(rng: random.Random, depth: int = 2) -> str:
    """Operators strung together with hardly a parenthesis."""
    parts = []
    for _ in range(rng.randint(1, 4)):
        nested = depth > 0 and rng.random() < 0.3
        part = f"({bare_number(rng, depth - 1)})" if nested else rng.choice("xyz")
        parts.append(rng.choice(["", "", "-", "--", "+"]) + part)
    return "".join(part + rng.choice([" + ", "-", "*", " / ", "%", "**"]) for part in parts[:-1]) + parts[-1]


def bare_condition(rng: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(rng.randint(1, 4)):
        chain = "".join(f" {rng.choice(list(COMPARE))} {bare_number(rng, 1)}" for _ in range(rng.randint(1, 3)))
        nested = depth > 0 and rng.random() < 0.3
        part = f"({bare_condition(rng, depth - 1)})" if nested else bare_number(rng, 1) + chain
        parts.append(rng.choice(["", "", "not ", "not not "]) + part)
    return "".join(part + rng.choice([" and ", " or "]) for part in parts[:-1]) + parts[-1]


def bare_text(seed: int) -> str:
    rng = random.Random(seed)
    return rng.choice([bare_number, bare_condition])(rng)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32).map(bare_text), st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3))
@example("-x ** y ** -z * x - y - z", [2.0, 3.0, 2.0])
@example("not x == y and y < z or x > z", [1.0, 1.0, 2.0])
@example("x ** -y ** z", [2.0, 3.0, 2.0])
@example("x < y == y < z", [1.0, 2.0, 3.0])
@example("not x != y + z != z", [1.0, 2.0, 3.0])
def test_precedence_and_associativity_are_pythons(text, point):
    arrays = {name: np.array([number]) for name, number in zip("xyz", point, strict=True)}
    with np.errstate(all="ignore"):
        cells_of = {name: array.view(Cells) for name, array in arrays.items()}
        theirs = eval(text, {"__builtins__": {}}, cells_of)  # and, or, not and chains work on arrays of one element
    got = parse(text).evaluate(pd.DataFrame(arrays), XYZ)
    np.testing.assert_array_equal(got, np.broadcast_to(theirs, 1))


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


WRITABLE = st.text(
    st.characters(exclude_categories=["Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"]), min_size=1, max_size=200
).filter(lambda text: not (flaw_of(text) or spacing_flaw_of(text)))  # what names and levels may hold


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
    for text in ("joined + born", "1 - joined", "joined - 1", "joined - born - born", "joined * 2"):
        with pytest.raises(ExpressionError, match="is a column of days, and a number is needed here"):
            parse(text).check(DOMAIN)


# ------------------------------------------------------------------ missing and undefined


COMPARED = ["wage {} 1", "1 {} wage", "wage {} wage", "wage + 1 {} 2", "log(-1) {} 0",
            "grade {} 'mid'", "grade {} former_grade", "joined {} '2020-01-01'"]  # fmt: skip
NEITHER = ["sex in ['Male']", "sex not in ['Male']", "wage in [1]", "wage not in [1]", "married", "married == true",
           "married != true", "joined not in ['2020-01-01']"]  # fmt: skip


@every([*(text.format(sign) for text in COMPARED for sign in COMPARE), *NEITHER], of="text")
def test_nothing_holds_of_a_missing_cell_and_not_is_plain_negation(text):
    assert not value(text) and value(f"not ({text})")


@every([
        "wage + 1", "wage * 0", "wage ** 0", "1 ** wage", "min(wage, -99)", "max(1, wage)",
        "-wage", "abs(wage)", "wage % 2", "round(wage)", "year(joined)", "month(joined)",
    ], of="text")  # fmt: skip
def test_arithmetic_on_a_missing_number_is_nan(text):
    assert np.isnan(value(text))


def test_missing_finds_the_missing_cells_of_every_kind_of_column():
    for name in DOMAIN.names:
        assert value(f"missing(`{name}`)") == DOMAIN[name].missing
    present = {"wage": 1, "sex": "Male", "grade": "mid", "married": "true", "joined": "2020-01-01", "children": 3}
    for name in present:
        assert not value(f"missing({name})", **present)


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
    [("age > 3", True), ("not married", True), ("sex in ['Male']", True), ("age > 3 and married", True), ("true", True),
     ("missing(age)", True), ("where(veteran, age > 3, false)", True), ("(((age > 3)))", True), ("age", False),
     ("where(veteran, age > 3, 2)", False), ("-age", False), ("abs(age > 3)", False), ("(age > 3) + 1", False)],
    of="text, is_condition",
)  # fmt: skip
def test_is_condition_goes_by_the_text_and_agrees_with_check(text, is_condition):
    assert (
        not parse("married").is_condition and parse("married").check(DOMAIN) == "condition"
    )  # only the domain says so
    assert parse(text).is_condition is is_condition
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
        parse("year(x)").check(XYZ)
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
    "parentheses": ("(" * (DEEPEST - 1) + "age" + ")" * (DEEPEST - 1)),
    "signs": "-" * (DEEPEST - 1) + "age",
    "calls": "abs(" * (DEEPEST - 2) + "age" + ")" * (DEEPEST - 2),
    "powers": "age" + "**age" * (DEEPEST - 2),
    "conditions": "where(" * (DEEPEST - 3) + "age > 3" + ", true, false)" * (DEEPEST - 3),
    "every level": "(" * 9 + "age" + " ** 1 * 1 + 1 == 1 and true or true)" * 9,
}


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
