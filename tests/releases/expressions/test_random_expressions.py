"""Expressions drawn at random: each operator against numpy, precedence and associativity against Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from contracts import every
from expression_cases import DOMAIN, GRADES, random_frame
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.expressions import parse

# ------------------------------------------------------------------ every operator against numpy, on random cells


def cells(frame: pd.DataFrame, name: str) -> np.ndarray:
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


def expected_of_numbers(frame: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    """Texts, each with the same computed directly."""
    married = each(frame, "married", bool)
    for a, b in product(("age", "wage", "hours-per-week", "children"), repeat=2):
        left, right = cells(frame, a), cells(frame, b)
        yield from ((f"`{a}` {sign}`{b}`", own(left, right)) for sign, own in (BINARY | COMPARE).items())
        yield from ((f"{name}(`{a}`,\n`{b}`)", own(left, right)) for name, own in PAIRS.items())
        yield from ((f"{word}(`{a}` - 9.5)", own(left - 9.5)) for word, own in SINGLE.items())
        yield f"where(married, `{a}`, `{b}`)", np.where(married, left, right)
        yield f"not `{a}` < `{b}` or `{a}` < 9 <= `{b}`", ~(left < right) | (left < 9) & (right >= 9)


def expected_of_others(frame: pd.DataFrame) -> Iterator[tuple[str, Any]]:
    grades, former = (cells(frame.assign(own=frame[name].map({g: k for k, g in enumerate(GRADES)}).astype(float)), "own")
                      for name in ("grade", "former_grade"))  # fmt: skip
    day = pd.Timestamp("2001-05-18")
    for sign, compare in COMPARE.items():
        yield f"grade {sign} 'mid'", compare(grades, GRADES.index("mid") + 0 * grades)
        yield f"grade {sign} former_grade", compare(grades, former)
        yield f"joined {sign} '{day.date()}'", each(frame, "joined", lambda cell, own=compare: own(cell, day))
        yield f"month(joined) {sign} 5", each(frame, "joined", lambda cell, own=compare: own(cell.month, 5))
    yield "sex in ['Male']", each(frame, "sex", lambda cell: cell == "Male")
    yield "sex not in ['Male']", each(frame, "sex", lambda cell: cell != "Male")
    yield "children in [1, 2, 7]", each(frame, "children", lambda cell: cell in (1, 2, 7))
    yield "true == married", each(frame, "married", bool)
    yield "1 * (veteran == false)", each(frame, "veteran", lambda cell: not cell).astype(float)
    for name in DOMAIN.names:
        yield f"missing(`{name}`)", frame[name].isna().to_numpy(dtype=bool)


@every([expected_of_numbers, expected_of_others], of="expected")
def test_expressions_are_what_numpy_computes(expected):
    frame = random_frame(0, 300)
    with np.errstate(all="ignore"):
        for text, direct in expected(frame):
            got = parse(text).evaluate(frame, DOMAIN)
            assert got.dtype == direct.dtype == (bool if parse(text).check(DOMAIN) == "condition" else np.float64), text
            np.testing.assert_array_equal(got, direct, err_msg=text)


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
