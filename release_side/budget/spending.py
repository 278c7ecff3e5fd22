"""What one publication spends and where it is written: checked before the door, recorded just before the noise.

Every publication (of a table, of a drawn table, of a function) asks the same questions in the same order; they stand here
once, so that no way to publish can forget one.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.population_size import PopulationSize
from release_side.budget.composition import Spend
from release_side.budget.ledger import Ledger
from release_side.choices.output_file import check_output
from release_side.choices.public_inputs import refuse_private_as_public
from release_side.errors import SPENT, PublishError
from release_side.private_rows.rows import Table

_WEAK_EPSILON = 10.0
NO_LEDGER = (
    "no ledger: releases of one table add up, and nothing counts this one. Name a ledger and the table (ledger=…, table=…; see "
    "release-side ledger init), or pass uncounted=True."
)
_log = logging.getLogger("release_side")


class LedgerWarning(UserWarning):
    """A release that no ledger counts, or whose total in the ledger holds only under a condition.

    >>> issubclass(release_side.LedgerWarning, UserWarning)
    True
    """


class Guarantee(Protocol):
    """A mechanism with its guarantee: noise, or a draw."""

    @property
    def epsilon(self) -> float: ...
    @property
    def delta(self) -> float: ...
    @property
    def name(self) -> str: ...
    @property
    def calibration(self) -> str: ...
    def multiplier(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Counting:
    """Where a publication is counted and written, as the curator named it.

    ledger, table   the ledger's file, and the name of the private table in it.
    uncounted       publish without a ledger, and without the warning.
    weak            publish although the guarantee is weak.
    rehearsal       the seed of a rehearsal, which spends nothing.
    output, force   the file to write, and whether it may replace an older one.
    """

    ledger: str | Path | None = None
    table: str | None = None
    uncounted: bool = False
    weak: bool = False
    rehearsal: int | None = None
    output: str | Path | None = None
    force: bool = False

    def check_before_opening(
        self, private: Table, public: Table | None, columns: Domain, domain: Domain, others: tuple[object, ...]
    ) -> None:
        """PublishError for what is refused before the private table is opened for publishing.

        public    rows that are handed over as public; compared with the private rows in these columns.
        domain    the whole domain, which remembers the samples that it was drafted from.
        others    further input files, which the output may not replace.
        """
        self._check_ledger()
        check_output(self.output, private=private, ledger=self.ledger, others=others, force=self.force)
        samples = () if self.rehearsal is not None else domain.samples
        refuse_private_as_public(private, public, columns, samples)

    def _check_ledger(self) -> None:
        if (self.ledger is None) != (self.table is None):
            raise PublishError(
                "ledger and table go together: a ledger counts by names of tables. Pass both, or neither."
            )
        if self.ledger is not None and self.rehearsal is not None:
            raise PublishError(
                "a rehearsal protects nobody, so a ledger has nothing to count. Leave out one of the two."
            )
        if self.ledger is not None and self.uncounted:
            raise PublishError(
                "ledger and uncounted contradict each other: a release is counted in the ledger, or it is not counted. Leave "
                "out one of the two."
            )

    def spending(self, mechanism: Any, size: PopulationSize, method: str) -> Spending:
        """What the publication will spend; PublishError if it is weak, or does not fit the budget."""
        if self.rehearsal is not None:
            return Spending(None, "", None, self.output)
        guarantee: Guarantee = mechanism
        spend = Spend(
            epsilon=guarantee.epsilon, delta=guarantee.delta, mechanism=guarantee.name,
            calibration=guarantee.calibration, noise_multiplier=guarantee.multiplier(), n_rows=size.count, method=method,
            neighbouring=size.neighbouring, unit=size.unit,
        )  # fmt: skip
        if not self.weak:
            check_strength(guarantee, size)
        ledger = None if self.ledger is None else Ledger(self.ledger)
        if ledger is not None:
            if warning := ledger.check(self.table or "", spend):
                warnings.warn(warning, LedgerWarning, stacklevel=3)
        elif not self.uncounted:
            _warn_once_that_nothing_counts()
        return Spending(ledger, self.table or "", spend, self.output)


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
    def noted(self) -> Iterator[None]:
        """Whatever fails inside after noise was drawn says that the release counts."""
        try:
            yield
        except PublishError as error:
            raise PublishError(f"{error} {SPENT}" if self.is_spent else str(error)) from None
        except BaseException as error:
            if self.is_spent:
                error.add_note(SPENT)
            raise

    def write(self, write_to: Callable[[str | Path], None]) -> None:
        """Write the file by this function of its path, if one is wanted; PublishError if that fails."""
        if self._output is None:
            return
        try:
            write_to(self._output)
        except (OSError, ValueError) as error:
            raise PublishError(f"{self._output} was not written: {str(error).rstrip('.')}.") from None

    def published(self) -> None:
        """Note the file's name; what is spent and written is so whether or not this succeeds."""
        if self._output is None or self._ledger is None:
            return
        try:
            self._ledger.published(self._number, Path(self._output))
        except PublishError:
            _log.warning("%s is written and counted as spent; the ledger could not note its name.", self._output)


def weakness(guarantee: Guarantee, size: PopulationSize) -> str | None:
    """Why a guarantee protects little, from public facts alone: ε, δ and N; None if it does not."""
    what = size.counted
    if guarantee.epsilon > _WEAK_EPSILON:
        return f"epsilon {guarantee.epsilon:g} is a weak promise: above {_WEAK_EPSILON:g} a release may tell single {what} apart"
    if guarantee.delta >= 1 / size.count:
        return (
            f"delta {guarantee.delta:g} is a weak promise for N = {size.count:,} {what}: with delta of 1/N or more a release "
            f"may give whole {what} away"
        )
    return None


def check_strength(guarantee: Guarantee, size: PopulationSize) -> None:
    """PublishError for a weak guarantee, before anything is spent."""
    if reason := weakness(guarantee, size):
        raise PublishError(
            f"{reason}. Nothing was spent. Choose less, or, if that is meant, pass --weak (in Python weak=True)."
        )


@cache
def _warn_once_that_nothing_counts() -> None:
    warnings.warn(NO_LEDGER, LedgerWarning, stacklevel=4)


__all__ = ["NO_LEDGER", "Counting", "LedgerWarning", "Spending", "weakness"]
