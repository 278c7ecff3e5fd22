"""`release-side quality` and `check-source`: what is for the curator's eyes goes to files, and their names alone are printed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmeanalyst.cli.terminal import argument, command, flag, json_option, option, say, show, working
from kmeanalyst.releases.texts import aligned, one_line
from release_side.choices.internal_files import check_internal_outputs
from release_side.cli.publication import DOMAIN, FROM, PRIVATE, note_ignored
from release_side.errors import PublishError

if TYPE_CHECKING:
    from kmeanalyst.releases.domain.domain import Domain
    from release_side.private_rows.table import PrivateTable


@command(
    "quality", "Compare a release with its table, for your eyes only.", argument("release_path", "FILE.kme"), PRIVATE, FROM,
    option(
        "--output", "The page to write, with .internal in its name: it is of the curator alone (mode 0600).", "file",
        required=True, metavar="X.internal.html",
    ),
    option("--json json_output", "Write the page's numbers to this file as well.", "file", metavar="X.internal.json"),
    option("--group", "A column to divide the table by: scores for each of its groups.", metavar="COLUMN"),
    option(
        "--target", "The column that models predict; by default the last one of few levels.",
        metavar="COLUMN",
    ),
    option(
        "--workload",
        "The questions to compare, one on each line, as in publish; by default 50 that are drawn from the domain.", "file",
        metavar="FILE",
    ),
    flag("--allow-rehearsal", "Read a FILE.kme stamped NOT PRIVATE too (a rehearsal)."),
)  # fmt: skip
def quality_command(
    release_path: str, private: str, from_table: str | None, output: str, json_output: str | None, allow_rehearsal: bool,
    **choices: Any,
) -> None:  # fmt: skip
    """Compare the release FILE.kme with the PRIVATE table that it was made of, on one internal page.

    The page and its JSON hold exact numbers of private rows: they are not for publication, and what is decided from them
    (publish or not, which of several draws, which options next) is covered by no ε. To choose, use release-side plan or the
    release itself. Nothing but the names of the files is printed.

    \b
    Examples:
      release-side quality table.kme private.csv --output table.internal.html
      release-side quality table.kme private.csv --output table.internal.html --json table.internal.json \\
          --group ill --target ill
    """
    from kmeanalyst.release import read_release
    from release_side.private_rows.rows import open_private, table_or_path
    from release_side.quality.page import write_quality
    from release_side.quality.quality import quality

    table = open_private(table_or_path(private, from_table))
    check_internal_outputs((output, json_output), private=table, others=(release_path, choices["workload"]))
    try:
        release = read_release(release_path, allow_rehearsal=allow_rehearsal)
    except ValueError as error:  # of the file alone, which is to be published
        raise PublishError(str(error)) from None
    with working("comparing") as progress:
        page = quality(release, table, source=release_path, progress=progress, **choices)
    write_quality(page, output, json_output)
    say("\n".join(f"wrote {path}" for path in (output, json_output) if path is not None))


@command(
    "check-source", "Check a table's columns and types; reads no row.", argument("source", "SOURCE"), DOMAIN, FROM,
    option("--unit", "The column that will identify units, as in publish.", metavar="COLUMN"),
    flag("--internal", "For your eyes only: read all rows, and write how each column's cells are read."),
    option(
        "--output", "The page of --internal, with .internal in its name (mode 0600), and .json beside it; cells.internal.html by "
        "default.", "file", metavar="X.internal.html",
    ),
    json_option,
)  # fmt: skip
def check_source_command(
    source: str, domain_path: str, from_table: str | None, unit: str | None, internal: bool, output: str | None, as_json: bool
) -> None:  # fmt: skip
    """Check that publish can read SOURCE (a file, a directory, a glob or a URL, as in publish) by this domain.

    With --from, SOURCE is a database (postgresql: or a .duckdb file).

    Reads names and declared types of the columns, and no row. A cell of a CSV file is text, which every column can read.
    The exit code is 1 if publish would refuse the table, and the message says why.

    A cell that is not a value of its column becomes its default, in silence: dates as 18.05.2024, sex as 1 and 2. --internal reads
    every row and writes, per column, how many cells are unread, out of bounds or missing, with the commonest of their texts:
    exact numbers of private rows, not for publication, as those of release-side quality. It prints the files' names alone.

    \b
    Examples:
      release-side check-source private.csv --domain domain.toml
      release-side check-source private.csv --domain domain.toml --internal --output cells.internal.html
      release-side check-source postgresql: --from health.visits --domain domain.toml
    """
    from kmeanalyst.releases.domain.domain import read_domain
    from release_side.private_rows.rows import open_private, table_or_path

    domain, table = read_domain(domain_path), open_private(table_or_path(source, from_table))
    header = table.header
    wanted = [(name, domain[name].kind) for name in domain.names_read] + ([] if unit is None else [(unit, "unit")])
    columns: list[dict[str, Any]] = [
        {"name": name, "kind": kind, "type": table.type_of(name) if name in header else None} for name, kind in wanted
    ]
    lines = [tuple(one_line(str(cell or "absent")) for cell in column.values()) for column in columns]
    text = "\n".join(aligned([("column", "kind", "type"), *lines], left=(0, 1, 2)))
    show(as_json, text, {"source": source, "columns": columns})
    note_ignored(table, domain, unit)
    if output is not None and not internal:
        raise PublishError("--output names the page of --internal. Add --internal, or leave it out.")
    if internal:
        _write_cells(table, domain, Path(output or "cells.internal.html"), source, domain_path)


def _write_cells(table: PrivateTable, domain: Domain, page: Path, source: str, domain_path: str) -> None:
    from release_side.quality.cells_read import cells_read
    from release_side.quality.page import write_cells

    numbers = page.with_suffix(".json")
    check_internal_outputs((page, numbers), private=table, others=(domain_path,))
    with working("reading cells"):
        cells = cells_read(table, domain)
    write_cells(cells, source, page, numbers)
    say(f"wrote {page}\nwrote {numbers}", err=True)
