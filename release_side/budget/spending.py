"""What one publication spends: compared with its account before the door, recorded just before the noise.

Every publication (of a table, of a drawn table, of a function) needs the same steps in the same order. They are here only, so that
no kind of publication can omit one.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from kmeanalyst.releases.statement import PopulationSize
from release_side.budget.composition import Spend
from release_side.budget.ledger import Ledger
from release_side.choices.choices import Account
from release_side.door.exponential_mechanism import ExponentialMechanism
from release_side.door.mechanism import Noise
from release_side.errors import KEPT, SPENT, PublishError

Guarantee: TypeAlias = Noise | ExponentialMechanism
_WEAK_EPSILON = 10.0
NO_LEDGER = (
    "no ledger: releases of one table add up, and nothing counts this one. Name a ledger and the table (ledger=…, table=…; see "
    "release-side ledger init), or pass uncounted=True."
)
_log = logging.getLogger("release_side")


class LedgerWarning(UserWarning):
    """A release that no ledger counts, whose total holds only under a condition, or that may be chosen by looking at rows.

    >>> issubclass(release_side.LedgerWarning, UserWarning)
    True
    """


def spending_of(account: Account, mechanism: Any, size: PopulationSize, method: str, output: str | Path | None) -> Spending:
    """What the publication will spend; PublishError if it is weak, or does not fit the budget."""
    if account.rehearsal is not None:
        return Spending(None, "", None, output)
    guarantee: Guarantee = mechanism
    spend = Spend(
        epsilon=guarantee.epsilon, delta=guarantee.delta, mechanism=guarantee.name,
        calibration=guarantee.calibration, noise_multiplier=guarantee.multiplier(), n_rows=size.count, method=method,
        neighbouring=size.neighbouring, unit=size.unit,
    )  # fmt: skip
    if not account.weak and (reason := weakness(guarantee, size)):
        raise PublishError(f"{reason}. Nothing was spent. Choose less, or, if that is meant, pass --weak (in Python weak=True).")
    ledger = None if account.ledger is None else Ledger(account.ledger)
    if ledger is not None:
        if warning := ledger.check(account.table or "", spend):
            warnings.warn(warning, LedgerWarning, stacklevel=3)
    elif not account.uncounted:
        _warn_once_without_ledger()
    return Spending(ledger, account.table or "", spend, output)


class Spending:
    """What one publication spends, and its file. A rehearsal spends nothing.

    head   digest of the ledger's entry for this release, once it is recorded; None without a ledger.
    """

    def __init__(self, ledger: Ledger | None, table: str, spend: Spend | None, output: str | Path | None) -> None:
        self.is_spent = False
        self.head: str | None = None
        self._ledger, self._table, self._spend, self._output = ledger, table, spend, output

    def record(self) -> None:
        """The last thing before the noise."""
        if self._spend is None:
            return
        if self._ledger is not None:
            self._number = self._ledger.record(self._table, self._spend)
            self.head = self._ledger.release(self._number).digest
        self.is_spent = True

    @contextmanager
    def note_budget_spent(self) -> Iterator[None]:
        """Add to every error inside, once noise was drawn, that the release counts."""
        try:
            yield
        except PublishError as error:
            kept = [note for note in getattr(error, "__notes__", []) if note.startswith(KEPT)]  # others may quote cells
            notes = [*kept, *([SPENT] if self.is_spent else [])]
            raise PublishError(" ".join([str(error), *notes])) from None
        except BaseException as error:
            if self.is_spent:
                error.add_note(SPENT)
            raise

    def write(self, write_to: Callable[[str | Path], None]) -> None:
        """Write the file, if one is wanted, with this function of its path; PublishError if that fails."""
        if self._output is None:
            return
        try:
            write_to(self._output)
        except (OSError, ValueError) as error:
            raise PublishError(f"{self._output} was not written: {str(error).rstrip('.')}.") from None

    def published(self) -> None:
        """Note the file's name in the ledger; if this fails, the release is still written and counted."""
        if self._output is None or self._ledger is None:
            return
        try:
            self._ledger.published(self._number, Path(self._output))
        except PublishError:
            _log.warning("%s is written and counted as spent; the ledger could not note its name.", self._output)


def weakness(guarantee: Guarantee, size: PopulationSize) -> str | None:
    """Why a guarantee is weak, from public facts alone: ε, δ and N; None for a strong one."""
    what = size.counted
    if guarantee.epsilon > _WEAK_EPSILON:
        return f"epsilon {guarantee.epsilon:g} is a weak guarantee: above {_WEAK_EPSILON:g} a release may distinguish single {what}"
    if guarantee.delta >= 1 / size.count:
        return (
            f"delta {guarantee.delta:g} is a weak guarantee for N = {size.count:,} {what}: with delta of 1/N or more a "
            f"release may reveal whole {what}"
        )
    return None


@cache
def _warn_once_without_ledger() -> None:
    warnings.warn(NO_LEDGER, LedgerWarning, stacklevel=4)
