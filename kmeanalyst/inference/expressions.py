"""Room 4, questions as text: small expressions over column names, parsed by hand and never by eval.

The grammar, loosest first; precedence and associativity are Python's:

    or            a or b
    and           a and b
    not           not a
    comparisons   == != < <= > >= in, not in; chained as in 17 <= age < 30
    sums          a + b, a - b
    products      a * b, a / b, a % b
    signs         -a, +a
    powers        a ** b, from the right
    parts         numbers, 'texts' or "texts", true, false, columns, `names in backticks`, (a), f(a)
    functions     abs log log1p exp sqrt floor ceil round min(a, b) max(a, b) where(condition, a, b)
                  missing(column) year(date column) month(date column)

A quote inside quotes of its own kind is written twice; there are no backslashes. An expression is a number
or a condition; a condition counts as 0 or 1 in arithmetic, a boolean column does not before it is compared.

A missing cell is neither equal nor unequal to anything: arithmetic on it gives NaN, every comparison with it
is False (`!=` and `not in` too), and a missing boolean is no true condition. NaN of any origin, log(-1) say,
behaves the same. `not` is plain negation, so `not age > 50` holds where age is missing and `age <= 50` does
not; ask for the cells themselves with missing(age).
"""

from __future__ import annotations

import datetime
import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.columns import Boolean, Categorical, Column, Date, Ordinal, text_of
from kmeanalyst.releases.domain import Domain

LONGEST = 10_000  # characters in an expression
DEEPEST = 100  # parts within parts: with it neither reading nor evaluating can exhaust Python's stack


class ExpressionError(ValueError):
    """An expression is not as it must be; the message says what, why and the mend, and points at the place.

    text      the expression.
    position  where in it the trouble starts, counted in characters from 0.
    """

    def __init__(self, message: str, text: str = "", position: int = 0, end: int = 0) -> None:
        super().__init__(message + (_pointed(text, position, end) if text else ""))
        self.text = text
        self.position = position


def parse(text: str) -> Expression:
    """Read an expression; ExpressionError if the text is none, whatever the text.

    >>> parse("hours * wage > 400 and `marital-status` in ['Widowed', 'Divorced']").columns
    ('hours', 'wage', 'marital-status')
    """
    if not isinstance(text, str):
        raise ExpressionError(f"an expression must be text, got {type(text).__name__}. Write it in quotes: 'age > 50'.")
    if len(text) > LONGEST:
        raise ExpressionError(
            f"the expression has {len(text)} characters and at most {LONGEST} are read: what is longer is no question "
            "that a person asked. Shorten it, or pass a function of a DataFrame."
        )
    parser = _Parser(text)
    root = parser.whole()
    return Expression(text, tuple(parser.columns), root)


@dataclass(frozen=True)
class Expression:
    """A parsed expression: a frozen value, equal to another of the same text.

    text     as it was written.
    columns  the columns it names, in order of first mention.

    >>> from kmeanalyst.releases.columns import Categorical, Integer
    >>> domain = Domain((Integer(name="age", lower=0, upper=99), Categorical(name="sex", levels=("F", "M"))))
    >>> frame = domain.decode(np.array([[41.0, 1.0], [20.0, 0.0], [70.0, 0.0]]))
    >>> parse("age / 10").evaluate(frame, domain)
    array([4.1, 2. , 7. ])
    >>> parse("sex == 'M' or age > 65").evaluate(frame, domain)
    array([ True, False,  True])
    """

    text: str
    columns: tuple[str, ...]
    _root: _Node = field(repr=False, compare=False)

    @property
    def is_condition(self) -> bool:
        """Whether it is a condition by its text alone.

        A boolean column by itself is one too, which the text cannot tell: `check(domain)` can.
        """
        return _reads_as_condition(self._root)

    def check(self, domain: Domain) -> Literal["number", "condition"]:
        """What `evaluate` gives on this domain; ExpressionError if columns, levels and operations do not fit.

        >>> from kmeanalyst.releases.columns import Integer
        >>> parse("17 <= age < 30").check(Domain((Integer(name="age", lower=0, upper=99),)))
        'condition'
        >>> parse("agee > 50").check(Domain((Integer(name="age", lower=0, upper=99),)))
        Traceback (most recent call last):
            ...
        kmeanalyst.inference.expressions.ExpressionError: no column agee: the columns are age. Did you mean age?
            agee > 50
            ^^^^
        """
        return _Reader(self.text, domain).answer(self._root)[0]

    def evaluate(self, frame: pd.DataFrame, domain: Domain) -> Array:
        """The expression on every row of a frame: (n,) float64 for a number, bool for a condition.

        frame       (n, d) in natural units and levels, as `domain.decode` gives it; further columns do no harm.
        Returns     a new array. Missing cells and undefined results are NaN, and no comparison with them holds.
        Edge cases  log(-1) is NaN, 1 / 0 is inf, without a warning; a constant is repeated n times.
        """
        kind, run = _Reader(self.text, domain).answer(self._root)
        absent = [name for name in self.columns if name not in frame.columns]
        if absent:
            raise ExpressionError(
                f"the frame lacks {_listed(absent)}, which the expression names: it has {_listed(list(frame.columns))}. "
                "Pass a frame with the domain's columns, as domain.decode gives it."
            )
        with np.errstate(all="ignore"):
            values = np.asarray(run(frame), dtype=bool if kind == "condition" else np.float64)
        return np.array(np.broadcast_to(values, len(frame)))


# ------------------------------------------------------------------ the tree


@dataclass(frozen=True)
class _Place:
    """Where a part stands in the text, and how many parts stand within parts of it."""

    start: int
    end: int
    height: int = 1


@dataclass(frozen=True)
class _Node:
    place: _Place


@dataclass(frozen=True)
class _Literal(_Node):
    value: float | str | bool


@dataclass(frozen=True)
class _Name(_Node):
    name: str


@dataclass(frozen=True)
class _Minus(_Node):
    operand: _Node


@dataclass(frozen=True)
class _Not(_Node):
    operand: _Node


@dataclass(frozen=True)
class _Arithmetic(_Node):
    """first op operand op operand ..., from the left: a chain, so that a long sum is no deep tree."""

    first: _Node
    rest: tuple[tuple[str, _Node], ...]


@dataclass(frozen=True)
class _Logic(_Node):
    word: str
    operands: tuple[_Node, ...]


@dataclass(frozen=True)
class _Comparison(_Node):
    """first op operand op operand ...: every neighbouring pair is compared."""

    first: _Node
    rest: tuple[tuple[str, _Node], ...]


@dataclass(frozen=True)
class _List(_Node):
    items: tuple[_Literal, ...]


@dataclass(frozen=True)
class _Call(_Node):
    function: str
    arguments: tuple[_Node, ...]


def _reads_as_condition(node: _Node) -> bool:
    if isinstance(node, _Call) and node.function == "where":
        return all(_reads_as_condition(branch) for branch in node.arguments[1:])
    if isinstance(node, _Literal):
        return isinstance(node.value, bool)
    return isinstance(node, _Comparison | _Logic | _Not) or (isinstance(node, _Call) and node.function == "missing")


# ------------------------------------------------------------------ text → tokens


@dataclass(frozen=True)
class _Token:
    """kind: number, text, name (in backticks or not), word (of the language), sign, end."""

    kind: str
    text: str
    start: int
    end: int
    value: Any = None


_WORDS = ("and", "or", "not", "in", "true", "false", "True", "False")
_NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`")  # a doubled quote stands for one
_FOREIGN = {
    "===": "==", "//": "floor(a / b)", "<>": "!=", "&&": "and", "||": "or", "=<": "<=", "=>": ">=",
    "&": "and", "|": "or", "!": "not", "~": "not", "^": "**", "=": "==",
    "≤": "<=", "≥": ">=", "≠": "!=", "×": "*", "·": "*", "÷": "/", "−": "-", "–": "-",
    "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'",
    ".": "a name with a dot in backticks, `a.b`: there are no attributes here",
    "{": "a list as [1, 2]", "}": "a list as [1, 2]", ":": "17 <= x < 30 for a range", ";": "one expression at a time",
}  # fmt: skip
_FOREIGN_WORDS = {
    "AND": "and", "OR": "or", "NOT": "not", "IN": "in", "is": "missing(column) for a missing cell, == otherwise",
    "IS": "missing(column) for a missing cell, == otherwise", "if": "where(condition, a, b)",
    "between": "17 <= x < 30", "BETWEEN": "17 <= x < 30", "like": "in [...] with the levels you mean",
    "LIKE": "in [...] with the levels you mean",
}  # fmt: skip
_SIGN = re.compile(r"\*\*|==|!=|<=|>=|[-+*/%<>()\[\],]")
_FOREIGN_SIGN = re.compile("|".join(map(re.escape, _FOREIGN)))
_LONG_FOREIGN_SIGN = re.compile("|".join(re.escape(sign) for sign in _FOREIGN if len(sign) > 1))


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
            continue
        tokens.append(_token(text, at))
        at = tokens[-1].end
    return [*tokens, _Token("end", "the end", len(text), len(text))]


def _token(text: str, at: int) -> _Token:
    """The token that starts at a place that is no blank."""
    if text[at] in "'\"`":
        return _quoted_token(text, at)
    if number := _NUMBER.match(text, at):
        return _number_token(text, number)
    if text[at].isidentifier():
        end = at + 1
        while end < len(text) and ("x" + text[end]).isidentifier():
            end += 1
        word = text[at:end]
        return _Token("word" if word in _WORDS else "name", word, at, end, word)
    if not _LONG_FOREIGN_SIGN.match(text, at) and (sign := _SIGN.match(text, at)):
        return _Token("sign", sign.group(), at, sign.end())
    return _refuse_character(text, at)


def _quoted_token(text: str, at: int) -> _Token:
    quote = text[at]
    what = "name" if quote == "`" else "text"
    match = _QUOTED.match(text, at)
    if match is None:
        raise ExpressionError(
            f"this {what} is never closed: its {quote} has no partner. Close it with {quote}; inside, write {quote} twice.",
            text, at, at + 1,
        )  # fmt: skip
    value = match.group()[1:-1].replace(quote * 2, quote)
    if what == "name" and not value:
        raise ExpressionError(
            "there is no name between the backticks, and every column has one. Write a column's name.", text, at, at + 2
        )
    return _Token(what, match.group(), at, match.end(), value)


def _number_token(text: str, match: re.Match[str]) -> _Token:
    end = match.end()
    if end < len(text) and ("x" + text[end]).isidentifier():
        raise ExpressionError(
            f"the number {_short(match.group())} runs into {_shown(text[end])!r}, so it is neither number nor name. "
            "Write 2 * x for a product, 1000 without separators, or a name that starts with a digit in backticks.",
            text, match.start(), end + 1,
        )  # fmt: skip
    value = float(match.group())
    if math.isinf(value):
        raise ExpressionError(
            "this number is too large: it would be read as infinity. Write one below 1e308.", text, match.start(), end
        )
    return _Token("number", match.group(), match.start(), end, value)


def _refuse_character(text: str, at: int) -> NoReturn:
    foreign = _FOREIGN_SIGN.match(text, at)
    if foreign:
        sign = foreign.group()
        message = f"{sign} is not part of expressions: they have their own few signs. Write {_FOREIGN[sign]}."
        raise ExpressionError(message, text, at, foreign.end())
    raise ExpressionError(
        f"the character U+{ord(text[at]):04X} is not part of expressions: it is no sign, letter or digit here. Remove it, "
        "or put the column's name that contains it in backticks.",
        text, at, at + 1,
    )  # fmt: skip


# ------------------------------------------------------------------ tokens → tree

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _POWER = range(1, 8)
_LEVELS = {
    "or": _OR, "and": _AND,
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">=", "in", "not in"], _COMPARE),
    "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "**": _POWER,
}  # fmt: skip
_ARITIES = {
    **dict.fromkeys(["abs", "log", "log1p", "exp", "sqrt", "floor", "ceil", "round"], 1),
    "min": 2, "max": 2, "where": 3, "missing": 1, "year": 1, "month": 1,
}  # fmt: skip
_USAGE = {"min": "min(a, b)", "max": "max(a, b)", "where": "where(condition, a, b)", "missing": "missing(column)"}


class _Parser:
    """Top-down operator precedence (Pratt 1973): a loop for operators, recursion for what they bind."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.columns: dict[str, None] = {}

    # ---- the small steps

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def advance(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, sign: str) -> bool:
        """Whether the next token is that sign or word; it is then taken."""
        found = self.token.kind in ("sign", "word") and self.token.text == sign
        self.at += found
        return found

    def error(self, message: str, token: _Token | _Place) -> ExpressionError:
        return ExpressionError(message, self.text, token.start, token.end)

    def place(self, start: int, *parts: _Node) -> _Place:
        """From `start` to the last token taken, around these parts."""
        height = 1 + max((part.place.height for part in parts), default=0)
        place = _Place(start, self.tokens[self.at - 1].end, height)
        self.check_depth(height, place)
        return place

    def check_depth(self, depth: int, where: _Token | _Place) -> None:
        if depth > DEEPEST:
            raise self.error(
                f"the expression is nested too deeply: at most {DEEPEST} parts within parts are read, so that it can be "
                "evaluated safely. Take parentheses or signs away, or pass a function of a DataFrame.", where
            )  # fmt: skip

    # ---- the grammar

    def whole(self) -> _Node:
        if self.token.kind == "end":
            raise ExpressionError("the expression is empty, so it asks nothing. Write one, such as age > 50.", self.text)
        root = self.expression(_OR)
        if self.token.kind != "end":
            raise self.unexpected("an operator or the end")
        return root

    def expression(self, loosest: int) -> _Node:
        """What stands here, with every operator that binds at least as tightly as `loosest`."""
        self.depth += 1
        self.check_depth(self.depth, self.token)
        left = self.prefix(loosest)
        while (level := _LEVELS.get(self.operator(), 0)) >= loosest:
            left = self.chain(left, level)
        self.depth -= 1
        return left

    def operator(self) -> str:
        """The operator that comes next; "" if none does."""
        if self.token.kind not in ("sign", "word"):
            return ""
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.token.text == "not" and following.kind == "word" and following.text == "in":
            return "not in"
        return self.token.text

    def prefix(self, loosest: int) -> _Node:
        token = self.token
        if self.takes("-") or self.takes("+"):
            operand = self.expression(_POWER)
            place = self.place(token.start, operand)
            if isinstance(operand, _Literal) and isinstance(operand.value, float):
                return _Literal(place, -operand.value if token.text == "-" else operand.value)
            # +x is x + 0 but for the sign of zero, and like it asks for a number
            return _Minus(place, operand) if token.text == "-" else _Minus(place, _Minus(place, operand))
        if token.kind == "word" and token.text == "not" and loosest > _NOT:
            raise self.error("not binds more loosely than what stands before it. Put it in parentheses: (not a).", token)
        if self.takes("not"):
            operand = self.expression(_NOT)
            return _Not(self.place(token.start, operand), operand)
        if self.takes("("):
            inside = self.expression(_OR)
            self.close(")", token)
            return inside
        return self.part()

    def part(self) -> _Node:
        token = self.token
        if token.kind in ("number", "text") or token.text.lower() in ("true", "false") and token.kind == "word":
            return self.literal()
        if token.kind != "name":
            raise self.unexpected("a number, a text, a column, a function or (")
        self.advance()
        if token.text[0] != "`" and self.token.kind == "sign" and self.token.text == "(":
            return self.call(token)
        self.columns[token.value] = None
        return _Name(self.place(token.start), token.value)

    def literal(self) -> _Literal:
        token = self.advance()
        value = token.value if token.kind != "word" else token.text.lower() == "true"
        return _Literal(self.place(token.start), value)

    def call(self, name: _Token) -> _Call:
        if name.text not in _ARITIES:
            raise self.error(
                f"no function {_short(name.text)}: the functions are {', '.join(_ARITIES)}."
                + _did_you_mean(name.text, list(_ARITIES), "Use one of these."), name
            )  # fmt: skip
        opening = self.advance()
        arguments = self.listed(")", opening, lambda: self.expression(_OR))
        place = self.place(name.start, *arguments)
        wanted, got = _ARITIES[name.text], len(arguments)
        if got != wanted:
            raise self.error(
                f"{name.text} takes {wanted} argument{'s' * (wanted > 1)}, got {got}. "
                f"Write {_USAGE.get(name.text, name.text + '(a)')}.", place
            )  # fmt: skip
        return _Call(place, name.text, tuple(arguments))

    def listed[T](self, closing: str, opening: _Token, item: Callable[[], T]) -> list[T]: ...

    def chain(self, first: _Node, level: int) -> _Node:
        """first, and all operators of one level that follow it, with what they bind."""
        if level == _COMPARE:
            return self.comparison(first)
        rest = []
        while _LEVELS.get(self.operator()) == level:
            sign = self.advance().text
            rest.append((sign, self.expression(_POWER if level == _POWER else level + 1)))
        operands = [operand for _, operand in rest]
        place = self.place(first.place.start, first, *operands)
        if level in (_OR, _AND):
            return _Logic(place, rest[0][0], (first, *operands))
        return _Arithmetic(place, first, tuple(rest))
