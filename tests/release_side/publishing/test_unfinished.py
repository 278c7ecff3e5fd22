"""OUT.partial: a fit that fails or is stopped after the draw costs no budget."""

from __future__ import annotations

import json
import os
import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import call

import kmeanalyst as ka
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.representation import represent as fits
from release_side.budget.ledger import Ledger
from release_side.errors import KEPT, SPENT, PublishError
from release_side.publishing.publish import publish
from release_side.publishing.unfinished import Begun, finish

DOMAIN = Domain(
    (Integer(name="age", lower=0, upper=90, edges=(30, 60)), Categorical(name="sex", levels=("F", "M"))),
    (Rule("never", "age < 5 and sex == 'M'"),),
)
PLAIN = Domain((Real(name="x", lower=0, upper=1), Real(name="y", lower=0, upper=1)))
RNG = np.random.default_rng(0)
PEOPLE = pd.DataFrame({"age": RNG.integers(6, 90, 300), "sex": RNG.choice(["F", "M"], 300)})
POINTS = pd.DataFrame(RNG.random((300, 2)), columns=["x", "y"])
CASES: dict[str, tuple[Domain, pd.DataFrame, dict[str, Any]]] = {
    "adaptive": (DOMAIN, PEOPLE, {}),
    "features": (PLAIN, POINTS, {"features": 40, "points": 9, "weights": "signed", "bound": 1.5, "float32": True}),
    "started": (PLAIN, POINTS, {"features": 40, "points": 9, "public_points": POINTS[:20] * 0.9}),
    "subspace": (PLAIN, POINTS, {"method": "subspace", "public_points": POINTS[:12] * 0.9, "weights": "bounded"}),
}


def failing(error: BaseException):
    def fit(*_: Any, **__: Any):
        raise error

    return fit


def broken(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    for name in fits.REPRESENT:
        monkeypatch.setitem(fits.REPRESENT, name, failing(error))


@pytest.mark.parametrize("case", CASES)
def test_the_release_that_is_finished_is_the_one_that_would_have_been_written(case, tmp_path: Path, monkeypatch):
    domain, frame, choices = CASES[case]
    given = {"epsilon": 1.0, "delta": 1e-6, "rehearsal": 5, **choices}
    publish(frame, domain, **given, output=tmp_path / "whole.kme")
    with monkeypatch.context() as patch:
        broken(patch, MemoryError())
        with pytest.raises(MemoryError) as caught:
            publish(frame, domain, **given, output=tmp_path / "own.kme")
    partial = tmp_path / "own.kme.partial"
    assert any(note.startswith(f"{KEPT}{partial}") for note in caught.value.__notes__)
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600 and not (tmp_path / "own.kme").exists()
    finish(partial)
    assert (tmp_path / "own.kme").read_bytes() == (tmp_path / "whole.kme").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["own.kme", "whole.kme"]


def test_what_was_drawn_is_counted_once_is_not_replaced_and_tells_how_it_is_finished(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Ledger("b.ledger").init("people", 3.0, 1e-4)
    PEOPLE.to_csv("private.csv", index=False)
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    words = ("publish", "private.csv", "--domain", "d.toml", "--epsilon", 1, "--delta", 1e-6, "--output", "t.kme",
             "--ledger", "b.ledger", "--table", "people")  # fmt: skip
    for error in (MemoryError("secret 4711"), PublishError("no fit.")):
        with monkeypatch.context() as patch:
            broken(patch, error)
            stopped = call("release-side", *words)
        assert stopped.exit_code == 1 and SPENT in stopped.stderr and "4711" not in stopped.stderr
        assert "release-side finish t.kme.partial makes the release of it" in stopped.stderr
        again = call("release-side", *words)
        assert again.exit_code == 1 and "holds what an earlier publication to this file drew" in again.stderr
        Path("t.kme.under-way").touch()  # as a killed publication leaves it
        killed = call("release-side", *words)
        assert killed.exit_code == 1 and "what it drew, and counted, is in t.kme.partial: release-side finish" in killed.stderr
        assert "release-side finish" in call("kmeanalyst", "info", "t.kme.partial").stderr
        shutil.copy("t.kme.partial", "again.kme.partial")
        assert "--ledger LEDGER would have noted it" in call("release-side", "finish", "again.kme.partial", "--force").stderr
        Path("again.kme").unlink()
        done = call("release-side", "finish", "t.kme.partial", "--ledger", "b.ledger", "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)["output"] == "t.kme"
        release = ka.read_release("t.kme")
        counted = Ledger("b.ledger").account("people").releases[-1]
        assert release.statement is not None and release.statement.ledger_head == counted.digest
        assert counted.output == "t.kme"
        assert not Path("t.kme.partial").exists() and not Path("t.kme.under-way").exists()
        Path("t.kme").unlink()
    assert len(Ledger("b.ledger").account("people").releases) == 2  # one for each draw, none for finishing it


def test_another_file_an_existing_output_and_a_folder_that_is_full_are_told(tmp_path: Path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "x.kme.partial", "w") as archive:
        archive.writestr("release.kme", "no release")
    with pytest.raises(PublishError, match="is not what a publication drew"):
        finish(tmp_path / "x.kme.partial")
    (tmp_path / "x.kme").write_text("older", encoding="utf-8")
    with pytest.raises(PublishError, match="exists, and a replaced release"):
        finish(tmp_path / "x.kme.partial")
    with pytest.raises(PublishError, match="the release would replace it"):
        finish(tmp_path / "x.kme.partial", tmp_path / "x.kme.partial", force=True)
    Ledger(tmp_path / "b.ledger").init("people", 3.0, 1e-4)
    with pytest.raises(PublishError, match="the release would replace it"):
        finish(tmp_path / "x.kme.partial", tmp_path / "b.ledger", ledger=tmp_path / "b.ledger", force=True)
    monkeypatch.setattr("release_side.publishing.unfinished.atomic_write", failing(OSError("no space left")))
    release = publish(PEOPLE, DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=1, output=tmp_path / "new.kme")
    assert ka.read_release(tmp_path / "new.kme", allow_rehearsal=True).statement == release.statement


def test_a_crafted_file_is_refused_in_a_sentence_before_it_is_unpacked(tmp_path: Path, monkeypatch):
    with monkeypatch.context() as patch:
        broken(patch, MemoryError())
        with pytest.raises(MemoryError):
            publish(PEOPLE, DOMAIN, epsilon=1.0, delta=1e-6, rehearsal=5, output=tmp_path / "own.kme")
    sound = tmp_path / "own.kme.partial"
    with zipfile.ZipFile(sound) as archive:
        release, choices = archive.read("release.kme"), json.loads(archive.read("choices.json"))
    wrong: list[tuple[bytes, Any, int]] = [
        (release, choices | change, zipfile.ZIP_STORED)
        for change in ({"n_points": 10**12}, {"n_points": True}, {"view": "x"}, {"bound": "1"}, {"bound": -1}, {"points": "given"},
                       {"float32": 1}, {"n_public": -1}, {"more": "x" * 5000})
    ]  # fmt: skip
    wrong += [
        (release, choices, zipfile.ZIP_DEFLATED), (b"", choices, zipfile.ZIP_STORED), (release, [], zipfile.ZIP_STORED),
    ]  # fmt: skip
    for content, facts, kind in wrong:
        with zipfile.ZipFile(tmp_path / "x.kme.partial", "w", kind) as archive:
            archive.writestr("release.kme", content)
            archive.writestr("choices.json", json.dumps(facts))
        with pytest.raises(PublishError, match="is not what a publication drew"):
            finish(tmp_path / "x.kme.partial")
    (tmp_path / "own.kme.under-way").write_text(str(os.getpid()), encoding="ascii")
    with pytest.raises(PublishError, match="is still under way"):
        finish(sound)
    with monkeypatch.context() as patch:  # another finish of it while this one fits
        patch.setattr(Begun, "release", lambda self, progress: finish(sound))
        with pytest.raises(PublishError, match="is still under way"):
            (tmp_path / "own.kme.under-way").unlink()
            finish(sound)
    (tmp_path / "other.kme.under-way").touch()  # of another publication
    (tmp_path / "own.kme.under-way").write_text("999999999", encoding="ascii")
    finish(sound, tmp_path / "other.kme")
    assert (tmp_path / "other.kme.under-way").exists() and not (tmp_path / "own.kme.under-way").exists()
