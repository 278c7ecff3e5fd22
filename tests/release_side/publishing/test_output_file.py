"""An output that cannot be written is refused before the ledger records a spend and before noise is drawn.

Each case is an output that cannot be written, or that would replace something. After the refusal the ledger has no release,
no noise was drawn, no temporary file is left, and the other files are unchanged.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import paths
import pytest
import refusals
from every import every

import release_side
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import archive as atomic
from release_side.budget.ledger import Ledger
from release_side.choices.output_file import Output
from release_side.door import mechanism
from release_side.door.mechanism import PublishError
from release_side.private_rows.rows import open_private

DOMAIN = Domain((Integer(name="age", lower=0, upper=9),))
FRAME = DOMAIN.decode(DOMAIN.draw(40, 1))
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


class Curator:
    """A folder with a private table, a domain and a ledger with a budget; what is published there, and how."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.ledger = folder, Ledger(folder / "budget.ledger")
        self.ledger.init("people", 50.0, 1e-4)
        (folder / "rows").mkdir()
        FRAME.to_csv(folder / "rows" / "private.csv", index=False)
        (folder / "domain.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
        self.private: str | Path = folder / "rows" / "private.csv"

    def call(self, method: str, output: Any, **options: Any) -> Any:
        counted = {"ledger": self.ledger.path, "table": "people", "output": output, **options}
        toml = self.folder / "domain.toml"
        if method == "publish":
            return release_side.publish(self.private, toml, points=4, features=8, **BUDGET, **counted)
        if method == "exponential":
            return release_side.publish(self.private, toml, method=method, epsilon=1.0, delta=0, points=2, **counted)
        return release_side.publish_function(self.private, toml, kind="density", grid=4, **BUDGET, **counted)

    def recorded(self) -> int:
        return len(self.ledger.account("people").releases)


@pytest.fixture
def curator(tmp_path: Path) -> Curator:
    return Curator(tmp_path)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that noise was drawn."""
    from release_side.door import exponential_mechanism as small_database

    seen: list[str] = []
    for owner, name in ((mechanism.Noise, "add_to"), (small_database.ExponentialMechanism, "draw")):
        honest: Callable[..., Any] = getattr(owner, name)

        def counting(*facts: Any, honest: Callable[..., Any] = honest, **options: Any) -> Any:
            seen.append("drawn")
            return honest(*facts, **options)

        monkeypatch.setattr(owner, name, counting)
    return seen


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file below a folder but the ledger's; a link or special file by its kind."""
    return {
        str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "no file"
        for path in sorted(folder.rglob("*"))
        if not path.name.startswith("budget.ledger")
    }


def existing(folder: Path) -> Path:
    (folder / "old.kme").write_bytes(b"older")
    return folder / "old.kme"


def made(folder: Path, make: Callable[[Path], object]) -> Path:
    """The output of this folder, where something is already."""
    make(folder / "out.kme")
    return folder / "out.kme"


def a_socket(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as opened, contextlib.chdir(folder):
        opened.bind("out.kme")  # its whole path may have a hundred characters
    return folder / "out.kme"


def device(folder: Path) -> Path:
    try:
        os.mknod(folder / "out.kme", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # as /dev/null
    except PermissionError:  # makes a device, which needs rights
        return made(folder, os.mkfifo)
    return folder / "out.kme"


def read_only(folder: Path) -> Path:
    existing(folder).chmod(0o444)
    return folder / "old.kme"


REFUSALS = refusals.read(Path(__file__).parent / "refusals_outputs.txt")


@pytest.mark.parametrize("method", ["publish", "exponential", "function"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_is_spent(method, tmp_path, draws):
    """refusals_outputs.txt. All ways to publish check their output in one place: the others try three cases."""
    for number, refusal in enumerate(REFUSALS if method == "publish" else REFUSALS[:3]):
        (tmp_path / str(number)).mkdir()
        curator = Curator(tmp_path / str(number))
        output = eval(refusal.input, globals() | {"f": curator.folder})
        before = contents(curator.folder)
        for force in (False,) if refusal.input == "existing(f)" else (False, True):
            lenient = replace(refusal, patterns=()) if refusal.input == "read_only(f)" and not force else refusal
            publish = partial(curator.call, method, output, force=force)
            assert lenient.failure(lambda _, publish=publish: publish()) is None
        assert curator.recorded() == 0 and draws == [], refusal
        assert contents(curator.folder) == before, refusal


def test_force_replaces_an_existing_file_and_is_counted(curator, draws):
    """The power of the test above: it counts what is drawn and recorded."""
    output = existing(curator.folder)
    for number, method in enumerate(("publish", "exponential", "function"), 1):
        draws.clear()
        before = output.read_bytes()
        curator.call(method, output, force=True)
        assert curator.recorded() == number and draws != [] and output.read_bytes() != before


def test_a_release_does_not_become_a_part_of_the_private_table(curator, draws):
    """A folder or a glob is read again the next time; a .kme file in a folder of tables is not read."""
    for private in ("rows/*", "rows", "rows/*.csv"):
        curator.private = str(curator.folder / private)
        with pytest.raises(PublishError, match=r"would be read as a part of the private table.*Name a file elsewhere"):
            curator.call("publish", curator.folder / "rows" / "release.csv")
    assert curator.recorded() == 0 and draws == []
    curator.call("publish", curator.folder / "rows" / "release.kme")
    curator.call("publish", curator.folder / "release.csv")
    assert curator.recorded() == 2


def test_a_file_of_another_user_in_a_shared_folder_or_a_mounted_one_is_refused(curator, draws, monkeypatch):
    """In a folder such as /tmp only its owner may replace a file; what a container mounts can be written to, not replaced."""
    shared = curator.folder / "shared"
    shared.mkdir()
    output = existing(shared)
    shared.chmod(0o1777)
    output.chmod(0o666)
    for owner, name, change, message in (
        (os, "geteuid", lambda: 4711, r"belongs to another user.*Name a new file"),
        (os.path, "ismount", lambda path: Path(path) == output, r"is not an ordinary file.*mounted.*Name a new file"),
    ):
        with monkeypatch.context() as patch, pytest.raises(PublishError, match=message):
            patch.setattr(owner, name, change)
            curator.call("publish", output, force=True)
    assert curator.recorded() == 0 and draws == [] and output.read_bytes() == b"older"


FULL = """
import resource, sys
from pathlib import Path
sys.path[:0] = [{tests!r}, {support!r}]
from test_output_file import Curator
curator = Curator(Path({folder!r}))
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    curator.call("publish", Path({folder!r}) / "out.kme")
except Exception as error:
    print(type(error).__name__, error)
print(curator.recorded())
"""


def test_a_disk_without_room_is_found_before_anything_is_spent(tmp_path):
    """A limit on file sizes simulates a full disk: the ledger fits, a release of usual size does not."""
    code = FULL.format(tests=str(Path(__file__).parent), support=str(paths.SUPPORT), folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    error, recorded = done.stdout.splitlines()
    assert re.match("PublishError.*cannot be written.*Nothing is spent", error)
    assert recorded == "0" and not list(tmp_path.glob(".out.kme*"))


def test_the_trial_file_is_written_like_the_output(tmp_path, monkeypatch):
    """The temporary names have the same length, and the trial leaves nothing behind, even where it fails."""
    names: list[str] = []
    honest = atomic._create
    monkeypatch.setattr(atomic, "_create", lambda path, *mode: (names.append(path.name), honest(path, *mode))[1])
    atomic.check_place(tmp_path / "a.kme")
    with atomic.atomic_write(tmp_path / "a.kme") as temporary:
        temporary.write_bytes(b"x")
    assert len(names) == 2 and len(names[0]) == len(names[1]) and names[0] != names[1]
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        atomic.check_place(tmp_path / "b.kme")
    assert [path.name for path in tmp_path.iterdir()] == ["a.kme"]


def test_a_rehearsal_does_not_replace_a_release_without_force(curator):
    output = curator.folder / "r.kme"
    curator.call("publish", output)
    before = output.read_bytes()
    with pytest.raises(PublishError, match=r"r\.kme exists.*--force"):
        release_side.publish(FRAME, DOMAIN, points=4, features=8, rehearsal=1, output=output, **BUDGET)
    assert output.read_bytes() == before


def test_the_journal_of_a_linked_ledger_is_refused_as_output(tmp_path: Path):
    """SQLite removes a file of this name when the ledger is written next, and a counted release with it."""
    (tmp_path / "x").mkdir()
    real, link = tmp_path / "real.ledger", tmp_path / "x" / "link.ledger"
    Ledger(real).init("people", 2.0, 1e-5)
    link.symlink_to(real)
    for ending in ("-journal", "-wal", "-shm"):
        with pytest.raises(PublishError, match="is named as the release's file and as another"):
            Output(tmp_path / f"real.ledger{ending}", force=True).check(open_private(pd.DataFrame()), link)


@every("method", ["publish", "publish_function"])
def test_two_publications_to_one_file_spend_once(curator: Curator, method: str, monkeypatch: pytest.MonkeyPatch):
    """The second begins while the first is between its check and its draw, and the first ends while the second waits."""
    output, others = curator.folder / f"{method}.kme", list[object]()
    before, recorded = Output.check, curator.recorded()

    def check(self: Output, *others_: Any, **options: Any) -> None:
        before(self, *others_, **options)
        if not others:
            others.append(None)
            curator.call(method, output)

    monkeypatch.setattr(Output, "check", check)
    with pytest.raises(PublishError, match="exists, and a replaced release"):
        curator.call(method, output)
    assert curator.recorded() == recorded + 1
    marker = curator.folder / f"{method}.kme.under-way"
    assert not marker.exists()
    marker.touch()
    output.unlink()
    with pytest.raises(PublishError, match="another publication to this file is under way"):
        curator.call(method, output)
    assert curator.recorded() == recorded + 1
