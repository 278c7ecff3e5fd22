"""The file of a ledger: an SQLite database with one table, to which entries are only appended, in a chain of digests.

An entry's digest is the SHA-256 of all its fields in one canonical encoding, the previous digest among them: whoever changes,
removes, inserts or moves an entry must recompute every later digest, and so the last one, the head. A head that was published
earlier (in the header of a released file) is then missing, as it is if the end was cut off. Every entry holds 32 random bytes,
so that published digests reveal nothing about tables, times or files: a guessed entry cannot be confirmed by its digest.

Only its owner may read the file (mode 0600). A write is one transaction, of which there is one at a time, and is on the disk when
it ends. Every time the file is opened the whole chain is verified.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from release_side.errors import PublishError

BEGINNING = "0" * 64  # stands for the digest before the first entry
LEDGER, BUDGET, RELEASE, OUTPUT = "ledger", "budget", "release", "output"
KINDS = (LEDGER, BUDGET, RELEASE, OUTPUT)
_SALT_BYTES = 32


@dataclass(frozen=True)
class Entry:
    """One entry of a ledger, as the file holds it; a field may hold anything until the chain is verified.

    number    1, 2, … in the order in which entries were written.
    time      when, in UTC.
    kind      "ledger" (the first one), "budget", "release" or "output" (the file of a release).
    facts     what was recorded, in canonical JSON.
    salt      32 random bytes, in hexadecimal digits.
    previous  digest of the entry before.
    digest    of all the above.
    """

    number: Any
    time: Any
    kind: Any
    facts: Any
    salt: Any
    previous: Any
    digest: Any

    @classmethod
    def after(cls, entries: Sequence[Entry], kind: str, facts: dict[str, Any]) -> Entry:
        """The next entry of a chain, with these facts."""
        previous = entries[-1].digest if entries else BEGINNING
        now = datetime.now(UTC).isoformat(timespec="seconds")
        fields = (len(entries) + 1, now, kind, encoded(facts), secrets.token_hex(_SALT_BYTES), previous)
        return cls(*fields, digest_of(*fields))

    def read(self) -> dict[str, Any]:
        """The facts as values; PublishError if they are not a JSON object."""
        try:
            facts = json.loads(self.facts)
        except (TypeError, ValueError, RecursionError):  # the last of JSON that is nested too deeply
            facts = None
        if not isinstance(facts, dict):
            raise PublishError(f"the facts of entry {self.number} are not a JSON object.")
        return facts


def encoded(facts: object) -> str:
    """Canonical JSON: sorted keys, no spaces, numbers in full precision."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(number: Any, time: Any, kind: Any, facts: Any, salt: Any, previous: Any) -> str:
    """SHA-256 of the fields of an entry; ValueError for a field of the wrong type."""
    if type(number) is not int or not all(isinstance(text, str) for text in (time, kind, facts, salt, previous)):
        raise ValueError("a field has the wrong type")
    return hashlib.sha256(encoded([number, time, kind, facts, salt, previous]).encode()).hexdigest()


def first_fault(entries: Sequence[Entry]) -> str | None:
    """The fault of the first entry that does not fit, in words; None for a sound chain."""
    previous = BEGINNING
    for number, entry in enumerate(entries, 1):
        what = f"entry {number} of {len(entries)}"
        if entry.number != number or type(entry.number) is not int:
            return f"{what} has the number {entry.number!r:.80}: entries were removed, inserted or moved"
        if entry.previous != previous:
            return f"{what} does not carry the digest of the entry before it: entries were removed, inserted or changed"
        if not _has_its_digest(entry):
            return f"{what} does not have its digest: it was changed after it was written"
        if (entry.kind == LEDGER) != (number == 1) or entry.kind not in KINDS:
            return f"{what} is of the kind {entry.kind!r:.80}, which does not belong there"
        previous = entry.digest
    return None if entries else "it has no entries, and every ledger has a first one: they were removed"


def _has_its_digest(entry: Entry) -> bool:
    try:
        return bool(entry.digest == digest_of(entry.number, entry.time, entry.kind, entry.facts, entry.salt, entry.previous))
    except ValueError:
        return False


# ---------------------------------------------------------------------- the file

_APPLICATION = int.from_bytes(b"kmel", "big")
_FORMAT = 1
_TIMEOUT = 60.0  # seconds to wait for another process that is writing
_OWNER_ONLY = 0o600
_FIELDS = "number, time, kind, facts, salt, previous, digest"
_SCHEMA = (
    "CREATE TABLE entry (number INTEGER NOT NULL PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, "
    "facts TEXT NOT NULL, salt TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, digest TEXT NOT NULL UNIQUE)",
    f"PRAGMA application_id = {_APPLICATION}",
    f"PRAGMA user_version = {_FORMAT}",
)
_OBJECTS = "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL OR type != 'index' ORDER BY name"


class LedgerFile:
    """One ledger file: its entries, and transactions that append to them.

    Errors   PublishError; nothing is written then.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def entries(self) -> list[Entry]:
        """The entries of a sound ledger; PublishError, also if the chain is broken."""
        return self._check_chain(self.unverified())

    def unverified(self) -> list[Entry]:
        """The entries as they are in the file, in one state of it; the chain may be broken."""
        with self._connect(writing=False) as connection:  # mode rw: a write of a killed process must be undone
            connection.execute("BEGIN")
            if not self._has_schema(connection):
                raise self._empty()
            return _read_entries(connection)

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[Transaction]:
        """A transaction, of which there is one at a time; on the disk if the block ends without an error.

        create   make the ledger if there is none: a file that does not exist, or is empty.
        """
        with self._connect(writing=True, create=create) as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # else a power cut could undo the end of a transaction
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("BEGIN IMMEDIATE")
            if self._has_schema(connection):
                transaction = Transaction(connection, self._check_chain(_read_entries(connection)))
            elif create:
                transaction = self._begin_ledger(connection)
            else:
                raise self._empty()
            yield transaction
            self._check_written(connection, transaction)
            connection.execute("COMMIT")  # closing without it undoes everything

    def check_path(self, *, writing: bool) -> None:
        """PublishError if the path cannot be a ledger, or cannot be written where it must be."""
        folder, exists = self.path.absolute().parent, self.path.exists()
        if not folder.is_dir():
            raise PublishError(f"there is no folder {folder} for the ledger. Nothing was recorded. Make it first.")
        if exists and not self.path.is_file():
            raise PublishError(f"the ledger {self.path} is not a plain file. Nothing was recorded. Name one.")
        # each name has its own journal, which could undo the other's writes
        if exists and self.path.stat().st_nlink > 1:
            raise PublishError(
                f"the ledger {self.path} has a second name (a hard link), which would have a journal of its own: "
                "a crash could then damage the ledger. Nothing was recorded. Remove the other name, or link it symbolically."
            )
        if writing and not all(os.access(each, os.W_OK) for each in [folder, *([self.path] if exists else [])]):
            raise PublishError(
                f"the ledger {self.path} cannot be written. Nothing was recorded. Make it and its folder writable, or "
                "name another file."
            )

    def _create(self) -> None:
        """An empty file that only its owner may read, whatever the umask; SQLite gives its journal the same mode."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        except FileExistsError:
            return
        try:
            os.fchmod(handle, _OWNER_ONLY)
        finally:
            os.close(handle)

    def _begin_ledger(self, connection: sqlite3.Connection) -> Transaction:
        """Write the schema and the first entry, whose salt makes all later digests differ from those of other ledgers."""
        for statement in _SCHEMA:
            connection.execute(statement)
        transaction = Transaction(connection, [])
        transaction.append(LEDGER, {"format": _FORMAT})
        return transaction

    @contextmanager
    def _connect(self, *, writing: bool, create: bool = False) -> Iterator[sqlite3.Connection]:
        self.check_path(writing=writing)
        if create:
            self._create()
        elif not self.path.exists():
            raise PublishError(
                f"there is no ledger {self.path}. Nothing was recorded. Check the path, or make one: release-side ledger init."
            )
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_TIMEOUT, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise PublishError(_describe_error(self.path, error)) from None

    def _empty(self) -> PublishError:
        return PublishError(
            f"the ledger {self.path} is empty: it has no entries yet. Nothing was recorded. Make one: release-side ledger init."
        )

    def _has_schema(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a ledger and not empty; PublishError if it is anything else."""
        application, version, objects = (
            connection.execute(query).fetchone()[0]
            for query in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if application == version == objects == 0:
            return False
        if application != _APPLICATION:
            raise PublishError(
                f"{self.path} belongs to another application: it is not a ledger. Nothing was changed. Name another file."
            )
        if version != _FORMAT:
            raise PublishError(
                f"the ledger {self.path} is format {version}; this kmeanalyst reads format {_FORMAT}. Nothing was "
                "read: another format may have changed what a spend means. Upgrade kmeanalyst."
            )
        if connection.execute(_OBJECTS).fetchall() != [("table", "entry", _SCHEMA[0])]:  # a trigger could undo an entry
            raise PublishError(
                f"the ledger {self.path} was changed by other software: it holds something other than its table of entries (a "
                "trigger, a view, another table). Nothing was recorded. Restore the ledger from a copy."
            )
        return True

    def _check_written(self, connection: sqlite3.Connection, transaction: Transaction) -> None:
        """PublishError unless the file holds what the transaction appended, and nothing else was changed."""
        if _read_entries(connection) != transaction.entries:
            raise PublishError(
                f"the ledger {self.path} does not hold what was just written to it: something else changes it. Nothing was "
                "recorded. Restore the ledger from a copy."
            )

    def _check_chain(self, entries: list[Entry]) -> list[Entry]:
        fault = first_fault(entries)
        if fault is not None:
            raise PublishError(
                f"the ledger {self.path} was changed by other software: {fault}. Nothing was recorded. Restore the ledger from "
                "a copy; see release-side ledger verify."
            )
        return entries


class Transaction:
    """The entries that a ledger has, and a way to append to them."""

    def __init__(self, connection: sqlite3.Connection, entries: list[Entry]) -> None:
        self.connection, self.entries = connection, entries

    def append(self, kind: str, facts: dict[str, Any]) -> Entry:
        """Write one more entry; it is on the disk when the transaction ends."""
        entry = Entry.after(self.entries, kind, facts)
        self.connection.execute(f"INSERT INTO entry ({_FIELDS}) VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(entry))
        self.entries.append(entry)
        return entry


def _read_entries(connection: sqlite3.Connection) -> list[Entry]:
    return [Entry(*row) for row in connection.execute(f"SELECT {_FIELDS} FROM entry ORDER BY number")]


_DAMAGED = ("is damaged", "Restore it from a copy; the releases that it counted are spent all the same")
_NO_ACCESS = ("cannot be opened or written", "Make the file and its folder readable and writable")
_CAUSES = {
    sqlite3.SQLITE_NOTADB: ("is not a ledger, but a file of another kind", "Name another file"),
    sqlite3.SQLITE_BUSY: ("was in use by another process for a minute", "Try again when that has ended"),
    sqlite3.SQLITE_READONLY: _NO_ACCESS,
    sqlite3.SQLITE_PERM: _NO_ACCESS,
    sqlite3.SQLITE_CANTOPEN: _NO_ACCESS,
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "Make room on the disk"),
    sqlite3.SQLITE_IOERR: ("could not be read or written: the disk failed", "Check the disk, then show the ledger"),
}


def _describe_error(path: Path, error: sqlite3.Error) -> str:
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    what, hint = _CAUSES.get(primary, _DAMAGED)
    return f"the ledger {path} {what}. Nothing was recorded. {hint}."
