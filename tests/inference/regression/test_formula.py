"""Formulas: R's operators and their precedence, factors that are expressions, and messages that point at the mistake."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kmeanalyst.inference.regression.formula import parse_formula
from kmeanalyst.releases.expressions import ExpressionError


@pytest.mark.parametrize(
    ("text", "terms", "intercept"),
    [
        ("y ~ a + b", [("a",), ("b",)], True),
        ("y ~ a*b", [("a",), ("b",), ("a", "b")], True),
        ("y ~ a:b + a", [("a",), ("a", "b")], True),  # main effects first
        ("y ~ (a + b + c)^2", [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")], True),
        ("y ~ (a + b)^2 - a:b", [("a",), ("b",)], True),
        ("y ~ a * b * c - a:b:c", [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c")], True),
        ("y ~ a + b:c * d", [("a",), ("d",), ("b", "c"), ("b", "c", "d")], True),  # : binds more tightly than *
        ("y ~ (a + b):c", [("a", "c"), ("b", "c")], True),
        ("y ~ b:a + a:b", [("b", "a")], True),
        ("y ~ a:a", [("a",)], True),
        ("y ~ 1", [], True),
        ("y ~ 0 + a", [("a",)], False),
        ("y ~ a - 1", [("a",)], False),
        ("y ~ -1 + a", [("a",)], False),
        ("y ~ a - 1 + 1", [("a",)], True),
        ("y ~ a - 0", [("a",)], True),
        ("y ~ a > 50 + b", [("a > 50",), ("b",)], True),
        ("y ~ a > -1 + b", [("a > -1",), ("b",)], True),
        ("y ~ (a > 50):b", [("a > 50", "b")], True),
        ("y ~ I(a * a) + I(a + b)", [("a * a",), ("a + b",)], True),
        ("y ~ log(a + 1) + a ** 2 + a / 10", [("log(a + 1)",), ("a ** 2",), ("a / 10",)], True),
        ("y ~ a in ['x+y', 'z'] + `b ~ c`", [("a in ['x+y', 'z']",), ("`b ~ c`",)], True),
        ("y ~ `a`:b", [("a", "b")], True),
        ("y ~ a > 1e-5 + b", [("a > 1e-5",), ("b",)], True),
        ("y ~ not (a or b) + c", [("not (a or b)",), ("c",)], True),
    ],
)
def test_operators_are_those_of_r(text, terms, intercept):
    formula = parse_formula(text)
    assert list(formula.terms) == terms and formula.intercept is intercept


def test_the_target_is_an_expression_of_its_own():
    assert parse_formula("log(y + 1) ~ a").target == "log(y + 1)"
    assert parse_formula("y + z ~ a").target == "y + z"
    assert parse_formula("city == '~' ~ a").target == "city == '~'"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("y", r"has 0 signs ~.*Write it as"),
        ("y ~ a ~ b", r"has 2 signs ~"),
        ("~ a", r"has no target"),
        ("y ~", r"expected a column or an expression, got the end\. Write one"),
        ("y ~ a +", r"expected a column"),
        ("y ~ a ^ b", r"a whole number from 1 to 9.*I\(age \* age\)"),
        ("y ~ age^2", r"age\^2 is age: .*as in R\. .*I\(age \*\* 2\)"),
        ("y ~ b + (age)^3", r"age\^3 is age"),
        ("y ~ C(a)", r"C\(a\) is no factor: a column of levels is a factor by its name alone.*reference"),
        ("y ~ as.factor(a)", r"a factor by its name alone"),
        ("y ~ np.log(a)", r"functions stand without a module: write log\(age\)"),
        ("np.log(y) ~ a", r"np.log\(y\) is no target: functions stand without"),
        ("y ~ poly(a, 2)", r"write powers, such as age \+ I\(age \*\* 2\)"),
        ("y ~ a + offset(log(b))", r"no coefficient can be held at 1"),
        ("y ~ scale(a)", r"in a column's own units"),
        ("y ~ .", r"name those that explain"),
        ("y ~ a + (1|b)", r"no random effects"),
        ("y ~ a %in% b", r"write : for a product"),
        ('y ~ Q("a b")', r"stand in backticks"),
        ("y ~ a ^ 10", r"a whole number from 1 to 9"),
        ("y ~ (a + b", r"this \( is never closed\. Add \)"),
        ("y ~ a)", r"expected \+, - or the end, got \)"),
        ("y ~ log(a", r"this \( is never closed"),
        ("y ~ a == 'b", r"the quote ' opens and does not close"),
        ("y ~ 3 * a", r"3 names no column"),
        ("y ~ a b", r"a b is no factor"),
        ("y ~ __import__('os').system('x')", r"is no factor"),
        ("y ~ " + "(" * 100 + "a" + ")" * 100, r"60 brackets"),
        ("y ~ (a+b+c+d+e+f+g+h+i+j+k+l+m+n)^9", r"more than 1000 terms"),
        ("y ~ " + "*".join(f"x{i}" for i in range(40)), r"more than 1000 terms"),
        (3, r"must be text, got int"),
    ],
)
def test_what_is_no_formula_is_refused_with_the_place_of_the_mistake(text, message):
    with pytest.raises(ExpressionError, match=message):
        parse_formula(text)


def test_a_message_shows_the_formula_and_where_in_it():
    with pytest.raises(ExpressionError) as refused:
        parse_formula("income ~ age + sex ^ x")
    assert str(refused.value).splitlines()[1:] == ["    income ~ age + sex ^ x", " " * 25 + "^"]


@given(st.text(alphabet="ab01~+-:*^()[]'`<>= ,.", max_size=40))
def test_any_text_is_a_formula_or_an_expression_error(text):
    with suppress(ExpressionError):
        assert parse_formula(text).target
