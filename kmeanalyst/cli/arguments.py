"""What commands share: the argument FILE.kme and common options, and how the files that they name are opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import OnProgress, json_option, note
from kmeanalyst.releases.texts import one_line

if TYPE_CHECKING:
    from kmeanalyst.kernels.base import Array
    from kmeanalyst.release import Release
    from kmeanalyst.releases.domain.domain import Domain, SampleCounts
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.sources.source import ArrowSource

Command = Callable[..., Any]
release_argument = click.argument("release_path", metavar="FILE.kme", type=click.Path())
sample_argument = click.argument("sample_path", metavar="SAMPLE", type=click.Path())
view_option = click.option(
    "--view",
    type=click.Choice(["signed", "probability", "fitted"]),
    help="fitted: the best answers (default where something was measured). signed, probability: the released points.",
)
from_option = click.option(
    "--from",
    "from_table",
    metavar="TABLE",
    help="The table or view (TABLE or SCHEMA.TABLE) of the database that SAMPLE is: postgresql:, with PGSERVICE or libpq's other "
    "settings, or a .duckdb file.",
)
_READING = "kmeanalyst.reading"


def output_option(metavar: str, text: str = "File to write.") -> Callable[[Command], Command]:
    """The required option --output."""
    return click.option("--output", required=True, type=click.Path(dir_okay=False), metavar=metavar, help=text)


def level_option(default: float, text: str) -> Callable[[Command], Command]:
    """The option --level, between 0 and 1."""
    kind = click.FloatRange(0, 1, min_open=True, max_open=True)
    return click.option("--level", default=default, show_default=True, type=kind, help=text)


coverage_option = level_option(0.95, "Coverage of the intervals.")


def _reading_option(name: str, text: str) -> Callable[[Command], Command]:
    """A flag that no command receives: `reading_choices` looks it up."""

    def remember(context: click.Context, option: click.Parameter, value: bool) -> None:
        context.meta.setdefault(_READING, {})[option.name] = value

    return click.option(name, is_flag=True, expose_value=False, callback=remember, help=text)


def reading_options(command: Command) -> Command:
    """The options of every command that reads a .kme file: --allow-rehearsal, --large and --json."""
    for option in (
        json_option,
        _reading_option("--large", "Read files beyond the usual limits too: they may take minutes and gigabytes."),
        _reading_option("--allow-rehearsal", "Read files stamped NOT PRIVATE too (rehearsals)."),
    ):
        command = option(command)
    return command


def reading_choices() -> dict[str, bool]:
    """allow_rehearsal and large, as the user of the running command chose."""
    return click.get_current_context().meta[_READING]


def check_not_read(output: str, *sources: str | None) -> None:
    """Raise ValueError if the output would replace a file that the command reads."""
    for source in sources:
        if (
            source is not None
            and os.path.exists(output)
            and os.path.exists(source)
            and os.path.samefile(output, source)
        ):
            raise ValueError(f"{output} is a file that is read, and writing would replace it. Name a new file.")


def open_release(path: str) -> Release:
    """The release in a file, with a note where it is a rehearsal."""
    from kmeanalyst.release import read_release

    release = read_release(path, **reading_choices())
    _note_if_rehearsed(path, release)
    return release


def open_function(path: str) -> ReleasedFunction:
    """The released function in a file, with a note where it is a rehearsal."""
    from kmeanalyst.releases.file import read_function

    function = read_function(path, **reading_choices())
    _note_if_rehearsed(path, function)
    return function


def _note_if_rehearsed(path: str, released: Release | ReleasedFunction) -> None:
    if released.is_rehearsal:
        note(f"{one_line(path)} is a rehearsal and NOT PRIVATE; show it only to those who may see the table")


def column_names(text: str | None) -> list[str] | None:
    """Names of columns separated by commas; None where none are given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def sample_named(path: str | None, from_table: str | None) -> str | ArrowSource | None:
    """What a command reads as SAMPLE: a path, a table of a database, or nothing; ValueError for half of a database's table."""
    from kmeanalyst.sources.sql import is_database, sql

    if from_table is None:
        return path
    if path is None or not is_database(path):
        raise ValueError(
            "--from names a table of a database, and SAMPLE is none. Name postgresql: or a .duckdb file, or leave --from out."
        )
    return sql(path, from_table)


class RowsWithProgress:
    """A table in blocks, as mmd_test takes it; each block reports the progress.

    The number of rows is known after the first pass; until then only the number read is reported.
    """

    read_once = False

    def __init__(self, source: str | ArrowSource | None, on_progress: OnProgress) -> None:
        from kmeanalyst.sources.tables import table_of

        self._table, self._on_progress = table_of(source), on_progress
        self._rows: int | None = None

    def encoded(self, domain: Domain) -> Iterator[tuple[Array, SampleCounts]]:
        assert self._table is not None  # for all that commands name
        seen = 0
        for rows, counts in self._table.encoded(domain):
            seen += len(rows)
            self._on_progress(f"testing {seen:,} rows", seen / self._rows if self._rows else None)
            yield rows, counts
        self._rows = seen
