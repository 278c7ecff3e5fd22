"""Commands that answer questions of a release: numbers with their errors, tests of independence and of a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli import arguments
from kmeanalyst.cli.terminal import OnProgress, argument, note, option
from kmeanalyst.releases.texts import on_screen

if TYPE_CHECKING:
    from kmeanalyst.inference.estimate.estimate import Estimate
    from kmeanalyst.release import Release

_WIDEST = 100  # characters: a longer text makes only its own line longer
_where_option = option("--where", "Only rows for which this holds, e.g. \"sex == 'Female'\".", metavar="CONDITION")
_of_any_view = (  # of questions that can be asked of either view, and have a robust interval
    arguments.view_option,
    option(
        "--interval kind",
        "robust: the range over all populations, smooth or not, that agree with the measurement; noise: without the sampling "
        "part, for the value in the private table itself.",
        ("default", "robust", "noise"), "default",
    ),
    arguments.coverage_option,
)  # fmt: skip


def _by_option(answer: str) -> Any:
    return option("--by", f"One {answer} for each level of this column.", metavar="COLUMN")


@arguments.on_release(
    "expect", "Expectations and probabilities, with error bars.", _where_option, _by_option("answer"), *_of_any_view,
    argument("expressions", "EXPRESSION...", None, nargs=-1, required=True), work="answering",
)  # fmt: skip
def expect(
    release: Release, expressions: tuple[str, ...], where: str | None, by: str | None, view: Any, level: float, kind: str,
    on_progress: OnProgress,
) -> arguments.Answer:  # fmt: skip
    """Expectations of expressions over the columns, each with its error bar; conditions give probabilities.

    An expression without an answer is reported and the others are answered; the exit code is then 1.

    \b
    Examples:
      kmeanalyst expect adult.kme "age" "age > 50"
      kmeanalyst expect adult.kme '`hours-per-week` > 40' --where "sex == 'Female' and age < 30"
      kmeanalyst expect adult.kme "age" --by sex
      kmeanalyst expect adult.kme "age > 50" --interval robust
    """
    estimates, refused = _expectations(
        partial(release.expectation, view=view), expressions, on_progress, _conditions(release, by, where)
    )
    return partial(estimate_table, estimates, level, kind), lambda: {
        "estimates": [e.to_dict(level, kind) for e in estimates], **refused,
    }  # fmt: skip


def _expectations(
    ask: Callable[..., Estimate], expressions: Sequence[str], on_progress: OnProgress, conditions: Sequence[str | None]
) -> tuple[list[Estimate], dict[str, Any]]:
    """The answers to expressions under each condition, and for --json those without one; ValueError if none has one."""
    questions = [(text, partial(_answers, partial(ask, text), conditions)) for text in expressions]
    answers, refused = _answered("to", _with_progress(questions, on_progress))
    if refused:
        click.get_current_context().meta[arguments.INCOMPLETE] = True
    reasons = [{"expression": text, "reason": reason} for text, reason in refused.items()]
    return [one for own in answers for one in own], {"refused": reasons} if reasons else {}


@arguments.on_release(
    "combine", "A release and your own sample, asked together.", arguments.sample_argument,
    argument("expressions", "EXPRESSION...", None, nargs=-1, required=True), _where_option,
    option("--overlap", "Whether SAMPLE's persons are in FILE's table.", ("disjoint", "contained", "unknown"), "disjoint"),
    option(
        "--bound", "Answer of FILE's population, from which SAMPLE's differs by at most B standard deviations of a row.",
        click.FloatRange(min=0), metavar="B",
    ),
    option("--with further", "A further site's release, where SAMPLE is one; may be repeated.", multiple=True, metavar="FILE"),
    arguments.coverage_option, *arguments.own_options, work="answering",
)  # fmt: skip
def combine(
    release: Release, source: Any, expressions: tuple[str, ...], where: str | None, level: float, own: Any,
    further: tuple[str, ...], on_progress: OnProgress, **assumed: Any,
) -> arguments.Answer:  # fmt: skip
    """Expectations of expressions as of expect, from FILE and SAMPLE (a table, or another .kme) by the best weighting of all.

    One population is assumed: what mmd-test finds of that is a note, and changes no answer.

    \b
    Examples:
      kmeanalyst combine adult.kme my_sample.csv "age" "age > 50"
      kmeanalyst combine adult.kme my_sample.csv "income == '>50K'" --where "sex == 'Female'" --overlap unknown
      kmeanalyst combine adult.kme my_sample.csv "age" --bound 0.1 --json
      kmeanalyst combine adult.kme north.kme "age" --with south.kme
    """
    from kmeanalyst.inference.combination import combine as combined
    from kmeanalyst.release import Release

    if further and not isinstance(source, Release):
        raise ValueError("--with names further releases, and SAMPLE is a table. Combine the releases, or FILE with the table.")
    sides = [source, *map(arguments.open_release, further)]
    both = combined(release, sides if further else source, **assumed, **own)
    estimates, refused = _expectations(both.expectation, expressions, on_progress, [where])
    return partial(estimate_table, estimates, level), lambda: {
        **assumed, "estimates": [e.to_dict(level) for e in estimates], "check": both.check.to_dict(), **refused,
    }  # fmt: skip


@arguments.on_release(
    "quantile", "Quantiles of a column, with error bars.", _where_option, _by_option("answer"), arguments.coverage_option,
    argument("column", "COLUMN", None), argument("orders", "Q...", click.FloatRange(0, 1), nargs=-1, required=True),
    work="answering",
)  # fmt: skip
def quantile(
    release: Release, column: str, orders: tuple[float, ...], where: str | None, by: str | None, level: float
) -> arguments.Answer:
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
        "column": column,
        "estimates": [{"q": e.interval_by.q} | e.to_dict(level) for e in estimates],
    }  # fmt: skip


@arguments.on_release(
    "table", "Probabilities of levels, ranges and their combinations.", _where_option, _by_option("table"), *_of_any_view,
    argument("columns", "COLUMN...", None, nargs=-1, required=True), work="answering",
)  # fmt: skip
def table(
    release: Release, columns: tuple[str, ...], where: str | None, by: str | None, view: Any, level: float, kind: str,
    on_progress: OnProgress,
) -> arguments.Answer:  # fmt: skip
    """Probabilities of a column's levels and ranges, or of each combination of those of several columns, with error bars.

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
        "columns": columns,
        "cells": [{"groups": of} | e.to_dict(level, kind) for of, e in _with_progress(cells, on_progress)],
    }  # fmt: skip


@arguments.on_release(
    "survival", "Kaplan–Meier curve of times to an event.", argument("time", "TIME", None),
    argument("event", "EVENT", None), _where_option, arguments.coverage_option, work="answering",
)  # fmt: skip
def survival(release: Release, time: str, event: str, where: str | None, level: float) -> arguments.Answer:
    """The probability of no event up to each time, with a band; TIME is how long a row was watched, EVENT that it ended by one.

    \b
    Examples:
      kmeanalyst survival counted.kme age "income == '>50K'"
      kmeanalyst survival counted.kme age "income == '>50K'" --where "sex == 'Male'" --level 0.9
    """
    curve = release.survival(time, event, where=where, level=level)
    return repr(curve), lambda: curve.to_dict()


@arguments.on_release(
    "glm", "Regression: a coefficient table of a formula.", argument("formula", "FORMULA", None),
    option("--family", "The distribution of the target.", ("gaussian", "binomial", "poisson", "gamma"), "gaussian"),
    option("--link", "logit, probit, log, inverse, ...; the family's canonical link by default."),
    option(
        "--reference references",
        "The level that the others of a column are compared with; by default the first. May be repeated.",
        multiple=True, metavar="COLUMN=LEVEL",
    ),
    _where_option, arguments.view_option, arguments.coverage_option, work="fitting",
)  # fmt: skip
def glm_command(release: Release, formula: str, references: tuple[str, ...], level: float, **options: Any) -> arguments.Answer:
    """A generalised linear model of a formula in R's notation: coefficients, standard errors in parts, intervals, p-values.

    Factors are columns or expressions, joined by + - : * ^ ( ). Of a column of levels the first is what the others are compared
    with. With --family binomial the target is a condition, or a column of two levels of which the second is success.

    Predictions with intervals: in Python, of what release.glm(FORMULA, family=...) returns.

    \b
    Examples:
      kmeanalyst glm adult.kme "income ~ age + sex" --family binomial
      kmeanalyst glm adult.kme "income ~ sex" --family binomial --reference sex=Male
      kmeanalyst glm adult.kme '`hours-per-week` ~ age * sex' --where "age < 65" --json
    """
    model = release.glm(formula, reference=_levels(references), **options)
    return partial(model.summary, level), lambda: {"formula": formula} | model.to_dict(level)


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
    return _answered("where", [(str(condition), partial(question, where=condition)) for condition in conditions])[0]


def _answered(word: str, questions: Iterable[tuple[str, Callable[[], Any]]]) -> tuple[list[Any], dict[str, str]]:
    """The answers to named questions, and why others have none, as notes say too; ValueError if none has one."""
    answers: list[Any] = []
    refused: dict[str, ValueError] = {}
    for name, question in questions:
        try:
            answers.append(question())
        except ValueError as error:
            refused[name] = error
    if not answers:
        raise next(iter(refused.values()))
    for name, refusal in refused.items():
        note(f"no answer {word} {name}: {refusal}")
    return answers, {name: str(refusal) for name, refusal in refused.items()}


def estimate_table(estimates: Sequence[Estimate], level: float, kind: str = "default") -> str:
    """Aligned columns: question, value, error, interval, parts."""
    from kmeanalyst.inference.estimate.estimate import list_of_notes

    interval_of = f"{level:.0%} interval" if kind == "default" else f"{level:.0%} {kind} interval"
    heads = ("question", "value", "± error", interval_of, "privacy", "sampling", "resolution")
    rows: list[tuple[str, ...]] = [heads]
    for e in estimates:
        low, high = (e.written(end) for end in e.interval(level, kind))
        numbers = (e.written(e.value), e.written(e.standard_error), f"{low} to {high}")
        rows.append((e.question, *numbers, *e.written_parts()))
    lines, left_out = on_screen(rows, 4, widest=_WIDEST)
    return "\n".join([*lines, f"({estimates[0].view} weights{left_out})", *list_of_notes((), estimates)])


_false_alarm_option = arguments.level_option(0.05, "Probability of a false alarm: a smaller p-value means that they differ.")


@arguments.on_release(
    "mmd-test", "Is a sample from the release's population?",
    arguments.sample_argument, _false_alarm_option, arguments.columns_option, *arguments.own_options, work="testing", table=True,
)  # fmt: skip
def mmd_test_command(release: Release, source: Any, level: float, own: Any) -> arguments.Answer:
    """Test whether SAMPLE (a table, or another .kme) comes from the population of the release, or of the table, in FILE.

    A table is a file (.csv, .parquet, .feather, …), a folder, glob or URL of them, or a table of a database.

    \b
    Examples:
      kmeanalyst mmd-test adult.kme my_sample.csv --level 0.01
      kmeanalyst mmd-test adult.kme "s3://bucket/sample/*.parquet"
      kmeanalyst mmd-test adult.kme postgresql: --from survey.people
      kmeanalyst mmd-test adult.kme my_sample.csv --recode sex:M=Male --recode sex:F=Female
    """
    from kmeanalyst.inference.two_sample.mmd_test import mmd_test

    result = mmd_test(release, source, rng=0, **own)
    facts = {"level": level, "reject": bool(result.pvalue < level)}
    return result.to_text(level), lambda: result.to_dict() | facts


@arguments.on_release(
    "compare", "Test a sample, and show where it differs.", arguments.sample_argument, _false_alarm_option,
    option("--top", "At most this many lines for each table.", click.IntRange(min=1), 10),
    arguments.columns_option, *arguments.own_options, work="comparing",
)  # fmt: skip
def compare(release: Release, source: Any, level: float, top: int, own: Any) -> arguments.Answer:
    """Test whether SAMPLE (a table or another .kme, as of mmd-test) is from the release's population, and show where they differ.

    \b
    Examples:
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv --top 5
    """
    from kmeanalyst.inference.compare.comparison import compare as compare_rows
    from kmeanalyst.release import Release
    from kmeanalyst.sources.tables import read_table

    sample = source if isinstance(source, Release) else read_table(source, release.domain)
    comparison = compare_rows(release, sample, level=level, **own)
    return lambda: comparison.to_text(top), comparison.to_dict


@arguments.on_release(
    "independence", "Are two columns independent?", argument("first", "A", None), argument("second", "B", None),
    option("--given", "Test independence within each cell of this column.", metavar="COLUMN"),
    arguments.level_option(0.05, "Probability of a false alarm: a smaller p-value means that they are dependent."),
    work="testing",
)  # fmt: skip
def independence(release: Release, first: str, second: str, given: str | None, level: float) -> arguments.Answer:
    """Test whether columns A and B are independent, and show their measured table.

    A release of tables answers by the table of the pair, whose noise is known; with --given by that of the three columns, which
    is there where one of them was the --target. Of smooth features the answer is a test along leading functions (HSIC).

    \b
    Examples:
      kmeanalyst independence counted.kme sex income
      kmeanalyst independence counted.kme sex marital-status --given income
    """
    from kmeanalyst.inference.compare.independence import independence_test
    from kmeanalyst.inference.contingency.contingency_test import contingency_test
    from kmeanalyst.inference.contingency.strata import strata_of

    result = independence_test(release, first, second, given=given)
    counted = strata_of(release, first, second, given) is not None
    table = contingency_test(release, first, second, given=given) if counted else None
    reject = bool(result.pvalue < level)
    lines = [
        result.to_text(level).partition("\n")[0], f"{'method':<12} {result.method}",
        *([] if table is None else [repr(table)]),
        *(f"note: {text}" for text in result.notes if table is None or text not in table.notes),
    ]  # fmt: skip
    about = {"table": None if table is None else table.to_dict(), "level": level, "reject": reject}
    return "\n".join(lines), lambda: result.to_dict() | about
