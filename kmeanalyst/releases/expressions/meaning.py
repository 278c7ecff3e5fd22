"""Tree × domain → what to compute. Every part is checked against the columns before any row is read."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import text_of
from kmeanalyst.releases.domain.column import Column, Columns
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import syntax, words
from kmeanalyst.releases.expressions.arrays import CALCULATE, calendar_of, codes_of, compared, days_of, numbers_in
from kmeanalyst.releases.expressions.syntax import NUMBER, Node, number_written
from kmeanalyst.releases.expressions.words import ExpressionError

_Run = Callable[[pd.DataFrame], Any]
_Convert = Callable[[Any], Any]
_Read = TypeVar("_Read")
_NO_ROWS = pd.DataFrame()
_KINDS = {
    "number": "a number", "condition": "a condition", "levels": "a column of levels",
    "date": "a column of days", "strings": "a column of texts", "text": "a text",
}  # fmt: skip


@dataclass(frozen=True)
class Meaning:
    """What a part stands for on a domain: its kind, and how to compute it.

    Everything evaluates to float64 with NaN for missing. Levels become their codes, days the count since 1970-01-01,
    strings numbers in the order the interpreter meets them; a text is NaN until it is compared with a column. Only
    conditions evaluate to bool.
    """

    node: Node
    kind: Literal["number", "condition", "levels", "date", "strings", "text"]
    run: _Run
    column: Column | None = None

    @property
    def is_boolean_column(self) -> bool:
        return isinstance(self.column, Boolean)


class Interpreter:
    """Checks a tree against a domain and returns how to compute it; it visits every part once."""

    def __init__(self, text: str, domain: Columns) -> None:
        self.text = text
        self.domain = domain
        self.numbers_of_strings: dict[str, float] = {}
        self.compared_with_texts: list[str] = []  # columns of strings

    def error(self, message: str, node: Node) -> ExpressionError:
        return ExpressionError(message, self.text, node.span.start, node.span.end)

    def part(self, node: Node) -> str:
        return words.short(self.text[node.span.start : node.span.end])

    def answer(self, root: Node) -> tuple[Literal["number", "condition"], _Run]:
        meaning = self.meaning(root)
        if meaning.kind == "condition" or meaning.is_boolean_column:
            return "condition", self.as_condition(meaning)
        return "number", self.as_number(meaning)

    # ---- a part, by its form

    def meaning(self, node: Node) -> Meaning:
        match node:
            case syntax.Constant():
                return _literal_meaning(node)
            case syntax.Name():
                return self.column(node)
            case syntax.Call():
                return self.call(node)
            case syntax.Comparison():
                return self.comparison(node)
            case syntax.Logic():
                return self.logic(node)
            case syntax.Not():
                condition = self.as_condition(self.meaning(node.operand))
                return Meaning(node, "condition", lambda frame: np.logical_not(condition(frame)))
            case syntax.Sign():
                number = self.as_number(self.meaning(node.operand))
                return Meaning(node, "number", number if node.sign == "+" else lambda frame: np.negative(number(frame)))
            case syntax.Arithmetic():
                return self.arithmetic(node)
        raise AssertionError(type(node))

    def column(self, node: syntax.Name) -> Meaning:
        if node.name not in self.domain.names:
            name, there = words.written(node.name), words.names(self.domain.names)
            raise self.error(f"no column {name}: the columns are {there}. {self.column_hint(node)}", node)
        column = self.domain[node.name]
        if isinstance(column, Categorical):
            return Meaning(node, "levels", lambda frame: codes_of(frame[node.name], column), column)
        if isinstance(column, Date):
            return Meaning(node, "date", lambda frame: days_of(frame[node.name]), column)
        if isinstance(column, Text):
            return Meaning(node, "strings", lambda frame: self.string_numbers(frame[node.name]), column)
        return Meaning(node, "number", lambda frame: numbers_in(frame[node.name]), column)

    def string_number(self, string: str) -> float:
        return self.numbers_of_strings.setdefault(string, float(len(self.numbers_of_strings)))

    def string_numbers(self, cells: pd.Series) -> Array:
        missing, strings = cells.isna().to_numpy(), cells.astype(object).to_numpy()
        found = [np.nan if absent else self.string_number(s) for s, absent in zip(strings, missing, strict=True)]
        return np.array(found, dtype=np.float64)

    def arithmetic(self, node: syntax.Arithmetic) -> Meaning:
        start, rest = self.meaning(node.first), [(sign, self.meaning(operand)) for sign, operand in node.rest]
        both = {start.kind, rest[0][1].kind}
        if rest[0][0] == "-" and "date" in both <= {"date", "text"}:  # a number: the days between two dates
            first, second = map(self.as_days, (start, rest[0][1]))
        else:
            first, second = map(self.as_number, (start, rest[0][1]))
        others = [(CALCULATE[sign], self.as_number(operand)) for sign, operand in rest[1:]]
        return Meaning(node, "number", _from_the_left(first, [(CALCULATE[rest[0][0]], second), *others]))

    def as_days(self, part: Meaning) -> _Run:
        if part.kind == "date":
            return part.run
        assert isinstance(part.node, syntax.Constant)
        day = np.float64(self.day(part.node))
        return lambda frame: day

    def logic(self, node: syntax.Logic) -> Meaning:
        first, *rest = [self.as_condition(self.meaning(operand)) for operand in node.operands]
        combine = np.logical_and if node.word == "and" else np.logical_or
        return Meaning(node, "condition", _from_the_left(first, [(combine, operand) for operand in rest]))

    def call(self, node: syntax.Call) -> Meaning:
        if node.function == "missing":
            return self.missing(node)
        if node.function in ("year", "month"):
            return self.calendar(node)
        if node.function == "number":
            return self.number(node)
        arguments = [self.meaning(argument) for argument in node.arguments]
        if node.function == "where":
            return self.where(node, *arguments)
        calculate, numbers = CALCULATE[node.function], [self.as_number(argument) for argument in arguments]
        return Meaning(node, "number", lambda frame: calculate(*[number(frame) for number in numbers]))

    def missing(self, node: syntax.Call) -> Meaning:
        if not isinstance(node.arguments[0], syntax.Name):
            raise self.error("missing takes the name of a column. Write missing(column).", node.arguments[0])
        cells = self.column(node.arguments[0]).run
        return Meaning(node, "condition", lambda frame: np.isnan(cells(frame)))

    def calendar(self, node: syntax.Call) -> Meaning:
        days = self.meaning(node.arguments[0])
        if days.kind != "date":
            dates = [words.written(column.name) for column in self.domain.columns if isinstance(column, Date)]
            hint = f"Write {node.function}({dates[0]})." if dates else "This domain has no date column: leave it out."
            raise self.error(
                f"{node.function} takes a date column, and {self.part(days.node)} is {_KINDS[days.kind]}. {hint}", days.node
            )
        if node.function == "year":
            return Meaning(node, "number", lambda frame: calendar_of(days.run(frame), "Y") + 1970)
        return Meaning(node, "number", lambda frame: calendar_of(days.run(frame), "M") % 12 + 1)

    def number(self, node: syntax.Call) -> Meaning:
        levels = self.meaning(node.arguments[0])
        column = levels.column
        if not isinstance(column, Categorical) or isinstance(column, Boolean):
            what = "a boolean" if levels.is_boolean_column else _KINDS[levels.kind]
            raise self.error(
                f"number reads the levels of a column, and {self.part(levels.node)} is {what}. Write number(column) of a column "
                "of levels, or leave number out.", levels.node
            )  # fmt: skip
        numbers = np.array([*map(number_written, column.levels), np.nan])
        if np.isnan(numbers).all():
            there = words.listed([words.quoted(level) for level in column.levels])
            raise self.error(
                f"no level of {words.written(column.name)} is a number: they are {there}. "
                "Name a column whose levels are written in digits.", levels.node
            )  # fmt: skip
        return Meaning(node, "number", lambda frame: numbers[np.where(np.isnan(c := levels.run(frame)), -1, c).astype(int)])

    def where(self, node: syntax.Call, test: Meaning, then: Meaning, otherwise: Meaning) -> Meaning:
        condition, branches = self.as_condition(test), (then, otherwise)
        both_true_or_false = all(b.kind == "condition" or b.is_boolean_column for b in branches)
        a, b = (self.as_condition(branch) if both_true_or_false else self.as_number(branch) for branch in branches)
        kind: Literal["number", "condition"] = "condition" if both_true_or_false else "number"
        return Meaning(node, kind, lambda frame: np.where(condition(frame), a(frame), b(frame)))

    # ---- a part, as its context requires

    def as_number(self, meaning: Meaning) -> _Run:
        run = meaning.run
        if meaning.kind == "condition":
            return lambda frame: np.asarray(run(frame), dtype=np.float64)
        if meaning.kind != "number":
            raise self.misplaced(meaning, "number")
        return run

    def as_condition(self, meaning: Meaning) -> _Run:
        run = meaning.run
        if meaning.is_boolean_column:
            return lambda frame: np.equal(run(frame), 1.0)
        if meaning.kind != "condition":
            raise self.misplaced(meaning, "condition")
        return run

    def misplaced(self, meaning: Meaning, needed: str) -> ExpressionError:
        what = f"{self.part(meaning.node)} is {_KINDS[meaning.kind]}, and a {needed} is needed here."
        return self.error(f"{what} {self.comparison_hint(meaning)}", meaning.node)

    # ---- comparisons: both sides become numbers on one scale

    def comparison(self, node: syntax.Comparison) -> Meaning:
        operands, tests = [self.meaning(node.first)], []
        for sign, part in node.rest:
            if isinstance(part, syntax.Items):
                tests.append(self.membership(sign, operands[-1], part))
            else:
                operands.append(self.meaning(part))
                tests.append(self.pair(sign, operands[-2], operands[-1]))

        def run(frame: pd.DataFrame) -> Any:
            values = [np.asarray(operand.run(frame), dtype=np.float64) for operand in operands]
            values.append(values[-1])  # a list, always last, brings its own values
            total: Any = np.True_
            for i, test in enumerate(tests):
                total = np.logical_and(total, test(values[i], values[i + 1]))
            return total

        return Meaning(node, "condition", run)

    def pair(self, sign: str, left: Meaning, right: Meaning) -> Callable[[Array, Array], Array]:
        from_left, from_right = self.scales(sign, left, right)
        return lambda a, b: compared(sign, from_left(a), from_right(b))

    def membership(self, sign: str, left: Meaning, values: syntax.Items) -> Callable[[Array, Array], Array]:
        items = [_literal_meaning(item) for item in values.items]
        among = np.concatenate([self.among(left, item) for item in items])
        if sign == "in":
            return lambda a, _: np.isin(a, among)
        return lambda a, _: ~np.isin(a, among) & ~np.isnan(a)

    def among(self, left: Meaning, item: Meaning) -> Array:
        """The values of the left side that equal an item: one, or the codes at and below a node."""
        if isinstance(left.column, Tree) and isinstance(item.node, syntax.Constant):
            return np.arange(*self.read(left.column, item.node, left.column.span), dtype=np.float64)
        return np.array([self.scales("==", left, item)[1](np.float64(item.run(_NO_ROWS)))])

    def scales(self, sign: str, left: Meaning, right: Meaning) -> tuple[_Convert, _Convert]:
        """What takes each side to the scale they share; ExpressionError if they share none."""
        onto_kinds: list[tuple[str, Callable[[str, Meaning, Meaning], _Convert]]] = [
            ("levels", self.onto_levels), ("date", self.onto_days), ("strings", self.onto_strings),
            ("text", self.onto_text), ("condition", self.onto_truth),
        ]  # fmt: skip
        if sign in ("==", "!=") and isinstance(left.column, Tree) and isinstance(right.node, syntax.Constant):
            return self.onto_node(left.column, right.node)
        if sign in ("==", "!=") and isinstance(right.column, Tree) and isinstance(left.node, syntax.Constant):
            return self.onto_node(right.column, left.node)[::-1]
        for kind, onto in onto_kinds:
            if left.kind == kind:
                return _unchanged, onto(sign, left, right)
            if right.kind == kind:
                return onto(sign, right, left), _unchanged
        return _unchanged, _unchanged

    def onto_levels(self, sign: str, levels: Meaning, other: Meaning) -> _Convert:
        column = levels.column
        assert isinstance(column, Categorical)
        if sign not in ("==", "!=") and not column.ordered:
            raise self.error(
                f"{words.written(column.name)} is {column.kind}: its levels have no order, so {sign} means nothing. "
                f"Use ==, != or in, as in {words.example(column)}.", levels.node
            )  # fmt: skip
        if isinstance(other.node, syntax.Constant):
            code = self.read(column, other.node, column.parse)
            return lambda _: np.float64(code)
        if isinstance(other.column, Categorical):
            return self.recoding(sign, column, other)
        if isinstance(column, Boolean) and other.kind == "condition":
            return _unchanged
        raise self.error(
            f"{words.written(column.name)} has levels, and {self.part(other.node)} is {_KINDS[other.kind]}: they share no "
            f"scale. Compare it with a level: {words.example(column)}.", other.node
        )  # fmt: skip

    def onto_node(self, column: Tree, literal: syntax.Constant) -> tuple[_Convert, _Convert]:
        """Codes with those at and below a node as its first, and the literal as that code."""
        start, stop = self.read(column, literal, column.span)
        return _first_of(start, stop), lambda _: np.float64(start)

    def read(self, column: Categorical, literal: syntax.Constant, parse: Callable[[str], _Read | None]) -> _Read:
        """What `parse` gives for the level or node that a literal stands for: as it is written, or as the cell it would be."""
        readings = [literal.value] if isinstance(literal.value, str) else [self.part(literal), text_of(literal.value)]
        found = next((found for text in readings if (found := parse(str(text))) is not None), None)
        if found is None:
            raise self.no_level(column, literal, str(readings[0]))
        return found

    def no_level(self, column: Categorical, literal: syntax.Constant, text: str) -> ExpressionError:
        name, hint = words.written(column.name), "Use one of these."
        known = column.nodes if isinstance(column, Tree) else column.levels
        levels = [words.quoted(level) for level in words.nearest(text, known)]
        if not text:
            hint = f"For a missing cell write missing({name})."
        elif isinstance(column, Boolean):
            levels = ["true", "false"]
        elif near := words.close(text, known):
            hint = f"Did you mean {words.quoted(near)}?"
        there = words.listed(levels)
        return self.error(f"{name} has no level {self.part(literal)}: its levels are {there}. {hint}", literal)

    def recoding(self, sign: str, column: Categorical, other: Meaning) -> _Convert:
        """Codes of another column's levels in this one's; a level that this one lacks gets a code of no level."""
        assert isinstance(other.column, Categorical)
        theirs, names = other.column.levels, f"{words.written(column.name)} and {words.written(other.column.name)}"
        hint = f"Compare each with a level: {words.example(column)}."
        if sign not in ("==", "!=") and (theirs != column.levels or not other.column.ordered):
            raise self.error(f"{names} are not ordered alike, so {sign} between them means nothing. {hint}", other.node)
        if not set(theirs) & set(column.levels):
            raise self.error(f"{names} have no level in common, so they are never equal. {hint}", other.node)
        code_of = {level: float(code) for code, level in enumerate(column.levels)}
        table = np.array([*(code_of.get(level, -1.0) for level in theirs), np.nan])
        return lambda codes: table[np.where(np.isnan(codes), len(theirs), codes).astype(int)]

    def onto_days(self, sign: str, days: Meaning, other: Meaning) -> _Convert:
        assert days.column is not None
        if isinstance(other.node, syntax.Constant) and isinstance(other.node.value, str):
            day = self.day(other.node)
            return lambda _: np.float64(day)
        if other.kind == "date":
            return _unchanged
        name = words.written(days.column.name)
        raise self.error(
            f"{name} holds days, and {self.part(other.node)} is {_KINDS[other.kind]}: they share no scale. Compare it "
            f"with a day, {words.example(days.column)}, or use year({name}).", other.node
        )  # fmt: skip

    def onto_strings(self, sign: str, strings: Meaning, other: Meaning) -> _Convert:
        column = strings.column
        assert isinstance(column, Text)
        name, hint = words.written(column.name), f"Compare it with a text: {words.example(column)}."
        if sign not in ("==", "!="):
            raise self.error(
                f"{name} is a column of texts, which have no order here, so {sign} means nothing. Use ==, != or in.", strings.node
            )
        if other.kind == "strings":
            return _unchanged
        if not (isinstance(other.node, syntax.Constant) and isinstance(other.node.value, str)):
            what = f"{self.part(other.node)} is {_KINDS[other.kind]}"
            raise self.error(f"{name} holds texts, and {what}: they share no scale. {hint}", other.node)
        text = other.node.value
        if not text and (column.missing or column.default is not None):
            raise self.error(f"{name} has no empty text. For a missing cell write missing({name}).", other.node)
        if column.held(text) != text:
            raise self.error(
                f"{name} has no text {self.part(other.node)}: its column is {column.describe()}. Compare it with one of "
                "these.", other.node
            )  # fmt: skip
        self.compared_with_texts.append(column.name)
        return lambda _: np.float64(self.string_number(text))

    def day(self, literal: syntax.Constant) -> float:
        text = str(literal.value)
        try:
            if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
                raise ValueError
            day = datetime.date.fromisoformat(text)
        except ValueError:
            raise self.error(
                f"{self.part(literal)} is not a day of the calendar. Write YYYY-MM-DD, as in '2020-01-31'.", literal
            ) from None
        return float((day - datetime.date(1970, 1, 1)).days)

    def onto_text(self, sign: str, text: Meaning, other: Meaning) -> NoReturn:
        raise self.error(
            f"{self.part(text.node)} is a text, and {self.part(other.node)} is {_KINDS[other.kind]}: a text compares "
            f"with a column of levels, days or texts only. {self.text_hint(text.node)}", text.node
        )  # fmt: skip

    def onto_truth(self, sign: str, truth: Meaning, other: Meaning) -> _Convert:
        if sign not in ("==", "!="):
            raise self.error(
                f"{self.part(truth.node)} is a condition, and true and false have no order, so {sign} means nothing. "
                "Join comparisons by and: 0 < a and a < 1, or 0 < a < 1 without parentheses.", truth.node
            )  # fmt: skip
        if other.kind == "condition" or (isinstance(other.node, syntax.Constant) and other.node.value in (0.0, 1.0)):
            return _unchanged
        raise self.error(
            f"{self.part(truth.node)} is a condition, and {self.part(other.node)} is a number: a condition equals true "
            "or false (1 or 0) only. Join comparisons by and, or compare numbers with numbers.", other.node
        )  # fmt: skip

    # ---- how to fix it

    def column_hint(self, node: syntax.Name) -> str:
        in_backticks = (name for name in self.domain.names if words.written(name)[0] == "`")
        dashed = [name for name in in_backticks if self.text.startswith(name, node.span.start)]
        if dashed and self.text[node.span.start] != "`":
            return f"Did you mean {words.written(max(dashed, key=len))}, in backticks?"
        owner = next((c for c in self.domain.columns if isinstance(c, Categorical) and node.name in c.levels), None)
        if owner is not None and not isinstance(owner, Boolean):
            return f"If you mean the level of {words.written(owner.name)}, put it in quotes: {words.quoted(node.name)}."
        if node.name.lower() in ("none", "null", "nan", "na", "nat"):
            return "For a missing cell write missing(column)."
        near = words.close(node.name, self.domain.names)
        return f"Did you mean {words.written(near)}?" if near else "Use one of these."

    def comparison_hint(self, meaning: Meaning) -> str:
        if meaning.kind == "text":
            return self.text_hint(meaning.node)
        if meaning.kind == "number":
            return f"Compare it, as in {self.part(meaning.node)} > 0."
        assert meaning.column is not None
        name = words.written(meaning.column.name)
        if meaning.kind == "date":
            by_day = f"Compare it with a day, {words.example(meaning.column)}"
            return f"{by_day}, or use year({name}) or month({name}); {name} - '2020-01-31' is a number of days."
        what = "text" if meaning.kind == "strings" else "level"
        return f"Compare it with a {what}: {words.example(meaning.column)}."

    def text_hint(self, node: Node) -> str:
        assert isinstance(node, syntax.Constant)
        text = str(node.value)
        if text in self.domain.names:
            return f"For the column write {words.written(text)}."
        return f"Write {text} without quotes." if NUMBER.fullmatch(text) else "Compare a column with it, or remove it."


def _literal_meaning(node: syntax.Constant) -> Meaning:
    value = node.value
    if isinstance(value, str):
        return Meaning(node, "text", lambda frame: np.nan)
    return Meaning(node, "condition" if isinstance(value, bool) else "number", lambda frame: value)


def _from_the_left(first: _Run, rest: list[tuple[Callable[..., Any], _Run]]) -> _Run:
    def run(frame: pd.DataFrame) -> Any:
        total = first(frame)
        for calculate, operand in rest:
            total = calculate(total, operand(frame))
        return total

    return run


def _unchanged(values: Any) -> Any:
    return values


def _first_of(start: int, stop: int) -> _Convert:
    """Codes with those from `start` up to `stop` as the first of them, and all others as a code of no level."""
    return lambda codes: np.where((codes >= start) & (codes < stop), start, np.where(np.isnan(codes), np.nan, -1.0))
