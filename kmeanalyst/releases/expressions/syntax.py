"""Text → tokens → tree. The parser is written by hand: Python evaluates nothing of the text."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.words import WORDS, ExpressionError
from kmeanalyst.releases.texts import replaced

LONGEST = 10_000  # characters in an expression
DEEPEST = 60  # parts within parts: with it neither reading nor evaluating can exhaust Python's stack

# ------------------------------------------------------------------ the tree


@dataclass(frozen=True)
class Span:
    """The position of a part in the text, and how deeply parts are nested in it."""

    start: int
    end: int
    height: int = 1


@dataclass(frozen=True)
class Node:
    """A part of an expression."""

    span: Span


@dataclass(frozen=True)
class Constant(Node):
    value: float | str | bool


@dataclass(frozen=True)
class Name(Node):
    name: str


@dataclass(frozen=True)
class Sign(Node):
    sign: str
    operand: Node


@dataclass(frozen=True)
class Not(Node):
    operand: Node


@dataclass(frozen=True)
class Arithmetic(Node):
    """first op operand op operand ..., from the left: a chain, so that a long sum is not a deep tree."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Logic(Node):
    word: str
    operands: tuple[Node, ...]


@dataclass(frozen=True)
class Comparison(Node):
    """first op operand op operand ...: every neighbouring pair is compared."""

    first: Node
    rest: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class Items(Node):
    items: tuple[Constant, ...]


@dataclass(frozen=True)
class Call(Node):
    function: str
    arguments: tuple[Node, ...]


def parts_of(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Sign(operand=operand) | Not(operand=operand):
            within: tuple[Node, ...] = (operand,)
        case Arithmetic(first=first, rest=rest) | Comparison(first=first, rest=rest):
            within = (first, *(operand for _, operand in rest))
        case Logic(operands=within) | Items(items=within) | Call(arguments=within):
            pass
        case _:
            within = ()
    for part in within:
        yield from parts_of(part)


TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}  # of a comparison read from the right
_DENIED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "in": "not in", "not in": "in"}


def line_of(node: Node) -> tuple[str, float, float] | None:
    """(x, a, b) of an expression a x + b of one column x; ("", 0, b) of a number, None of any other."""
    match node:
        case Name():
            return node.name, 1.0, 0.0
        case Constant(value=float(number)):
            return "", 0.0, number
        case Sign():
            return _combined("*", line_of(node.operand), ("", 0.0, -1.0 if node.sign == "-" else 1.0))
        case Arithmetic():
            line = line_of(node.first)
            for sign, part in node.rest:
                line = _combined(sign, line, line_of(part))
            return line
    return None


def _combined(
    sign: str, one: tuple[str, float, float] | None, other: tuple[str, float, float] | None
) -> tuple[str, float, float] | None:
    if one is None or other is None:
        return None
    (x, a, b), (y, c, d) = one, other
    if sign in ("+", "-") and (x == y or not x or not y):
        turned = 1.0 if sign == "+" else -1.0
        return x or y, a + turned * c, b + turned * d
    if sign == "*" and not (x and y):
        return x or y, a * d + c * b, b * d
    return (x, a / d, b / d) if sign == "/" and not y and d else None


def denied(node: Node) -> Node:
    """The condition that holds where this one is definitely false: a comparison with a missing cell is neither (Kleene 1938)."""
    match node:
        case Constant():
            return Constant(node.span, not node.value)
        case Not():
            return node.operand
        case Logic():
            return Logic(node.span, "and" if node.word == "or" else "or", tuple(map(denied, node.operands)))
        case Comparison():
            left = (node.first, *(part for _, part in node.rest))
            pairs = zip(left, node.rest, strict=False)
            parts = tuple(Comparison(node.span, a, ((_DENIED[sign], b),)) for a, (sign, b) in pairs)
            return parts[0] if len(parts) == 1 else Logic(node.span, "or", parts)
        case Call() if node.function == "where":
            test, then, otherwise = node.arguments
            return Call(node.span, "where", (test, denied(then), denied(otherwise)))
        case Name():  # a boolean column
            return Comparison(node.span, node, (("==", Constant(node.span, False)),))
    return Not(node.span, node)  # missing(column)


# ------------------------------------------------------------------ text → tokens


@dataclass(frozen=True)
class Token:
    """kind: number, text, name (in backticks or not), word (of the language), sign, end."""

    kind: str
    text: str
    start: int
    end: int
    value: Any = None


NUMBER = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SIGNED = re.compile(rf"[+-]?{NUMBER.pattern}")
QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`")  # a doubled quote stands for one
_SIGNS_OF_OTHER_LANGUAGES = {
    "===": "==", "//": "floor(a / b)", "<>": "!=", "&&": "and", "||": "or", "=<": "<=", "=>": ">=",
    "&": "and", "|": "or (what is given is the argument where, or --where)", "!": "not", "~": "not", "^": "**", "=": "==",
    "≤": "<=", "≥": ">=", "≠": "!=", "×": "*", "·": "*", "÷": "/", "−": "-", "–": "-",
    "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'",
    ".": "a name with a dot in backticks, `a.b`: there are no attributes here",
    "{": "a list as [1, 2]", "}": "a list as [1, 2]", ":": "17 <= x < 30 for a range", ";": "one expression at a time",
}  # fmt: skip
_WORDS_OF_OTHER_LANGUAGES = {
    "AND": "and", "OR": "or", "NOT": "not", "IN": "in", "is": "missing(column) for a missing cell, == otherwise",
    "IS": "missing(column) for a missing cell, == otherwise", "if": "where(condition, a, b)",
    "between": "17 <= x < 30", "BETWEEN": "17 <= x < 30", "like": "in [...] with the levels you mean",
    "LIKE": "in [...] with the levels you mean",
}  # fmt: skip
_SIGN = re.compile(r"\*\*|==|!=|<=|>=|[-+*/%<>()\[\],]")
_SIGN_OF_OTHER_LANGUAGES = re.compile("|".join(map(re.escape, _SIGNS_OF_OTHER_LANGUAGES)))
_LONG_SIGN_OF_OTHER_LANGUAGES = re.compile("|".join(re.escape(s) for s in _SIGNS_OF_OTHER_LANGUAGES if len(s) > 1))


def number_written(level: str) -> float:
    """The number that a level is written as; NaN if it is not one, or an infinite one.

    >>> number_written("-1.5e3"), number_written("007"), number_written("7 or more")
    (-1500.0, 7.0, nan)
    """
    number = float(level) if _SIGNED.fullmatch(level) else math.nan
    return number if math.isfinite(number) else math.nan


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text):
        if text[at] in " \t\r\n":
            at += 1
            continue
        tokens.append(_token(text, at))
        at = tokens[-1].end
    return [*tokens, Token("end", "the end", len(text), len(text))]


def _token(text: str, at: int) -> Token:
    if text[at] in "'\"`":
        return _quoted_token(text, at)
    if number := NUMBER.match(text, at):
        return _number_token(text, number)
    if text[at].isidentifier():
        end = at + 1
        while end < len(text) and ("x" + text[end]).isidentifier():
            end += 1
        word = text[at:end]
        return Token("word" if word in WORDS else "name", word, at, end, word)
    if not _LONG_SIGN_OF_OTHER_LANGUAGES.match(text, at) and (sign := _SIGN.match(text, at)):
        return Token("sign", sign.group(), at, sign.end())
    return _refuse_character(text, at)


def _quoted_token(text: str, at: int) -> Token:
    quote = text[at]
    what = "name" if quote == "`" else "text"
    match = QUOTED.match(text, at)
    if match is None:
        raise ExpressionError(
            f"this {what} is never closed: its {quote} opens and does not close. Close it with {quote}; within it, write {quote} "
            "twice.", text, at, at + 1,
        )  # fmt: skip
    value = match.group()[1:-1].replace(quote * 2, quote)
    if what == "name" and not value:
        raise ExpressionError(
            "there is no name between the backticks, and every column has one. Write a column's name.", text, at, at + 2
        )
    return Token(what, match.group(), at, match.end(), value)


def _number_token(text: str, match: re.Match[str]) -> Token:
    end = match.end()
    if end < len(text) and ("x" + text[end]).isidentifier():
        raise ExpressionError(
            f"the number {words.short(match.group())} runs into {replaced(text[end])!r}, so it is neither number nor name. "
            "Write 2 * x for a product, 1000 without separators, or a name that starts with a digit in backticks.",
            text, match.start(), end + 1,
        )  # fmt: skip
    value = float(match.group())
    if math.isinf(value):
        raise ExpressionError(
            "this number is too large: it would be read as infinity. Write one below 1e308.", text, match.start(), end
        )
    return Token("number", match.group(), match.start(), end, value)


def _refuse_character(text: str, at: int) -> NoReturn:
    other = _SIGN_OF_OTHER_LANGUAGES.match(text, at)
    if other:
        sign = other.group()
        message = f"{sign} is not part of expressions: they have fewer signs than Python. Write {_SIGNS_OF_OTHER_LANGUAGES[sign]}."
        raise ExpressionError(message, text, at, other.end())
    raise ExpressionError(
        f"the character U+{ord(text[at]):04X} is not part of expressions: it is not a sign, letter or digit here. "
        "Remove it, or put the column's name that contains it in backticks.", text, at, at + 1,
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
    "min": 2, "max": 2, "where": 3, "missing": 1, "year": 1, "month": 1, "number": 1,
}  # fmt: skip
_USAGE = {"min": "min(a, b)", "max": "max(a, b)", "where": "where(condition, a, b)", "missing": "missing(column)"}


class Parser:
    """Top-down operator precedence (Pratt 1973): a loop for operators, recursion for what they bind."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.depth = 0
        self.columns: dict[str, None] = {}

    # ---- the small steps

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def takes(self, sign: str) -> bool:
        found = self.token.kind in ("sign", "word") and self.token.text == sign
        self.at += found
        return found

    def error(self, message: str, token: Token | Span) -> ExpressionError:
        return ExpressionError(message, self.text, token.start, token.end)

    def span(self, start: int, *parts: Node) -> Span:
        height = 1 + max((part.span.height for part in parts), default=0)
        span = Span(start, self.tokens[self.at - 1].end, height)
        self.check_depth(height, span)
        return span

    def check_depth(self, depth: int, where: Token | Span) -> None:
        if depth > DEEPEST:
            raise self.error(
                f"the expression is nested too deeply: at most {DEEPEST} parts within parts are read, so that it can "
                "be evaluated safely. Take parentheses or signs away, or pass a function of a DataFrame.", where
            )  # fmt: skip

    # ---- the grammar

    def whole(self) -> Node:
        if self.token.kind == "end":
            raise ExpressionError("the expression is empty. Write one, such as age > 50.", self.text)
        root = self.expression(_OR)
        if self.token.kind != "end":
            raise self.unexpected("an operator or the end")
        return root

    def expression(self, loosest: int) -> Node:
        """The part that starts here, with every operator that binds at least as tightly as `loosest`."""
        self.depth += 1
        self.check_depth(self.depth, self.token)
        left = self.prefix(loosest)
        while (level := _LEVELS.get(self.operator(), 0)) >= loosest:
            left = self.chain(left, level)
        self.depth -= 1
        return left

    def operator(self) -> str:
        if self.token.kind not in ("sign", "word"):
            return ""
        following = self.tokens[min(self.at + 1, len(self.tokens) - 1)]
        if self.token.text == "not" and following.kind == "word" and following.text == "in":
            return "not in"
        return self.token.text

    def prefix(self, loosest: int) -> Node:
        token = self.token
        if self.takes("-") or self.takes("+"):
            operand = self.expression(_POWER)
            span = self.span(token.start, operand)
            if isinstance(operand, Constant) and isinstance(operand.value, float):
                return Constant(span, -operand.value if token.text == "-" else operand.value)
            return Sign(span, token.text, operand)
        if token.kind == "word" and token.text == "not" and loosest > _NOT:
            raise self.error("not binds more loosely than the sign before it. Write it in parentheses: (not a).", token)
        if self.takes("not"):
            operand = self.expression(_NOT)
            return Not(self.span(token.start, operand), operand)
        if self.takes("("):
            inside = self.expression(_OR)
            if not self.takes(")"):
                raise self.unclosed(token, "an operator or )")
            return inside
        return self.part()

    def part(self) -> Node:
        token = self.token
        if token.kind in ("number", "text") or (token.kind == "word" and token.text.lower() in ("true", "false")):
            return self.literal()
        if token.kind != "name":
            raise self.unexpected("a number, a text, a column, a function or (")
        self.advance()
        if token.text[0] != "`" and self.token.kind == "sign" and self.token.text == "(":
            return self.call(token)
        self.columns[token.value] = None
        return Name(self.span(token.start), token.value)

    def literal(self) -> Constant:
        token = self.advance()
        value = token.value if token.kind != "word" else token.text.lower() == "true"
        return Constant(self.span(token.start), value)

    def call(self, name: Token) -> Call:
        if name.text not in _ARITIES:
            near = words.close(name.text, list(_ARITIES))
            hint = f"Did you mean {near}?" if near else "Use one of these, or put an operator before the parenthesis."
            if isinstance(getattr(np, name.text, None), np.ufunc):
                hint = f'numpy\'s are functions of variables, in Python: np.{name.text}(release["column"]).mean().'
            raise self.error(f"no function {words.short(name.text)}: the functions are {', '.join(_ARITIES)}. {hint}", name)
        opening = self.advance()
        arguments = self.listed(")", opening, _OR)
        span = self.span(name.start, *arguments)
        wanted, got = _ARITIES[name.text], len(arguments)
        if got != wanted:
            raise self.error(
                f"{name.text} takes {wanted} argument{'s' * (wanted > 1)}, got {got}. "
                f"Write {_USAGE.get(name.text, name.text + '(a)')}.", span
            )  # fmt: skip
        return Call(span, name.text, tuple(arguments))

    def chain(self, first: Node, level: int) -> Node:
        """first, and all operators of one level that follow it, with what they bind."""
        if level == _COMPARE:
            return self.comparison(first)
        rest = []
        while _LEVELS.get(self.operator()) == level:
            sign = self.advance().text
            rest.append((sign, self.expression(_POWER if level == _POWER else level + 1)))
        operands = [operand for _, operand in rest]
        span = self.span(first.span.start, first, *operands)
        if level in (_OR, _AND):
            return Logic(span, rest[0][0], (first, *operands))
        return Arithmetic(span, first, tuple(rest))

    def comparison(self, first: Node) -> Comparison:
        rest: list[tuple[str, Node]] = []
        while _LEVELS.get(sign := self.operator()) == _COMPARE:
            if rest and isinstance(rest[-1][1], Items):
                raise self.error("a list ends a comparison: nothing compares with it. Put a in [...] in parentheses.", self.token)
            self.at += 2 if sign == "not in" else 1
            rest.append((sign, self.bracketed() if sign in ("in", "not in") else self.expression(_SUM)))
        return Comparison(self.span(first.span.start, first, *(part for _, part in rest)), first, tuple(rest))

    def bracketed(self) -> Items:
        opening = self.token
        if not (self.takes("[") or self.takes("(")):
            raise self.error("in needs a list of values, so that each can be checked. Write in ['a', 'b'].", opening)
        items = self.listed("]" if opening.text == "[" else ")", opening, _SUM)
        for item in items:
            if not isinstance(item, Constant):
                message = "a list holds values only: numbers, texts, true or false. Join comparisons by or instead."
                raise self.error(message, item.span)
        span = self.span(opening.start)
        if not items:
            raise self.error("the list is empty, so nothing is in it. Write the values: in ['a', 'b'].", span)
        return Items(span, tuple(item for item in items if isinstance(item, Constant)))

    def listed(self, closing: str, opening: Token, loosest: int) -> Sequence[Node]:
        """The parts between commas, up to and including the closing sign; a comma may end it."""
        items: list[Node] = []
        while not self.takes(closing):
            if items and not self.takes(","):
                raise self.unclosed(opening, f"an operator, a comma or {closing}")
            if items and self.takes(closing):
                break
            if self.token.kind == "end":
                raise self.unclosed(opening, closing)
            items.append(self.expression(loosest))
        return items

    # ---- what can go wrong

    def unclosed(self, opening: Token, wanted: str) -> ExpressionError:
        if self.token.kind != "end":
            return self.unexpected(wanted)
        closing = {"(": ")", "[": "]"}[opening.text]
        return self.error(f"this {opening.text} is never closed: the expression ends first. Add {closing}.", opening)

    def unexpected(self, wanted: str) -> ExpressionError:
        token, before = self.token, self.tokens[self.at - 1] if self.at else None
        got = "the end" if token.kind == "end" else words.short(token.text)
        return self.error(f"expected {wanted}, got {got}. {_hint(before, token)}", token)


def _hint(before: Token | None, token: Token) -> str:
    for one in (token, before):
        if one and one.kind == "name" and one.text in _WORDS_OF_OTHER_LANGUAGES:
            return f"{one.text} is not part of expressions: write {_WORDS_OF_OTHER_LANGUAGES[one.text]}."
    if token.kind == "end":
        return f"Write what follows {words.short(before.text)}." if before else "Write an expression."
    if before and before.kind == "name" and token.kind in ("name", "number"):
        return "Put a name that is more than letters, digits and _ in backticks, or an operator between the two."
    if token.text == "[":
        return "Lists follow in only: there is no indexing."
    if token.text == "(":
        return "Only functions are called. Put an operator before the parenthesis."
    if token.text in (")", "]"):
        return f"Remove {token.text}, or write what is missing before it."
    return "Write one, or remove what does not belong."
