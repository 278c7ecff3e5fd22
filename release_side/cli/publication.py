"""The commands that read a private table (publish, publish-function, check-source): options, what they check first and print."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from kmeanalyst.cli.terminal import Part, argument, command, flag, json_option, option, say, show, working
from kmeanalyst.releases.statement import guarantee
from kmeanalyst.releases.texts import one_line
from release_side.choices.choices import METHOD_NAMES, Account, Choices, FunctionChoices, Reading
from release_side.choices.internal_files import INTERNAL
from release_side.errors import PublishError

if TYPE_CHECKING:
    from kmeanalyst.releases.domain.domain import Domain
    from release_side.private_rows.table import PrivateTable

DOMAIN = option("--domain domain_path", "TOML file of public columns and bounds.", "path", required=True)
FROM = option(
    "--from from_table",
    "The table or view (TABLE or SCHEMA.TABLE) of a database: postgresql:, with PGSERVICE or libpq's other settings, or a "
    ".duckdb file.",
    metavar="TABLE",
)
PRIVATE = argument("private", "PRIVATE")
_GUARANTEE = (
    option("--epsilon", "ε > 0 of the guarantee; up to 1 is strong.", float, required=True),
    option("--delta", f"δ of the guarantee: {guarantee()}. Well below 1/N, e.g. 1e-6.", float, required=True),
    option("--output", "File to write.", "file", required=True, metavar="FILE.kme"),
    flag("--force", "Replace FILE.kme if it exists."),
)
_EXECUTORS = (
    option("--processes", "Read PRIVATE in N processes, instead of threads. Changes no bit.", int, metavar="N"),
    option(
        "--cluster",
        "Read PRIVATE on the workers of the Dask scheduler at tls://host:port (tcp:// on this machine alone), with the "
        "certificates of Dask's configuration; the path must be the same on all. Changes no bit.",
        metavar="ADDRESS",
    ),
)


def options_of(choices: type, *, without: tuple[str, ...] = ()) -> list[Part]:
    """An option for each field of a dataclass of choices that has a help text: name and default are the field's."""
    parts = []
    for choice in (field for field in fields(choices) if field.metadata and field.name not in without):
        facts = dict(choice.metadata)
        kind, default = facts.pop("type", facts.pop("choices", None)), None if "required" in facts else choice.default
        parts.append(option("--" + choice.name.replace("_", "-"), facts.pop("help"), kind, default, **facts))
    return parts


def opened_for_publishing(private: str, from_table: str | None, domain_path: str, choices: Mapping[str, Any]) -> PrivateTable:
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
    note_ignored(table, read_domain(domain_path), choices.get("unit"))
    return table


def note_ignored(table: PrivateTable, domain: Domain, unit: str | None) -> None:
    """Note the columns that the domain does not name; DomainError or PublishError if the table lacks one that it does."""
    if ignored := [one_line(name) for name in table.check_columns(domain, unit) if name != unit]:
        say(f"note: columns not in the domain are ignored: {', '.join(ignored)}", err=True)


def executor_of(choices: dict[str, Any]) -> AbstractContextManager[Any]:
    """Who reads the table: processes, a cluster, or None. Removes the two options from the choices."""
    from release_side.executors.dask import connected
    from release_side.executors.processes import Processes

    processes, cluster = choices.pop("processes"), choices.pop("cluster")
    if processes is not None and cluster is not None:
        raise PublishError("--processes are of this machine, and --cluster is another. Nothing was spent. Name one of the two.")
    here = nullcontext(None if processes is None else Processes(processes))
    return here if cluster is None else connected(cluster)


def show_published(published: Any, choices: Mapping[str, Any], *, as_json: bool, **facts: Any) -> None:
    """Print a release or a function that was published: as JSON with these facts, or in words with the ledger's total."""
    if not as_json:
        say(f"wrote {choices['output']}", err=True)
        if choices["ledger"]:
            with suppress(PublishError):  # the release is written and counted even if the ledger cannot be read now
                say(_counted(choices["ledger"], choices["table"]), err=True)
    text = "\n".join(f"{label:<11} {text}" for label, text in published.summary().items())
    show(as_json, text, {"output": choices["output"], **facts, "statement": published.statement.to_dict()})


def commands_for_the_curator(private: str, from_table: str | None, domain_path: str, choices: Mapping[str, Any]) -> Iterator[str]:
    """How to see how the table's cells were read, and to compare the release with it, for the curator alone."""
    table, output = [private, *(["--from", from_table] if from_table else [])], choices["output"]
    if not choices.get("unit"):
        yield "note: a row is protected, not all rows of a person: where one may have several, publish with --unit COLUMN"
    read = ["release-side", "check-source", *table, "--domain", domain_path, "--internal"]
    read += ["--unit", choices["unit"]] if choices.get("unit") else []
    yield f"to see how its cells were read, for your eyes only: {shlex.join(read)}"
    words = ["release-side", "quality", output, *table, "--output", f"{output.removesuffix('.kme')}{INTERNAL}.html"]
    words += ["--allow-rehearsal"] * (choices["rehearsal"] is not None)
    yield f"to compare it with the table, for your eyes only: {shlex.join(words)}"


def _counted(ledger_path: str, table: str) -> str:
    from release_side.budget.composition import rounded
    from release_side.budget.ledger import Ledger

    account = Ledger(ledger_path).account(table)
    spent = f"has spent epsilon {rounded(account.total_epsilon, up=True)}"
    spent = f"{spent} of {account.epsilon:g}" if account.epsilon else f"is unlimited and {spent}"
    return f"counted in {ledger_path} as a release of table {account.name}, which {spent} at delta {account.total_delta:g}"


# ---------------------------------------------------------------------- the commands

METHOD_CHOICES = (  # options of publish and plan: public choices that change how good a release is
    option(
        "--method",
        "How points are made: by a fit to noisy tables of columns (the default where columns have few enough cells) or to random "
        "features of a kernel; given points, weighted; a trained network; or, for few levels, a small database drawn as a whole "
        "(--delta 0).",
        METHOD_NAMES, METHOD_NAMES[0],
    ),
    *options_of(Choices),
)  # fmt: skip


@command(
    "publish", "Publish a private table as a release.", PRIVATE, DOMAIN, FROM, *_GUARANTEE, *METHOD_CHOICES,
    option(
        "--like", "Measure the tables that this release measured, such as last quarter's: both can then be compared cell by cell.",
        "path", metavar="FILE.kme",
    ),
    *options_of(Account), *options_of(Reading), *_EXECUTORS, json_option,
)  # fmt: skip
def publish_command(private: str, domain_path: str, from_table: str | None, as_json: bool, **choices: Any) -> None:
    """Publish PRIVATE once, with (ε, δ)-differential privacy.

    PRIVATE is a file, a directory, a glob, or a URL such as "s3://bucket/visits/*.parquet", of CSV (.csv, .csv.gz), Parquet,
    or Arrow (.feather, .arrow, .ipc). Credentials for a URL come from the environment.

    With --from, PRIVATE is a database (postgresql: or a .duckdb file). Its password is never an argument: libpq reads
    PGSERVICE, ~/.pgpass and the rest of its environment.

    Name a ledger that counts the spend (release-side ledger init), or --uncounted; a rehearsal needs neither. An epsilon
    above 10, or a delta of 1/N or more, needs --weak.

    \b
    Examples:
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme \\
          --ledger budget.ledger --table people
      release-side publish postgresql: --from health.visits --domain domain.toml --epsilon 1 --delta 1e-6 \\
          --output visits.kme --unit person_id --ledger budget.ledger --table visits
    """
    from release_side.publishing.publish import publish as publish_table

    table = opened_for_publishing(private, from_table, domain_path, choices)
    with executor_of(choices) as executor, working("publishing") as progress:
        release = publish_table(table, domain_path, progress=progress, executor=executor, **choices)
    show_published(release, choices, as_json=as_json, fit_distance=release.fit_distance)
    if not as_json:
        for line in commands_for_the_curator(private, from_table, domain_path, choices):
            say(line, err=True)


@command(
    "finish", "Make the release of what a stopped publication drew.",
    argument("partial", "OUT.kme.partial"),
    option("--output", "File to write; by default the one that the publication named.", "file", metavar="FILE.kme"),
    option("--ledger", "The ledger that counted the draw, to note the file's name there.", "path", metavar="LEDGER"),
    flag("--force", "Replace the file if it exists."), json_option,
)  # fmt: skip
def finish_command(partial: str, output: str | None, ledger: str | None, force: bool, as_json: bool) -> None:
    """Make the release from OUT.kme.partial, where publish keeps what it drew until the release is written.

    Opens no private file and spends nothing: the draw was counted. The file is removed once the release is written.

    Example: release-side finish table.kme.partial
    """
    from release_side.publishing.unfinished import finish

    with working("making the release") as progress:
        release = finish(partial, output, ledger=ledger, force=force, progress=progress)
    if ledger is None and getattr(release.statement, "ledger_head", None):
        say("note: the ledger that counted the draw does not name this file: --ledger LEDGER would have noted it there", err=True)
    choices = {"output": output or partial.removesuffix(".partial"), "ledger": None}
    show_published(release, choices, as_json=as_json, fit_distance=release.fit_distance)


@command(
    "publish-function", "Publish a density, or a classifier or regression.", PRIVATE, DOMAIN, FROM, *_GUARANTEE,
    *options_of(FunctionChoices), *options_of(Account), *options_of(Reading, without=("unit",)), json_option,
)  # fmt: skip
def publish_function_command(
    private: str, domain_path: str, from_table: str | None, kind: str, as_json: bool, **choices: Any
) -> None:
    """Publish a function of PRIVATE once, with (ε, δ)-differential privacy, at points and between them.

    \b
    Examples:
      release-side publish-function private.csv --domain age.toml --kind density \\
          --epsilon 1 --delta 1e-6 --output age.kme --ledger budget.ledger --table people
      release-side publish-function private.csv --domain domain.toml --kind logistic --target ill \\
          --epsilon 1 --delta 1e-6 --output ill.kme --ledger budget.ledger --table people
    """
    from release_side.publishing.functions import publish_function

    table = opened_for_publishing(private, from_table, domain_path, choices)
    kind = "density" if kind == "kde" else kind  # a second name
    with working("publishing") as progress:
        function = publish_function(table, domain_path, kind=kind, progress=progress, **choices)
    show_published(function, choices, as_json=as_json, kind=function.kind, n_pivots=function.basis.dimension)
