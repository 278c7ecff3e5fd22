"""The tables of a ledger, computed from its entries: their budgets and releases, what these spend together, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from release_side.budget.composition import Spend, check_text, fits, holds_if_adaptive, largest_epsilon_left, rounded, total_epsilon
from release_side.budget.ledger_file import BUDGET, LEDGER, OUTPUT, RELEASE, Entry
from release_side.door.mechanism import check_budget
from release_side.errors import PublishError


@dataclass(frozen=True)
class RecordedRelease:
    """One release as the ledger has it.

    output  its file; None for a draw that was not written.
    digest  of the ledger's entry that recorded it; also in the header of its file (`ledger_head`).

    >>> ledger = release_side.Ledger("one.ledger")
    >>> account = ledger.init("adult", unlimited=True)
    >>> release = ledger.release(ledger.record("adult", spend))
    >>> release.id, release.spend.epsilon, release.output is None, len(release.digest)  # None: not published yet
    (1, 1.0, True, 64)
    >>> release.time == release.to_dict()["time"]
    True
    """

    id: int
    time: str
    spend: Spend
    output: str | None
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """The release as the command line prints it."""
        return {"id": self.id, "time": self.time, **asdict(self.spend), "output": self.output, "digest": self.digest}


@dataclass(frozen=True)
class TableAccount:
    """A table of the ledger: its budget (None: unlimited, releases are only counted) and its releases, oldest first.

    >>> account = release_side.Ledger("budget.ledger").init("schools", epsilon=0.5, delta=1e-6)
    >>> account.name, account.epsilon, account.delta, account.releases, account.spends, account.protects
    ('schools', 0.5, 1e-06, (), (), None)
    >>> account.total_epsilon, account.total_delta, account.epsilon_left, account.mechanism_left, account.holds_if_adaptive
    (0.0, 1e-06, 0.5, 'discrete gaussian', True)
    >>> account.check_alike(spend)  # silent, or PublishError
    >>> account.admits(spend), account.warning(spend) is None
    (False, True)
    >>> print(account.refusal(spend))
    table 'schools' has a budget of epsilon 0.5, delta 1e-06, and nothing is spent yet: a Gaussian release of
        epsilon 1, delta 1e-06 does not fit. At delta 1e-06 a Gaussian release of epsilon up to 0.5 still fits: ask
        for that.
    >>> sorted(account.to_dict())
    ['delta', 'epsilon', 'holds_if_adaptive', 'left', 'protects', 'releases', 'spent', 'table']
    """

    name: str
    epsilon: float | None
    delta: float | None
    releases: tuple[RecordedRelease, ...]

    @property
    def spends(self) -> tuple[Spend, ...]:
        """What each release costs."""
        return tuple(release.spend for release in self.releases)

    @property
    def protects(self) -> str | None:
        """What every release of the table protects: "rows", or units and their column; None before the first release."""
        return self.releases[0].spend.protects if self.releases else None

    @property
    def total_delta(self) -> float:
        """The δ that belongs to `total_epsilon`: that of the budget, or the largest of the releases."""
        return self.delta if self.delta is not None else max((spend.delta for spend in self.spends), default=0.0)

    @cached_property
    def total_epsilon(self) -> float:
        """ε of all releases together; infinite where a Gaussian one is counted at δ = 0."""
        return total_epsilon(self.spends, self.total_delta)

    @property
    def holds_if_adaptive(self) -> bool:
        """Whether `total_epsilon` and the budget also hold if the choice of each release depended on the earlier ones."""
        return self._holds_if_adaptive(self.spends)

    def _holds_if_adaptive(self, spends: tuple[Spend, ...]) -> bool:
        epsilon, delta = self.epsilon, self.delta
        if epsilon is None or delta is None:
            delta = max((spend.delta for spend in spends), default=0.0)
            epsilon = min(total_epsilon(spends, delta), 1e99)
        return holds_if_adaptive(spends, epsilon, delta)

    @property
    def mechanism_left(self) -> str:
        """The noise of the release that `epsilon_left` is about: Gaussian, or Laplace for a budget with δ = 0."""
        return LAPLACE if self.delta == 0 else GAUSSIAN

    @cached_property
    def epsilon_left(self) -> float | None:
        """The largest ε of one more release at the budget's δ; None without a budget."""
        if self.epsilon is None or self.delta is None:
            return None
        return largest_epsilon_left(self.spends, self.epsilon, self.delta, mechanism=self.mechanism_left, delta=self.delta)

    def admits(self, spend: Spend) -> bool:
        """Whether one more release keeps the budget."""
        return self.epsilon is None or self.delta is None or fits([*self.spends, spend], self.epsilon, self.delta)

    def check_alike(self, spend: Spend) -> None:
        """PublishError if the table has releases that protect something else: such guarantees do not add up."""
        others = {release.protects for release in self.spends} - {spend.protects}
        if others:
            raise PublishError(
                f"the releases of table {self.name!r} in the ledger protect {', '.join(sorted(others))}, and this one would "
                f"protect {spend.protects}: the two do not add up to one guarantee, because one unit may contain many "
                "others. Protect the same, or count it under another name and budget."
            )

    def warning(self, spend: Spend) -> str | None:
        """A warning if the total with this release would not hold for a choice that depends on earlier ones; else None."""
        if self._holds_if_adaptive((*self.spends, spend)):
            return None
        return (
            f"with this release table {self.name!r} has noise that is not Gaussian, under a delta above 0. The rule for its "
            "total holds only if every epsilon was chosen before the first release was seen. If your choice of this release "
            "depends on an earlier one, add up all epsilons, and all deltas, instead. To choose freely, use Gaussian noise "
            "throughout, or keep both sums within the budget."
        )

    def refusal(self, spend: Spend) -> PublishError:
        """The error for a release that the budget does not admit: what is asked, spent and left."""
        assert self.epsilon is not None and self.delta is not None
        left = largest_epsilon_left(self.spends, self.epsilon, self.delta, mechanism=spend.mechanism, delta=spend.delta)
        kind = {GAUSSIAN: "Gaussian", LAPLACE: "Laplace"}.get(spend.mechanism, "pure")
        offer = f"release of epsilon up to {rounded(left, up=False)} still fits: ask for that"
        return PublishError(
            f"table {self.name!r} has a budget of epsilon {self.epsilon:g}, delta {self.delta:g}, and {self._spent()}: "
            f"a {kind} release of epsilon {spend.epsilon:g}, delta {spend.delta:g} does not fit. At delta "
            f"{spend.delta:g} {f'a {kind} {offer}' if left else f'no {kind} release fits: use what is published'}."
        )

    def _spent(self) -> str:
        if not self.releases:
            return "nothing is spent yet"
        count = len(self.releases)
        releases = "its one release has" if count == 1 else f"its {count} releases have together"
        return f"{releases} spent epsilon {rounded(self.total_epsilon, up=True)} at delta {self.total_delta:g}"

    def to_dict(self) -> dict[str, Any]:
        """The account as the command line prints it."""
        return {
            "table": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "protects": self.protects,
            "spent": {"epsilon": self.total_epsilon, "delta": self.total_delta},
            "left": None
            if self.epsilon is None
            else {"epsilon": self.epsilon_left, "delta": self.delta, "mechanism": self.mechanism_left},
            "holds_if_adaptive": self.holds_if_adaptive,
            "releases": [release.to_dict() for release in self.releases],
        }


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
