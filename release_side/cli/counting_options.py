"""The options of every command that spends: in which ledger it is counted, and how weak a promise may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

_OPTIONS = (
    click.option(
        "--ledger",
        type=click.Path(dir_okay=False),
        metavar="LEDGER",
        help="Count the spend here; refused over budget. The ledger must be there: see ledger init.",
    ),
    click.option("--table", metavar="NAME", help="What the ledger calls the private table."),
    click.option("--uncounted", is_flag=True, help="Publish without a ledger: nothing adds this release to others."),
    click.option("--weak", is_flag=True, help="Publish although epsilon is above 10, or delta at least 1/N."),
)


def counting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --ledger, --table, --uncounted and --weak to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_counted(choices: Mapping[str, Any]) -> None:
    """PublishError unless a ledger counts the release, or the user said that none does; a rehearsal spends nothing."""
    from release_side.errors import PublishError

    if choices["ledger"] is choices["table"] is None and choices["rehearsal"] is None and not choices["uncounted"]:
        raise PublishError(
            "no ledger is named: releases of one table add up, and nothing would count this one. Nothing was spent. Name "
            "--ledger LEDGER and --table NAME (release-side ledger init makes them), or say --uncounted."
        )


def counted(ledger_path: str, table: str) -> str:
    """What the table has spent, now that the release is counted."""
    from release_side.budget.composition import rounded
    from release_side.budget.ledger import Ledger

    account = Ledger(ledger_path).account(table)
    spent = (
        f"has spent epsilon {rounded(account.total_epsilon, up=True)} of {account.epsilon:g} at delta {account.total_delta:g}"
        if account.epsilon
        else f"is unlimited and has spent epsilon {rounded(account.total_epsilon, up=True)} at delta {account.total_delta:g}"
    )
    return f"counted in {ledger_path} as a release of table {account.name}, which {spent}"


__all__ = ["check_counted", "counted", "counting_options"]
