"""`kmeanalyst report`: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kmeanalyst.cli.arguments import (
    check_not_read,
    column_names,
    open_release,
    output_option,
    reading_options,
    release_argument,
    view_option,
)
from kmeanalyst.cli.terminal import print_json, say, working


@click.command("report", short_help="Write one page for a colleague.")
@release_argument
@output_option("REPORT.html")
@click.option("--columns", help="Columns to show, separated by commas; the first 60 by default.")
@view_option
@reading_options
def report_command(release_path: str, output: str, columns: str | None, view: Any, as_json: bool) -> None:
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

    check_not_read(output, release_path)
    release = open_release(release_path)
    with working("writing the report") as on_progress:
        facts = write_report(
            release, output, source=release_path, columns=column_names(columns), view=view, progress=on_progress
        )
    size = Path(output).stat().st_size
    say(f"wrote {output}: {len(facts.columns)} columns, {len(facts.pairs)} pairs, {size / 1000:,.0f} kB", err=True)
    if as_json:
        print_json({
            "output": output,
            "bytes": size,
            "source": facts.source,
            "sha256": facts.sha256,
            "rehearsal": release.is_rehearsal,
            "view": facts.view,
            "columns": [one.to_dict() for one in facts.columns],
            "pairs": [pair.to_dict() for pair in facts.pairs],
            "warnings": [vars(one) for one in warnings_of(facts)],
        })  # fmt: skip
