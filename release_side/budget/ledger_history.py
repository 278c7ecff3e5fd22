"""Budgets and releases, computed from the entries of a ledger, which are all that is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from release_side.budget.account import RecordedRelease, TableAccount
from release_side.budget.composition import Spend, check_text
from release_side.budget.ledger_chain import BUDGET, LEDGER, OUTPUT, RELEASE, Entry
from release_side.door.mechanism import check_budget
from release_side.errors import PublishError

SPEND_FIELDS = tuple(each.name for each in fields(Spend))


@dataclass
class History:
    """The content of a ledger.

    budgets    table → (ε, δ), or (None, None) for a table that is counted and not limited.
    releases   (table, release), in the order in which they were recorded; the n-th has id n.
    """

    budgets: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    releases: list[tuple[str, RecordedRelease]] = field(default_factory=list)

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> History:
        """The content of sound entries; PublishError if `Ledger` does not write such an entry."""
        history = cls()
        for entry in entries:
            try:
                history._read(entry)
            except (PublishError, TypeError, ValueError, KeyError, IndexError) as error:
                raise PublishError(
                    f"entry {entry.number} of the ledger is not one that this software writes: {error} Nothing was "
                    "recorded. Restore the ledger from a copy."
                ) from None
        return history

    def _read(self, entry: Entry) -> None:
        readers: dict[str, Callable[[Entry, dict[str, Any]], None]] = {
            BUDGET: self._read_budget, RELEASE: self._read_release, OUTPUT: self._read_output,
        }  # fmt: skip
        if entry.kind != LEDGER:
            readers[entry.kind](entry, entry.read())

    def _read_budget(self, entry: Entry, facts: dict[str, Any]) -> None:
        epsilon, delta = facts["epsilon"], facts["delta"]
        check_text("the name of a table", facts["table"])
        if (epsilon, delta) != (None, None):
            check_budget(epsilon, delta)
        if self.budgets.get(facts["table"], (None, None)) != (None, None):
            raise PublishError(f"table {facts['table']!r} has a budget already.")
        self.budgets[facts["table"]] = (epsilon, delta)

    def _read_release(self, entry: Entry, facts: dict[str, Any]) -> None:
        if facts["table"] not in self.budgets:
            raise PublishError(f"table {facts['table']!r} has no account.")
        spend = Spend(**{name: facts[name] for name in SPEND_FIELDS})
        release = RecordedRelease(len(self.releases) + 1, entry.time, spend, None, entry.digest)
        self.releases.append((facts["table"], release))

    def _read_output(self, entry: Entry, facts: dict[str, Any]) -> None:
        table, release = self.release(facts["release"])
        if release.output is not None or not isinstance(facts["output"], str):
            raise PublishError("the release has a file already, or its name is not text.")
        self.releases[release.id - 1] = (table, replace(release, output=facts["output"]))

    def release(self, number: Any) -> tuple[str, RecordedRelease]:
        """The table and the release of this number; PublishError if there is none."""
        if type(number) is not int or not 1 <= number <= len(self.releases):
            raise PublishError(f"there is no release {number!r:.80}.")
        return self.releases[number - 1]

    def account(self, table: str) -> TableAccount:
        """A table that has a budget, or is unlimited."""
        epsilon, delta = self.budgets[table]
        mine = tuple(release for name, release in self.releases if name == table)
        return TableAccount(table, epsilon, delta, mine)
