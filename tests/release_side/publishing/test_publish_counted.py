"""Publishing with a ledger: what is recorded, what is refused, and when."""

from __future__ import annotations

from dataclasses import replace  # noqa: F401
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refusals
from command_line import curate as call
from ledger_cases import Unread

from kmeanalyst.kernels import Gaussian, Sum  # noqa: F401  (refusals_counted.txt)
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain, domain_toml
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file.limits import USUAL  # noqa: F401
from release_side.budget.ledger import Ledger, RecordedRelease
from release_side.door import door
from release_side.door.mechanism import GaussianNoise, PublishError
from release_side.publishing.publish import publish
from release_side.publishing.unfinished import Begun

DOMAIN = Domain((Integer(name="age", lower=17, upper=90), Categorical(name="city", levels=("A", "B", "C"))))
FRAME = DOMAIN.decode(DOMAIN.draw(80, 1))
NUMBERS = Domain((DOMAIN["age"], Integer(name="more", lower=0, upper=9)))
SMALL: dict[str, Any] = {"points": 10, "features": 40}
ONE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, **SMALL}


@pytest.fixture
def counted(tmp_path: Path) -> dict[str, Any]:
    """The choices that count a release of the table "people" in a ledger, which refuses none."""
    Ledger(tmp_path / "ledger").init("people", unlimited=True)
    return {"ledger": tmp_path / "ledger", "table": "people"}


def recorded(counted: dict[str, Any]) -> tuple[RecordedRelease, ...]:
    accounts = {account.name: account for account in Ledger(counted["ledger"]).accounts()}
    return accounts[counted["table"]].releases


def test_the_unread_table_fails_when_a_row_is_read():
    with pytest.raises(AssertionError, match="a row was read"):
        publish(Unread(FRAME), DOMAIN, **ONE)


def test_the_ledger_has_what_the_statement_has(counted, tmp_path):
    output = tmp_path / "r.kme"
    Ledger(counted["ledger"]).init("people", 9.0, 1e-4)
    for choice in ({}, {"noise": "laplace", "delta": 0}, {"calibration": "zcdp"}):
        release = publish(FRAME, DOMAIN, **(ONE | choice), **counted, output=output, force=True)
        statement, found = release.statement, recorded(counted)[-1]
        assert found.output == str(output)
        for name in ("epsilon", "delta", "mechanism", "calibration", "n_rows"):
            assert getattr(found.spend, name) == getattr(statement, name)
        assert found.spend.noise_multiplier == pytest.approx(statement.noise_multiplier, rel=1e-12)
        assert found.spend.method == release.method
    assert len(recorded(counted)) == 3
    np.testing.assert_array_equal(read_release(output).weights, release.weights)


def test_a_release_over_the_budget_is_refused_before_a_row_is_read_with_what_is_left(counted, tmp_path):
    Ledger(counted["ledger"]).init("people", 1.5, 1e-6)
    publish(FRAME, DOMAIN, **ONE, **counted)
    message = r"budget of epsilon 1\.5, .*spent epsilon 1.*of epsilon up to (1\.0\d+|0\.\d+)"
    with pytest.raises(PublishError, match=message):
        publish(Unread(FRAME), DOMAIN, **(ONE | {"epsilon": 1.3}), **counted, output=tmp_path / "r.kme")
    assert len(recorded(counted)) == 1 and not (tmp_path / "r.kme").exists()
    publish(FRAME, DOMAIN, **(ONE | {"epsilon": 0.9}), **counted)  # Gaussians add up by their squares
    assert len(recorded(counted)) == 2


def test_a_budget_that_another_process_spends_meanwhile_is_not_overspent(counted, monkeypatch):
    """Both pass the early check; the second to reach the noise draws none."""
    book = Ledger(counted["ledger"])
    book.init("people", 1.0, 1e-6)
    honest, drawn = door.private_mean, []

    def late(*facts: Any, **options: Any) -> Any:
        if not drawn:
            drawn.append("first")
            publish(FRAME, DOMAIN, **ONE, **counted)
        return honest(*facts, **options)

    monkeypatch.setattr(door, "private_mean", late)
    noise = GaussianNoise.add_to
    monkeypatch.setattr(GaussianNoise, "add_to", lambda *a, **k: (drawn.append("noise"), noise(*a, **k))[1])
    with pytest.raises(PublishError, match="does not fit"):
        publish(FRAME, DOMAIN, **ONE, **counted)
    assert drawn == ["first", "noise"] and len(recorded(counted)) == 1


def test_a_file_that_cannot_be_written_after_the_draw_is_an_error_and_counts(counted, tmp_path, monkeypatch):
    """The check before the spend cannot foresee this: the file cannot get its name at the end."""
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("device is gone")))
    message = r"was not written: device is gone.*had been drawn: count this release as spent"
    with pytest.raises(PublishError, match=message):
        publish(FRAME, DOMAIN, **ONE, **counted, output=tmp_path / "r.kme")
    assert [release.output for release in recorded(counted)] == [None]


def test_what_is_refused_spends_nothing_and_replaces_no_file(counted, tmp_path, monkeypatch):
    rows, toml, public = tmp_path / "rows", tmp_path / "d.toml", tmp_path / "q.csv"
    rows.mkdir()
    for path in (rows / "p.csv", public):
        FRAME.to_csv(path, index=False)
    toml.write_text(domain_toml(DOMAIN), encoding="utf-8")
    Ledger(tmp_path / "first").init("people", 5.0, 1e-6)
    (tmp_path / "second").hardlink_to(tmp_path / "first")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def one(private: Any = FRAME, domain: Any = DOMAIN, **options: Any) -> Any:
        return publish(private, domain, **(ONE | counted | options))

    def limited(name: str, limit: Any, **options: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(f"release_side.choices.options.{name}", limit)
            return one(Unread(FRAME), **options)

    names = globals() | locals()
    refusals.check(Path(__file__).parent / "refusals_counted.txt", lambda text: eval(text, names))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert recorded(counted) == ()


def test_every_failure_after_the_draw_says_that_it_counts(counted, monkeypatch):
    def fails(*facts: Any, **options: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(Begun, "release", fails)
    with pytest.raises(MemoryError) as caught:
        publish(FRAME, DOMAIN, **ONE, **counted)
    assert caught.value.__notes__ == ["The noise had been drawn: count this release as spent."]
    monkeypatch.setattr(door, "private_mean", fails)
    with pytest.raises(MemoryError) as caught:
        publish(FRAME, DOMAIN, **ONE, **counted)
    assert not hasattr(caught.value, "__notes__")


def test_a_ledger_that_is_lost_after_the_draw_does_not_hide_that_the_file_is_there(counted, tmp_path, monkeypatch, caplog):
    def busy(*facts: Any) -> None:
        raise PublishError("the ledger was in use. Nothing was recorded. Try again.")

    monkeypatch.setattr(Ledger, "published", busy)
    publish(FRAME, DOMAIN, **ONE, **counted, output=tmp_path / "r.kme")
    assert "is written and counted as spent; the ledger could not note its name" in caplog.text
    assert (tmp_path / "r.kme").exists() and len(recorded(counted)) == 1


@pytest.fixture
def words(tmp_path: Path) -> tuple[Any, ...]:
    """A call of publish that lacks its output and its ledger."""
    private, toml = tmp_path / "p.csv", tmp_path / "d.toml"
    FRAME.to_csv(private, index=False)
    toml.write_text(domain_toml(DOMAIN), encoding="utf-8")
    return "publish", private, "--domain", toml, "--epsilon", 1, "--delta", 1e-6, "--points", 10, "--features", 40


def test_the_command_line_keeps_the_budget(words, tmp_path, monkeypatch):
    book, output = tmp_path / "b.ledger", tmp_path / "o.kme"
    assert call("ledger", "init", book, "--table", "people", "--epsilon", 1, "--delta", 1e-6).exit_code == 0

    def published(table: str, *more: str) -> Any:
        return call(*words, "--ledger", book, "--table", table, "--output", output, *more)

    first = published("people")
    spent = f"counted in {book} as a release of table people, which has spent epsilon 1 of 1 at delta 1e-06"
    assert first.exit_code == 0 and spent in first.stderr
    output.unlink()
    for table, messages in (
        ("people", ("has a budget of epsilon 1", "no Gaussian release fits: use what is published")),
        ("poeple", ("use 'people'",)),
    ):
        refused = published(table)
        assert refused.exit_code == 1 and not output.exists()
        assert all(message in refused.stderr for message in messages)
    Ledger(book).init("clinics", unlimited=True)
    assert "as a release of table clinics, which is unlimited and has spent epsilon 1 at" in published("clinics").stderr

    def fails(*facts: Any, **options: Any) -> Any:
        error = ZeroDivisionError("cell 4711")
        error.add_note("cell 4711")  # as pandas does, with a cell's text
        raise error

    monkeypatch.setattr(Begun, "release", fails)
    failed = published("clinics", "--force")
    assert failed.exit_code == 1 and "details are withheld" in failed.stderr and "4711" not in failed.stderr
    assert "The noise had been drawn: count this release as spent." in failed.stderr
    shown = call("ledger", "show", book)
    assert str(output) in shown.stdout and "people" in shown.stdout
