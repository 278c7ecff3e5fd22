"""`kmeanalyst expect`, `quantile`, `table`, `survival` and `glm`: numbers with their errors, as a text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import (
    Command,
    coverage_option,
    open_release,
    reading_options,
    release_argument,
    view_option,
)
from kmeanalyst.cli.terminal import OnProgress, note, show, working

if TYPE_CHECKING:
    from kmeanalyst.inference.estimate.estimate import Estimate
    from kmeanalyst.release import Release

_WIDEST = 100  # characters: a longer text makes only its own line longer
_where_option = click.option(
    "--where", metavar="CONDITION", help="Only rows for which this holds, e.g. \"sex == 'Female'\"."
)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """The options that the three questions share; `quantile` has neither a view nor a kind of interval."""

    release_path: str
    where: str | None
    by: str | None
    level: float
    as_json: bool
    view: Any = None
    kind: str = "default"


def _question_options(each: str, *, any_view: bool = True) -> Callable[[Command], Command]:
    """The options that questions share, in the order they are shown.

    each      what --by gives for each level.
    any_view  whether the question can be asked of either view, and has a robust interval.
    """
    interval_option = click.option(
        "--interval",
        "kind",
        default="default",
        show_default=True,
        type=click.Choice(["default", "robust", "noise"]),
        help="robust: the range over all populations, smooth or not, that agree with the measurement; noise: without the "
        "sampling part, for the value in the private table itself.",
    )
    options: list[Callable[[Command], Command]] = [
        release_argument,
        _where_option,
        click.option("--by", metavar="COLUMN", help=f"One {each} for each level of this column."),
        *([view_option, interval_option] if any_view else []),
        coverage_option,
        reading_options,
    ]

    def with_options(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


@click.command(short_help="Expectations and probabilities, with error bars.")
@_question_options("answer")
@click.argument("expressions", nargs=-1, required=True, metavar="EXPRESSION...")
def expect(expressions: tuple[str, ...], **options: Any) -> None:
    """Expectations of expressions over the columns, each with its error bar; conditions give probabilities.

    \b
    Examples:
      kmeanalyst expect adult.kme "age" "age > 50"
      kmeanalyst expect adult.kme '`hours-per-week` > 40' --where "sex == 'Female' and age < 30"
      kmeanalyst expect adult.kme "age" --by sex
      kmeanalyst expect adult.kme "age > 50" --interval robust
    """
    asked = _Options(**options)
    release = open_release(asked.release_path)
    conditions = _conditions(release, asked)
    questions = [partial(release.expectation, text, view=asked.view) for text in expressions]
    with working("answering") as on_progress:
        estimates = [e for question in _with_progress(questions, on_progress) for e in _answers(question, conditions)]
        answer = _answer(asked, estimates)
    _print(asked, release, "estimates", answer)


@click.command(short_help="Quantiles of a column, with error bars.")
@_question_options("answer", any_view=False)
@click.argument("column", metavar="COLUMN")
@click.argument("orders", nargs=-1, required=True, type=click.FloatRange(0, 1), metavar="Q...")
def quantile(column: str, orders: tuple[float, ...], **options: Any) -> None:
    """Quantiles of a column of numbers, or of an expression, of orders Q from 0 to 1, each with its error bar.

    The quantile of order Q is the smallest value v such that at least a share Q of the weight is on values up to v. Its
    interval stays within the column's bounds.

    \b
    Examples:
      kmeanalyst quantile adult.kme age 0.1 0.5 0.9
      kmeanalyst quantile adult.kme hours-per-week 0.5 --by sex --where "age < 30"
    """
    asked = _Options(**options)
    release = open_release(asked.release_path)
    with working("answering"):
        tables = _answers(partial(release.quantile, column, orders), _conditions(release, asked))
        estimates = [e for found in tables for e in found]
        answer = _answer(asked, estimates, [{"q": e.interval_by.q} for e in estimates])
    _print(asked, release, "estimates", answer, column=column)


@click.command(short_help="Probabilities of levels, ranges and their pairs.")
@_question_options("table")
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN [COLUMN]")
def table(columns: tuple[str, ...], **options: Any) -> None:
    """Probabilities of a column's levels and ranges, or of each pair of those of two columns, with error bars.

    Numbers are grouped by the domain's public atoms and edges, or in ten ranges between their bounds.

    \b
    Examples:
      kmeanalyst table adult.kme age
      kmeanalyst table adult.kme age income --by sex
    """
    from kmeanalyst.inference.questions.tables import contingency

    if len(columns) > 2:
        raise click.UsageError(
            f"a table has one or two columns, got {len(columns)}. Name two, and use --by for a third."
        )
    asked = _Options(**options)
    release = open_release(asked.release_path)
    conditions = _conditions(release, asked)
    question = partial(contingency, release, columns, view=asked.view, tables=len(conditions))
    with working("answering") as on_progress:
        cells = [cell for found in _answers(question, conditions) for cell in found]
        groups = [{"groups": groups} for groups, _ in cells]
        answer = _answer(asked, [e for _, e in cells], groups, on_progress)
    _print(asked, release, "cells", answer, columns=columns)


@click.command(short_help="Kaplan–Meier curve of times to an event.")
@release_argument
@click.argument("time", metavar="TIME")
@click.argument("event", metavar="EVENT")
@_where_option
@coverage_option
@reading_options
def survival(release_path: str, time: str, event: str, where: str | None, level: float, as_json: bool) -> None:
    """The probability of no event up to each time, with a band; TIME is how long a row was watched, EVENT that it ended by one.

    \b
    Examples:
      kmeanalyst survival counted.kme age "income == '>50K'"
      kmeanalyst survival counted.kme age "income == '>50K'" --where "sex == 'Male'" --level 0.9
    """
    release = open_release(release_path)
    with working("answering"):
        found = release.survival(time, event, where=where, level=level)
    show(as_json, repr(found), rehearsal=release.is_rehearsal, **found.to_dict())


@click.command("glm", short_help="Regression: a coefficient table of a formula.")
@release_argument
@click.argument("formula", metavar="FORMULA")
@click.option(
    "--family",
    default="gaussian",
    show_default=True,
    type=click.Choice(["gaussian", "binomial", "poisson", "gamma", "multinomial", "ordinal"]),
    help="The distribution of the target.",
)
@click.option("--link", help="logit, probit, log, inverse, ...; the family's canonical link by default.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="COLUMN=LEVEL",
    help="The level that the others of a column, or of a multinomial target, are compared with; by default the first. May be "
    "repeated.",
)
@_where_option
@view_option
@coverage_option
@reading_options
def glm_command(
    release_path: str, formula: str, references: tuple[str, ...], level: float, as_json: bool, **options: Any
) -> None:
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
    release = open_release(release_path)
    with working("fitting"):
        found = release.glm(formula, reference=_levels(references), **options)
        answer: dict[str, Any] = found.to_dict(level) if as_json else {}
        text = "" if as_json else found.summary(level)
    show(as_json, text, **{"rehearsal": release.is_rehearsal, "formula": formula} | answer)


def _levels(references: tuple[str, ...]) -> dict[str, str]:
    if wrong := [text for text in references if "=" not in text]:
        raise click.BadParameter(f"{wrong[0]!r:.80} is not COLUMN=LEVEL.", param_hint="--reference")
    return dict(text.split("=", 1) for text in references)


def _conditions(release: Release, asked: _Options) -> Sequence[str | None]:
    from kmeanalyst.inference.questions.expectation import conditions_by

    return [asked.where] if asked.by is None else conditions_by(release, asked.by, asked.where)


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


def _answer(
    asked: _Options,
    estimates: Sequence[Estimate],
    keys: Sequence[dict[str, Any]] | None = None,
    on_progress: OnProgress = lambda what, share: None,
) -> list[dict[str, Any]] | str:
    if not asked.as_json:
        return estimate_table(estimates, asked.level, asked.kind)
    found = [e.to_dict(asked.level, asked.kind) for e in _with_progress(estimates, on_progress)]
    return found if keys is None else [more | one for more, one in zip(keys, found, strict=True)]


def _print(asked: _Options, release: Release, name: str, answer: Any, **about: Any) -> None:
    show(asked.as_json, answer, **{"rehearsal": release.is_rehearsal, **about, name: answer})


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
