"""One table of a ledger: its budget, its releases, what they spend together, and what is left."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from release_side.budget.composition import Spend, fits, holds_if_adaptive, largest_epsilon_left, rounded, total_epsilon
from release_side.errors import PublishError


@dataclass(frozen=True)
class RecordedRelease:
    """One release as the ledger has it.

    output  its file; None for a draw that was not written.
    digest  of the ledger's entry that recorded it; also in the header of its file (`ledger_head`).

    >>> ledger = release_side.Ledger("one.ledger")
    >>> account = ledger.init("adult", unlimited=True)
    >>> number = ledger.record("adult", spend)
    >>> release = ledger.account("adult").releases[0]
    >>> release.spend.epsilon, release.output is None, len(release.digest)  # None: not published yet
    (1.0, True, 64)
    """

    id: int
    time: str
    spend: Spend
    output: str | None
    digest: str

    def to_dict(self) -> dict[str, Any]:
        """The release as the command line prints it.

        >>> ledger = release_side.Ledger("two.ledger")
        >>> account = ledger.init("adult", unlimited=True)
        >>> number = ledger.record("adult", spend)
        >>> ledger.account("adult").releases[0].to_dict()["epsilon"]
        1.0
        """
        return {"id": self.id, "time": self.time, **asdict(self.spend), "output": self.output, "digest": self.digest}


@dataclass(frozen=True)
class TableAccount:
    """A table of the ledger: its budget (None: unlimited, releases are only counted) and its releases, oldest first.

    >>> account = release_side.Ledger("budget.ledger").init("survey", epsilon=2.0, delta=1e-6)
    >>> account.total_epsilon, account.total_delta, account.epsilon_left, account.mechanism_left
    (0.0, 1e-06, 2.0, 'discrete gaussian')
    >>> account.spends, account.releases
    ((), ())
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
        """What every release of the table protects: "rows", or units and their column; None before the first release.

        >>> account = release_side.Ledger("budget.ledger").init("rivers", epsilon=2.0, delta=1e-6)
        >>> account.protects is None
        True
        """
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
        """Whether `total_epsilon` and the budget also hold if the choice of each release depended on the earlier ones.

        >>> release_side.Ledger("budget.ledger").init("lakes", epsilon=2.0, delta=1e-6).holds_if_adaptive
        True
        """
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
        return largest_epsilon_left(
            self.spends, self.epsilon, self.delta, mechanism=self.mechanism_left, delta=self.delta
        )

    def admits(self, spend: Spend) -> bool:
        """Whether one more release keeps the budget.

        >>> account = release_side.Ledger("budget.ledger").init("panel", epsilon=0.5, delta=1e-6)
        >>> account.admits(spend)
        False
        """
        return self.epsilon is None or self.delta is None or fits([*self.spends, spend], self.epsilon, self.delta)

    def check_alike(self, spend: Spend) -> None:
        """PublishError if the table has releases that protect something else: such guarantees do not add up.

        >>> account = release_side.Ledger("budget.ledger").init("clinics", epsilon=2.0, delta=1e-6)
        >>> account.check_alike(spend)  # silent, or PublishError
        """
        others = {release.protects for release in self.spends} - {spend.protects}
        if others:
            raise PublishError(
                f"the releases of table {self.name!r} in the ledger protect {', '.join(sorted(others))}, and this one would "
                f"protect {spend.protects}: the two do not add up to one guarantee, because one unit may contain many "
                "others. Protect the same, or count it under another name and budget."
            )

    def warning(self, spend: Spend) -> str | None:
        """A warning if the total with this release would not hold for a choice that depends on earlier ones; else None.

        >>> account = release_side.Ledger("budget.ledger").init("wards", epsilon=2.0, delta=1e-6)
        >>> account.warning(spend) is None  # Gaussian releases alone
        True
        """
        if self._holds_if_adaptive((*self.spends, spend)):
            return None
        return (
            f"with this release table {self.name!r} has noise that is not Gaussian, under a delta above 0. The rule for its "
            "total holds only if every epsilon was chosen before the first release was seen. If your choice of this release "
            "depends on an earlier one, add up all epsilons, and all deltas, instead. To choose freely, use Gaussian noise "
            "throughout, or keep both sums within the budget."
        )

    def refusal(self, spend: Spend) -> PublishError:
        """The error for a release that the budget does not admit: what is asked, spent and left.

        >>> account = release_side.Ledger("budget.ledger").init("schools", epsilon=0.5, delta=1e-6)
        >>> print(account.refusal(spend))
        table 'schools' has a budget of epsilon 0.5, delta 1e-06, and nothing is spent yet: a Gaussian release of
            epsilon 1, delta 1e-06 does not fit. At delta 1e-06 a Gaussian release of epsilon up to 0.5 still fits: ask
            for that.
        """
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
        """The account as the command line prints it.

        >>> account = release_side.Ledger("budget.ledger").init("farms", epsilon=0.5, delta=1e-6)
        >>> sorted(account.to_dict())
        ['delta', 'epsilon', 'holds_if_adaptive', 'left', 'protects', 'releases', 'spent', 'table']
        """
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
