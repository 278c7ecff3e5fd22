"""Formulas: R's operators and their precedence, factors that are expressions, and messages that point at the mistake."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from kmeanalyst.inference.regression.formula import parse_formula
from kmeanalyst.releases.expressions import ExpressionError


def test_operators_are_those_of_r():
    for text, terms, intercept in [
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
    ]:
        formula = parse_formula(text)
        assert list(formula.terms) == terms and formula.intercept is intercept


def test_the_target_is_an_expression_of_its_own():
    assert parse_formula("log(y + 1) ~ a").target == "log(y + 1)"
    assert parse_formula("y + z ~ a").target == "y + z"
    assert parse_formula("city == '~' ~ a").target == "city == '~'"


def test_what_is_no_formula_is_refused_with_the_place_of_the_mistake():
    refusals.check(Path(__file__).parent / "refusals_formula.txt", lambda text: eval(text, globals()))


def test_a_message_shows_the_formula_and_where_in_it():
    with pytest.raises(ExpressionError) as refused:
        parse_formula("income ~ age + sex ^ x")
    assert str(refused.value).splitlines()[1:] == ["    income ~ age + sex ^ x", " " * 25 + "^"]


@settings(deadline=None)  # a busy machine is not an error of a formula
@given(st.text(alphabet="ab01~+-:*^()[]'`<>= ,.", max_size=40))
def test_any_text_is_a_formula_or_an_expression_error(text):
    with suppress(ExpressionError):
        assert parse_formula(text).target
