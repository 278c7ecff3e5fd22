"""What analysts will ask, as a public text: a question on each line, in the grammar of expressions (tutorials/budget.md).

    age                                     its mean; of a condition its probability
    `hours-per-week` | income == '>50K'     the mean, given a condition
    corr(age, `education-num`)              also cov(a, b), var(a), std(a), mean(a), quantile(age, 0.5), table(sex, income)

A question of one column raises the heights of its one-way tables, and the table of two columns that a question names is measured
in any case; ranges of a number end where questions cut it. The workload may depend on no private value.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.expressions import Expression, ExpressionError, parse
from kmeanalyst.releases.expressions.cuts import cuts_of
from kmeanalyst.releases.expressions.syntax import NUMBER, Parser
from release_side.errors import PublishError

Source: TypeAlias = str | Path | Sequence[str]
STATISTICS: dict[str, tuple[tuple[int, ...], str]] = {  # how many arguments each takes, and how it is written
    **{name: ((1,), f"{name}(a)") for name in ("mean", "var", "std")},
    **{name: ((2,), f"{name}(a, b)") for name in ("cov", "corr")},
    "quantile": ((2,), "quantile(a, 0.5)"),
    "table": ((1, 2), "table(a) or table(a, b)"),
}
_MOST_CUTS = 11  # of a column; finer tables answer more
_PIECES = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|.")  # quoted texts and names, and single characters


@dataclass(frozen=True)
class WorkloadQuestion:
    """A question that analysts will ask of the release.

    text        as it is written.
    statistic   one of `STATISTICS`; the mean of a condition is its probability.
    arguments   expressions; of a table names of columns, of a quantile its order as well.
    where       the condition; None for none.
    columns     the columns that it names, by their numbers, increasing.
    compared    columns with signs and values, as `Expression.compared` has them.
    """

    text: str
    statistic: str
    arguments: tuple[str, ...]
    where: str | None
    columns: tuple[int, ...]
    compared: tuple[tuple[str, str, Any], ...]


@dataclass(frozen=True)
class Workload:
    """The questions of a workload, checked against a domain.

    cuts   for columns of numbers, by their index, the values with which questions compare them, in encoded units and between
           two values of a whole number; none for columns with more than eleven.
    """

    questions: tuple[WorkloadQuestion, ...]
    cuts: Mapping[int, tuple[float, ...]]

    @property
    def by_columns(self) -> Counter[tuple[int, ...]]:
        """How many questions name each set of columns, by their numbers."""
        return Counter(question.columns for question in self.questions)


def read_workload(source: Source, domain: Domain) -> Workload:
    """The questions of a file, or of a list of lines; PublishError, with the line's number, for the first that is not one.

    >>> domain = ka.Domain((ka.Integer(name="age", lower=17, upper=90), ka.Boolean(name="rich")))
    >>> workload = read_workload(["age > 50  # one half?", "", "corr(age, rich)"], domain)
    >>> dict(workload.by_columns)
    {(0,): 1, (0, 1): 1}
    """
    lines = lines_of(source)
    asked = ((number, *_parts(line)) for number, line in enumerate(lines, 1))
    questions = tuple(_question(n, text, where, domain) for n, text, where in asked if text or where is not None)
    if not questions:
        raise PublishError("the workload asks nothing: it has no line with a question. Write one, such as age > 50.")
    cuts = cuts_of((comparison for question in questions for comparison in question.compared), domain)
    return Workload(questions, {j: tuple(sorted(own)) for j, own in cuts.items() if 0 < len(own) <= _MOST_CUTS})


def lines_of(source: Source) -> list[str]:
    """The lines of a file, or of a list; PublishError if it is neither."""
    if not isinstance(source, str | Path):
        lines = list(source)
        if not all(isinstance(line, str) for line in lines):
            raise PublishError("workload must be a list of questions as texts, or the path of a file of them.")
        return lines
    path = Path(source)
    if not path.is_file():
        raise PublishError(f"no workload at {path}: it is a text file with a question on each line. Check it.")
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise PublishError(f"{path} is not text in UTF-8, as a workload is. Save it as UTF-8.") from None


def _parts(line: str) -> tuple[str, str | None]:
    pieces = _PIECES.findall(line)
    pieces = pieces[: pieces.index("#")] if "#" in pieces else pieces
    if "|" not in pieces:
        return "".join(pieces).strip(), None
    bar = pieces.index("|")
    return "".join(pieces[:bar]).strip(), "".join(pieces[bar + 1 :]).strip()


def _question(number: int, text: str, where: str | None, domain: Domain) -> WorkloadQuestion:
    try:
        statistic, arguments = _statistic(text)
        expressions = [parse(argument) for argument in (arguments[:1] if statistic == "quantile" else arguments)]
        for expression in expressions:
            _check(expression, statistic, domain)
        if statistic == "quantile" and not (NUMBER.fullmatch(arguments[1]) and 0 <= float(arguments[1]) <= 1):
            what = f"the order of a quantile is a number from 0 to 1, got {arguments[1]}"
            raise ExpressionError(f"{what}. Write quantile(a, 0.5).")
        given = None if where is None else parse(where)
        if given is not None and given.check(domain) != "condition":
            raise ExpressionError(f"after | stands a condition, and {where} is a number. Compare it, as in {where} > 0.")
        every = [*expressions, *([given] if given else [])]
        names = {name for each in every for name in each.columns}
        if not names:
            raise ExpressionError("a question names a column, and this one names none. Name one.")
    except ExpressionError as error:
        raise PublishError(f"line {number} of the workload: {error}") from None
    columns = tuple(sorted(domain.names.index(name) for name in names))
    shown = text if where is None else f"{text} | {where}"
    compared = tuple(comparison for each in every for comparison in each.compared)
    return WorkloadQuestion(shown, statistic, arguments, where, columns, compared)


def _statistic(text: str) -> tuple[str, tuple[str, ...]]:
    parser = Parser(text)
    name = parser.token.text
    if name not in STATISTICS or len(parser.tokens) < 2 or parser.tokens[1].text != "(":
        return "mean", (text,)
    parser.advance()
    opening, arguments = parser.advance(), []
    while not parser.takes(")"):
        start = parser.token.start
        parser.expression(1)
        arguments.append(text[start : parser.tokens[parser.at - 1].end])
        if not parser.takes(",") and parser.token.text != ")":
            raise parser.unclosed(opening, "an operator, a comma or )")
    if parser.token.kind != "end":
        raise parser.unexpected("the end of the line")
    numbers, usage = STATISTICS[name]
    if len(arguments) not in numbers:
        wanted = " or ".join(map(str, numbers))
        raise ExpressionError(f"{name} takes {wanted} argument{'s' * (max(numbers) > 1)}, got {len(arguments)}. Write {usage}.")
    return name, tuple(arguments)


def _check(expression: Expression, statistic: str, domain: Domain) -> None:
    """ExpressionError unless the argument fits the domain; of a table it is a column of any kind."""
    name = next(iter(expression.columns), "")
    is_column = expression.text in (name, "`" + name.replace("`", "``") + "`")
    if statistic == "table" and not is_column:
        raise ExpressionError(f"a table is of columns, and {expression.text} is an expression. Write table(a, b).")
    if statistic != "table" or name not in domain.names:
        expression.check(domain)
