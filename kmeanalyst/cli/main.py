"""The analyst's command line: parses, calls, prints. Heavy imports are inside the commands."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click

from kmeanalyst.cli.arguments import (
    check_not_read,
    column_names,
    open_release,
    output_option,
    reading_choices,
    reading_options,
    release_argument,
)
from kmeanalyst.cli.claims import claims
from kmeanalyst.cli.compare import compare, independence, mmd_test_command
from kmeanalyst.cli.function import evaluate_command, show_function
from kmeanalyst.cli.glm import glm_command
from kmeanalyst.cli.plot import plot_command
from kmeanalyst.cli.questions import expect, quantile, survival, table
from kmeanalyst.cli.report import report_command
from kmeanalyst.cli.terminal import ClearErrors, completion_help, json_option, note, print_json, say, working
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
    statement = release.statement
    broken = {
        one.rule: {
            "share": one.share,
            "standard_deviation": one.standard_deviation,
            "contradicted": one.is_contradicted,
        }
        for one in violations_of(release.domain, release.measurement)
    }
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
        "quality": release.quality.to_dict() if release.quality else None,
        "rules": [
            rule.to_dict() | {"broken": broken.get(i, {"share": None, "standard_deviation": None, "contradicted": False})}
            for i, rule in enumerate(release.domain.rules)
        ],
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


@main.command(short_help="Write points and weights for other tools.")
@release_argument
@click.argument("output", type=click.Path(), metavar="OUT.{csv,parquet,nc}", required=False)
@click.option(
    "--view",
    default="signed",
    show_default=True,
    type=click.Choice(["signed", "probability", "resampled", "fitted"]),
    help="Weights as released, the nearest probability weights, rows of equal weight, or what answers are sums over.",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many rows, with --view resampled (by default all points) or --draws (by default those of the private table).",
)
@click.option("--seed", type=int, help="Seed of the resampling, or of draws; by default fresh each time.")
@click.option(
    "--draws",
    "n_draws",
    metavar="M",
    type=click.IntRange(min=2),
    help="OUT is a new folder: M tables that the private one may have been, for Rubin's rule (mice::pool in R, mi in Stata).",
)
@click.option(
    "--replicates",
    "n_replicates",
    metavar="R",
    type=click.IntRange(min=2),
    help="OUT is a new folder: rows with a weight and R replicate weights (svrepdesign in R, svyset in Stata); 100 or more.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="With --draws or --replicates: the columns that a regression is about, separated by commas; all by default.",
)
@click.option(
    "--keep-formulas", is_flag=True, help="Of .csv: no apostrophe before text cells that a spreadsheet would run."
)
@click.option(
    "--sdnist",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Instead of OUT: rows of equal weight and labels, in folder DIR, for the report of NIST's SDNist. It knows nothing but "
    "its own excerpts of the American Community Survey: other releases are refused.",
)
@reading_options
def export(
    release_path: str,
    output: str | None,
    view: Any,
    rows: int | None,
    seed: int | None,
    n_draws: int | None,
    n_replicates: int | None,
    columns: str | None,
    keep_formulas: bool,
    sdnist: str | None,
    as_json: bool,
) -> None:
    """Write the points and weights for other tools.

    In a .csv file a text cell that begins like a formula (=, +, -, @) gets an apostrophe in front, unless it is a number:
    a spreadsheet would run it. The file of a rehearsal has a column NOT_PRIVATE.

    With --sdnist DIR: FILE's name with .csv, as many rows as points unless --rows says otherwise, "N" where a cell is missing; the
    same with .json, labels (ε, δ, method, columns); and the command that makes NIST's report is printed.

    Points and weights by themselves have no valid error. With --draws or --replicates other programs get standard errors that
    include the noise, each by one rule, which README.txt (with code for R and Stata) and rule.json in the folder name.

    \b
    Examples:
      kmeanalyst export adult.kme rows.csv --view resampled --rows 10000
      kmeanalyst export adult.kme draws --draws 20
      kmeanalyst export adult.kme model --draws 20 --columns income,age,sex
      kmeanalyst export adult.kme weighted --replicates 100
    """
    from kmeanalyst.releases.file.export import export as write_export

    if (output is None) == (sdnist is None):
        raise click.UsageError("Name either OUT.{csv,parquet,nc} or --sdnist DIR.")
    if sdnist is not None:
        _export_sdnist(release_path, sdnist, view, rows, seed, as_json)
        return
    assert output is not None
    if n_draws is not None or n_replicates is not None:
        names = column_names(columns)
        _export_drawn(release_path, output, view, rows, seed, n_draws, n_replicates, names, keep_formulas, as_json)
        return
    if columns is not None:
        raise click.UsageError("--columns goes with --draws or --replicates: other files have all columns.")
    if Path(output).is_dir():
        raise click.BadParameter(f"{output} is a directory. Name a file.", param_hint="OUT")
    check_not_read(output, release_path)
    release = open_release(release_path)
    with working("writing"):
        frame = release.to_frame(view, rows=rows, rng=seed)
        defused = write_export(release, output, frame=frame, keep_formulas=keep_formulas)
    _note_defused(defused)
    if (view == "signed" and not release.is_probability) or frame["weight"].min() < 0:
        note("signed weights; most tools misread negative ones. --view probability or resampled has none.")
    say(f"wrote {output}", err=True)
    if as_json:
        print_json({
            "output": output, "view": view, "rows": len(frame), "defused_cells": defused,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


def _note_defused(defused: int) -> None:
    if defused:
        note(
            f"{defused} text cells begin like a formula, which a spreadsheet would run, and got an apostrophe in front. "
            "--keep-formulas leaves them as they are."
        )


def _export_drawn(
    release_path: str, folder: str, view: str, rows: int | None, seed: int | None, m: int | None, R: int | None,
    columns: list[str] | None, keep_formulas: bool, as_json: bool,
) -> None:  # fmt: skip
    """Draws of the table or replicate weights in a folder, with the rule that they are for."""
    from kmeanalyst.inference.draws.draws import FEWEST_REPLICATES, too_few
    from kmeanalyst.inference.draws.folder import write_draws, write_replicates

    if (m is not None and R is not None) or view != "signed":
        raise click.UsageError("--draws, --replicates and --view are for different rules: name one of them.")
    if R is not None and rows is not None:
        raise click.UsageError("--rows is for draws: replicate weights go with the rows that the release has.")
    release = open_release(release_path)
    if R is not None and R < FEWEST_REPLICATES:
        note(too_few(R))
    with working("drawing"):
        if m is not None:
            tables = release.draws(m, columns=columns, rows=rows, rng=seed)
            defused = write_draws(release, folder, tables, keep_formulas=keep_formulas)
            facts = {"draws": m, "rows": len(tables[0]), "rule": "Rubin"}
        else:
            assert R is not None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it was said
                frame = release.replicates(R, columns=columns, rng=seed)
            defused = write_replicates(release, folder, frame, keep_formulas=keep_formulas)
            facts = {"replicates": R, "rows": len(frame), "rule": "replicate weights"}
    _note_defused(defused)
    say(f"wrote {folder}: README.txt says by which rule standard errors are computed", err=True)
    if as_json:
        print_json({"output": folder, **facts, "defused_cells": defused, "rehearsal": release.is_rehearsal})


def _export_sdnist(
    release_path: str, folder: str, view: str, rows: int | None, seed: int | None, as_json: bool
) -> None:
    """Rows of equal weight and labels in a folder, and the command that makes the report."""
    from kmeanalyst.releases.file.export import SDNIST_COLUMNS, export_sdnist

    if view not in ("signed", "resampled"):
        raise click.UsageError("--sdnist writes rows of equal weight: leave --view out.")
    release, name = open_release(release_path), Path(release_path).stem
    with working("writing"):
        frame = release.to_frame("resampled", rows=rows, rng=seed)
        labels = export_sdnist(release, folder, name=name, frame=frame)
    left = [column for column in release.domain.names if column not in SDNIST_COLUMNS]
    if left:
        note(f"SDNist does not know these columns and leaves them out: {one_line(', '.join(left))}")
    table, own = Path(folder) / f"{name}.csv", Path(folder) / f"{name}.json"
    say(f"wrote {table} and {own}", err=True)
    target = labels.get("target dataset", "TARGET").removesuffix("2019").upper()
    if as_json:
        facts = {"rows": len(frame), "labels": labels, "rehearsal": release.is_rehearsal}
        print_json({"output": [str(table), str(own)], **facts})
    else:
        say(f"python -m sdnist.report {table} {target} --labels {own}")


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
            "output": output,
            "derived": [one.to_dict() for one in new],
            "n_points": len(release),
            "epsilon": statement.epsilon if statement else None,
            "delta": statement.delta if statement else None,
            "rehearsal": release.is_rehearsal,
        })  # fmt: skip


for _command in (
    expect, quantile, table, glm_command, claims, survival, independence, mmd_test_command, compare, plot_command,
    report_command, evaluate_command, train_command,
):  # fmt: skip
    main.add_command(_command)
