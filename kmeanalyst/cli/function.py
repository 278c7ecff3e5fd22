"""`kmeanalyst evaluate`, and what `kmeanalyst info` prints of a released function: parses, calls, prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import open_function, reading_options
from kmeanalyst.cli.terminal import note, show, working

if TYPE_CHECKING:
    import pandas as pd

    from kmeanalyst.releases.function import ReleasedFunction


def show_function(path: str, as_json: bool) -> None:
    """What `kmeanalyst info` prints of a function."""
    function = open_function(path)
    show(
        as_json, repr(function), method="function", **function.form.to_dict(), n_pivots=function.basis.dimension,
        n_rows=function.statement.n_rows, rehearsal=function.is_rehearsal, kernel=function.basis.kernel.to_dict(),
        statement=function.statement.to_dict(), columns=function.domain.to_dict(),
    )  # fmt: skip


@click.command("evaluate", short_help="Evaluate a released function at your points.")
@click.argument("function_path", metavar="FILE.kme", type=click.Path())
@click.argument("points", metavar="POINTS", type=click.Path())
@reading_options
def evaluate_command(function_path: str, points: str, as_json: bool) -> None:
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

    function = open_function(function_path)
    table = read_table(points, function.domain)
    _, notes = function.domain.encode_sample(table)
    for text in notes:
        note(text)
    with working("evaluating"):
        answers = _answers(function, table)
    statement = function.statement
    show(
        as_json, answers.to_string(index=False, float_format=lambda number: f"{number:.6g}"), kind=function.kind,
        epsilon=statement.epsilon, delta=statement.delta, notes=notes, rehearsal=function.is_rehearsal,
        points=answers.to_dict("records"),
    )  # fmt: skip


def _answers(function: ReleasedFunction, table: pd.DataFrame) -> pd.DataFrame:
    answers: Any = function.evaluate(table)
    if function.form.target is not None:
        answers = answers.assign(prediction=function.predict(table))
    if hasattr(function, "predict_proba"):
        answers = answers.assign(probability=function.predict_proba(table)[:, 1])
    return answers
