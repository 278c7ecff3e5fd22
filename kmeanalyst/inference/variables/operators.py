"""Calculating with random variables: operators, comparisons, numpy's functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeGuard

import numpy as np

from kmeanalyst.inference.variables.nodes import Kind, Node, applied, expression_node, inside
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.arrays import CALCULATE, COMPARE, compared
from kmeanalyst.releases.expressions.syntax import TURNED

_INSTEAD = {
    "mean": "Ask variable.mean().", "average": "Ask variable.mean().",
    "var": "Ask variable.var().", "std": "Ask variable.std().",
    "median": "Ask variable.quantile(0.5).", "quantile": "Ask variable.quantile(0.5).",
    "percentile": "Ask variable.quantile(0.5).", "histogram": "Ask variable.histogram().",
    "sum": "Write x + y.", "add.reduce": "Ask variable.mean(), or write x + y.",
    "where": "Write ka.pushforward(np.where, condition, a, b).",
    "clip": "Write np.minimum(np.maximum(variable, low), high).",
    "round": "Write np.rint(variable).", "around": "Write np.rint(variable).",
}  # fmt: skip
_LOGIC: dict[str, Callable[..., Any]] = {"&": np.logical_and, "|": np.logical_or}
_SIGNS: dict[Any, str] = {CALCULATE[sign]: sign for sign in ("+", "-", "*", "/", "%")}
_SIGNS |= {function: sign for sign, function in (COMPARE | _LOGIC).items()}
_SIGNS |= {np.power: "**", np.bitwise_and: "&", np.bitwise_or: "|"}


def _both_ways(sign: str) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]:
    return (lambda self, other: _of_two(sign, self, other)), (lambda self, other: _of_two(sign, other, self))


def _of_one(rule: Callable[[Node], Node]) -> Callable[[Any], Any]:
    return lambda self: _componentwise([self], rule)


class VariableOperators:
    """The operators of a RandomVariable, which inherits them; all of them give a RandomVariable.

    nodes   its components' expressions.
    """

    nodes: tuple[Node, ...]

    def combine(self, variables: Sequence[Any], nodes: tuple[Node, ...]) -> Self:
        """A variable of these nodes under the view and the conditions of all the variables."""
        raise NotImplementedError

    __array_priority__ = 1000

    __add__, __radd__ = _both_ways("+")
    __sub__, __rsub__ = _both_ways("-")
    __mul__, __rmul__ = _both_ways("*")
    __truediv__, __rtruediv__ = _both_ways("/")
    __pow__, __rpow__ = _both_ways("**")
    __mod__, __rmod__ = _both_ways("%")
    __and__, __rand__ = _both_ways("&")
    __or__, __ror__ = _both_ways("|")
    __lt__, __le__, __gt__, __ge__ = (_both_ways(sign)[0] for sign in ("<", "<=", ">", ">="))
    __eq__, __ne__ = (_both_ways(sign)[0] for sign in ("==", "!="))

    __neg__ = _of_one(lambda x: _calculated(np.negative, [x], f"-{inside(x)}"))
    __pos__ = _of_one(lambda x: x)
    __abs__ = _of_one(lambda x: _calculated(np.abs, [x], f"abs({x.text})"))
    __invert__ = _of_one(lambda x: applied(np.logical_not, [_condition(x)], text=f"~{inside(x)}", kind="condition"))

    __hash__ = object.__hash__  # == makes a condition: variables are distinguished by identity

    def __bool__(self) -> bool:
        raise ValueError(
            "a random variable is neither true nor false: it holds with some probability. Ask .probability(), join "
            "conditions with & | ~, and write 17 <= x < 30 as (17 <= x) & (x < 30)."
        )

    def __array__(self, *options: Any, **more: Any) -> Any:
        raise TypeError(
            "a random variable is not an array, nor a sample of rows: its values have weights, which an array would drop. Ask "
            ".to_frame(), variable.distance(other) or variable.mmd_test(sample), or use numpy's elementwise functions or "
            "ka.pushforward."
        )

    def __array_ufunc__(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Numpy's elementwise functions of one result, such as np.log(x) or np.maximum(x, y)."""
        inputs = tuple(x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in inputs)
        if any(isinstance(x, np.ndarray) for x in inputs):
            raise TypeError(
                "a random variable cannot be combined with an array: it has no rows to match with the array's. "
                "Calculate with numbers and columns of the release, which Release.transform adds to."
            )
        if method != "__call__" or options or ufunc.nout != 1 or ufunc.signature is not None:
            raise _not_elementwise(f"{ufunc.__name__}{'' if method == '__call__' else '.' + method}")
        if not all(is_variable(x) or _is_number(x) for x in inputs):
            return NotImplemented
        if ufunc in _SIGNS:
            return _of_two(_SIGNS[ufunc], *inputs)
        if ufunc in (np.logical_not, np.invert):
            return ~inputs[0]

        def of(*operands: Any) -> Node:
            text = f"{ufunc.__name__}({', '.join(x.text if isinstance(x, Node) else inside(x) for x in operands)})"
            is_condition = ufunc(*[np.ones(1)] * ufunc.nin).dtype == bool
            return _calculated(ufunc, operands, text, kind="condition" if is_condition else "number")

        return _componentwise(inputs, of)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        """Numpy's other functions: all are refused. They do not work row by row, or have a name of their own here."""
        raise _not_elementwise(function.__name__)


def _not_elementwise(name: str) -> TypeError:
    hint = _INSTEAD.get(name, "Ask the variable itself (.mean(), .quantile(0.5)), or use ka.pushforward.")
    return TypeError(f"np.{name} cannot be applied to a random variable: only elementwise functions with one result can. {hint}")


def is_variable(x: Any) -> TypeGuard[VariableOperators]:
    return isinstance(x, VariableOperators)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number | np.bool_)


def _of_two(sign: str, a: Any, b: Any) -> Any:
    if not all(is_variable(x) or _is_number(x) or isinstance(x, str) for x in (a, b)):
        return NotImplemented
    rule = _comparison if sign in COMPARE else _connective if sign in _LOGIC else _arithmetic
    return _componentwise([a, b], lambda x, y: rule(sign, x, y))


def _componentwise(operands: Sequence[Any], rule: Callable[..., Node]) -> Any:
    """Apply a rule of nodes and constants to each component; a variable of one component is used with each of another's."""
    variables = [x for x in operands if is_variable(x)]
    counts = {len(x.nodes) for x in variables} - {1}
    if len(counts) > 1:
        raise ValueError(
            f"variables of {' and '.join(map(str, sorted(counts)))} components cannot be combined: it is not clear which "
            "belong together. Choose components, such as variable[0]."
        )
    n = max(counts, default=1)
    rows = [[x.nodes[0 if len(x.nodes) == 1 else i] if is_variable(x) else x for x in operands] for i in range(n)]
    widest = next(x for x in variables if len(x.nodes) == n)
    return widest.combine(variables, tuple(rule(*row) for row in rows))


def _arithmetic(sign: str, a: Any, b: Any) -> Node:
    return _calculated(CALCULATE[sign], [a, b], f"{inside(a)} {sign} {inside(b)}", atomic=False)


def _calculated(
    function: Callable[..., Any], operands: Sequence[Any], text: str, *, kind: Kind = "number", atomic: bool = True
) -> Node:
    """A function of numbers; TypeError where an operand has levels."""
    for x in operands:
        if isinstance(x, str) or (isinstance(x, Node) and x.kind == "levels"):
            raise TypeError(
                f"{inside(x)} is not a number, so it cannot be used in a calculation. Compare it with a level, such as "
                'variable == "a level", or hand it to ka.pushforward.'
            )
    return applied(_numeric(function), operands, text=text, kind=kind, atomic=atomic)


def _comparison(sign: str, a: Any, b: Any) -> Node:
    if not isinstance(a, Node):
        a, b, sign = b, a, TURNED[sign]
    if isinstance(b, str):
        return _against_text(sign, a, b)
    if isinstance(b, Node) and (a.kind == "levels") != (b.kind == "levels"):
        raise TypeError(f"{a.text} and {b.text} share no scale: one has levels and the other numbers. Compare each with its own.")
    if a.kind == "levels" and (not isinstance(b, Node) or sign not in ("==", "!=")):
        raise TypeError(
            f"{a.text} has levels, which compare with a level's text, or for equality with other levels, not by {sign} with "
            f'{inside(b)}. Write e.g. variable == "a level".'
        )
    if isinstance(b, Node) and a.kind == "levels" and not set(_levels(a)) & set(_levels(b)):
        raise TypeError(f"{a.text} and {b.text} have no level in common, so they are never equal. Compare each with a level.")
    function = COMPARE[sign] if a.kind == "levels" else partial(compared, sign)
    test = (lambda x, y: function(x, y) & (x != "") & (y != "")) if a.kind == "levels" else _numeric(function)
    return applied(test, [a, b], text=f"{inside(a)} {sign} {inside(b)}", kind="condition", atomic=False)


def _levels(x: Node) -> tuple[str, ...]:
    return x.releases[0].columns[x.column].levels  # type: ignore[attr-defined, index]


def _against_text(sign: str, a: Node, text: str) -> Node:
    if a.column is None or not (a.kind == "levels" or isinstance(a.releases[0].columns[a.column], Date | Boolean)):
        raise TypeError(
            f"{a.text} has numbers, and {text!r:.80} is a text: they share no scale. Compare a column of levels with a "
            "level, or a column of days with a day such as '2020-01-31'."
        )
    return expression_node(a.releases[0], f"{words.column(a.column)} {sign} {words.literal(text)}")


def _connective(sign: str, a: Any, b: Any) -> Node:
    a, b = _condition(a), _condition(b)
    return applied(_LOGIC[sign], [a, b], text=f"{inside(a)} {sign} {inside(b)}", kind="condition", atomic=False)


def _condition(x: Any) -> Node:
    if not isinstance(x, Node) or x.kind != "condition":
        raise TypeError(
            f"& | ~ join conditions, and {inside(x)} is not one: it is not true or false for every row. Write a comparison, in "
            "parentheses, such as (x > 1) & (y < 2)."
        )
    return x


def _numeric(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of float64: conditions count as 0 and 1."""
    return lambda *values: function(*(np.asarray(value, dtype=np.float64) for value in values))
