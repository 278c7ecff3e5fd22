"""What tests of ledger chain share with others."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from release_side.budget.ledger import Ledger
from release_side.budget.ledger_chain import BEGINNING, Entry, digest_of

FIELDS = ("number", "time", "kind", "facts", "salt", "previous", "digest")


def recomputed(entries: list[Entry]) -> list[Entry]:
    """A chain that fits, computed anew over what is left of it or was changed in it."""
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
