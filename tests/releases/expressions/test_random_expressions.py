"""Expressions drawn at random: each operator against numpy, precedence and associativity against Python."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from contracts import every
from expression_cases import DOMAIN, GRADES, random_frame
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.expressions import parse

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
