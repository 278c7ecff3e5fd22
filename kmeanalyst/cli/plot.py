"""`kmeanalyst plot` and `report`: they write a figure, or a page for a colleague."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import (
    Answer,
    column_names,
    coverage_option,
    from_option,
    on_release,
    output_option,
    sample_named,
    view_option,
)
from kmeanalyst.cli.terminal import OnProgress, argument, note, option, say

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from kmeanalyst.release import Release

_OF_ONE = ("histogram", "density", "cdf")


def _check(
    columns: tuple[str, ...], output: str, kind: str | None, bins: int | None, sample_path: str | None, **_: Any
) -> None:
    of_one = {"--kind": kind, "--bins": bins, "--sample": sample_path}
    given = [name for name, value in of_one.items() if value is not None]
    if len(columns) > 1 and given:
        raise click.UsageError(
            f"{given[0]} is for the drawing of one column, got {len(columns)} columns. Name one, or leave it out."
        )
    if bins is not None and kind not in (None, "histogram"):
        raise click.UsageError(f"--bins is for histograms, and a {kind} has no ranges. Leave one of them out.")
    from kmeanalyst.plots.style import format_of

    format_of(output)


@on_release(
    "plot", "Draw columns with the errors of all numbers.",
    argument("columns", "COLUMN [COLUMN]...", None, nargs=-1, required=True),
    output_option("FIG.png", "File to write: .png, .pdf, .svg."),
    option("--kind", "Drawing of one column.  [default: histogram]", _OF_ONE),
    option("--bins", "Number of equal ranges of a histogram of numbers.", click.IntRange(min=1)),
    option("--where", "Only rows for which this condition holds."),
    option("--sample sample_path", "Your own rows, a table as of mmd-test, to draw over one column.", metavar="SAMPLE"),
    from_option, view_option, coverage_option, work="drawing", check=_check,
)  # fmt: skip
def plot_command(
    release: Release, columns: tuple[str, ...], output: str, kind: str | None, bins: int | None, sample_path: str | None,
    from_table: str | None, **asked: Any,
) -> Answer:  # fmt: skip
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
    from kmeanalyst.inference.estimate.population import default_view
    from kmeanalyst.plots.style import save

    sample, notes = _sample(release, sample_path, from_table)
    kind = kind or "histogram" if len(columns) == 1 else "table" if len(columns) == 2 else "pairs"
    given = {name: value for name, value in {"bins": bins, "sample": sample}.items() if value is not None}
    save(_draw(release, kind, columns, asked | given), output)
    for text in notes:
        note(text)
    say(f"wrote {output}", err=True)
    statement = release.statement
    return None, lambda: {
        "output": output, "kind": kind, "columns": columns, "where": asked["where"], "level": asked["level"],
        "view": asked["view"] or default_view(release),
        "n_rows": statement.n_rows if statement else None, "epsilon": statement.epsilon if statement else None,
        "delta": statement.delta if statement else None, "n_sample_rows": None if sample is None else len(sample),
        "notes": notes,
    }  # fmt: skip


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
    from kmeanalyst.plots.smooth import as_release
    from kmeanalyst.sources.tables import read_table

    source = sample_named(path, from_table)
    if source is None:
        return None, []
    table = read_table(source, release.domain)
    return table, as_release(release, table)[1]


@on_release(
    "report", "Write one page for a colleague.", output_option("REPORT.html"),
    option("--columns", "Columns to show, separated by commas; the first 60 by default."), view_option,
    work="writing the report",
)  # fmt: skip
def report_command(
    release: Release, path: str, output: str, columns: str | None, view: Any, on_progress: OnProgress
) -> Answer:
    """Write one page for a colleague: what a release guarantees, shows and cannot show.

    The page needs no network: distributions with noise bands, pairs of columns, warnings, further commands, and how to
    cite, in one HTML file that also prints.

    \b
    Examples:
      kmeanalyst report adult.kme --output adult.html
      kmeanalyst report adult.kme --columns age,income,hours-per-week --output short.html
    """
    from kmeanalyst.report import write_report
    from kmeanalyst.report.caveats import warnings_of

    facts = write_report(release, output, source=path, columns=column_names(columns), view=view, progress=on_progress)
    size = Path(output).stat().st_size
    say(f"wrote {output}: {len(facts.columns)} columns, {len(facts.pairs)} pairs, {size / 1000:,.0f} kB", err=True)
    return None, lambda: {
        "output": output, "bytes": size, "source": facts.source, "sha256": facts.sha256,
        "rehearsal": release.is_rehearsal, "view": facts.view,
        "columns": [one.to_dict() for one in facts.columns], "pairs": [pair.to_dict() for pair in facts.pairs],
        "warnings": [vars(one) for one in warnings_of(facts)],
    }  # fmt: skip
