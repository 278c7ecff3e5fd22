"""Publications that are killed: run as a program of its own by test_crash.py, which reads its one line of JSON.

    python publishing_processes.py FOLDER LINES TIMES

One process has everything imported and forks a child for each kill. A child publishes a small table with a ledger
over an older file (with force), and kills itself (SIGKILL) at a line of the code that publishes, records or writes: LINES of them
spread over all there are, and each that puts the file in its place. Or its parent kills it after a
random time, TIMES times. Just before noise is drawn a child leaves a mark. After each kill the parent checks:

- the file is the older one or a new one, whole and valid; a new one's spend is in the ledger;
- where the mark is, the spend is in the ledger: no noise was drawn that nobody counts;
- the ledger is sound, and has at most one spend.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import release_side
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import archive as atomic
from kmeanalyst.releases.file import validate_release, writing
from release_side.budget import composition, ledger, spending
from release_side.choices import output_file
from release_side.door import door, mechanism
from release_side.publishing import opening
from release_side.publishing import publish as publishing

DOMAIN = Domain((Integer(name="age", lower=0, upper=99),))
FRAME = DOMAIN.decode(DOMAIN.draw(40, 1))
DOOR = sys.modules["release_side.door.private_mean"]
TRACED = {
    module.__file__ for module in (
        atomic, writing, composition, ledger, spending, mechanism, output_file, opening, publishing, door, DOOR,
    )
}  # fmt: skip
HONEST = mechanism.GaussianNoise.add_to


def publish_here(folder: Path) -> None:
    """One publication, which leaves a mark just before its noise."""

    def marked(self: Any, exact: Any, *, sensitivity: float) -> Any:
        (folder / "drawn").touch()
        return HONEST(self, exact, sensitivity=sensitivity)

    mechanism.GaussianNoise.add_to = marked  # type: ignore[method-assign]
    release_side.publish(
        FRAME, DOMAIN, epsilon=1.0, delta=1e-6, points=4, features=8, workers=1,
        ledger=folder / "ledger", table="people", output=folder / "out.kme", force=True,
    )  # fmt: skip


def counted(folder: Path, stop: int | None) -> list[str]:
    """Publish; the files of the lines of the traced modules, after `stop` of which this process kills itself."""
    lines: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        if event == "line":
            lines.append(frame.f_code.co_filename)
            if len(lines) == stop:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    publish_here(folder)
    sys.settrace(None)
    return lines


def new_folder(root: Path, older: bytes) -> Path:
    folder = root / "case"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "out.kme").write_bytes(older)
    ledger.Ledger(folder / "ledger").init("people", 1.5, 1e-6)
    return folder


def in_child(work: Callable[[], object]) -> int:
    if child := os.fork():
        return child
    try:
        work()
        os._exit(0)
    except BaseException as error:
        sys.stderr.write(repr(error))
        os._exit(1)


def check(folder: Path, older: bytes) -> str:
    """What the kill left behind, in a word; AssertionError if it broke a promise."""
    with closing(sqlite3.connect(folder / "ledger")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    (account,) = ledger.Ledger(folder / "ledger").accounts()
    spends, drawn = len(account.releases), (folder / "drawn").exists()
    new = (folder / "out.kme").read_bytes() != older
    assert spends <= 1
    assert spends == 1 or not drawn, "noise was drawn and not counted"
    if new:
        assert spends == 1 and drawn, "a file appeared that nobody counted"
        assert validate_release(folder / "out.kme") == []
    partial = folder / "out.kme.partial"
    if partial.exists():  # whole: what was drawn becomes a release, counted once
        assert drawn and spends == 1
        release_side.finish(partial, folder / "finished.kme")
        assert validate_release(folder / "finished.kme") == [] and len(ledger.Ledger(folder / "ledger").accounts()[0].releases) == 1
    others = {path.name for path in folder.iterdir()} - {
        "ledger", "ledger-journal", "out.kme", "out.kme.under-way", "finished.kme", "drawn",
    }  # fmt: skip
    assert all(name.startswith(".out.kme.") and name.endswith(".partial") for name in others), others
    return "published" if new else "drawn" if drawn else "spent" if spends else "nothing"


def main(root: Path, n_lines: int, n_times: int) -> dict[str, Any]:
    older = root / "older.kme"
    release_side.publish(FRAME, DOMAIN, epsilon=9.0, delta=1e-6, points=4, features=8, rehearsal=1, output=older)
    older_bytes = older.read_bytes()
    read_release(older, allow_rehearsal=True)
    folder = new_folder(root, older_bytes)
    lines = counted(folder, None)
    assert check(folder, older_bytes) == "published"
    start = time.perf_counter()
    assert os.waitpid(in_child(lambda: publish_here(new_folder(root, older_bytes))), 0)[1] == 0
    whole = time.perf_counter() - start
    left: Counter[str] = Counter()
    placing = (i for i, file in enumerate(lines, 1) if file == atomic.__file__ and i > lines.index(DOOR.__file__))
    # spread, and all lines where the file takes its place, after the door
    for stop in sorted({*np.linspace(1, len(lines), n_lines).astype(int).tolist(), *placing}):
        folder = new_folder(root, older_bytes)
        status = os.waitpid(in_child(lambda folder=folder, stop=stop: counted(folder, stop)), 0)[1]
        # a child may run a few lines less than the parent did: what is imported or worked out once
        assert os.WIFSIGNALED(status) or (os.WEXITSTATUS(status) == 0 and stop > 0.9 * len(lines)), status
        left[check(folder, older_bytes)] += 1
    clock = random.Random(1)
    for _ in range(n_times):
        folder = new_folder(root, older_bytes)
        child = in_child(lambda folder=folder: publish_here(folder))
        time.sleep(clock.uniform(0, 1.2 * whole))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        left[check(folder, older_bytes)] += 1
    return {"left": left}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
