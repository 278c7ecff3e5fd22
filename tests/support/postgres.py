"""A PostgreSQL server of the tests' own: in a temporary folder, on a socket there, as a user that is not root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

_SETTINGS = (  # little shared memory: then tables of a few hundred kB are read from where another reader is
    "listen_addresses=''", "fsync=off", "shared_buffers=1MB", "max_connections=20", "lock_timeout=10s",
    "statement_timeout=60s",
)  # fmt: skip


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl; None where PostgreSQL is not installed."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve()] if on_path else sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@dataclass(frozen=True)
class Server:
    """A running server.

    folder   of its socket: what PGHOST says.
    """

    folder: Path
    programs: Path

    @property
    def uri(self) -> str:
        return f"postgresql:///postgres?host={self.folder}&user=postgres"

    def connect(self, **options: Any) -> Any:
        """A connection of ADBC, in autocommit mode unless options say otherwise; close it."""
        from adbc_driver_postgresql import dbapi

        return dbapi.connect(self.uri, **{"autocommit": True, **options})

    def run(self, *commands: str) -> None:
        """Commands, each by itself and committed."""
        with self.connect() as connection, connection.cursor() as cursor:
            for command in commands:
                cursor.execute(command)

    def load(self, name: str, table: pa.Table) -> None:
        """A table with the types of these columns; an older one is replaced."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f'drop table if exists "{name}" cascade')
            cursor.adbc_ingest(name, table, mode="create")

    def stop(self) -> None:
        """At once, as in a crash."""
        _run([self.programs / "pg_ctl", "-D", self.folder / "data", "-m", "immediate", "stop"], check=False)


@contextmanager
def started() -> Iterator[Server]:
    """A new server, for the length of the block."""
    programs = binaries()
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # a short name: the name of a socket has at most 107 bytes
    try:
        if user := _user():
            os.chown(folder, user.pw_uid, user.pw_gid)
        _run([programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync"])
        settings = [f"-c {each}" for each in (*_SETTINGS, f"unix_socket_directories={folder}")]
        _run([programs / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log", "-o", " ".join(settings), "start"])
        server = Server(folder, programs)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as: not root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    names = {each.pw_name for each in pwd.getpwall()}
    return pwd.getpwnam("postgres" if "postgres" in names else "nobody")


def _run(words: Sequence[str | Path], *, check: bool = True) -> None:
    user = _user()
    who: dict[str, Any] = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}
    done = subprocess.run([*map(str, words)], cwd="/", env=environment, stdout=subprocess.DEVNULL, check=False, **who)
    assert done.returncode == 0 or not check, f"{words[0]} failed"
