"""What commands share: the argument FILE.kme and common options, and how the files that they name are opened."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import Command, Part, argument, command, flag, json_option, note, option, show, working
from kmeanalyst.releases.texts import one_line
from kmeanalyst.sources.files import is_table

if TYPE_CHECKING:
    from kmeanalyst.release import Release
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.sources.source import ArrowSource

release_argument = argument("release_path", "FILE.kme")
sample_argument = argument("sample_path", "SAMPLE")
view_option = option(
    "--view",
    "fitted: the best answers (default where something was measured). signed, probability: the released points.",
    ("signed", "probability", "fitted"),
)
from_option = option(  # goes with sample_path
    "--from from_table",
    "The table or view (TABLE or SCHEMA.TABLE) of the database that SAMPLE is: postgresql:, with PGSERVICE or libpq's other "
    "settings, or a .duckdb file.",
    metavar="TABLE",
)
own_options = (  # of a sample that is the analyst's own; they go with sample_path
    option("--rename renames", "A column of SAMPLE with another name here; may be repeated.", multiple=True, metavar="THEIRS=OURS"),
    option(
        "--recode recodes", "A value written otherwise here; may be repeated.", multiple=True, metavar="COLUMN:THEIRS=OURS"
    ),
    from_option,
)  # fmt: skip
columns_option = option("--columns compared", "Compare these columns alone, separated by commas.", metavar="NAMES")
_SIGN = re.compile("(?<![<>!])=")  # between THEIRS and OURS: not that of <=50K
seed_option = option("--seed", "Seed of all randomness.", click.IntRange(min=0), 0)
_REHEARSAL = "kmeanalyst.rehearsal"  # one of the files that a command read is one
INCOMPLETE = "kmeanalyst.incomplete"  # a command that answered a part of what was asked ends with exit code 1
Answer = tuple[str | Callable[[], str] | None, Callable[[], dict[str, Any]]]  # the text, and the fields of --json


def output_option(metavar: str, text: str = "File to write.", required: bool = True) -> Part:
    """The option --output."""
    return option("--output", text, "file", required=required, metavar=metavar)


def level_option(default: float, text: str) -> Part:
    """The option --level, between 0 and 1."""
    return option("--level", text, click.FloatRange(0, 1, min_open=True, max_open=True), default)


coverage_option = level_option(0.95, "Coverage of the intervals.")


reading_options = (  # of every command that reads a .kme file
    flag("--allow-rehearsal", "Read files stamped NOT PRIVATE too (rehearsals)."),
    flag("--large", "Read files beyond the usual limits too: they may take minutes and gigabytes."),
    json_option,
)


def on_release(
    name: str, short: str, *parts: Part, work: str, check: Command | None = None, table: bool = False
) -> Callable[[Command], click.Command]:
    """A command on the release FILE.kme, with these arguments and options.

    The function gets the release and the choices, and path and on_progress if it names them: of SAMPLE and --from the source
    (of the argument SAMPLE a Release, if it is one), of `own_options` and --columns what `mmd_test` takes as `own`. It returns
    the text to print, or None, and a function that makes the fields of --json; of a text that costs something, a function too.

    work    what is said to be going on.
    check   called with the choices before the release is opened.
    table   whether FILE.kme may be a table of rows, which the function gets by its path.
    """

    def make(function: Command) -> click.Command:
        named = signature(function).parameters

        @wraps(function)
        def run(release_path: str, as_json: bool, allow_rehearsal: bool, large: bool, **choices: Any) -> None:
            if check is not None:
                check(**choices)
            if choices.get("output") is not None:
                check_not_read(choices["output"], release_path, choices.get("sample_path"))
            release: Any = release_path if table and is_table(release_path) else open_release(release_path)
            if "sample_path" in choices:
                if "renames" in choices:
                    choices["own"] = _own(choices.pop("renames"), choices.pop("recodes"))
                if "compared" in choices:
                    choices["own"]["columns"] = column_names(choices.pop("compared"))
                named_sample, from_table = choices.pop("sample_path"), choices.pop("from_table")
                is_release = sample_argument in parts and from_table is None and named_sample.endswith(".kme")
                choices["source"] = open_release(named_sample) if is_release else _sample_named(named_sample, from_table)
            with working(work) as on_progress:
                about = {"path": release_path, "on_progress": on_progress}
                text, fields = function(release, **choices, **{k: v for k, v in about.items() if k in named})
                context = click.get_current_context()
                facts = {"rehearsal": context.meta.get(_REHEARSAL, False)} | (fields() if as_json else {})
                statement = getattr(release, "statement", None)  # a table has none
                if statement is not None and statement.declared_by is not None:
                    facts.setdefault("declared", statement.claim)
                text = text() if callable(text) and not as_json else text
            show(as_json, text, facts)
            if INCOMPLETE in context.meta:
                context.exit(1)

        return command(name, short, release_argument, *parts, *reading_options)(run)

    return make


def check_not_read(output: str, *sources: str | None) -> None:
    """Raise ValueError if the output would replace a file that the command reads."""
    for source in filter(None, sources):
        if os.path.exists(output) and os.path.exists(source) and os.path.samefile(output, source):
            raise ValueError(f"{output} is a file that is read, and writing would replace it. Name a new file.")


def open_release(path: str) -> Release:
    """The release in a file, with a note where it is a rehearsal."""
    from kmeanalyst.release import read_release

    if is_table(path):
        raise ValueError(
            f"{one_line(path)} is a table of rows, and a release was expected here. Name a .kme file; two tables are tested "
            "by mmd-test, and a release of a table is made by release-side publish."
        )
    return _opened(read_release, path)


def open_function(path: str) -> ReleasedFunction:
    """The released function in a file, with a note where it is a rehearsal."""
    from kmeanalyst.releases.file import read_function

    return _opened(read_function, path)


def _opened(read: Callable[..., Any], path: str) -> Any:
    context = click.get_current_context()
    released = read(path, allow_rehearsal=context.params["allow_rehearsal"], large=context.params["large"])
    if released.is_rehearsal:
        context.meta[_REHEARSAL] = True
        note(f"{one_line(path)} is a rehearsal and NOT PRIVATE; show it only to those who may see the table")
    return released


def column_names(text: str | None) -> list[str] | None:
    """Names of columns separated by commas; None where none are given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _own(renames: Sequence[str], recodes: Sequence[str]) -> dict[str, Any]:
    """rename and recode, as `mmd_test` takes them."""
    recode = dict[str, Any]()
    try:
        for text in recodes:
            column, values = text.split(":", 1)
            recode.setdefault(column, {}).update([_SIGN.split(values, maxsplit=1)])
        return {"rename": dict(_SIGN.split(text, maxsplit=1) for text in renames), "recode": recode}
    except ValueError:
        raise click.UsageError("--rename takes THEIRS=OURS, and --recode COLUMN:THEIRS=OURS. Write it so.") from None


def _sample_named(path: str | None, from_table: str | None) -> str | ArrowSource | None:
    """What a command reads as SAMPLE: a path, a table of a database, or nothing; ValueError for half of a database's table."""
    from kmeanalyst.sources.sql import is_database, sql

    if from_table is None:
        return path
    if path is None or not is_database(path):
        raise ValueError(
            "--from names a table of a database, and SAMPLE is not one. Name postgresql: or a .duckdb file, or leave --from out."
        )
    return sql(path, from_table)
