"""`release-side ledger`: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import argument, command, flag, json_option, option, say, show
from kmeanalyst.releases.statement import GAUSSIAN, attack_line, is_digest
from kmeanalyst.releases.texts import aligned, one_line
from release_side.errors import PublishError

if TYPE_CHECKING:
    from release_side.budget.ledger import TableAccount

_FOUND_SOMETHING = 3  # exit code, as of kmeanalyst validate


@click.group(short_help="Budgets of tables, and what was spent.")
def ledger() -> None:
    """Count what the releases of each private table spend, and keep them within a budget.

    \b
    Examples:
      release-side ledger init budget.ledger --table adult --epsilon 2 --delta 1e-6
      release-side ledger show budget.ledger
      release-side ledger verify budget.ledger --head age.kme
    """


_LEDGER = argument("ledger_path", "LEDGER", "file")


@command(
    "init", "Give a table its budget, once.", _LEDGER,
    option("--table", "Your name for the private table, as in publish --table.", required=True, metavar="NAME"),
    option("--epsilon", "ε that all releases of the table may spend together.", float),
    option("--delta", "δ that they may spend together; 0 for Laplace noise alone.", float),
    flag("--unlimited", "Count the table's releases and limit none, instead of a budget."), json_option,
)  # fmt: skip
def ledger_init(ledger_path: str, table: str, epsilon: float | None, delta: float | None, unlimited: bool, as_json: bool) -> None:
    """Give a table its budget, once. A new LEDGER is made if there is none, and only its owner may read it.

    An --unlimited table may be given a budget later: earlier releases count.

    Example: release-side ledger init budget.ledger --table adult --epsilon 2 --delta 1e-6
    """
    from release_side.budget.ledger import Ledger

    if unlimited == (epsilon is not None or delta is not None) or (epsilon is None) != (delta is None):
        raise click.UsageError("A table has a budget (--epsilon and --delta), or is --unlimited. Give one of the two.")
    account = Ledger(ledger_path).init(table, epsilon, delta, unlimited=unlimited)
    if not as_json:
        say(f"wrote {ledger_path}", err=True)
    show(as_json, _account_text(account), {"ledger": ledger_path, **account.to_dict()})


@command("show", "Budgets, releases, and what is left.", _LEDGER, json_option)
def ledger_show(ledger_path: str, as_json: bool) -> None:
    """Show each table's budget, the total spend of its releases, what is left, and every release.

    Example: release-side ledger show budget.ledger
    """
    from release_side.budget.ledger import Ledger

    accounts = Ledger(ledger_path).accounts()
    text = "\n\n".join(map(_account_text, accounts)) or "no table yet"
    show(as_json, text, {"ledger": ledger_path, "tables": [account.to_dict() for account in accounts]})


@command(
    "verify", "Find out whether other software changed a ledger.", _LEDGER,
    option(
        "--head heads", "The digest of a published release, or the released file; may be repeated.", multiple=True,
        metavar="DIGEST|FILE.kme",
    ),
    json_option,
)  # fmt: skip
@click.pass_context
def ledger_verify(context: click.Context, ledger_path: str, heads: tuple[str, ...], as_json: bool) -> None:
    """Compute the chain of digests again, and compare it with published heads. Changes nothing.

    Every entry holds the digest of the entry before it, and the file of every counted release holds the digest of its
    own entry. Without --head, a ledger whose end was cut off, or whose whole chain was computed again, passes. Exit code
    3 if something does not fit, 1 if the ledger cannot be read.

    Example: release-side ledger verify budget.ledger --head age.kme
    """
    from release_side.budget.ledger import Ledger

    chain = Ledger(ledger_path).verify([_digest(head) for head in heads])
    lines = [f"{one_line(ledger_path)}: {one_line(problem)}" for problem in chain.problems] or [
        f"{ledger_path}: {chain.entries} entries, each of which fits the one before\nhead    {chain.head}"
    ]
    facts = {"entries": chain.entries, "head": chain.head, "problems": list(chain.problems), "unseen": chain.unseen}
    show(as_json, "\n".join(lines), {"ledger": ledger_path} | facts)
    if chain.unseen and not as_json:
        say(f"note: {chain.unseen}", err=True)
    if chain.problems:
        context.exit(_FOUND_SOMETHING)


def _digest(head: str) -> str:
    """A digest itself, or the digest in the header of a released file; PublishError if the file has none."""
    if is_digest(head.lower()):
        return head.lower()
    if not Path(head).exists():
        raise PublishError(
            f"--head {head!r:.80} is neither a digest (64 hexadecimal digits) nor an existing file. Name a released file, or "
            "the digest that publish printed."
        )
    from kmeanalyst.releases.file.function import read_function
    from kmeanalyst.releases.file.limits import HoldsFunction
    from kmeanalyst.releases.file.reading import read_release
    from kmeanalyst.releases.release import ReleaseData

    try:
        try:
            statement: Any = read_release(head, ReleaseData, allow_rehearsal=True).statement
        except HoldsFunction:
            statement = read_function(head, allow_rehearsal=True).statement
    except ValueError as error:
        raise PublishError(str(error)) from None
    if statement is None or statement.ledger_head is None:
        raise PublishError(
            f"{head} was published without a ledger: its header has no digest to compare with. Name a file of a counted release."
        )
    return statement.ledger_head


def _account_text(account: TableAccount) -> str:
    from release_side.budget.composition import rounded

    budget, left = "unlimited: releases are counted and none is refused", "no limit"
    if account.epsilon is not None and account.epsilon_left is not None:
        noise = account.mechanism_left.removeprefix("discrete ").capitalize()
        budget = f"epsilon {account.epsilon:g}, delta {account.delta:g}"
        left = f"epsilon {rounded(account.epsilon_left, up=False)}, delta {account.delta:g}, in one {noise} release"
    spent = f"epsilon {rounded(account.total_epsilon, up=True)}, delta {account.total_delta:g}"
    head = [f"table   {account.name}", f"budget  {budget}", f"spent   {spent}", f"left    {left}"]
    mus = [1 / each.noise_multiplier if each.mechanism == GAUSSIAN else None for each in account.spends]
    unit = account.releases[0].spend.unit if account.releases else None
    head += [f"{label}  {text}" for label, text in attack_line(*mus, unit=unit).items()]
    if account.protects not in (None, "rows"):
        head.insert(1, f"unit    {account.protects}")
    if not account.holds_if_adaptive:
        head.append(_ADAPTIVE)
    return "\n".join([*head, *(f"  {line}" for line in _release_lines(account))] if account.releases else head)


_ADAPTIVE = (
    "note    the total and what is left hold only if every epsilon was chosen before the first release was seen: some noise "
    "is not Gaussian, and the sum of the epsilons or of the deltas is larger"
)


def _release_lines(account: TableAccount) -> list[str]:
    rows: list[tuple[str, ...]] = [("time (UTC)", "epsilon", "delta", "noise", "N", "method", "file")]
    for release in account.releases:
        spend = release.spend
        time = one_line(release.time.removesuffix("+00:00").replace("T", " "))
        noise = f"{spend.mechanism}, {spend.calibration}"
        counted = f"{spend.n_rows} {'rows' if spend.unit is None else 'units'}"
        file = "not published" if release.output is None else one_line(release.output)
        rows.append((time, f"{spend.epsilon:g}", f"{spend.delta:g}", noise, counted, spend.method, file))
    return aligned(rows, left=range(7))


for _command in (ledger_init, ledger_show, ledger_verify):
    ledger.add_command(_command)
