"""The analyst's command line: parses, calls, prints. Heavy imports are inside the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import check_not_read, opened_release, reads_large, rehearsal_option, release_argument
from kmeanalyst.cli.function import evaluate_command, show_function
from kmeanalyst.cli.plot import plot_command
from kmeanalyst.cli.report import report_command
from kmeanalyst.cli.terminal import (
    ClearErrors,
    OnProgress,
    completion_help,
    json_option,
    note,
    print_json,
    say,
    working,
)
from kmeanalyst.releases.texts import one_line

if TYPE_CHECKING:
    from kmeanalyst.inference.two_sample.result import TestResult
    from kmeanalyst.release import Release

level_option = click.option(
    "--level",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Probability of a false alarm: a smaller p-value means that they differ.",
)


@click.group(
    cls=ClearErrors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=completion_help("kmeanalyst"),
)
@click.version_option(package_name="kmeanalyst")
def main() -> None:
    """Ask questions of a differentially private release: a .kme file of weighted rows with the distribution of its noise.

    \b
    Examples:
      kmeanalyst demo
      kmeanalyst info adult.kme
      kmeanalyst expect adult.kme "age" "age > 50" --where "sex == 'Female'"
      kmeanalyst quantile adult.kme age 0.1 0.5 0.9
      kmeanalyst table adult.kme age income
      kmeanalyst mmd-test adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst plot adult.kme age --output age.png
      kmeanalyst report adult.kme --output adult.html
      kmeanalyst train adult.kme --target income --output model.skops
    """


@main.command(short_help="What a release is and guarantees.")
@release_argument
@rehearsal_option
@json_option
def info(release_path: str, allow_rehearsal: bool, as_json: bool) -> None:
    """Show what a release is and guarantees: rows, columns, ε and δ, noise, weights.

    Example: kmeanalyst info adult.kme
    """
    from kmeanalyst.releases.file.limits import HoldsFunction

    try:
        release = opened_release(release_path, allow_rehearsal)
    except HoldsFunction:
        show_function(release_path, allow_rehearsal, as_json)
        return
    if not as_json:
        say(repr(release))
        return
    statement = release.statement
    print_json({
        "method": release.method,
        "weight_view": release.weight_view,
        "n_points": len(release),
        "n_rows": statement.n_rows if statement else None,
        "rehearsal": release.is_rehearsal,
        "n_features": release.measurement.feature_map.dimension if release.measurement else None,
        "sum_weights": float(release.weights.sum()),
        "sum_absolute_weights": float(abs(release.weights).sum()),
        "share_negative": float((release.weights < 0).mean()),
        "fit_distance": release.fit_distance,
        "residual_over_noise": release.residual_over_noise,
        "kernel": release.kernel.to_dict(),
        "statement": statement.to_dict() if statement else None,
        "columns": release.domain.to_dict(),
        "derived": [one.to_dict() for one in release.derived],
    })  # fmt: skip


main.add_command(evaluate_command)
main.add_command(plot_command)
main.add_command(report_command)


@main.command(short_help="Recompute every claim that can be recomputed.")
@release_argument
@rehearsal_option
@json_option
@click.pass_context
def validate(ctx: click.Context, release_path: str, allow_rehearsal: bool, as_json: bool) -> None:
    """Recompute every claim in a file that can be recomputed; exit code 3 if one does not hold.

    Example: kmeanalyst validate adult.kme
    """
    from kmeanalyst.releases.file import validate_release

    with working("validating"):
        findings = validate_release(release_path, allow_rehearsal=allow_rehearsal, large=reads_large())
    if as_json:
        print_json({"valid": not findings, "findings": findings})
    else:
        for finding in findings:
            say(f"finding: {finding}")
        say(
            f"{one_line(release_path)}: "
            + (f"{len(findings)} findings" if findings else "every claim that can be checked holds")
        )
    if findings:
        ctx.exit(3)


_Command = Callable[..., Any]


def _asks(each: str, *, view: bool = True, robust: bool = False) -> Callable[[_Command], _Command]:
    """The options that questions share, in the order they are shown.

    each    what --by gives for each level.
    view    whether the question can be asked of either view.
    robust  whether its answer has a robust interval.
    """
    options: list[_Command] = [
        release_argument,
        click.option("--where", metavar="CONDITION", help="Only rows for which this holds, e.g. \"sex == 'Female'\"."),
        click.option("--by", metavar="COLUMN", help=f"One {each} for each level of this column."),
        click.option(
            "--level",
            default=0.95,
            show_default=True,
            type=click.FloatRange(0, 1, min_open=True, max_open=True),
            help="Coverage of the intervals.",
        ),
        rehearsal_option,
        json_option,
    ]
    if view:
        kinds = click.Choice(["signed", "probability", "fitted"])
        weights = "Weights to use; as released by default. fitted: the most plausible population, not the points."
        options.insert(3, click.option("--view", type=kinds, help=weights))
    if robust:
        intervals = "robust: the range over all populations, smooth or not, that agree with the measurement."
        kinds = click.Choice(["default", "robust"])
        options.insert(
            4, click.option("--interval", "kind", default="default", show_default=True, type=kinds, help=intervals)
        )

    def with_options(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


def _conditions(release: Release, where: str | None, by: str | None) -> Sequence[str | None]:
    from kmeanalyst.inference.questions.expectation import conditions_by

    return [where] if by is None else conditions_by(release, by, where)


@main.command(short_help="Expectations and probabilities, with error bars.")
@_asks("answer", robust=True)
@click.argument("expressions", nargs=-1, required=True, metavar="EXPRESSION...")
def expect(
    release_path: str,
    expressions: tuple[str, ...],
    where: str | None,
    by: str | None,
    view: Any,
    level: float,
    kind: str,
    allow_rehearsal: bool,
    as_json: bool,
) -> None:
    """Expectations of expressions over the columns, each with its error bar; conditions give probabilities.

    \b
    Examples:
      kmeanalyst expect adult.kme "age" "age > 50"
      kmeanalyst expect adult.kme '`hours-per-week` > 40' --where "sex == 'Female' and age < 30"
      kmeanalyst expect adult.kme "age" --by sex
      kmeanalyst expect adult.kme "age > 50" --interval robust
    """
    release = opened_release(release_path, allow_rehearsal)
    conditions = _conditions(release, where, by)
    asked = [partial(release.expectation, text, view=view) for text in expressions]
    with working("answering") as on_progress:
        estimates = [answer for ask in _with_progress(asked, on_progress) for answer in _answers(ask, conditions)]
        answer: Any = (
            [e.to_dict(level, kind) for e in estimates] if as_json else _estimate_table(estimates, level, kind)
        )
    if as_json:
        print_json({"rehearsal": release.is_rehearsal, "estimates": answer})
        return
    say(answer)


@main.command(short_help="Quantiles of a column, with error bars.")
@_asks("answer", view=False)
@click.argument("column", metavar="COLUMN")
@click.argument("orders", nargs=-1, required=True, type=click.FloatRange(0, 1), metavar="Q...")
def quantile(
    release_path: str,
    column: str,
    orders: tuple[float, ...],
    where: str | None,
    by: str | None,
    level: float,
    allow_rehearsal: bool,
    as_json: bool,
) -> None:
    """Quantiles of a column of numbers, or of an expression, of orders Q from 0 to 1, each with its error bar.

    The smallest value that a share of at least Q of the weight does not exceed, in the probability view; the interval
    stays within the column's bounds.

    \b
    Examples:
      kmeanalyst quantile adult.kme age 0.1 0.5 0.9
      kmeanalyst quantile adult.kme hours-per-week 0.5 --by sex --where "age < 30"
    """
    release = opened_release(release_path, allow_rehearsal)
    ask = partial(release.quantile, column, orders)
    with working("answering"):
        answers = [e for found in _answers(ask, _conditions(release, where, by)) for e in found]
    if as_json:
        found = [e.to_dict(level) | {"q": e.interval_by.q} for e in answers]
        print_json({"rehearsal": release.is_rehearsal, "column": column, "estimates": found})
        return
    say(_estimate_table(answers, level))


@main.command(short_help="Probabilities of levels, ranges and their pairs.")
@_asks("table", robust=True)
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN [COLUMN]")
def table(
    release_path: str,
    columns: tuple[str, ...],
    where: str | None,
    by: str | None,
    view: Any,
    level: float,
    kind: str,
    allow_rehearsal: bool,
    as_json: bool,
) -> None:
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
    release = opened_release(release_path, allow_rehearsal)
    with working("answering") as on_progress:
        conditions = _conditions(release, where, by)
        tables = _answers(partial(contingency, release, columns, view=view, tables=len(conditions)), conditions)
        found = [cell for each in tables for cell in each]
        if as_json:
            cells = [{"groups": groups} | e.to_dict(level, kind) for groups, e in _with_progress(found, on_progress)]
        else:
            text = _estimate_table([e for _, e in found], level, kind)
    if as_json:
        print_json({"rehearsal": release.is_rehearsal, "columns": columns, "cells": cells})
        return
    say(text)


def _with_progress(all_of_them: Sequence[Any], on_progress: OnProgress) -> Iterator[Any]:
    """Each in turn; for several, the share that is done is reported."""
    for i, one in enumerate(all_of_them):
        if len(all_of_them) > 1:
            on_progress("answering", i / len(all_of_them))
        yield one


def _answers(ask: Callable[..., Any], conditions: Sequence[str | None]) -> list[Any]:
    """Answer the question under each condition; conditions without an answer are reported and skipped."""
    answers: list[Any] = []
    refusals: dict[str | None, ValueError] = {}
    for condition in conditions:
        try:
            answers.append(ask(where=condition))
        except ValueError as error:
            refusals[condition] = error
    if not answers:
        raise next(iter(refusals.values()))
    for condition, refusal in refusals.items():
        note(f"no answer where {condition}: {refusal}")
    return answers


_WIDEST = 100  # characters: a longer text makes only its own line longer


def _estimate_table(estimates: list[Any], level: float, kind: str = "default") -> str:
    """Aligned columns: question, value, error, interval, parts."""
    interval_of = f"{level:.0%} interval" if kind == "default" else f"{kind} {level:.0%} interval"
    heads = ("question", "value", "± error", interval_of, "privacy", "sampling", "resolution")
    rows = [heads]
    for e in estimates:
        low, high = map(e.written, e.interval(level, kind))
        parts = tuple("unknown" if part is None else e.written(part) for part in e.parts.values())
        rows.append((e.question, e.written(e.value), e.written(e.standard_error), f"{low} to {high}", *parts))
    widths = [min(_WIDEST, max(len(row[i]) for row in rows)) for i in range(len(heads))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    notes = dict.fromkeys(f"note: {note}" for e in estimates for note in e.notes)
    return "\n".join([*lines, f"({estimates[0].view} weights)", *notes])


@main.command("mmd-test", short_help="Is a sample from the release's population?")
@release_argument
@click.argument("sample_path", metavar="SAMPLE", type=click.Path())
@level_option
@rehearsal_option
@json_option
def mmd_test_command(release_path: str, sample_path: str, level: float, allow_rehearsal: bool, as_json: bool) -> None:
    """Test whether SAMPLE (.csv, .parquet or another .kme) comes from the population of the release.

    Example: kmeanalyst mmd-test adult.kme my_sample.csv --level 0.01
    """
    from kmeanalyst.cli.arguments import RowsWithProgress
    from kmeanalyst.inference.two_sample.mmd_test import mmd_test
    from kmeanalyst.release import Release

    release = opened_release(release_path, allow_rehearsal)
    sample: Any = opened_release(sample_path, allow_rehearsal) if sample_path.endswith(".kme") else None
    with working("testing") as on_progress:
        result = mmd_test(release, RowsWithProgress(sample_path, on_progress) if sample is None else sample)
    reject = result.pvalue < level
    if as_json:
        rehearsal = release.is_rehearsal or (isinstance(sample, Release) and sample.is_rehearsal)
        print_json(result.to_dict() | {"level": level, "reject": bool(reject), "rehearsal": rehearsal})
        return
    verdict = "differ" if reject else "no difference that this release can show"
    notes = [("note", each) for each in result.notes]
    lines = [("p-value", f"{result.pvalue:.4g}   at level {level:g}: {verdict}"), *_mmd_lines(result)]
    lines.append(("method", f"{result.method}; privacy noise {'included' if result.noise_aware else 'not known'}"))
    for label, text in [*notes, *lines]:  # first what the sample's cells became: it may be the whole difference
        say(f"{label:<12} {text}")


def _mmd_lines(result: TestResult) -> list[tuple[str, str]]:
    """Label and text of each distance that a test result has."""
    sign = "; negative values happen when both sides agree" if result.estimator == "unbiased" else ""
    lines = [("MMD²", f"{result.mmd_squared:.4g} ({result.estimator}{sign})")]
    if result.mmd_interval is not None:
        low, high = result.mmd_interval
        lines.append(("MMD", f"{max(result.mmd_squared, 0.0) ** 0.5:.3g} (95 %: {low:.3g} to {high:.3g})"))
    if result.noise_floor is not None:
        lines.append(("noise floor", f"{result.noise_floor:.3g} (what two sides of one population would show)"))
    if result.detectable_mmd is not None:
        lines.append(("detectable", f"{result.detectable_mmd:.3g} (smallest MMD found at 5 % with 80 % power)"))
    return lines


@main.command(short_help="Test a sample, and show where it differs.")
@release_argument
@click.argument("sample_path", metavar="SAMPLE", type=click.Path())
@level_option
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=1), help="At most this many lines for each table."
)
@click.option("--plot", type=click.Path(dir_okay=False), metavar="OUT.png", help="Draw the witness of the columns.")
@rehearsal_option
@json_option
def compare(
    release_path: str,
    sample_path: str,
    level: float,
    top: int,
    plot: str | None,
    allow_rehearsal: bool,
    as_json: bool,
) -> None:
    """Test whether SAMPLE (.csv or .parquet) is from the population of the release, and show where they differ.

    \b
    Examples:
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv --top 5 --plot witness.png
    """
    from kmeanalyst.inference.compare.comparison import compare as compare_rows
    from kmeanalyst.releases.domain.tables import read_table

    if sample_path.endswith(".kme"):
        raise ValueError(
            "compare needs rows to compare with, and this is another release: its rows are not known. "
            "Use mmd-test for two releases, or name a .csv or .parquet file."
        )
    release = opened_release(release_path, allow_rehearsal)
    sample = read_table(sample_path)
    with working("comparing") as on_progress:
        comparison = compare_rows(release, sample, level=level)
        if plot is not None:
            from kmeanalyst.plots.witness import save_witness

            on_progress("drawing", None)
            save_witness(comparison, plot, most=top)
    if plot is not None:
        say(f"wrote {plot}", err=True)
    if as_json:
        print_json(comparison.to_dict() | {"plot": plot, "rehearsal": release.is_rehearsal})
        return
    say(comparison.to_text(top))


@main.command(short_help="Write points and weights for other tools.")
@release_argument
@click.argument("output", type=click.Path(dir_okay=False), metavar="OUT.{csv,parquet,nc}")
@click.option(
    "--view",
    default="signed",
    show_default=True,
    type=click.Choice(["signed", "probability", "resampled"]),
    help="Weights as released, the nearest probability weights, or rows of equal weight.",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many rows, with --view resampled; by default all points.",
)
@click.option("--seed", type=int, help="Seed of the resampling; by default fresh each time.")
@click.option(
    "--keep-formulas", is_flag=True, help="Of .csv: no apostrophe before text cells that a spreadsheet would run."
)
@rehearsal_option
@json_option
def export(
    release_path: str,
    output: str,
    view: Any,
    rows: int | None,
    seed: int | None,
    keep_formulas: bool,
    allow_rehearsal: bool,
    as_json: bool,
) -> None:
    """Write the points and weights for other tools.

    In a .csv file a text cell that begins like a formula (=, +, -, @) gets an apostrophe in front, unless it is a number:
    a spreadsheet would run it. The file of a rehearsal has a column NOT_PRIVATE.

    Example: kmeanalyst export adult.kme rows.csv --view resampled --rows 10000
    """
    from kmeanalyst.releases.file.export import export as write_export

    check_not_read(output, release_path)
    release = opened_release(release_path, allow_rehearsal)
    with working("writing"):
        defused = write_export(
            release, output, frame=release.to_frame(view, rows=rows, rng=seed), keep_formulas=keep_formulas
        )
    if defused:
        note(
            f"{defused} text cells begin like a formula, which a spreadsheet would run, and got an apostrophe in front. "
            "--keep-formulas leaves them as they are."
        )
    if view == "signed" and not release.is_probability:
        say(
            "note: signed weights; most tools misread negative ones. --view probability or resampled has none.",
            err=True,
        )
    say(f"wrote {output}", err=True)
    if as_json:
        print_json({
            "output": output, "view": view, "rows": rows or len(release), "defused_cells": defused,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


@main.command(short_help="Keep N of the points.")
@release_argument
@click.argument("n", type=click.IntRange(min=1), metavar="N")
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="OUT.kme", help="File to write.")
@click.option(
    "--weights",
    default="probability",
    show_default=True,
    type=click.Choice(["probability", "uniform", "signed"]),
    help="Kind of weights: uniform gives 1/N to each.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed, for over 5000 points.")
@rehearsal_option
@json_option
def thin(release_path: str, n: int, output: str, weights: Any, seed: int, allow_rehearsal: bool, as_json: bool) -> None:
    """Keep N of the points, with weights that keep them as close to the whole release as possible.

    Example: kmeanalyst thin adult.kme 50 --output small.kme --weights uniform
    """
    check_not_read(output, release_path)
    release = opened_release(release_path, allow_rehearsal)
    with working("thinning"):
        small = release.thin(n, weights=weights, rng=seed)
        small.write(output)
    say(f"wrote {output}: {n} of {len(release)} points, at RKHS distance {small.thinning_error:.3g}", err=True)
    if as_json:
        print_json({
            "output": output,
            "n_points": n,
            "weights": weights,
            "thinning_error": small.thinning_error,
            "fit_distance": small.fit_distance,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


@main.command(short_help="Every step, on data that ships here.")
@click.option(
    "--keep", type=click.Path(file_okay=False), help="Keep the files in this folder; by default they are removed."
)
@json_option
def demo(keep: str | None, as_json: bool) -> None:
    """Every step on data that ships with the package: publish, inspect, ask, test. Under a minute.

    Example: kmeanalyst demo --keep demo_files
    """
    from kmeanalyst.cli.demo import run_demo

    answers = run_demo(keep, as_json=as_json)
    if as_json:
        print_json(answers)


@main.command(short_help="Add columns computed from others.")
@release_argument
@click.argument("expressions", nargs=-1, required=True, metavar='"NAME = EXPRESSION"...')
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="OUT.kme", help="File to write.")
@click.option("--name", metavar="NAME", help="Name of the new column, for one expression without a name.")
@rehearsal_option
@json_option
def transform(
    release_path: str, expressions: tuple[str, ...], output: str, name: str | None, allow_rehearsal: bool, as_json: bool
) -> None:
    """Write a release with further columns, computed from those it has; each may use those before it.

    An expression without a name is named after its text. The measurement and the privacy guarantee are unchanged.

    \b
    Examples:
      kmeanalyst transform adult.kme 'yearly = `hours-per-week` * 52' --output adult_yearly.kme
      kmeanalyst transform adult.kme "log(age)" --name log_age --output adult_log.kme
    """
    from kmeanalyst.releases.derived import named_expressions

    if name is not None and len(expressions) > 1:
        raise click.UsageError(
            f"--name is for one expression, got {len(expressions)}. Write each as 'name = expression'."
        )
    check_not_read(output, release_path)
    named = named_expressions(expressions, name)
    release = opened_release(release_path, allow_rehearsal)
    with working("computing"):
        transformed = release.transform(named)
        transformed.write(output)
    new = transformed.derived[len(release.derived) :]
    for one in new:
        say(f"{one.column.name}: {one.describe()}", err=True)
    say(f"wrote {output}; the privacy guarantee is unchanged (post-processing)", err=True)
    if as_json:
        statement = release.statement
        print_json({
            "output": output,
            "derived": [one.to_dict() for one in new],
            "n_points": len(release),
            "epsilon": statement.epsilon if statement else None,
            "delta": statement.delta if statement else None,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


@main.command(short_help="Train a scikit-learn model.")
@release_argument
@click.option("--target", required=True, metavar="COLUMN", help="The column to predict.")
@click.option(
    "--estimator",
    metavar="NAME",
    help="A classifier or regressor of scikit-learn.  [default: LogisticRegression, or Ridge for numbers]",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of it; repeat for more.")
@click.option(
    "--columns", metavar="NAMES", help="What to predict from, separated by commas; by default all other columns."
)
@click.option(
    "--view",
    type=click.Choice(["signed", "probability", "resampled", "fitted"]),
    help="Weights to learn from; by default those that the estimator handles correctly.",
)
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="MODEL.skops", help="File to write.")
@click.option(
    "--test",
    "sample",
    type=click.Path(exists=True, dir_okay=False),
    metavar="SAMPLE",
    help="Real rows to score the model on: .csv or .parquet.",
)
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="Score of --test, as scikit-learn names it; repeat for more.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed of all randomness.")
@rehearsal_option
@json_option
def train(
    release_path: str, target: str, estimator: str | None, settings: tuple[str, ...], columns: str | None, view: Any,
    output: str, sample: str | None, metrics: tuple[str, ...], seed: int, allow_rehearsal: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train a scikit-learn model on a release, with the weights that the estimator handles correctly.

    The file holds no code; kmeanalyst.read_model loads it, and the model predicts on tables in natural units.

    \b
    Examples:
      kmeanalyst train adult.kme --target income --output model.skops --test my_sample.csv
      kmeanalyst train adult.kme --target age --estimator RandomForestRegressor --set n_estimators=300 --output age.skops
    """
    from kmeanalyst.cli.train import train

    check_not_read(output, release_path, sample)
    release = opened_release(release_path, allow_rehearsal)
    with working("training"):
        answer = train(
            release, target, output, estimator=estimator, settings=settings, columns=columns, view=view, sample=sample,
            metrics=metrics, seed=seed,
        )  # fmt: skip
    if as_json:
        print_json(answer.to_dict())
    else:
        say(str(answer))
    say(f"wrote {output}; it is read by kmeanalyst.read_model({answer.read_by})", err=True)
