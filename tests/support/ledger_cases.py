"""Spends, refusals and commands for tests of the ledger, an unread table, and chains of entries that others have changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pandas as pd
import pytest

from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from release_side.budget.composition import Spend, one_more
from release_side.budget.ledger import Ledger
from release_side.budget.ledger_file import BEGINNING, Entry, digest_of
from release_side.errors import PublishError

FIELDS = ("number", "time", "kind", "facts", "salt", "previous", "digest")


def gaussian(epsilon: float, delta: float = 1e-6) -> Spend:
    return one_more(epsilon, delta, GAUSSIAN)


def laplace(epsilon: float) -> Spend:
    return one_more(epsilon, 0.0, LAPLACE)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(PublishError) as caught:
        action()
    return str(caught.value)


class Unread(pd.DataFrame):
    """A table that fails when a row is read."""

    def set_axis(self, *facts: Any, **options: Any) -> Any:
        raise AssertionError("a row was read")


def recomputed(entries: list[Entry]) -> list[Entry]:
    """A sound chain with the contents of these entries."""
    chain: list[Entry] = []
    for entry in entries:
        fields = (len(chain) + 1, entry.time, entry.kind, entry.facts, entry.salt)
        previous = chain[-1].digest if chain else BEGINNING
        chain.append(Entry(*fields, previous, digest_of(*fields, previous)))
    return chain


def replace_all(ledger: Ledger, entries: list[Entry]) -> None:
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute("DELETE FROM entry")
        rows = [tuple(getattr(entry, field) for field in FIELDS) for entry in entries]
        connection.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
