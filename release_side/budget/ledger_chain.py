"""The entries of a ledger, each of which carries the digest of the one before it.

An entry's digest is the SHA-256 of all its fields in one canonical encoding, the previous digest among them. Whoever
changes, removes, inserts or moves an entry must recompute every later digest, and this changes the last one, the head.
A head that was published earlier (in the header of a released file) is then missing from the ledger; the same holds if
the end of the ledger was cut off.

Every entry holds 32 random bytes, so that the digests in published files reveal nothing about table names, times or
file names: a guessed entry cannot be confirmed by its digest.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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
        except (TypeError, ValueError):
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
        return bool(
            entry.digest == digest_of(entry.number, entry.time, entry.kind, entry.facts, entry.salt, entry.previous)
        )
    except ValueError:
        return False
