"""The ledger: which releases were made of which table, and how much of its budget they have spent.

One file, safe under several processes on one machine and under crashes: a spend is checked and written in one
transaction that is on the disk before `record` returns, and noise is drawn after that. A draw that was never written to
a file still counts. The curator names the tables; their rows are never read. Keep the file on a local disk: locks of network
disks are not reliable. LEDGER and LEDGER-journal belong together, and a copy of both is a second budget.
"""

from __future__ import annotations

import difflib
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from release_side.budget.account import SPEND_FIELDS, History, RecordedRelease, TableAccount
from release_side.budget.composition import Spend, check_text
from release_side.budget.ledger_file import BUDGET, OUTPUT, RELEASE, Entry, LedgerFile, first_fault
from release_side.door.mechanism import check_budget
from release_side.errors import PublishError

_SIMILAR = 0.75  # least similarity of two names (difflib) at which one may be a misspelling of the other
UNSEEN_WITHOUT_HEAD = (
    "without a head this cannot show that entries were cut off at the end, or that the whole chain was recomputed: "
    "compare it with a head that was published (--head FILE.kme, or the digest in a file's header)"
)


@dataclass(frozen=True)
class Verification:
    """What `Ledger.verify` found.

    entries   how many entries the ledger has.
    head      digest of the last one; None where the chain is broken.
    problems  the faults, in words; empty for a sound ledger.
    unseen    what cannot be detected, because no head was given that covers all entries; None otherwise.

    >>> account = release_side.Ledger("sound.ledger").init("adult", unlimited=True)
    >>> release_side.Ledger("sound.ledger").verify().problems
    ()
    """

    entries: int
    head: str | None
    problems: tuple[str, ...]
    unseen: str | None


class Ledger:
    """A ledger file. Every call opens it, verifies its whole chain, does its work in one transaction, and closes it.

    Errors   PublishError; nothing is written then.

    >>> ledger = release_side.Ledger("budget.ledger")
    >>> ledger.init("adult", epsilon=2.0, delta=1e-6).epsilon_left
    2.0
    >>> ledger.check("adult", spend)  # silent, or PublishError
    >>> number = ledger.record("adult", spend)
    >>> ledger.published(number, "adult.kme")
    >>> ledger.release(number).spend == spend, ledger.release(number).output
    (True, 'adult.kme')
    >>> round(ledger.account("adult").total_epsilon, 3), [account.name for account in ledger.accounts()]
    (1.0, ['adult'])
    >>> found = ledger.verify([ledger.head()])
    >>> found.entries, found.head == ledger.head(), found.problems, found.unseen
    (4, True, (), None)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = LedgerFile(self.path)

    def init(
        self, table: str, epsilon: float | None = None, delta: float | None = None, *, unlimited: bool = False
    ) -> TableAccount:
        """Give a table its budget, which cannot be changed later. Makes the ledger if there is none.

        unlimited  count the table's releases and refuse none; instead of epsilon and delta. Such a table may be given a
                   budget later, for which everything that was recorded before counts.
        """
        name = _table_name(table)
        budget = {"table": name} | _limit(epsilon, delta, unlimited)
        with self._file.writing(create=True) as transaction:
            history = History.of(transaction.entries)
            if name in history.budgets and (unlimited or history.budgets[name] != (None, None)):
                raise _has_a_budget(history.account(name))
            transaction.append(BUDGET, budget)
            return History.of(transaction.entries).account(name)

    def check(self, table: str, spend: Spend) -> str | None:
        """PublishError if the release would not fit or could not be recorded. Writes and creates nothing.

        Returns   a warning about this release, or None: see `TableAccount.warning`.
        """
        name = _table_name(table)
        self._file.check_path(writing=True)
        account = self._known(self._history(), name)
        account.check_alike(spend)
        if not account.admits(spend):
            raise account.refusal(spend)
        return account.warning(spend)

    def _history(self) -> History:
        return History.of(self._file.entries())

    def _known(self, history: History, name: str) -> TableAccount:
        """The account of a table; for an unknown name PublishError, which suggests the most similar known one."""
        if name in history.budgets:
            return history.account(name)
        near = difflib.get_close_matches(name, history.budgets, n=1, cutoff=_SIMILAR)
        hint = f"but {near[0]!r} does. If this is a typo use {near[0]!r}" if near else "so nothing would limit it"
        raise PublishError(
            f"table {name!r} has no budget in {self.path}, {hint}; otherwise give it a budget, or --unlimited, with "
            "release-side ledger init."
        )

    def record(self, table: str, spend: Spend) -> int:
        """Check a release and write it down, before its noise is drawn; returns its number in the ledger.

        Guarantee   the spend is on the disk when this returns, and no two processes spend the same part of the budget.
        """
        name = _table_name(table)
        facts = {"table": name} | {field: getattr(spend, field) for field in SPEND_FIELDS}
        number = None
        with self._file.writing() as transaction:
            history = History.of(transaction.entries)
            account = self._known(history, name)
            account.check_alike(spend)
            if account.admits(spend):
                transaction.append(RELEASE, facts)
                number = len(history.releases) + 1
        if number is None:
            raise account.refusal(spend)  # computed after the lock is released
        return number

    def release(self, number: int) -> RecordedRelease:
        """The recorded release of this number."""
        return self._history().release(number)[1]

    def published(self, release_id: int, output: str | os.PathLike[str]) -> None:
        """Note the file of a recorded release."""
        text = os.fspath(output).encode("utf-8", "backslashreplace").decode()
        with self._file.writing() as transaction:
            releases = History.of(transaction.entries).releases
            waiting = {release.id for _, release in releases if release.output is None}
            if release_id not in waiting:
                raise PublishError(
                    f"{self.path} has no release {release_id!r:.80} that waits for its file. Pass the number that "
                    "`record` returned."
                )
            transaction.append(OUTPUT, {"release": release_id, "output": text})

    def account(self, table: str) -> TableAccount:
        """One table with its budget and releases; PublishError if the ledger does not know it."""
        return self._known(self._history(), _table_name(table))

    def accounts(self) -> list[TableAccount]:
        """Every table with its budget and releases, by name."""
        history = self._history()
        return [history.account(name) for name in sorted(history.budgets)]

    def head(self) -> str:
        """The digest of the last entry, which depends on every entry of the ledger."""
        return str(self._file.entries()[-1].digest)

    def verify(self, heads: Sequence[str] = ()) -> Verification:
        """Compute the whole chain again and compare it with heads from other sources.

        heads    digests of entries, such as released files hold (`statement.ledger_head`).
        Returns  Verification; it changes nothing.
        """
        entries = self._file.unverified()
        fault = first_fault(entries)
        problems = [] if fault is None else [fault]
        if fault is None:
            try:
                History.of(entries)
            except PublishError as error:
                problems.append(str(error))
        known = {entry.digest for entry in entries}
        problems += [
            f"no entry has the digest {head}: entries were cut off at the end, the chain was recomputed, or it is of another ledger"
            for head in heads
            if head not in known
        ]
        head = None if problems or not entries else str(entries[-1].digest)
        return Verification(len(entries), head, tuple(problems), _unseen(entries, heads))


def _unseen(entries: Sequence[Entry], heads: Sequence[str]) -> str | None:
    """What a comparison with these heads cannot detect: a head covers its entry and those before it."""
    if not heads:
        return UNSEEN_WITHOUT_HEAD
    covered = max((number for number, entry in enumerate(entries, 1) if entry.digest in heads), default=0)
    if covered == len(entries):
        return None
    return f"the heads cover entries 1 to {covered} of {len(entries)}: later ones may have been cut off or recomputed"


def _limit(epsilon: float | None, delta: float | None, unlimited: bool) -> dict[str, float | None]:
    """The budget as an entry holds it; PublishError unless either a budget or `unlimited` is given."""
    if unlimited:
        if epsilon is not None or delta is not None:
            raise PublishError("unlimited and a budget contradict each other. Pass epsilon and delta, or unlimited.")
        return {"epsilon": None, "delta": None}
    if epsilon is None or delta is None:
        raise PublishError(
            "a table needs a budget, and epsilon or delta is not given: nothing would limit its releases. Pass epsilon and "
            "delta, or unlimited to count its releases only."
        )
    check_budget(epsilon, delta)
    return {"epsilon": float(epsilon), "delta": float(delta)}


def _has_a_budget(account: TableAccount) -> PublishError:
    if account.epsilon is None:
        return PublishError(f"table {account.name!r} is unlimited already. Keep it, or give it a budget.")
    return PublishError(
        f"table {account.name!r} has a budget already, epsilon {account.epsilon:g}, delta {account.delta:g}: a "
        "budget is a guarantee to everyone in the table, and stays. Keep it, or name another table."
    )


def _table_name(name: object) -> str:
    """The name in a single Unicode form (NFKC), so that equal names have equal spellings; PublishError for a bad one."""
    spelled = unicodedata.normalize("NFKC", name) if isinstance(name, str) else name
    check_text("the name of a table", spelled)
    return str(spelled)
