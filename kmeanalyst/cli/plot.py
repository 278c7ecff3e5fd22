"""`kmeanalyst plot`: parses, calls `kmeanalyst.plots`, writes a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import (
    check_not_read,
    coverage_option,
    from_option,
    open_release,
    output_option,
    reading_options,
    release_argument,
    sample_named,
    view_option,
)
from kmeanalyst.cli.terminal import note, print_json, say, working

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from kmeanalyst.release import Release

_OF_ONE = ("histogram", "density", "cdf")


@click.command("plot", short_help="Draw columns with the errors of all numbers.")
@release_argument
@click.argument("columns", nargs=-1, required=True, metavar="COLUMN [COLUMN]...")
@output_option("FIG.png", "File to write: .png, .pdf, .svg.")
@click.option("--kind", type=click.Choice(_OF_ONE), help="Drawing of one column.  [default: histogram]")
@click.option("--bins", type=click.IntRange(min=1), help="Number of equal ranges of a histogram of numbers.")
@click.option("--where", help="Only rows for which this condition holds.")
@click.option(
    "--sample", "sample_path", metavar="SAMPLE", help="Your own rows, a table as of mmd-test, to draw over one column."
)
@from_option
@view_option
@coverage_option
@reading_options
def plot_command(
    release_path: str, columns: tuple[str, ...], output: str, kind: str | None, bins: int | None, where: str | None,
    sample_path: str | None, from_table: str | None, view: Any, level: float, as_json: bool,
) -> None:  # fmt: skip
    """Draw a column's distribution, the table of two columns, or each pair of up to six, with the errors of all numbers.

    Whiskers, bands and hatching are intervals at --level; the caption says N, ε, δ and the weights. Series differ in line
    and marker as well as in colour.

    \b
    Examples:
      kmeanalyst plot adult.kme age --output age.png
      kmeanalyst plot adult.kme age --kind density --sample my_sample.csv --output age.pdf
      kmeanalyst plot adult.kme income --where "sex == 'Female'" --output income.png
      kmeanalyst plot adult.kme age income --output table.png
      kmeanalyst plot adult.kme age hours-per-week sex income --output pairs.png
    """
    from kmeanalyst.plots.style import format_of, save

    _check_options(len(columns), kind, bins, sample_path)
    format_of(output)  # before any work
    check_not_read(output, release_path, sample_path)
    release = open_release(release_path)
    sample, notes = _sample(release, sample_path, from_table)
    kind = kind or "histogram" if len(columns) == 1 else "table" if len(columns) == 2 else "pairs"
    asked: dict[str, Any] = {"where": where, "view": view, "level": level}
    if bins is not None:
        asked["bins"] = bins
    if sample is not None:
        asked["sample"] = sample
    with working("drawing"):
        figure = _draw(release, kind, columns, asked)
        save(figure, output)
    for text in notes:
        note(text)
    say(f"wrote {output}", err=True)
    if as_json:
        from kmeanalyst.inference.estimate.population import default_view

        statement = release.statement
        print_json({
            "output": output, "kind": kind, "columns": columns, "where": where, "level": level,
            "view": view or default_view(release),
            "n_rows": statement.n_rows if statement else None, "epsilon": statement.epsilon if statement else None,
            "delta": statement.delta if statement else None, "n_sample_rows": None if sample is None else len(sample),
            "notes": notes, "rehearsal": release.is_rehearsal,
        })  # fmt: skip


def _check_options(n_columns: int, kind: str | None, bins: int | None, sample_path: str | None) -> None:
    """Raise UsageError for an option that this drawing does not take."""
    of_one = {"--kind": kind, "--bins": bins, "--sample": sample_path}
    given = [name for name, value in of_one.items() if value is not None]
    if n_columns > 1 and given:
        raise click.UsageError(
            f"{given[0]} is for the drawing of one column, got {n_columns} columns. Name one, or leave it out."
        )
    if bins is not None and kind not in (None, "histogram"):
        raise click.UsageError(f"--bins is for histograms, and a {kind} has no ranges. Leave one of them out.")


def _draw(release: Release, kind: str, columns: tuple[str, ...], asked: dict[str, Any]) -> Figure:
    """The figure, made without pyplot: figures that the process has open stay as they are."""
    from kmeanalyst import plots
    from kmeanalyst.plots.distributions import size_of_histogram
    from kmeanalyst.plots.joint import SIZE_OF_TABLE, check_pairs, size_of_pairs
    from kmeanalyst.plots.style import SIZE, new_figure

    if kind == "pairs":
        check_pairs(release, columns)
        figure = new_figure(size_of_pairs(len(columns)))
        plots.pairs(release, columns, **asked, axes=figure.subplots(len(columns), len(columns), squeeze=False))
        return figure
    size = {"histogram": size_of_histogram(release.columns[columns[0]]), "table": SIZE_OF_TABLE}.get(kind, SIZE)
    figure = new_figure(size)
    getattr(plots, kind)(release, *columns, **asked, ax=figure.add_subplot())
    return figure


def _sample(release: Release, path: str | None, from_table: str | None) -> tuple[pd.DataFrame | None, list[str]]:
    """The rows to draw over the release, and notes on their cells."""
    from kmeanalyst.plots.overlay import as_release
    from kmeanalyst.sources.tables import read_table

    source = sample_named(path, from_table)
    if source is None:
        return None, []
    table = read_table(source, release.domain)
    return table, as_release(release, table)[1]
