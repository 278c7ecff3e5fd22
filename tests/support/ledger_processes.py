"""Processes that share a ledger, forked from one that has imported everything: test_ledger.py runs this file.

Prints one JSON value. Without POSIX there is no fork, and the tests that need it are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from release_side.budget import account, ledger, ledger_file
from release_side.budget.composition import Spend
from release_side.budget.ledger import Ledger
from release_side.door.mechanism import GaussianNoise, PublishError


def third_of_the_budget() -> Spend:
    """Three of these are (1, 1e-6) exactly: 3 / (√3 m)² = 1 / m²."""
    multiplier = GaussianNoise(1.0, 1e-6).multiplier() * 3**0.5
    return Spend(0.6, 1e-6, "discrete gaussian", "analytic", multiplier, 1000, "random-features")


def at_once(count: int, work: Callable[[], str]) -> list[str]:
    """What `work` says in each of `count` processes that start at the same moment."""
    gate, opener = os.pipe()
    answers, telling = os.pipe()
    children = []
    for _ in range(count):
        if (child := os.fork()) == 0:
            os.close(opener)
            os.read(gate, 1)  # returns when every process has closed the opener
            try:
                os.write(telling, f"{work()}\n".encode())
            except BaseException:
                os.write(telling, f"{traceback.format_exc()!r}\n".encode())
            os._exit(0)
        children.append(child)
    for end in (opener, telling, gate):
        os.close(end)
    with os.fdopen(answers) as reader:
        said = reader.read().splitlines()
    for child in children:
        os.waitpid(child, 0)
    return said


def race(folder: Path, rounds: int, count: int, budget: bool) -> list[list[str]]:
    """In each round, `count` processes record a third of the budget in one ledger, which they make where there is no budget."""
    spend = third_of_the_budget()

    def record(path: Path) -> str:
        try:
            if not budget:
                with contextlib.suppress(PublishError):  # another process was first
                    Ledger(path).init("adult", unlimited=True)
            return f"recorded {Ledger(path).record('adult', spend)}"
        except PublishError as error:
            return str(error)

    said = []
    for number in range(rounds):
        path = folder / f"{number}.ledger"
        if budget:
            Ledger(path).init("adult", 1.0, 1e-6)
        said.append(at_once(count, lambda path=path: record(path)))  # type: ignore[misc]
        said[-1].append(f"found {len(Ledger(path).accounts()[0].releases)}")
    return said


def recording(path: Path, marker: Path, spend: Spend, begun: bool = True) -> None:
    """What a publication does: record, and only then go on; in a new ledger where none has begun."""
    if not begun:
        Ledger(path).init("adult", unlimited=True)
    Ledger(path).record("adult", spend)
    os.close(os.open(marker, os.O_CREAT))
    assert spend  # one more line to be killed at


def killed_at(line: int, work: Callable[[], None]) -> bool:
    """Whether a process that does `work` was killed, by its own hand, at the n-th line it came to here or in the ledger's code."""
    watched = {module.__file__ for module in (account, ledger, ledger_file)} | {recording.__code__}
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if not watched & {frame.f_code.co_filename, frame.f_code}:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    if (child := os.fork()) == 0:
        sys.settrace(trace)
        work()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def kill(folder: Path, begun: bool) -> list[dict[str, Any]]:
    """What is found after a kill at each line of recording; `begun`: in a ledger that has a release already."""
    spend, findings = third_of_the_budget(), []
    origin, path, marker = folder / "origin.ledger", folder / "killed.ledger", folder / "marker"
    if begun:
        Ledger(origin).init("adult", 1.0, 1e-6)
        Ledger(origin).record("adult", spend)
    killed = True
    while killed:
        for left_over in folder.glob("killed.ledger*"):
            left_over.unlink()
        marker.unlink(missing_ok=True)
        if begun:
            shutil.copy(origin, path)
        killed = killed_at(len(findings) + 1, lambda: recording(path, marker, spend, begun))
        ready = path.exists() and path.stat().st_size > 0 and Ledger(path).accounts()  # else it was not made to the end
        kept = spends(path) if ready else ()
        whole = not ready or (integrity(path) == "ok" and all(one == spend for one in kept))
        finding = {"killed": killed, "marked": marker.exists(), "found": len(kept), "whole": whole}
        if not ready:
            Ledger(path).init("adult", unlimited=True)
        Ledger(path).record("adult", spend)  # whatever happened, the next one can be recorded
        findings.append(finding | {"next": len(spends(path))})
    return findings


def spends(path: Path) -> tuple[Spend, ...]:
    return Ledger(path).accounts()[0].spends


def integrity(path: Path) -> str:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])


def half_written(folder: Path, begun: bool) -> dict[str, Any]:
    """What is found when a writer was killed with a part of its transaction in the file, and the way back in the journal."""
    path, journal = folder / "half.ledger", folder / "half.ledger-journal"
    spend = third_of_the_budget()
    path.touch()
    if begun:
        Ledger(path).init("adult", 1.0, 1e-6)
        Ledger(path).record("adult", spend)
    before = path.read_bytes()
    if (child := os.fork()) == 0:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA cache_size = 5")  # pages: what does not fit is written to the file early
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE more (text TEXT)")
        for _ in range(500):
            connection.execute("INSERT INTO more VALUES (?)", ("half" * 100,))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    hot = path.read_bytes() != before and journal.exists() and journal.stat().st_size > 0
    with contextlib.suppress(PublishError):  # an empty ledger has no such table
        Ledger(path).check("adult", spend)  # the first to come undoes it
    as_before = spends(path) == (spend,) if begun else path.read_bytes() == b""
    return {"hot": hot, "as_before": as_before, "whole": integrity(path) == "ok", "journal": journal.exists()}


if __name__ == "__main__":
    does = {"race": race, "kill": kill, "half_written": half_written}[sys.argv[1]]
    print(json.dumps(does(Path(sys.argv[2]), *map(int, sys.argv[3:]))))  # type: ignore[operator]
