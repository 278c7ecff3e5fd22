"""The analyst's command line: parses, calls, prints. Heavy imports are inside the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli import arguments, outputs, questions
from kmeanalyst.cli.demo import run_demo
from kmeanalyst.cli.terminal import argument, command, json_option, note, option, program, say, show, working
from kmeanalyst.cli.train import train_command
from kmeanalyst.releases.texts import one_line, shown

if TYPE_CHECKING:
    from kmeanalyst.release import Release
    from kmeanalyst.releases.function import ReleasedFunction


@program("kmeanalyst")
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
      kmeanalyst combine adult.kme my_sample.csv "age" "age > 50"
      kmeanalyst plot adult.kme age --output age.png
      kmeanalyst report adult.kme --output adult.html
      kmeanalyst methods adult.kme
      kmeanalyst train adult.kme --target income --output model.skops
    """


@command("info", "What a release is and guarantees.", arguments.release_argument, *arguments.reading_options)
def info(release_path: str, as_json: bool, **reading: bool) -> None:
    """Show what a release is and guarantees: rows, columns, rules, ε and δ, noise, weights.

    Example: kmeanalyst info adult.kme
    """
    from kmeanalyst.releases.file.limits import HoldsFunction

    try:
        release = arguments.open_release(release_path)
    except HoldsFunction:
        released = arguments.open_function(release_path)
        show(as_json, repr(released), _facts_of_function(released))
    else:
        show(as_json, repr(release), _facts(release) if as_json else {})


def _facts(release: Release) -> dict[str, Any]:
    from kmeanalyst.releases.rules.violations import violations_of

    statement, weights = release.statement, release.weights
    unbroken = {"share": None, "standard_deviation": None, "contradicted": False}
    broken = {
        one.rule: dict(zip(unbroken, (one.share, one.standard_deviation, one.is_contradicted), strict=True))
        for one in violations_of(release.domain, release.measurement)
    }
    return {
        "method": release.method, "weight_view": release.weight_view, "n_points": len(release),
        "n_rows": statement.n_rows if statement else None, "rehearsal": release.is_rehearsal,
        "n_features": release.measurement.feature_map.dimension if release.measurement else None,
        "sum_weights": float(weights.sum()), "sum_absolute_weights": float(abs(weights).sum()),
        "share_negative": float((weights < 0).mean()),
        "fit_distance": release.fit_distance, "residual_over_noise": release.residual_over_noise,
        "kernel": release.kernel.to_dict(), "statement": statement.to_dict() if statement else None,
        "mu": getattr(statement, "mu", None), "columns": release.domain.to_dict(),
        "derived": [one.to_dict() for one in release.derived],
        "rules": [rule.to_dict() | {"broken": broken.get(i, unbroken)} for i, rule in enumerate(release.domain.rules)],
    }  # fmt: skip


def _facts_of_function(function: ReleasedFunction) -> dict[str, Any]:
    return {
        "method": "function", **function.form.to_dict(), "n_pivots": function.basis.dimension,
        "n_rows": function.statement.n_rows, "rehearsal": function.is_rehearsal,
        "kernel": function.basis.kernel.to_dict(), "statement": function.statement.to_dict(),
        "columns": function.domain.to_dict(),
    }  # fmt: skip


@command("validate", "Recompute every claim that can be recomputed.", arguments.release_argument, *arguments.reading_options)
@click.pass_context
def validate(ctx: click.Context, release_path: str, as_json: bool, **reading: bool) -> None:
    """Recompute every claim in a file that can be recomputed; exit code 3 if one does not hold.

    Example: kmeanalyst validate adult.kme
    """
    from kmeanalyst.releases.file import validate_release

    with working("validating"):
        findings = validate_release(release_path, **reading)
    found = f"{len(findings)} findings" if findings else "every claim that can be checked holds"
    text = "\n".join([*(f"finding: {finding}" for finding in findings), f"{one_line(shown(release_path))}: {found}"])
    show(as_json, text, {"valid": not findings, "findings": findings})
    if findings:
        ctx.exit(3)


@command(
    "import", "Make a release from noisy tables that others published.", argument("tables_path", "TABLES.toml"),
    arguments.output_option("OUT.kme"), json_option,
)  # fmt: skip
def import_command(tables_path: str, output: str, as_json: bool) -> None:
    """Make a release from noisy tables that others published, which answers questions with errors as one of ours does.

    \b
    TABLES.toml names a domain file and, for each table, a file of its cells with a column count or share:
      domain = "domain.toml"
      n_rows = 6000                    # where it is known
      declared_by = "the census bureau"   # and epsilon, delta, where they are
      [[table]]
      file = "age_by_sex.csv"          # CSV or Parquet
      noise = "laplace"                # gaussian, laplace, discrete gaussian, discrete laplace, geometric
      scale = 10.0                     # or a column standard_error or variance; or exact = true

    Example: kmeanalyst import tables.toml --output bureau.kme
    """
    from kmeanalyst.release.measured_by_others import import_tables

    arguments.check_not_read(output, tables_path)
    with working("drawing rows") as on_progress:
        release = import_tables(tables_path, on_progress)
        release.write(output)
    said = release.statement
    assert said is not None
    for text in (said.claim, *said.notes):
        note(text)
    say(f"wrote {output}: {len(release):,} rows that fit tables of {said.n_rows:,}", err=True)
    if as_json:
        show(as_json, None, {"output": output, "n_points": len(release), "statement": said.to_dict()})


@command(
    "demo", "Every step, on data that ships here.",
    option("--keep", "Keep the files in this folder; by default they are removed.", "folder"), json_option,
)  # fmt: skip
def demo(keep: str | None, as_json: bool) -> None:
    """Every step on data that ships with the package: publish, inspect, ask, test. Under a minute.

    Example: kmeanalyst demo --keep demo_files
    """
    show(as_json, None, run_demo(keep, as_json=as_json))


@arguments.on_release(
    "transform", "Add columns computed from others.",
    argument("expressions", '"NAME = EXPRESSION"...', None, nargs=-1, required=True), arguments.output_option("OUT.kme"),
    work="computing",
)  # fmt: skip
def transform(release: Release, expressions: tuple[str, ...], output: str) -> arguments.Answer:
    """Write a release with further columns, computed from those it has; each may use those before it.

    An expression without a name is named after its text. The measurement and the privacy guarantee are unchanged.

    \b
    Examples:
      kmeanalyst transform adult.kme 'yearly = `hours-per-week` * 52' --output adult_yearly.kme
      kmeanalyst transform adult.kme "log(age)" --output adult_log.kme
    """
    from kmeanalyst.releases.derived import named_expressions

    transformed = release.transform(named_expressions(expressions))
    transformed.write(output)
    new = transformed.derived[len(release.derived) :]
    for one in new:
        say(f"{one.column.name}: {one.describe()}", err=True)
    say(f"wrote {output}; the privacy guarantee is unchanged (post-processing)", err=True)
    statement = release.statement
    return None, lambda: {
        "output": output, "derived": [one.to_dict() for one in new], "n_points": len(release),
        "epsilon": statement.epsilon if statement else None, "delta": statement.delta if statement else None,
    }  # fmt: skip


@command(
    "evaluate", "Evaluate a released function at your points.", arguments.release_argument, argument("points", "POINTS"),
    *arguments.reading_options,
)  # fmt: skip
def evaluate_command(release_path: str, points: str, as_json: bool, **reading: bool) -> None:
    """Evaluate a released function at the rows of POINTS (a table as of mmd-test): values, with their errors.

    \b
    Columns:
      value           the function, conditioned on its noisy values at the pivots
      standard_error  of the privacy noise, exact
      unseen          bound on the error that the pivots do not determine; not random
      prediction      of ridge, logistic and svm; logistic has the probability of the second class too

    Example: kmeanalyst evaluate ill.kme points.csv --json
    """
    from kmeanalyst.sources.tables import read_table

    function = arguments.open_function(release_path)
    table = read_table(points, function.domain)
    _, counts = function.domain.encode_counted(table)
    counts.check(function.domain)
    for text in (notes := counts.notes()):
        note(text)
    with working("evaluating"):
        answers: Any = function.evaluate(table)
        if function.form.target is not None:
            answers["prediction"] = function.predict(table)
        if hasattr(function, "predict_proba"):
            answers["probability"] = function.predict_proba(table)[:, 1]
    statement = function.statement
    show(as_json, answers.to_string(index=False, float_format=lambda number: f"{number:.6g}"), {
        "kind": function.kind, "epsilon": statement.epsilon, "delta": statement.delta, "notes": notes,
        "rehearsal": function.is_rehearsal, "points": answers.to_dict("records"),
    })  # fmt: skip


for _command in (
    info, validate, import_command, demo, transform, evaluate_command, train_command, questions.expect, questions.quantile,
    questions.table, questions.glm_command, questions.survival, questions.independence, questions.mmd_test_command,
    questions.compare, questions.combine, outputs.export_command, outputs.plot_command, outputs.report_command,
    outputs.methods_command,
):  # fmt: skip
    main.add_command(_command)
