"""The ledger: which releases were made of which table, and how much of its budget they have spent.

One file, safe under several processes on one machine and under crashes: a spend is checked and written in
one transaction that is on the disk before `record` returns, and noise is drawn after that. A draw that never
became a file still counts. A table is what the curator calls it; nothing looks at its rows. Names that were
never given a budget are recorded and not limited. Keep the file on a local disk: locks of network disks are
not reliable. LEDGER and LEDGER-journal belong together, and a copy of both is a second budget.
"""

from __future__ import annotations

import difflib
import os
import sqlite3
import unicodedata
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from kmeanalyst.releases.noise import GAUSSIAN, LAPLACE
from kmeanalyst.releases.statement import REPLACE_ROW, REPLACE_UNIT
from release_side.composition import Spend, check_text, fits, largest_epsilon_left, rounded, total_epsilon
from release_side.mechanism import PublishError, check_budget

_ALIKE = 0.75  # of two names' letters, from which one may be meant for the other
_APPLICATION = int.from_bytes(b"kmel", "big")
_FORMATS = (
    1,
    2,
)  # the second, which a ledger becomes with its first release that protects units, says of each what it does
_PATIENCE = 60.0  # seconds to wait for another process that is writing
_SCHEMA = f"""
CREATE TABLE budget (
    name TEXT NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 200),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon > 0 AND epsilon <= 1e5),
    delta REAL NOT NULL CHECK (typeof(delta) = 'real' AND delta >= 0 AND delta < 1)
);
CREATE TABLE release (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL CHECK (typeof(name) = 'text' AND length(name) BETWEEN 1 AND 200),
    time TEXT NOT NULL CHECK (typeof(time) = 'text'),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon > 0 AND epsilon <= 1e5),
    delta REAL NOT NULL CHECK (typeof(delta) = 'real' AND delta >= 0 AND delta < 1),
    mechanism TEXT NOT NULL CHECK (typeof(mechanism) = 'text'),
    calibration TEXT NOT NULL CHECK (typeof(calibration) = 'text'),
    noise_multiplier REAL NOT NULL CHECK (typeof(noise_multiplier) = 'real' AND noise_multiplier BETWEEN 1e-9 AND 1e99),
    n_rows INTEGER NOT NULL CHECK (typeof(n_rows) = 'integer' AND n_rows > 0),
    method TEXT NOT NULL CHECK (typeof(method) = 'text'),
    output TEXT CHECK (output IS NULL OR typeof(output) = 'text')
);
CREATE INDEX release_name ON release (name);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {_FORMATS[0]};
"""
_UNITS = f"""
ALTER TABLE release ADD COLUMN neighbouring TEXT NOT NULL DEFAULT '{REPLACE_ROW}' CHECK (typeof(neighbouring) = 'text');
PRAGMA user_version = {_FORMATS[1]};
"""
_FUNCTIONS = """
CREATE TABLE IF NOT EXISTS function (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    release INTEGER NOT NULL REFERENCES release (id),
    time TEXT NOT NULL CHECK (typeof(time) = 'text'),
    state TEXT NOT NULL UNIQUE CHECK (typeof(state) = 'text' AND length(state) = 64),
    pivots INTEGER NOT NULL CHECK (typeof(pivots) = 'integer' AND pivots > 0),
    extended INTEGER NOT NULL DEFAULT 0 CHECK (extended IN (0, 1))
)
"""  # a table of its own, made when it is needed: what reads releases finds nothing changed
_SPEND = ("epsilon", "delta", "mechanism", "calibration", "noise_multiplier", "n_rows", "method")


@dataclass(frozen=True)
class RecordedRelease:
    """One release as the ledger has it; `output` is the file it became, None for a draw that became none.

    >>> ledger = release_side.Ledger("one.ledger")
    >>> number = ledger.record("adult", spend)
    >>> release = ledger.account("adult").releases[0]
    >>> release.spend.epsilon, release.output is None  # None: not published yet
    (1.0, True)
    """

    id: int
    time: str
    spend: Spend
    output: str | None

    def to_dict(self) -> dict[str, Any]:
        """The release as the command line prints it.

        >>> ledger = release_side.Ledger("two.ledger")
        >>> number = ledger.record("adult", spend)
        >>> ledger.account("adult").releases[0].to_dict()["epsilon"]
        1.0
        """
        return {"id": self.id, "time": self.time, **asdict(self.spend), "output": self.output}


@dataclass(frozen=True)
class RecordedExtension:
    """Further pivots of a released function, which spent nothing: of which release, when, and how many there are now."""

    release: int
    time: str
    pivots: int


@dataclass(frozen=True)
class TableAccount:
    """A table of the ledger: its budget (None: recorded and not limited) and every release, oldest first.

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
    extensions: tuple[RecordedExtension, ...] = ()

    @property
    def spends(self) -> tuple[Spend, ...]:
        """What each release costs."""
        return tuple(release.spend for release in self.releases)

    @property
    def total_delta(self) -> float:
        """The δ at which `total_epsilon` is told: that of the budget, or the largest of the releases."""
        return self.delta if self.delta is not None else max((spend.delta for spend in self.spends), default=0.0)

    @cached_property
    def total_epsilon(self) -> float:
        """ε of all releases together; infinite where a Gaussian one is counted at δ = 0."""
        return total_epsilon(self.spends, self.total_delta)

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
        """PublishError if the table has releases that protect something else: such promises do not add up.

        >>> account = release_side.Ledger("budget.ledger").init("clinics", epsilon=2.0, delta=1e-6)
        >>> account.check_alike(spend)  # silent, or PublishError
        """
        if any(release.neighbouring != spend.neighbouring for release in self.spends):
            one, other = ("rows", "persons") if spend.neighbouring == REPLACE_UNIT else ("persons", "rows")
            raise PublishError(
                f"the releases of table {self.name!r} in the ledger protect {one}, and this one would protect {other}: the "
                "two do not add up to one promise. Protect the same, or count it under another name and budget."
            )

    def refusal(self, spend: Spend) -> PublishError:
        """What is asked, spent and left, for a release that the budget does not admit.

        >>> account = release_side.Ledger("budget.ledger").init("schools", epsilon=0.5, delta=1e-6)
        >>> print(account.refusal(spend))
        table 'schools' has a budget of epsilon 0.5, delta 1e-06, and nothing is spent yet: a Gaussian release of
            epsilon 1, delta 1e-06 does not fit. At delta 1e-06 a Gaussian release of epsilon up to 0.5 still fits: ask
            for that.
        """
        assert self.epsilon is not None and self.delta is not None
        left = largest_epsilon_left(self.spends, self.epsilon, self.delta, mechanism=spend.mechanism, delta=spend.delta)
        law = {GAUSSIAN: "Gaussian", LAPLACE: "Laplace"}.get(spend.mechanism, "pure")
        offer = f"release of epsilon up to {rounded(left, up=False)} still fits: ask for that"
        return PublishError(
            f"table {self.name!r} has a budget of epsilon {self.epsilon:g}, delta {self.delta:g}, and {self._spent()}: "
            f"a {law} release of epsilon {spend.epsilon:g}, delta {spend.delta:g} does not fit. At delta "
            f"{spend.delta:g} {f'a {law} {offer}' if left else f'no {law} release fits: use what is published'}."
        )

    def _spent(self) -> str:
        if not self.releases:
            return "nothing is spent yet"
        count = len(self.releases)
        releases = "its one release has" if count == 1 else f"its {count} releases have together"
        return f"{releases} spent epsilon {rounded(self.total_epsilon, up=True)}"

    def to_dict(self) -> dict[str, Any]:
        """The account as the command line prints it.

        >>> account = release_side.Ledger("budget.ledger").init("farms", epsilon=0.5, delta=1e-6)
        >>> sorted(account.to_dict())
        ['delta', 'epsilon', 'left', 'releases', 'spent', 'table']
        """
        return {
            "table": self.name,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "spent": {"epsilon": self.total_epsilon, "delta": self.total_delta},
            "left": None
            if self.epsilon is None
            else {"epsilon": self.epsilon_left, "delta": self.delta, "mechanism": self.mechanism_left},
            "releases": [release.to_dict() for release in self.releases],
            **({"extensions": [asdict(each) for each in self.extensions]} if self.extensions else {}),
        }


class Ledger:
    """A ledger file. Every call opens it, does its work in one transaction, and closes it.

    Errors   PublishError; nothing is written then.

    >>> ledger = release_side.Ledger("budget.ledger")
    >>> account = ledger.init("adult", epsilon=2.0, delta=1e-6)
    >>> counted = {"ledger": "budget.ledger", "table": "adult"}
    >>> published = release_side.publish(
    ...     "private.csv", "domain.toml", epsilon=1, delta=1e-6, method="subspace", points=20, **counted
    ... )
    >>> round(ledger.account("adult").total_epsilon, 3)
    1.0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def init(self, table: str, epsilon: float, delta: float) -> TableAccount:
        """Give a table its budget, once: a budget is a promise. What was recorded before counts.

        >>> ledger = release_side.Ledger("budget.ledger")
        >>> ledger.init("census", epsilon=2.0, delta=1e-6).epsilon_left
        2.0
        """
        name = _table_name(table)
        check_budget(epsilon, delta)
        with self._writing() as connection:
            account = _account(connection, name)
            if account.epsilon is not None:
                raise PublishError(
                    f"table {name!r} has a budget already, epsilon {account.epsilon:g}, delta {account.delta:g}: a "
                    "budget is a promise to the people in the table, and stays. Keep it, or name another table."
                )
            connection.execute("INSERT INTO budget VALUES (?, ?, ?)", (name, float(epsilon), float(delta)))
            return _account(connection, name)

    def check(self, table: str, spend: Spend) -> bool:
        """Whether the table has a budget; PublishError if the release would not fit or could not be recorded.

        Writes and creates nothing.

        >>> ledger = release_side.Ledger("budget.ledger")
        >>> account = ledger.init("visits", epsilon=2.0, delta=1e-6)
        >>> ledger.check("visits", spend)  # it fits, and the table has a budget
        True
        """
        name = _table_name(table)
        self._check_place(writing=True)
        if not self.path.exists():
            return False
        with self._reading() as connection:
            account = _account(connection, name) if connection else None
            budgets = [] if connection is None else [row[0] for row in connection.execute("SELECT name FROM budget")]
        self._check_meant(name, budgets)
        if account:
            account.check_alike(spend)
            if not account.admits(spend):
                raise account.refusal(spend)
        return account is not None and account.epsilon is not None

    def _check_meant(self, name: str, budgets: list[str]) -> None:
        """PublishError for a table without a budget whose name is nearly that of one with: a slip would spend beside it."""
        meant = [] if name in budgets else difflib.get_close_matches(name, budgets, n=1, cutoff=_ALIKE)
        if meant:
            raise PublishError(
                f"table {name!r} has no budget in {self.path}, and {meant[0]!r} has one: a slip of the pen would spend beside "
                f"it. Name {meant[0]!r}, or give {name!r} a budget of its own with release-side ledger init."
            )

    def record(self, table: str, spend: Spend) -> int:
        """Check a release and write it down, before its noise is drawn; the number it has in the ledger.

        Guarantee   the spend is on the disk when this returns, and no two processes share what only one may spend.

        >>> ledger = release_side.Ledger("recorded.ledger")
        >>> ledger.record("adult", spend)  # the number of the release
        1
        """
        name = _table_name(table)
        now = _now()
        with self._writing() as connection:
            account = _account(connection, name)
            account.check_alike(spend)
            if admitted := account.admits(spend):
                if spend.neighbouring != REPLACE_ROW and not _says_neighbouring(connection):
                    _execute_all(connection, _UNITS)
                fields = (*_SPEND, "neighbouring") if _says_neighbouring(connection) else _SPEND
                written = connection.execute(
                    f"INSERT INTO release (name, time, {', '.join(fields)}) VALUES (?, ?{', ?' * len(fields)})",
                    (name, now, *(getattr(spend, field) for field in fields)),
                )
        if not admitted:
            raise account.refusal(spend)  # worked out when others may write again
        assert written.lastrowid is not None
        return written.lastrowid

    def published(self, release_id: int, output: str | os.PathLike[str]) -> None:
        """Note the file that a recorded release became.

        >>> ledger = release_side.Ledger("by_hand.ledger")
        >>> ledger.published(ledger.record("adult", spend), "adult.kme")
        >>> ledger.account("adult").releases[-1].output
        'adult.kme'
        """
        text = os.fspath(output).encode("utf-8", "backslashreplace").decode()
        self._check_is_there()
        with self._writing() as connection:
            marked = connection.execute(
                "UPDATE release SET output = ? WHERE id = ? AND output IS NULL", (text, release_id)
            )
            if marked.rowcount != 1:
                raise PublishError(
                    f"{self.path} has no release {release_id!r:.80} that waits for its file. Pass the number that "
                    "recording gave."
                )

    def function_is(self, release_id: int, state: str, pivots: int) -> None:
        """Note what a released function came to be, so that it can be extended, once, from there.

        state   the digest of its coordinates and pivots; each may come up only once.

        >>> ledger = release_side.Ledger("functions.ledger")
        >>> ledger.function_is(ledger.record("adult", spend), state="ab" * 32, pivots=20)
        """
        self._check_is_there()
        with self._writing() as connection:
            connection.execute(_FUNCTIONS)
            connection.execute(
                "INSERT INTO function (release, time, state, pivots) VALUES (?, ?, ?, ?)",
                (release_id, _now(), state, pivots),
            )

    def extend(self, table: str, state: str, *, most: int) -> int:
        """Note, before its noise is drawn, that a function is extended from this state; the release it came from.

        Two extensions of one state would show the same values with two draws of noise, which is a second spend: a state
        can be extended once, even if nothing comes of it. `most`: in how many parts a function may be released.

        >>> ledger = release_side.Ledger("functions.ledger")
        >>> ledger.function_is(ledger.record("sites", spend), state="cd" * 32, pivots=20)
        >>> ledger.extend("sites", "cd" * 32, most=10) > 0
        True
        """
        self.check_extensible(table, state, most=most)
        with self._writing() as connection:
            marked = connection.execute("UPDATE function SET extended = 1 WHERE state = ? AND extended = 0", (state,))
            if marked.rowcount != 1:
                raise PublishError(_EXTENDED)
            return int(connection.execute("SELECT release FROM function WHERE state = ?", (state,)).fetchone()[0])

    def check_extensible(self, table: str, state: str, *, most: int) -> None:
        """PublishError unless this state of a function of the table is known and has not been extended yet.

        >>> ledger = release_side.Ledger("functions.ledger")
        >>> ledger.function_is(ledger.record("shops", spend), state="ef" * 32, pivots=20)
        >>> ledger.check_extensible("shops", "ef" * 32, most=10)  # silent, or PublishError
        """
        name = _table_name(table)
        self._check_place(writing=True)
        with self._reading() as connection:
            row = None if connection is None or not _has_functions(connection) else connection.execute(
                "SELECT function.extended, (SELECT count(*) FROM function AS other WHERE other.release = function.release) "
                "FROM function JOIN release ON release.id = function.release WHERE state = ? AND name = ?", (state, name)
            ).fetchone()  # fmt: skip
        if row is None:
            raise PublishError(
                f"the ledger {self.path} knows of no such function of table {name!r}, so nobody could see to it that it is "
                "extended once only. Name the ledger and the table that it was published with, and the file as it was written."
            )
        if row[0]:
            raise PublishError(_EXTENDED)
        if row[1] >= most:
            raise PublishError(f"this function has {row[1]} parts, and at most {most} are proven for. Publish another.")

    def parts(self, state: str) -> tuple[int, ...]:
        """How many pivots a function had after each of its parts, up to this state; none where it was not counted here.

        >>> release_side.Ledger("budget.ledger").parts("f3a1")
        ()
        """
        with self._reading() as connection:
            rows = [] if connection is None or not _has_functions(connection) else connection.execute(
                "SELECT before.pivots FROM function JOIN function AS before ON before.release = function.release AND "
                "before.id <= function.id WHERE function.state = ? ORDER BY before.id", (state,)
            ).fetchall()  # fmt: skip
        return tuple(int(pivots) for (pivots,) in rows)

    def account(self, table: str) -> TableAccount:
        """One table with its budget and releases; empty if the ledger does not know it.

        >>> ledger = release_side.Ledger("budget.ledger")
        >>> account = ledger.init("persons", epsilon=2.0, delta=1e-6)
        >>> ledger.account("persons").total_epsilon
        0.0
        """
        name = _table_name(table)
        with self._reading() as connection:
            return _account(connection, name) if connection else TableAccount(name, None, None, ())

    def accounts(self) -> list[TableAccount]:
        """Every table with its budget and releases, by name.

        >>> ledger = release_side.Ledger("towns.ledger")
        >>> account = ledger.init("rural", epsilon=1.0, delta=1e-6)
        >>> [each.name for each in ledger.accounts()]
        ['rural']
        """
        with self._reading() as connection:
            if connection is None:
                raise PublishError(f"{self.path} is empty: no ledger yet. Make one: release-side ledger init.")
            names = connection.execute("SELECT name FROM budget UNION SELECT name FROM release ORDER BY name")
            return [_account(connection, name) for (name,) in names.fetchall()]

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of which there is one at a time; on the disk if the block ends well."""
        self._check_place(writing=True)
        with self._connected("rwc") as connection:
            connection.execute("PRAGMA synchronous = EXTRA")  # else a power cut could undo the end of a transaction
            connection.execute("PRAGMA fullfsync = ON")
            connection.execute("BEGIN IMMEDIATE")
            if not self._is_laid_out(connection):
                _execute_all(connection, _SCHEMA)
            yield connection
            connection.execute("COMMIT")  # closing without it undoes everything

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A connection that sees one state of the ledger; None if the file is empty."""
        self._check_place(writing=False)
        self._check_is_there()
        with self._connected("rw") as connection:  # not "ro": what a killed process left half written must be undone
            connection.execute("BEGIN")
            yield connection if self._is_laid_out(connection) else None

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        address = f"{self.path.absolute().as_uri()}?mode={mode}"
        try:
            with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise PublishError(_said(self.path, error)) from None

    def _check_is_there(self) -> None:
        if not self.path.exists():
            raise PublishError(
                f"there is no ledger {self.path}. Check the path, or make one: release-side ledger init."
            )

    def _check_place(self, *, writing: bool) -> None:
        folder, exists = self.path.absolute().parent, self.path.exists()
        if not folder.is_dir():
            raise PublishError(f"there is no folder {folder} for the ledger. Nothing was recorded. Make it first.")
        if exists and not self.path.is_file():
            raise PublishError(f"the ledger {self.path} is not a plain file. Nothing was recorded. Name one.")
        if exists and self.path.stat().st_nlink > 1:  # each name would have a journal of its own, to undo the other's
            raise PublishError(
                f"the ledger {self.path} has a second name (a hard link), under which it could be written as if this "
                "one were not there. Nothing was recorded. Remove the other name, or link it symbolically."
            )
        if writing and not all(os.access(place, os.W_OK) for place in [folder, *([self.path] if exists else [])]):
            raise PublishError(
                f"the ledger {self.path} cannot be written. Nothing was recorded. Make it and its folder writable, or "
                "name another file."
            )

    def _is_laid_out(self, connection: sqlite3.Connection) -> bool:
        """Whether the file is a ledger, or empty; PublishError if it is anything else."""
        application, version, things = (
            connection.execute(question).fetchone()[0]
            for question in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
        )
        if application == version == things == 0:
            return False
        if application != _APPLICATION:
            raise PublishError(
                f"{self.path} belongs to another application: it is no ledger. Nothing was changed. Name another file."
            )
        if version not in _FORMATS:
            raise PublishError(
                f"the ledger {self.path} is format {version}; this kmeanalyst reads format {_FORMATS[-1]}. Nothing was "
                "read: another format may have changed what a spend means. Upgrade kmeanalyst."
            )
        return True


_EXTENDED = (
    "this state of the function has been extended already: once more would show the same values with other noise, which "
    "is a second spend. Extend the latest file, or publish another function."
)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _has_functions(connection: sqlite3.Connection) -> bool:
    found = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'function'")
    return bool(found.fetchone()[0])


_DAMAGED = ("is damaged", "Restore it from a copy; what it held was spent all the same")
_CLOSED = ("cannot be opened or written", "Make the file and its folder readable and writable")
_TROUBLES = {
    sqlite3.SQLITE_NOTADB: ("is not a ledger, but a file of another kind", "Name another file"),
    sqlite3.SQLITE_BUSY: ("was in use by another process for a minute", "Try again when that has ended"),
    sqlite3.SQLITE_READONLY: _CLOSED,
    sqlite3.SQLITE_PERM: _CLOSED,
    sqlite3.SQLITE_CANTOPEN: _CLOSED,
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "Make room on the disk"),
    sqlite3.SQLITE_IOERR: ("could not be read or written: the disk failed", "Check the disk, then show the ledger"),
}


def _said(path: Path, error: sqlite3.Error) -> str:
    """What went wrong with the file, in words."""
    primary = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    what, mend = _TROUBLES.get(primary, _DAMAGED)
    return f"the ledger {path} {what}. Nothing was recorded. {mend}."


def _table_name(name: object) -> str:
    """A checked name, in the one Unicode spelling under which it is looked up."""
    spelled = unicodedata.normalize("NFKC", name) if isinstance(name, str) else name
    check_text("the name of a table", spelled)
    return str(spelled)


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    for statement in statements.split(";"):
        connection.execute(statement)


def _says_neighbouring(connection: sqlite3.Connection) -> bool:
    """Whether the ledger says of each release what it protects; where it does not, it is rows."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == _FORMATS[1])


def _account(connection: sqlite3.Connection, name: str) -> TableAccount:
    """The account of a table; PublishError if a row is not what `record` writes."""
    budget = connection.execute("SELECT epsilon, delta FROM budget WHERE name = ?", (name,)).fetchone()
    fields = ", ".join((*_SPEND, "neighbouring") if _says_neighbouring(connection) else _SPEND)
    rows = connection.execute(
        f"SELECT id, time, output, {fields} FROM release WHERE name = ? ORDER BY id", (name,)
    ).fetchall()
    try:
        check_text("the name of a table", name)
        if budget is not None:
            check_budget(*budget)
        epsilon, delta = budget or (None, None)
        return TableAccount(name, epsilon, delta, tuple(_recorded(*row) for row in rows), _extensions(connection, name))
    except PublishError as error:
        raise PublishError(
            f"the ledger's account of table {name!r:.80} was changed by another hand: {error} Nothing was recorded. "
            "Restore the ledger from a copy."
        ) from None


def _extensions(connection: sqlite3.Connection, name: str) -> tuple[RecordedExtension, ...]:
    """What became of a table's functions after they were first released."""
    if not _has_functions(connection):
        return ()
    rows = connection.execute(
        "SELECT function.release, function.time, function.pivots FROM function JOIN release ON release.id = "
        "function.release WHERE name = ? AND function.id > (SELECT min(id) FROM function AS first WHERE first.release = "
        "function.release) ORDER BY function.id",
        (name,),
    ).fetchall()
    return tuple(RecordedExtension(*row) for row in rows)


def _recorded(number: int, time: Any, output: Any, *spend: Any) -> RecordedRelease:
    check_text("the time of a release", time)
    if not isinstance(output, str | None):
        raise PublishError("the file of a release is not text.")
    return RecordedRelease(number, time, Spend(*spend), output)
