"""Model formulas: R's operators between factors, each of which is an expression over the columns.

    income ~ age + education + age:sex          + adds terms, : multiplies factors
    wage ~ (age + sex) * degree - 1             a * b is a + b + a:b; - removes; 1 and 0 are the intercept
    wage ~ (age + sex + degree)^2               all products of at most two
    log(wage) ~ age + I(age * age) + (age > 50) arithmetic stands in I(...) or in the brackets of a function

Precedence is R's: ^ before : before * before + and -. A factor is whatever lies between these signs: a column, a condition such
as age > 50, a function of columns. It is parsed by the expressions' own grammar, never evaluated as Python. There, / divides and
** is a power. (Wilkinson & Rogers 1973, *Symbolic description of factorial models*.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from kmeanalyst.releases.expressions import DEEPEST, LONGEST, ExpressionError, parse, words
from kmeanalyst.releases.expressions.syntax import NUMBER, QUOTED

Term = tuple[str, ...]  # the texts of its factors; () is the intercept
_SIGNS = "~+-:*^()"
_CLOSING = {"(": ")", "[": "]"}
_CONTINUES = re.compile(r"[<>=/%*,]\s*$|\b(?:and|or|not|in)\s*$")  # what precedes a sign that belongs to the factor
_HIGHEST = 9  # power of a sum
_MOST_TERMS = 1000


@dataclass(frozen=True)
class Formula:
    """A parsed formula: a target and the terms that explain it, those of fewer factors first.

    reference   column of levels → the level that the others are compared with; by default the first that occurs.

    >>> parse_formula("income ~ age * sex - 1")
    Formula(target='income', terms=(('age',), ('sex',), ('age', 'sex')), intercept=False)
    """

    target: str
    terms: tuple[Term, ...]
    intercept: bool = True
    reference: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class _Token:
    kind: str  # "sign", "factor", "end"
    text: str
    start: int
    end: int


def parse_formula(text: str) -> Formula:
    """Read "target ~ terms"; ExpressionError, which points at the mistake, if it is not a formula."""
    if not isinstance(text, str):
        raise ExpressionError(f"a formula must be text, got {type(text).__name__}. Write it in quotes: 'income ~ age'.")
    if len(text) > LONGEST or text.count("(") > DEEPEST:
        raise ExpressionError(
            f"a formula has at most {LONGEST:,} characters and {DEEPEST} brackets: no reader follows a longer one. Shorten it."
        )
    tokens = list(_tokens(text))
    tildes = [token for token in tokens if token.kind == "sign" and token.text == "~"]
    if len(tildes) != 1 or not text[: tildes[0].start].strip():
        found = "has no target" if len(tildes) == 1 else f"has {len(tildes)} signs ~"
        raise ExpressionError(
            f"the formula {found}: it is a target, one ~ and the terms that explain it. Write it as 'income ~ age + sex'.",
            text, *((tildes[-1].start, tildes[-1].end) if tildes else (0, len(text))),
        )  # fmt: skip
    target = _target(text[: tildes[0].start])
    reader = _Reader(text, tokens[tokens.index(tildes[0]) + 1 :])
    terms = reader.whole()
    return Formula(target, tuple(sorted((term for term in terms if term), key=len)), () in terms)


def factor_of(text: str) -> str:
    """A factor's text as the design names it: I(a * b) as a * b, a column as expressions write it."""
    text = text.strip()
    if text.startswith("I(") and _balanced(text, 1) == len(text):
        text = text[2:-1].strip()
    expression = parse(text)
    bare = text[1:-1].replace("``", "`") if text.startswith("`") and text.endswith("`") else text
    return words.column(expression.columns[0]) if bare in expression.columns else text


_ELSEWHERE = (  # what R, patsy and Python write at the start of a factor, and what to write here
    (r"(?:C|factor|as\.factor|ordered)\s*\(\s*(`.*?`|[\w.]+)?",
     "a column of levels is a factor by its name alone: write {}, and name the level to compare with as reference"),
    (r"(?:np|numpy|math)\s*\.", "functions stand without a module: write log(age)"),
    (r"(?:poly|bs|ns|cr|cc|s|te|splines?)\s*\(", "there are no splines: write powers, such as age + I(age ** 2)"),
    (r"(?:scale|center|standardize)\s*\(",
     "coefficients are in a column's own units: write age, or with numbers of your own I((age - 40) / 10)"),
    (r"(?:offset|exposure)\s*\(",
     "no coefficient can be held at 1. Write the column as a factor, such as log(months): its coefficient is then estimated"),
    (r"as\.(?:numeric|integer)\s*\(", "write number(column)"),
    (r"Q\s*\(", "names that are not words stand in backticks: `hours-per-week`"),
    (r"\.\s*$", "all columns are not meant by a sign: name those that explain, joined by +"),
    (r"\S+\s*\|\s*\S+$", "there are no random effects or groups: join columns by + and *"),
    (r"\S+\s*%in%", "write : for a product of factors"),
)  # fmt: skip


def _reason(text: str, error: ExpressionError) -> str:
    """Why a text is not a factor: what to write in place of what other languages write, or else the error's own message."""
    for pattern, instead in _ELSEWHERE:
        if found := re.match(pattern, text.strip()):
            return instead.format(*found.groups(default="sex")) + "."
    return str(error).partition("\n")[0]


def _target(text: str) -> str:
    try:
        return factor_of(text)
    except ExpressionError as error:
        if (reason := _reason(text, error)) == str(error).partition("\n")[0]:
            raise
        raise ExpressionError(f"{words.short(text.strip())} is not a target: {reason}", text, 0, len(text)) from None


# ------------------------------------------------------------------ text → tokens


def _tokens(text: str) -> Iterable[_Token]:
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
        elif text[at] in _SIGNS:
            yield _Token("sign", text[at], at, at + 1)
            at += 1
        else:
            end = _end_of_factor(text, at)
            yield _Token("factor", text[at:end].rstrip(), at, end)
            at = end
    yield _Token("end", "the end", len(text), len(text))


def _end_of_factor(text: str, start: int) -> int:
    """Where the factor ends that starts here: before a sign of the formula outside of its brackets and quotes."""
    at = start
    while at < len(text):
        if text[at] in "'\"`":
            at = _after_quote(text, at)
        elif text[at] in _CLOSING:
            at = _balanced(text, at)
        elif text[at : at + 2] == "**":
            at += 2
        elif text[at] in "+-" and _CONTINUES.search(text[start:at]):
            at += 1
        elif text[at] in _SIGNS:
            break
        else:
            number = NUMBER.match(text, at) if not (text[at - 1 : at].isalnum() or text[at - 1 : at] == "_") else None
            at = number.end() if number else at + 1
    return at


def _after_quote(text: str, at: int) -> int:
    match = QUOTED.match(text, at)
    if match is None:
        raise ExpressionError(f"the quote {text[at]} opens and does not close. Close it with {text[at]}.", text, at, at + 1)
    return match.end()


def _balanced(text: str, at: int) -> int:
    opening, expected = at, [_CLOSING[text[at]]]
    while expected:
        at += 1
        if at >= len(text):
            raise ExpressionError(f"this {text[opening]} is never closed. Add {expected[0]}.", text, opening, opening + 1)
        if text[at] in "'\"`":
            at = _after_quote(text, at) - 1
        elif text[at] in _CLOSING:
            expected.append(_CLOSING[text[at]])
        elif text[at] == expected[-1]:
            expected.pop()
    return at + 1


# ------------------------------------------------------------------ tokens → terms


class _Reader:
    """Recursive descent, a method for each precedence; the value of a part is its list of terms."""

    def __init__(self, text: str, tokens: list[_Token]) -> None:
        self.text, self.tokens, self.at = text, tokens, 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.at]

    def takes(self, sign: str) -> bool:
        found = self.token.kind == "sign" and self.token.text == sign
        self.at += found
        return found

    def error(self, message: str, token: _Token | None = None) -> ExpressionError:
        where = token or self.token
        return ExpressionError(message, self.text, where.start, where.end)

    def whole(self) -> list[Term]:
        terms = self.sum([()])
        if self.token.kind != "end":
            raise self.error(f"expected +, - or the end, got {self.token.text}. Write one, or remove what does not belong.")
        return terms

    def sum(self, terms: list[Term]) -> list[Term]:
        sign = "-" if self.takes("-") else "+"
        if sign == "+":
            self.takes("+")
        while True:
            added = self.constant()
            if added is None:
                terms = _union(terms, self.crossing()) if sign == "+" else _without(terms, self.crossing())
            else:
                terms = _union(terms, [()]) if added == (sign == "+") else _without(terms, [()])
            if not (self.takes("+") or self.takes("-")):
                return terms
            sign = self.tokens[self.at - 1].text

    def constant(self) -> bool | None:
        if self.token.kind != "factor" or self.token.text not in ("0", "1"):
            return None
        self.at += 1
        return self.tokens[self.at - 1].text == "1"

    def crossing(self) -> list[Term]:
        terms = self.interaction()
        while self.takes("*"):
            other = self.interaction()
            terms = self.limited(_union(_union(terms, other), _products(terms, other)))
        return terms

    def interaction(self) -> list[Term]:
        terms = self.power()
        while self.takes(":"):
            terms = self.limited(_products(terms, self.power()))
        return terms

    def power(self) -> list[Term]:
        base = terms = self.part()
        while self.takes("^"):
            token = self.token
            self.at += 1
            if not (token.text.isdigit() and 1 <= int(token.text) <= _HIGHEST):
                raise self.error(
                    f"a power in a formula is a whole number from 1 to {_HIGHEST}: the most factors of a term. For the square of a "
                    "number write I(age * age).", token,
                )  # fmt: skip
            for _ in range(int(token.text) - 1):
                terms = self.limited(_union(terms, _products(terms, base)))
            if len(terms) == 1 and int(token.text) > 1:
                name = words.short(":".join(terms[0]))
                raise self.error(
                    f"{name}^{token.text} is {name}: ^ stands for products of different factors, as in R. For the power of a "
                    f"number write I({name} ** {token.text}).", token,
                )  # fmt: skip
            base = terms
        return terms

    def part(self) -> list[Term]:
        opening = self.token
        if self.takes("("):
            terms = self.sum([])
            if not self.takes(")"):
                raise self.error("this ( is never closed. Add ).", opening)
            return terms
        if opening.kind != "factor":
            raise self.error(f"expected a column or an expression, got {opening.text}. Write one, such as age or age > 50.")
        self.at += 1
        return [(self.factor(opening),)]

    def factor(self, token: _Token) -> str:
        try:
            factor = factor_of(token.text)
            constant = not parse(factor).columns
        except ExpressionError as error:
            message = f"{words.short(token.text)} is not a factor: {_reason(token.text, error)}"
            raise self.error(message, token) from None
        if constant:
            raise self.error(
                f"{words.short(token.text)} names no column, so it explains nothing. Name a column; 1 and 0 stand alone, for the "
                "intercept.", token,
            )  # fmt: skip
        return factor

    def limited(self, terms: list[Term]) -> list[Term]:
        if len(terms) > _MOST_TERMS:
            raise self.error(f"the formula has more than {_MOST_TERMS} terms. Write fewer products.")
        return terms


def _union(terms: list[Term], others: list[Term]) -> list[Term]:
    known = {frozenset(term): term for term in [*others[::-1], *terms[::-1]]}
    return list(known.values())[::-1]


def _without(terms: list[Term], others: list[Term]) -> list[Term]:
    left_out = {frozenset(term) for term in others}
    return [term for term in terms if frozenset(term) not in left_out]


def _products(terms: list[Term], others: list[Term]) -> list[Term]:
    return _union([], [tuple(dict.fromkeys(a + b)) for a, b in product(terms, others)])
