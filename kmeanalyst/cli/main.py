"""The analyst's command line: parses, calls, prints. Heavy imports are inside the commands."""

from __future__ import annotations

from typing import Any

import click

from kmeanalyst.cli.arguments import (
    check_not_read,
    open_release,
    output_option,
    reading_choices,
    reading_options,
    release_argument,
)
from kmeanalyst.cli.compare import compare, independence, mmd_test_command
from kmeanalyst.cli.export import export_command
from kmeanalyst.cli.function import evaluate_command, show_function
from kmeanalyst.cli.plot import plot_command, report_command
from kmeanalyst.cli.questions import expect, glm_command, quantile, survival, table
from kmeanalyst.cli.terminal import ClearErrors, completion_help, json_option, print_json, say, show, working
from kmeanalyst.cli.train import train_command
from kmeanalyst.releases.texts import one_line


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
      kmeanalyst independence adult.kme age income
      kmeanalyst glm adult.kme "income ~ age + sex" --family binomial
      kmeanalyst mmd-test adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst plot adult.kme age --output age.png
      kmeanalyst report adult.kme --output adult.html
      kmeanalyst train adult.kme --target income --output model.skops
    """


@main.command(short_help="What a release is and guarantees.")
@release_argument
@reading_options
def info(release_path: str, as_json: bool) -> None:
    """Show what a release is and guarantees: rows, columns, rules, ε and δ, noise, weights.

    Example: kmeanalyst info adult.kme
    """
    from kmeanalyst.releases.file.limits import HoldsFunction
    from kmeanalyst.releases.rules.violations import violations_of

    try:
        release = open_release(release_path)
    except HoldsFunction:
        show_function(release_path, as_json)
        return
    if not as_json:
        say(repr(release))
        return
    statement, weights = release.statement, release.weights
    unbroken = {"share": None, "standard_deviation": None, "contradicted": False}
    broken = {
        one.rule: {
            "share": one.share,
            "standard_deviation": one.standard_deviation,
            "contradicted": one.is_contradicted,
        }
        for one in violations_of(release.domain, release.measurement)
    }
    print_json({
        "method": release.method, "weight_view": release.weight_view, "n_points": len(release),
        "n_rows": statement.n_rows if statement else None, "rehearsal": release.is_rehearsal,
        "n_features": release.measurement.feature_map.dimension if release.measurement else None,
        "sum_weights": float(weights.sum()), "sum_absolute_weights": float(abs(weights).sum()),
        "share_negative": float((weights < 0).mean()),
        "fit_distance": release.fit_distance, "residual_over_noise": release.residual_over_noise,
        "kernel": release.kernel.to_dict(), "statement": statement.to_dict() if statement else None,
        "columns": release.domain.to_dict(), "derived": [one.to_dict() for one in release.derived],
        "rules": [rule.to_dict() | {"broken": broken.get(i, unbroken)} for i, rule in enumerate(release.domain.rules)],
    })  # fmt: skip


@main.command(short_help="Recompute every claim that can be recomputed.")
@release_argument
@reading_options
@click.pass_context
def validate(ctx: click.Context, release_path: str, as_json: bool) -> None:
    """Recompute every claim in a file that can be recomputed; exit code 3 if one does not hold.

    Example: kmeanalyst validate adult.kme
    """
    from kmeanalyst.releases.file import validate_release

    with working("validating"):
        findings = validate_release(release_path, **reading_choices())
    found = f"{len(findings)} findings" if findings else "every claim that can be checked holds"
    text = "\n".join([*(f"finding: {finding}" for finding in findings), f"{one_line(release_path)}: {found}"])
    show(as_json, text, valid=not findings, findings=findings)
    if findings:
        ctx.exit(3)


@main.command(short_help="Keep N of the points.")
@release_argument
@click.argument("n", type=click.IntRange(min=1), metavar="N")
@output_option("OUT.kme")
@click.option(
    "--weights",
    default="probability",
    show_default=True,
    type=click.Choice(["probability", "uniform", "signed"]),
    help="Kind of weights: uniform gives 1/N to each.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0), help="Seed, for over 5000 points.")
@reading_options
def thin(release_path: str, n: int, output: str, weights: Any, seed: int, as_json: bool) -> None:
    """Keep N of the points, with weights that keep them as close to the whole release as possible.

    Example: kmeanalyst thin adult.kme 50 --output small.kme --weights uniform
    """
    check_not_read(output, release_path)
    release = open_release(release_path)
    with working("thinning"):
        small = release.thin(n, weights=weights, rng=seed)
        small.write(output)
    say(f"wrote {output}: {n} of {len(release)} points, at RKHS distance {small.thinning_error:.3g}", err=True)
    if as_json:
        print_json({
            "output": output, "n_points": n, "weights": weights, "thinning_error": small.thinning_error,
            "fit_distance": small.fit_distance, "rehearsal": release.is_rehearsal,
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
@output_option("OUT.kme")
@click.option("--name", metavar="NAME", help="Name of the new column, for one expression without a name.")
@reading_options
def transform(release_path: str, expressions: tuple[str, ...], output: str, name: str | None, as_json: bool) -> None:
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
    release = open_release(release_path)
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
            "output": output, "derived": [one.to_dict() for one in new], "n_points": len(release),
            "epsilon": statement.epsilon if statement else None, "delta": statement.delta if statement else None,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


for _command in (
    expect, quantile, table, glm_command, survival, independence, mmd_test_command, compare, export_command,
    plot_command, report_command, evaluate_command, train_command,
):  # fmt: skip
    main.add_command(_command)
