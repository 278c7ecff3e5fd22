"""`kmeanalyst expect`, `quantile`, `table`, `survival` and `glm`: numbers with their errors, as a text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import Answer, coverage_option, on_release, view_option
from kmeanalyst.cli.terminal import OnProgress, argument, note, option

if TYPE_CHECKING:
    from kmeanalyst.inference.estimate.estimate import Estimate
    from kmeanalyst.release import Release

_WIDEST = 100  # characters: a longer text makes only its own line longer
_where_option = option("--where", "Only rows for which this holds, e.g. \"sex == 'Female'\".", metavar="CONDITION")
_of_any_view = (  # of questions that can be asked of either view, and have a robust interval
    view_option,
    option(
        "--interval kind",
        "robust: the range over all populations, smooth or not, that agree with the measurement; noise: without the sampling "
        "part, for the value in the private table itself.",
        ("default", "robust", "noise"), "default",
    ),
    coverage_option,
)  # fmt: skip


def _by_option(answer: str) -> Any:
    return option("--by", f"One {answer} for each level of this column.", metavar="COLUMN")


@on_release(
    "expect", "Expectations and probabilities, with error bars.", _where_option, _by_option("answer"), *_of_any_view,
    argument("expressions", "EXPRESSION...", None, nargs=-1, required=True), work="answering",
)  # fmt: skip
def expect(
    release: Release, expressions: tuple[str, ...], where: str | None, by: str | None, view: Any, level: float, kind: str,
    on_progress: OnProgress,
) -> Answer:  # fmt: skip
    """Expectations of expressions over the columns, each with its error bar; conditions give probabilities.

    \b
    Examples:
      kmeanalyst expect adult.kme "age" "age > 50"
      kmeanalyst expect adult.kme '`hours-per-week` > 40' --where "sex == 'Female' and age < 30"
      kmeanalyst expect adult.kme "age" --by sex
      kmeanalyst expect adult.kme "age > 50" --interval robust
    """
    conditions = _conditions(release, by, where)
    questions = [partial(release.expectation, text, view=view) for text in expressions]
    estimates = [e for question in _with_progress(questions, on_progress) for e in _answers(question, conditions)]
    return partial(estimate_table, estimates, level, kind), lambda: {
        "rehearsal": release.is_rehearsal, "estimates": [e.to_dict(level, kind) for e in estimates],
    }  # fmt: skip


@on_release(
    "quantile", "Quantiles of a column, with error bars.", _where_option, _by_option("answer"), coverage_option,
    argument("column", "COLUMN", None), argument("orders", "Q...", click.FloatRange(0, 1), nargs=-1, required=True),
    work="answering",
)  # fmt: skip
def quantile(
    release: Release, column: str, orders: tuple[float, ...], where: str | None, by: str | None, level: float
) -> Answer:
    """Quantiles of a column of numbers, or of an expression, of orders Q from 0 to 1, each with its error bar.

    The quantile of order Q is the smallest value v such that at least a share Q of the weight is on values up to v. Its
    interval stays within the column's bounds.

    \b
    Examples:
      kmeanalyst quantile adult.kme age 0.1 0.5 0.9
      kmeanalyst quantile adult.kme hours-per-week 0.5 --by sex --where "age < 30"
    """
    tables = _answers(partial(release.quantile, column, orders), _conditions(release, by, where))
    estimates = [e for table in tables for e in table]
    return partial(estimate_table, estimates, level), lambda: {
        "rehearsal": release.is_rehearsal, "column": column,
        "estimates": [{"q": e.interval_by.q} | e.to_dict(level) for e in estimates],
    }  # fmt: skip


def _check_columns(columns: tuple[str, ...], **_: Any) -> None:
    if len(columns) > 2:
        raise click.UsageError(
            f"a table has one or two columns, got {len(columns)}. Name two, and use --by for a third."
        )


@on_release(
    "table", "Probabilities of levels, ranges and their pairs.", _where_option, _by_option("table"), *_of_any_view,
    argument("columns", "COLUMN [COLUMN]", None, nargs=-1, required=True), work="answering", check=_check_columns,
)  # fmt: skip
def table(
    release: Release, columns: tuple[str, ...], where: str | None, by: str | None, view: Any, level: float, kind: str,
    on_progress: OnProgress,
) -> Answer:  # fmt: skip
    """Probabilities of a column's levels and ranges, or of each pair of those of two columns, with error bars.

    Numbers are grouped by the domain's public atoms and edges, or in ten ranges between their bounds.

    \b
    Examples:
      kmeanalyst table adult.kme age
      kmeanalyst table adult.kme age income --by sex
    """
    from kmeanalyst.inference.questions.tables import contingency

    conditions = _conditions(release, by, where)
    question = partial(contingency, release, columns, view=view, tables=len(conditions))
    cells = [cell for counted in _answers(question, conditions) for cell in counted]
    return lambda: estimate_table([e for _, e in cells], level, kind), lambda: {
        "rehearsal": release.is_rehearsal, "columns": columns,
        "cells": [{"groups": of} | e.to_dict(level, kind) for of, e in _with_progress(cells, on_progress)],
    }  # fmt: skip


@on_release(
    "survival", "Kaplan–Meier curve of times to an event.", argument("time", "TIME", None),
    argument("event", "EVENT", None), _where_option, coverage_option, work="answering",
)  # fmt: skip
def survival(release: Release, time: str, event: str, where: str | None, level: float) -> Answer:
    """The probability of no event up to each time, with a band; TIME is how long a row was watched, EVENT that it ended by one.

    \b
    Examples:
      kmeanalyst survival counted.kme age "income == '>50K'"
      kmeanalyst survival counted.kme age "income == '>50K'" --where "sex == 'Male'" --level 0.9
    """
    curve = release.survival(time, event, where=where, level=level)
    return repr(curve), lambda: {"rehearsal": release.is_rehearsal, **curve.to_dict()}


@on_release(
    "glm", "Regression: a coefficient table of a formula.", argument("formula", "FORMULA", None),
    option(
        "--family", "The distribution of the target.",
        ("gaussian", "binomial", "poisson", "gamma", "multinomial", "ordinal"), "gaussian",
    ),
    option("--link", "logit, probit, log, inverse, ...; the family's canonical link by default."),
    option(
        "--reference references",
        "The level that the others of a column, or of a multinomial target, are compared with; by default the first. May be "
        "repeated.",
        multiple=True, metavar="COLUMN=LEVEL",
    ),
    _where_option, view_option, coverage_option, work="fitting",
)  # fmt: skip
def glm_command(release: Release, formula: str, references: tuple[str, ...], level: float, **options: Any) -> Answer:
    """A generalised linear model of a formula in R's notation: coefficients, standard errors in parts, intervals, p-values.

    Factors are columns or expressions, joined by + - : * ^ ( ). Of a column of levels the first is what the others are compared
    with. With --family binomial the target is a condition, or a column of two levels of which the second is success.

    Odds ratios, average marginal effects, Wald and score tests, and predictions with intervals: in Python, of what
    release.glm(FORMULA, family=...) returns.

    \b
    Examples:
      kmeanalyst glm adult.kme "income ~ age + sex" --family binomial
      kmeanalyst glm adult.kme "income ~ sex" --family binomial --reference sex=Male
      kmeanalyst glm adult.kme '`hours-per-week` ~ age * sex' --where "age < 65" --json
    """
    model = release.glm(formula, reference=_levels(references), **options)
    about = {"rehearsal": release.is_rehearsal, "formula": formula}
    return partial(model.summary, level), lambda: about | model.to_dict(level)


def _levels(references: tuple[str, ...]) -> dict[str, str]:
    if wrong := [text for text in references if "=" not in text]:
        raise click.BadParameter(f"{wrong[0]!r:.80} is not COLUMN=LEVEL.", param_hint="--reference")
    return dict(text.split("=", 1) for text in references)


def _conditions(release: Release, by: str | None, where: str | None) -> Sequence[str | None]:
    from kmeanalyst.inference.questions.expectation import conditions_by

    return [where] if by is None else conditions_by(release, by, where)


def _with_progress(all_of_them: Sequence[Any], on_progress: OnProgress) -> Iterator[Any]:
    for i, one in enumerate(all_of_them):
        if len(all_of_them) > 1:
            on_progress("answering", i / len(all_of_them))
        yield one


def _answers(question: Callable[..., Any], conditions: Sequence[str | None]) -> list[Any]:
    """Answer the question under each condition; conditions without an answer are reported and skipped."""
    answers: list[Any] = []
    refusals: dict[str | None, ValueError] = {}
    for condition in conditions:
        try:
            answers.append(question(where=condition))
        except ValueError as error:
            refusals[condition] = error
    if not answers:
        raise next(iter(refusals.values()))
    for condition, refusal in refusals.items():
        note(f"no answer where {condition}: {refusal}")
    return answers


def estimate_table(estimates: Sequence[Estimate], level: float, kind: str = "default") -> str:
    """Aligned columns: question, value, error, interval, parts."""
    from kmeanalyst.inference.estimate.estimate import aligned, list_of_notes

    interval_of = f"{level:.0%} interval" if kind == "default" else f"{kind} {level:.0%} interval"
    heads = ("question", "value", "± error", interval_of, "privacy", "sampling", "resolution")
    rows: list[tuple[str, ...]] = [heads]
    for e in estimates:
        low, high = (e.written(end) for end in e.interval(level, kind))
        numbers = (e.written(e.value), e.written(e.standard_error), f"{low} to {high}")
        rows.append((e.question, *numbers, *e.written_parts()))
    lines = aligned(rows, _WIDEST)
    return "\n".join([*lines, f"({estimates[0].view} weights)", *list_of_notes((), estimates)])
