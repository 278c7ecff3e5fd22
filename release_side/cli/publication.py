"""What the commands that publish share: their options, what they check first, and what they print at the end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from kmeanalyst.cli.terminal import print_json, say
from kmeanalyst.releases.statement import guarantee
from kmeanalyst.releases.texts import one_line
from release_side.choices.internal_files import INTERNAL
from release_side.errors import PublishError

if TYPE_CHECKING:
    from release_side.private_rows.table import PrivateTable

Option: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]

DOMAIN = click.option(
    "--domain", "domain_path", required=True, type=click.Path(), help="TOML file of public columns and bounds."
)
FROM = click.option(
    "--from",
    "from_table",
    metavar="TABLE",
    help="The table or view (TABLE or SCHEMA.TABLE) of a database: postgresql:, with PGSERVICE or libpq's other settings, or a "
    ".duckdb file.",
)
_GUARANTEE = (
    click.option("--epsilon", required=True, type=float, help="ε > 0 of the guarantee; up to 1 is strong."),
    click.option(
        "--delta", required=True, type=float, help=f"δ of the guarantee: {guarantee()}. Well below 1/N, e.g. 1e-6."
    ),
    click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="FILE.kme", help="File to write."),
    click.option("--force", is_flag=True, help="Replace FILE.kme if it exists."),
)
COUNTING = (
    click.option(
        "--ledger",
        type=click.Path(dir_okay=False),
        metavar="LEDGER",
        help="Count the spend here; refused over budget. The ledger must exist: see ledger init.",
    ),
    click.option("--table", metavar="NAME", help="The ledger's name for the private table."),
    click.option("--uncounted", is_flag=True, help="Publish without a ledger: nothing adds this release to others."),
    click.option("--weak", is_flag=True, help="Publish although epsilon is above 10, or delta at least 1/N."),
)
RUN = (
    click.option(
        "--rehearsal", type=int, metavar="SEED", help="Noise that can be drawn again: the file is stamped NOT PRIVATE."
    ),
    click.option(
        "--workers", type=int, metavar="N", help="Threads; by default one for each processor. Changes no bit."
    ),
)
EXECUTORS = (
    click.option(
        "--processes", type=int, metavar="N", help="Read PRIVATE in N processes, instead of threads. Changes no bit."
    ),
    click.option(
        "--cluster",
        metavar="ADDRESS",
        help="Read PRIVATE on the workers of the Dask scheduler at tls://host:port (tcp:// on this machine alone), with the "
        "certificates of Dask's configuration; the path must be the same on all. Changes no bit.",
    ),
)


def with_options(*options: Option) -> Option:
    """Add options to a command, in this order."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def publication_options(*choices: Option) -> Option:
    """The options of a command that publishes; `choices` are its own."""
    return with_options(DOMAIN, FROM, *_GUARANTEE, *choices, *COUNTING, *RUN)


def options_of(choices: type) -> list[Option]:
    """An option for each field of a dataclass of choices."""
    return [_option_of(choice) for choice in fields(choices)]


def _option_of(choice: Field[Any]) -> Option:
    """The option of one field: name and default are the field's, the rest is in its metadata."""
    facts, default = dict(choice.metadata), choice.default
    if (values := facts.pop("choices", None)) is not None:
        facts["type"] = click.Choice(list(values))
    elif facts.get("type") == "path":
        facts["type"] = click.Path()
    if isinstance(default, bool):
        facts["is_flag"] = True
    elif default is not None and "required" not in facts:
        facts |= {"default": default, "show_default": True}
    return click.option("--" + choice.name.replace("_", "-"), **facts)


def opened_for_publishing(
    private: str, from_table: str | None, domain_path: str, choices: Mapping[str, Any]
) -> PrivateTable:
    """The private table, opened; notes the columns that are ignored.

    Errors   DomainError or PublishError; PublishError too unless a ledger counts the release, or the user said that none
             does. A rehearsal spends nothing.
    """
    from kmeanalyst.releases.domain.domain import read_domain
    from release_side.private_rows.rows import open_private, table_or_path

    if choices["ledger"] is choices["table"] is choices["rehearsal"] is None and not choices["uncounted"]:
        raise PublishError(
            "no ledger is named: releases of one table add up, and nothing would count this one. Nothing was spent. Name "
            "--ledger LEDGER and --table NAME (release-side ledger init makes them), or say --uncounted."
        )
    table = open_private(table_or_path(private, from_table))
    extra = table.check_columns(read_domain(domain_path))
    if ignored := [one_line(name) for name in extra if name != choices.get("unit")]:
        say(f"note: columns not in the domain are ignored: {', '.join(ignored)}", err=True)
    return table


@contextmanager
def executor_of(choices: dict[str, Any]) -> Iterator[Any]:
    """Who reads the table: processes, a cluster, or None. Removes the two options from the choices."""
    from release_side.executors.dask import connected
    from release_side.executors.processes import Processes

    processes, cluster = choices.pop("processes"), choices.pop("cluster")
    if processes is not None and cluster is not None:
        raise PublishError(
            "--processes are of this machine, and --cluster is another. Nothing was spent. Name one of the two."
        )
    if cluster is None:
        yield None if processes is None else Processes(processes)
        return
    with connected(cluster) as executor:
        yield executor


def show_published(published: Any, choices: Mapping[str, Any], *, as_json: bool, **facts: Any) -> None:
    """Print a release or a function that was published: as JSON with these facts, or in words with the ledger's total."""
    if as_json:
        print_json({"output": choices["output"], **facts, "statement": published.statement.to_dict()})
        return
    say(f"wrote {choices['output']}", err=True)
    show_counted(choices)
    for label, text in published.summary().items():
        say(f"{label:<11} {text}")


def show_counted(choices: Mapping[str, Any]) -> None:
    """Say what the table has spent in all, where a ledger counts it."""
    if choices["ledger"]:
        with suppress(PublishError):  # the release is written and counted even if the ledger cannot be read now
            say(_counted(choices["ledger"], choices["table"]), err=True)


def command_of_quality(private: str, from_table: str | None, choices: Mapping[str, Any]) -> str:
    """How to compare the release with its table, for the curator alone."""
    output = choices["output"]
    words = ["release-side", "quality", output, private, *(["--from", from_table] if from_table else [])]
    words += ["--output", f"{output.removesuffix('.kme')}{INTERNAL}.html"]
    words += ["--allow-rehearsal"] * (choices["rehearsal"] is not None)
    return f"to compare it with the table, for your eyes only: {shlex.join(words)}"


def _counted(ledger_path: str, table: str) -> str:
    """What the table has spent, this release included."""
    from release_side.budget.composition import rounded
    from release_side.budget.ledger import Ledger

    account = Ledger(ledger_path).account(table)
    epsilon = rounded(account.total_epsilon, up=True)
    spent = (
        f"has spent epsilon {epsilon} of {account.epsilon:g}"
        if account.epsilon
        else f"is unlimited and has spent epsilon {epsilon}"
    )
    return (
        f"counted in {ledger_path} as a release of table {account.name}, which {spent} at delta {account.total_delta:g}"
    )


def aligned(lines: list[tuple[str, ...]], texts: tuple[int, ...] = ()) -> list[str]:
    """Lines of columns of equal width: to the right, and those of texts to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(
            c.ljust(w) if i in texts else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
