"""`release-side check-source`: a table's header and types against a domain, without reading a row."""

from __future__ import annotations

from typing import Any

import click

from kmeanalyst.cli.terminal import json_option, print_json, say
from kmeanalyst.releases.texts import one_line
from release_side.cli.publication import DOMAIN, FROM, aligned


@click.command("check-source", short_help="Check a table's columns and types; reads no row.")
@click.argument("source", metavar="SOURCE", type=click.Path())
@DOMAIN
@FROM
@click.option("--unit", metavar="COLUMN", help="The column that will identify units, as in publish.")
@json_option
def check_source_command(
    source: str, domain_path: str, from_table: str | None, unit: str | None, as_json: bool
) -> None:
    """Check that publish can read SOURCE (a file, a directory, a glob or a URL, as in publish) by this domain.

    With --from, SOURCE is a database (postgresql: or a .duckdb file).

    Reads names and declared types of the columns, and no row. A cell of a CSV file is text, which every column can read.
    The exit code is 1 if publish would refuse the table, and the message says why.

    \b
    Examples:
      release-side check-source private.csv --domain domain.toml
      release-side check-source postgresql: --from health.visits --domain domain.toml
    """
    from kmeanalyst.releases.domain.domain import read_domain
    from release_side.private_rows.reading import check_unit
    from release_side.private_rows.rows import open_private, table_or_path

    domain, table = read_domain(domain_path), open_private(table_or_path(source, from_table))
    header = table.header
    wanted = [(name, domain[name].kind) for name in domain.names_read] + ([] if unit is None else [(unit, "unit")])
    columns: list[dict[str, Any]] = [
        {"name": name, "kind": kind, "type": table.type_of(name) if name in header else None} for name, kind in wanted
    ]
    if as_json:
        print_json({"source": source, "columns": columns})
    else:
        lines = [tuple(one_line(str(cell or "absent")) for cell in each.values()) for each in columns]
        say("\n".join(aligned([("column", "kind", "type"), *lines], texts=(0, 1, 2))))
    ignored = [one_line(name) for name in table.check_columns(domain) if name != unit]
    if unit is not None:
        check_unit(table, unit, domain)
    if ignored:
        say(f"note: columns not in the domain are ignored: {', '.join(ignored)}", err=True)
