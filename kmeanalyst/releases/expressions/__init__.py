"""Questions as text: small expressions over column names, parsed by hand and never by eval.

FORMAT.md §9 has the grammar, tutorials/expressions.md a line for each operator and function; operators and precedence are Python's.

A missing cell is neither equal nor unequal to anything: arithmetic on it gives NaN, as an undefined result does, and no comparison
with it holds (`!=` and `not in` neither). `not` is plain negation: `not age > 50` holds where age is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Columns
from kmeanalyst.releases.expressions import syntax, words
from kmeanalyst.releases.expressions.extent import Extent, extent_of
from kmeanalyst.releases.expressions.meaning import Interpreter
from kmeanalyst.releases.expressions.words import ExpressionError

__all__ = ["DEEPEST", "LONGEST", "Expression", "ExpressionError", "Extent", "parse"]
DEEPEST, LONGEST = syntax.DEEPEST, syntax.LONGEST


def parse(text: str) -> Expression:
    """Parse an expression; ExpressionError, whatever the text, if it is not one.

    >>> parse("hours * wage > 400 and `marital-status` in ['Widowed', 'Divorced']").columns
    ('hours', 'wage', 'marital-status')
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression must be text, got {type(text).__name__}. Write it in quotes: 'age > 50'.")
    if len(text) > syntax.LONGEST:
        raise ExpressionError(
            f"the expression has {len(text)} characters and at most {syntax.LONGEST} are read: a longer text is not "
            "a question that a person wrote. Shorten it, or pass a function of a DataFrame."
        )
    return _parsed(text)


@lru_cache(maxsize=1000)
def _parsed(text: str) -> Expression:
    """Cached: one question is evaluated at several sets of rows, and often asked again."""
    parser = syntax.Parser(text)
    root = parser.whole()
    return Expression(text, tuple(parser.columns), root)


def any_of(*conditions: Expression) -> Expression:
    roots = tuple(condition._root for condition in conditions)
    columns = dict.fromkeys(name for condition in conditions for name in condition.columns)
    text = " or ".join(f"({condition.text})" for condition in conditions)
    return Expression(text, tuple(columns), syntax.Logic(roots[0].span, "or", roots))


@dataclass(frozen=True)
class Expression:
    """A parsed expression: a frozen value, equal to another of the same text.

    text     as it was written.
    columns  the columns it names, in order of first mention.

    >>> from kmeanalyst.releases.domain.domain import Domain
    >>> from kmeanalyst.releases.domain.levels import Categorical
    >>> from kmeanalyst.releases.domain.numbers import Integer
    >>> domain = Domain((Integer(name="age", lower=0, upper=99), Categorical(name="sex", levels=("F", "M"))))
    >>> frame = domain.decode(np.array([[41.0, 1.0], [20.0, 0.0], [70.0, 0.0]]))
    >>> parse("age / 10").evaluate(frame, domain)
    array([4.1, 2. , 7. ])
    >>> parse("sex == 'M' or age > 65").evaluate(frame, domain)
    array([ True, False,  True])
    """

    text: str
    columns: tuple[str, ...]
    _root: syntax.Node = field(repr=False, compare=False)

    @property
    def equated(self) -> tuple[tuple[str, float], ...]:
        """Columns with the numbers that they are compared with by ==.

        >>> parse("age == 40 and 20 == 2 * hours").equated
        (('age', 40.0), ('hours', 10.0))
        """
        equal = ((name, value) for name, sign, value in self.compared if sign == "==")
        return tuple((name, float(value)) for name, value in equal if type(value) in (int, float))

    @property
    def compared(self) -> tuple[tuple[str, str, float | str | bool], ...]:
        """Columns with the sign and the value that they are compared with, values of lists one by one.

        >>> parse("17 <= age < 30 and sex in ['F']").compared
        (('age', '>=', 17.0), ('age', '<', 30.0), ('sex', 'in', 'F'))
        >>> parse("2 * age + 1 > 21 and 10 < 4 - age").compared  # a number times a column, and another number
        (('age', '>', 10.0), ('age', '<', -6.0))
        """
        found: list[tuple[str, str, float | str | bool]] = []
        for part in syntax.parts_of(self._root):
            if not isinstance(part, syntax.Comparison):
                continue
            for left, (sign, right) in zip((part.first, *(each for _, each in part.rest)), part.rest, strict=False):
                if isinstance(left, syntax.Constant):
                    left, sign, right = right, syntax.TURNED.get(sign, sign), left
                values = right.items if isinstance(right, syntax.Items) else (right,)
                constants = [value.value for value in values if isinstance(value, syntax.Constant)]
                if isinstance(left, syntax.Name):
                    found += [(left.name, sign, value) for value in constants]
                elif (line := syntax.line_of(left)) and line[1]:
                    name, a, b = line
                    sign = syntax.TURNED.get(sign, sign) if a < 0 else sign
                    found += [(name, sign, (value - b) / a) for value in constants if isinstance(value, float)]
        return tuple(found)

    @property
    def difference(self) -> tuple[str, str] | None:
        """The columns a, b of an expression that is a - b; None of any other.

        >>> parse("left - came").difference, parse("left - 1").difference
        (('left', 'came'), None)
        """
        match self._root:
            case syntax.Arithmetic(first=syntax.Name(name=a), rest=(("-", syntax.Name(name=b)),)):
                return a, b
        return None

    @property
    def joined(self) -> tuple[str, ...]:
        """The texts of the conditions that `and` joins; of any other expression its own text.

        >>> parse("city == 'Basel' and (age > 3 or rich)").joined, parse("age > 3").joined
        (("city == 'Basel'", 'age > 3 or rich'), ('age > 3',))
        """
        if not isinstance(self._root, syntax.Logic) or self._root.word != "and":
            return (self.text,)
        return tuple(self.text[part.span.start : part.span.end] for part in self._root.operands)

    def parts(self, word: str) -> tuple[Expression, ...]:
        """The conditions that `and`, or `or`, joins; of any other expression itself.

        >>> len(parse("age < 3 or age > 60 or rich").parts("or"))
        3
        """
        if not isinstance(self._root, syntax.Logic) or self._root.word != word:
            return (self,)
        return tuple(Expression(self.text, _columns_of(part), part) for part in self._root.operands)

    @property
    def is_plain(self) -> bool:
        """Whether it compares columns as they are, or asks whether they are missing: without arithmetic and other functions.

        >>> parse("17 <= age < 30 or missing(age)").is_plain, parse("age % 2 == 1").is_plain
        (True, False)
        """
        calls = (part for part in syntax.parts_of(self._root) if isinstance(part, syntax.Call | syntax.Arithmetic | syntax.Sign))
        return all(isinstance(part, syntax.Call) and part.function == "missing" for part in calls)

    def both(self, other: Expression) -> Expression:
        """This condition and another.

        >>> parse("age < 3").both(parse("age > 60")).compared
        (('age', '<', 3.0), ('age', '>', 60.0))
        """
        root = syntax.Logic(self._root.span, "and", (self._root, other._root))
        return Expression(self.text, _columns_of(root), root)

    @property
    def asked_of(self) -> tuple[str, tuple[str, ...]] | None:
        """The column and the texts of a question that is one comparison with texts, by == or in; None of any other.

        >>> parse("city in ['Basel', 'Genf']").asked_of, parse("city == 'Basel' and age > 3").asked_of
        (('city', ('Basel', 'Genf')), None)
        """
        root = self._root
        if not isinstance(root, syntax.Comparison) or len(root.rest) != 1 or root.rest[0][0] not in ("==", "in"):
            return None
        sides = (root.first, root.rest[0][1])
        name, other = sides if isinstance(sides[0], syntax.Name) else sides[::-1]
        items = other.items if isinstance(other, syntax.Items) else (other,)
        texts = tuple(item.value for item in items if isinstance(item, syntax.Constant) and isinstance(item.value, str))
        return (name.name, texts) if isinstance(name, syntax.Name) and len(texts) == len(items) else None

    @property
    def read_as_numbers(self) -> tuple[str, ...]:
        """The columns whose levels it reads as numbers.

        >>> parse("2 * number(size) + age").read_as_numbers
        ('size',)
        """
        calls = [part for part in syntax.parts_of(self._root) if isinstance(part, syntax.Call) and part.function == "number"]
        named = (part.arguments[0] for part in calls)
        return tuple(dict.fromkeys(name.name for name in named if isinstance(name, syntax.Name)))

    def denied(self) -> Expression:
        """The condition that holds where this one is definitely false, which no comparison with a missing cell is."""
        return Expression(self.text, self.columns, syntax.denied(self._root))

    def through(self, derived: Mapping[tuple[str, str], tuple[str, float, float]]) -> Expression:
        """The same condition by derived columns of differences: of columns (a, b) the column of a - b, and numbers between which
        comparisons with it are those with a - b.

        >>> parse("left - came > 7 or left < came").through({("left", "came"): ("stay", -1, 60)}).columns
        ('stay',)
        >>> parse("left - came > 60").through({("left", "came"): ("stay", -1, 60)}).columns
        ('left', 'came')
        """
        root = named(self._root, derived) if derived else self._root
        if root is self._root:
            return self
        return Expression(self.text, _columns_of(root), root)

    def undefined_at(self, frame: pd.DataFrame) -> Array:
        """Where a cell that it names is missing, or a level that it reads as a number is not one, (n,) bool."""
        read = (frame[name].astype(object) for name in self.read_as_numbers)
        none = [cells.map(syntax.number_written, na_action="ignore").isna() for cells in read]
        return np.logical_or.reduce([frame[list(self.columns)].isna().any(axis=1), *none])

    def check(self, domain: Columns) -> Literal["number", "condition"]:
        """What `evaluate` gives on this domain; ExpressionError if columns, levels and operations do not fit."""
        return Interpreter(self.text, domain).answer(self._root)[0]

    def strings_compared(self, domain: Columns) -> tuple[str, ...]:
        """The columns of strings that it compares with a text: a release knows the frequency of few texts."""
        interpreter = Interpreter(self.text, domain)
        interpreter.answer(self._root)
        return tuple(interpreter.compared_with_texts)

    def extent(self, domain: Columns) -> Extent:
        """Where its values can lie on any row of this domain, from the public bounds alone; `check` comes first."""
        return extent_of(self._root, domain)

    def evaluate(self, frame: pd.DataFrame, domain: Columns) -> Array:
        """The expression on every row of a frame: (n,) float64 for a number, bool for a condition.

        frame       (n, d) in natural units and levels, as `domain.decode` gives it; further columns are ignored.
        Returns     a new array. Missing cells and undefined results are NaN, and no comparison with them holds.
        Edge cases  log(-1) is NaN, 1 / 0 is inf, without a warning; a constant is repeated n times.
        """
        kind, run = Interpreter(self.text, domain).answer(self._root)
        absent = [name for name in self.columns if name not in frame.columns]
        if absent:
            raise ExpressionError(
                f"the frame lacks {words.names(absent)}, which the expression names: it has {words.names(frame.columns)}. "
                "Pass a frame with the domain's columns, as domain.decode gives it."
            )
        with np.errstate(all="ignore"):
            values = np.asarray(run(frame), dtype=bool if kind == "condition" else np.float64)
        return np.array(np.broadcast_to(values, len(frame)))


def _columns_of(node: syntax.Node) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.name for part in syntax.parts_of(node) if isinstance(part, syntax.Name)))


def named(node: syntax.Node, columns: Mapping[tuple[str, str], tuple[str, float, float]]) -> syntax.Node:
    """A condition with derived columns in the place of the differences that it compares with numbers, and of two columns compared.

    columns   (a, b) → the column of a - b, and between which numbers, not at them, a comparison with it is one with a - b.
    """
    match node:
        case syntax.Comparison(first=a, rest=((sign, b),)) if sign in syntax.TURNED:
            for left, way, right in ((a, sign, b), (b, syntax.TURNED[sign], a)):
                if (found := _compared(left, right, columns)) is not None:
                    column, number, turned = found
                    way = syntax.TURNED[way] if turned else way
                    return syntax.Comparison(node.span, column, ((way, syntax.Constant(node.span, number)),))
        case syntax.Not(operand=inner):
            return replace(node, operand=named(inner, columns))
        case syntax.Logic(operands=parts):
            return replace(node, operands=tuple(named(part, columns) for part in parts))
        case syntax.Call(function="where", arguments=(test, *values)):
            return replace(node, arguments=(named(test, columns), *values))
    return node


def _compared(
    left: syntax.Node, right: syntax.Node, columns: Mapping[tuple[str, str], tuple[str, float, float]]
) -> tuple[syntax.Node, float, bool] | None:
    """The derived column, or its absolute value, that these sides compare, with which number, and whether with turned signs."""
    apart, number = left, _number(right)
    if isinstance(left, syntax.Name) and isinstance(right, syntax.Name):
        apart, number = syntax.Arithmetic(left.span, left, (("-", right),)), 0.0
    within = isinstance(apart, syntax.Call) and apart.function == "abs"
    match apart.arguments[0] if isinstance(apart, syntax.Call) and within else apart:
        case syntax.Arithmetic(first=syntax.Name(name=a), rest=(("-", syntax.Name(name=b)),)) if number is not None:
            for pair, turn in (((a, b), 1), ((b, a), -1)):
                name, lower, upper = columns.get(pair, ("", 0.0, 0.0))
                column: syntax.Node = syntax.Name(left.span, name)
                if within and lower < -abs(number) and abs(number) < upper:
                    return syntax.Call(left.span, "abs", (column,)), number, False
                if not within and lower < turn * number < upper:
                    return column, turn * number, turn < 0
    return None


def _number(node: syntax.Node) -> float | None:
    match node:
        case syntax.Constant(value=value) if type(value) in (int, float):
            return float(value)
        case syntax.Sign(sign="-", operand=inner) if (found := _number(inner)) is not None:
            return -found
    return None
