"""A claim as text: statistics of the population, arithmetic with them, and one comparison. Parsed by hand, never by eval.

    mean(wage, where=degree == 'BA') > 1.2 * mean(wage, where=degree == 'HS')

    claim         side < side, with <, <=, > or >=
    side          numbers, statistics, + - * / **, sqrt(a), log(a), exp(a), parentheses
    statistics    mean(a) probability(condition) var(a) std(a) quantile(a, order) cov(a, b) corr(a, b) ratio(a, b), each of
                  expressions over columns, and each with where=condition as a last argument or without one

What stands inside a statistic is an expression of `releases.expressions`, whose tokens and precedence this grammar shares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from kmeanalyst.releases.expressions import LONGEST, ExpressionError, words
from kmeanalyst.releases.expressions.syntax import (
    Arithmetic,
    Call,
    Comparison,
    Constant,
    Name,
    Node,
    Parser,
    Sign,
    Span,
    Token,
    parts_of,
)

STATISTICS = {"mean": 1, "probability": 1, "var": 1, "std": 1, "quantile": 2, "cov": 2, "corr": 2, "ratio": 2}
FUNCTIONS = ("sqrt", "log", "exp")
COMPARISONS = ("<", "<=", ">", ">=")
_EXAMPLE = "mean(age, where=sex == 'F') > 40"
_WHERE = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\bwhere\s*=(?!=)")


@dataclass(frozen=True)
class Asked(Node):
    """A statistic of the population.

    statistic   one of STATISTICS.
    arguments   expressions as text; the last of a quantile is its order.
    where       the condition as text; None without one.
    """

    statistic: str
    arguments: tuple[str, ...]
    where: str | None


@dataclass(frozen=True)
class ParsedClaim:
    """Two sides, and the sign between them."""

    text: str
    left: Node
    sign: str
    right: Node


def parse_claim(text: str) -> ParsedClaim:
    """Parse a claim; ExpressionError, with the position of the mistake, if it is not one.

    >>> claim = parse_claim("mean(age, where=sex == 'F') - 2 > mean(age)")
    >>> claim.sign, claim.right.statistic, claim.right.arguments
    ('>', 'mean', ('age',))
    """
    if not isinstance(text, str):
        raise ExpressionError(f"a claim must be text, got {type(text).__name__}. Write it in quotes: {_EXAMPLE!r}.")
    if len(text) > LONGEST:
        raise ExpressionError(
            f"the claim has {len(text)} characters and at most {LONGEST} are read, so that reading is quick. Shorten it."
        )
    parser = _ClaimParser(text)
    return parser.claim(parser.whole())


class _ClaimParser(Parser):
    """The parser of expressions, for which the names of statistics are functions with a where= at their end."""

    def __init__(self, text: str) -> None:
        signs: set[int] = set()

        def with_comma(found: re.Match[str]) -> str:
            if not found.group().startswith("where"):  # in quotes
                return found.group()
            signs.add(found.end() - 1)
            return found.group()[:-1] + ","

        super().__init__(_WHERE.sub(with_comma, text))  # = alone is no sign of expressions
        self.text, self.signs_of_where = text, signs
        self.inside = False  # of a statistic

    def call(self, name: Token) -> Node:  # type: ignore[override]
        if self.inside or name.text in FUNCTIONS:
            return super().call(name)
        if name.text not in STATISTICS:
            near = words.close(name.text, [*STATISTICS, *FUNCTIONS])
            hint = f"Did you mean {near}?" if near else f"Write a claim such as {_EXAMPLE}."
            raise self.error(
                f"no statistic {words.short(name.text)}: a claim is made of {', '.join(STATISTICS)}, and of "
                f"{', '.join(FUNCTIONS)} of them. {hint}", name
            )  # fmt: skip
        return self.statistic(name)

    def statistic(self, name: Token) -> Asked:
        """What stands between the parentheses, up to and including the closing one."""
        self.inside, opening = True, self.advance()
        arguments: list[str] = []
        where: str | None = None
        while not self.takes(")"):
            if (arguments or where) and not self.takes(","):
                raise self.unclosed(opening, "an operator, a comma or )")
            if where is not None:
                raise self.error("where= is the last argument. Put the others before it.", self.token)
            if self.token.text == "where" and self.tokens[self.at + 1].start in self.signs_of_where:
                self.at += 2
                where = self.argument()
            else:
                arguments.append(self.argument())
        self.inside = False
        span = self.span(name.start)
        if len(arguments) != (wanted := STATISTICS[name.text]):
            raise self.error(
                f"{name.text} takes {wanted} argument{'s' * (wanted > 1)} and where=, got {len(arguments)}. "
                f"Write {name.text}({', '.join('ab'[:wanted])}) or {name.text}({', '.join('ab'[:wanted])}, where=condition).",
                span,
            )
        return Asked(span, name.text, tuple(arguments), where)

    def argument(self) -> str:
        """The text of the expression that starts here."""
        start = self.token.start
        self.expression(1)
        return self.text[start : self.tokens[self.at - 1].end]

    def claim(self, root: Node) -> ParsedClaim:
        """The claim that the whole text is."""
        signs = [sign for sign, _ in root.rest] if isinstance(root, Comparison) else []
        if not isinstance(root, Comparison) or len(signs) != 1 or signs[0] not in COMPARISONS:
            self.refuse_comparison(signs, root.span)
        sides = (root.first, root.rest[0][1])
        for side in sides:
            for part in parts_of(side):
                self.check(part)
        if not any(isinstance(part, Asked) for side in sides for part in parts_of(side)):
            raise self.error(
                f"both sides are numbers, so the claim says nothing of the population. Write {_EXAMPLE}.", root.span
            )
        if len({self.text[side.span.start : side.span.end].strip() for side in sides}) == 1:
            raise self.error(
                f"both sides are the same, so the claim says nothing of the population. Write {_EXAMPLE}.", root.span
            )
        return ParsedClaim(self.text, sides[0], signs[0], sides[1])

    def refuse_comparison(self, signs: list[str], span: Span) -> NoReturn:
        if len(signs) > 1:
            raise self.error("a claim has one comparison, so that it holds or not. Write two claims.", span)
        if signs and signs[0] in ("==", "!="):
            raise self.error(
                f"{signs[0]} is no claim: numbers of a population are never quite equal, whatever the evidence. Claim a bound, "
                "such as mean(a) - mean(b) < 0.1.", span
            )  # fmt: skip
        raise self.error(f"a claim compares two sides by <, <=, > or >=. Write one, such as {_EXAMPLE}.", span)

    def check(self, part: Node) -> None:
        """ExpressionError for a part that arithmetic of statistics has not."""
        if isinstance(part, Name):
            column = words.written(part.name)
            raise self.error(
                f"{column} is not inside a statistic, and a claim compares single numbers. Write mean({column}), say.", part.span
            )  # fmt: skip
        constant = isinstance(part, Constant) and isinstance(part.value, float)
        signs = {sign for sign, _ in part.rest} if isinstance(part, Arithmetic) else set[str]()
        if not (constant or isinstance(part, Arithmetic | Sign | Call | Asked)) or "%" in signs:
            raise self.error(
                f"this is not part of a claim: outside statistics it has numbers, + - * / ** and {', '.join(FUNCTIONS)}. "
                "Put conditions and texts inside a statistic.", part.span
            )  # fmt: skip
