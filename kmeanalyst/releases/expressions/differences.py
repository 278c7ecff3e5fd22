"""Conditions on the difference of two columns, in terms of a column that holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kmeanalyst.releases.expressions.syntax import (
    TURNED,
    Arithmetic,
    Call,
    Comparison,
    Constant,
    Logic,
    Name,
    Node,
    Not,
    Sign,
)


def named(node: Node, columns: Mapping[tuple[str, str], tuple[str, float, float]]) -> Node:
    """A condition with derived columns in the place of the differences that it compares with numbers, and of two columns compared.

    columns   (a, b) → the column of a - b, and between which numbers, not at them, a comparison with it is one with a - b.
    """
    match node:
        case Comparison(first=a, rest=((sign, b),)) if sign in TURNED:
            for left, way, right in ((a, sign, b), (b, TURNED[sign], a)):
                if (found := _compared(left, right, columns)) is not None:
                    column, number, turned = found
                    way = TURNED[way] if turned else way
                    return Comparison(node.span, column, ((way, Constant(node.span, number)),))
        case Not(operand=inner):
            return replace(node, operand=named(inner, columns))
        case Logic(operands=parts):
            return replace(node, operands=tuple(named(part, columns) for part in parts))
        case Call(function="where", arguments=(test, *values)):
            return replace(node, arguments=(named(test, columns), *values))
    return node


def _compared(
    left: Node, right: Node, columns: Mapping[tuple[str, str], tuple[str, float, float]]
) -> tuple[Node, float, bool] | None:
    """The derived column, or its absolute value, that these sides compare, with which number, and whether with turned signs."""
    apart, number = left, _number(right)
    if isinstance(left, Name) and isinstance(right, Name):
        apart, number = Arithmetic(left.span, left, (("-", right),)), 0.0
    within = isinstance(apart, Call) and apart.function == "abs"
    match apart.arguments[0] if isinstance(apart, Call) and within else apart:
        case Arithmetic(first=Name(name=a), rest=(("-", Name(name=b)),)) if number is not None:
            for pair, turn in (((a, b), 1), ((b, a), -1)):
                name, lower, upper = columns.get(pair, ("", 0.0, 0.0))
                column: Node = Name(left.span, name)
                if within and lower < -abs(number) and abs(number) < upper:
                    return Call(left.span, "abs", (column,)), number, False
                if not within and lower < turn * number < upper:
                    return column, turn * number, turn < 0
    return None


def _number(node: Node) -> float | None:
    match node:
        case Constant(value=value) if type(value) in (int, float):
            return float(value)
        case Sign(sign="-", operand=inner) if (found := _number(inner)) is not None:
            return -found
    return None
