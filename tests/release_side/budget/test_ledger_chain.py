"""The ledger's chain of digests: whatever is changed in the file is found, and a broken ledger records nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from command_line import curate as call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_cases import FIELDS, gaussian, recomputed, refusal, replace_all

from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Integer
from kmeanalyst.releases.file import read_function
from release_side import publish, publish_function
from release_side.budget.ledger import Ledger
from release_side.budget.ledger_file import first_fault

SPEND = gaussian(0.3)
DOMAIN = Domain((Integer(name="age", lower=17, upper=90),))
FRAME = DOMAIN.decode(DOMAIN.draw(60, 1))
SMALL: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "points": 5, "features": 20, "method": "random-features"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Seven entries: the first one, two budgets, two releases and their files."""
    made = Ledger(tmp_path / "budget.ledger")
    made.init("adult", 2.0, 1e-5)
    made.init("census", unlimited=True)
    made.published(made.record("adult", SPEND), "a.kme")
    made.published(made.record("census", SPEND), "c.kme")
    return made


def alter(ledger: Ledger, *statements: str) -> None:
    """Change the file as other software could."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def verify(ledger: Ledger, *heads: object, **more: bool) -> Result:
    words = ["ledger", "verify", str(ledger.path), *(part for head in heads for part in ("--head", str(head)))]
    return call(*words, *["--json"] * more.get("as_json", False))


def refuses_everything(ledger: Ledger) -> None:
    """Nothing is read, spent or written, and the file stays as it is."""
    before = ledger.path.read_bytes()
    for action in (
        ledger.accounts,
        lambda: ledger.account("adult"),
        lambda: ledger.init("third", 1.0, 1e-6),
        lambda: ledger.check("adult", SPEND),
        lambda: ledger.record("adult", SPEND),
        lambda: ledger.published(2, "b.kme"),
        ledger.head,
        lambda: publish(FRAME, DOMAIN, **SMALL, ledger=ledger.path, table="adult"),
    ):
        said = refusal(action)
        assert "was changed by other software: " in said and "Nothing was recorded. Restore the ledger" in said
    assert ledger.path.read_bytes() == before


def test_a_change_of_any_field_of_any_entry_is_found(ledger):
    assert len(ledger._file.entries()) == 7
    sound = ledger.path.read_bytes()
    for field, number in product(FIELDS, range(1, 8)):
        other = {"number": "70", "facts": "replace(facts, '0.3', '0.1') || ' '"}.get(field, f"{field} || 'x'")
        alter(ledger, f"UPDATE entry SET {field} = {other} WHERE number = {number}")
        result = verify(ledger)
        assert result.exit_code == 3 and f"entry {number} of 7" in result.stdout
        refuses_everything(ledger)
        ledger.path.write_bytes(sound)


REMOVED = [
    (["DELETE FROM entry WHERE number = 1"], "entry 1 of 6 has the number 2"),
    (["DELETE FROM entry WHERE number = 4"], "entry 4 of 6 has the number 5"),
    (
        ["DELETE FROM entry WHERE number = 4", *(f"UPDATE entry SET number = {k - 1} WHERE number = {k}" for k in (5, 6, 7))],
        "entry 4 of 6 does not carry the digest of the entry before",
    ),
    (
        [f"UPDATE entry SET number = {new} WHERE number = {old}" for old, new in ((2, 90), (3, 2), (90, 3))],
        "entry 2 of 7 does not carry",
    ),
    (
        ["INSERT INTO entry SELECT 8, time, kind, facts, salt, 'x', 'y' FROM entry WHERE number = 4"],
        "entry 8 of 8 does not carry",
    ),
    (
        ["INSERT INTO entry SELECT 8, time, kind, facts, salt, (SELECT digest FROM entry WHERE number = 7), 'y' FROM entry "
         "WHERE number = 4"],
        "entry 8 of 8 does not have its digest",
    ),
    (["DELETE FROM entry"], "it has no entries"),
    (["UPDATE entry SET facts = x'7b7d' WHERE number = 4"], "entry 4 of 7 does not have its digest"),
]  # fmt: skip


def test_entries_that_were_removed_moved_or_inserted_are_found(ledger):
    sound = ledger.path.read_bytes()
    for statements, first in REMOVED:
        alter(ledger, *statements)
        result = verify(ledger)
        assert result.exit_code == 3 and first in result.stdout
        refuses_everything(ledger)
        ledger.path.write_bytes(sound)


def test_a_head_shows_what_the_chain_alone_cannot(ledger):
    """An end that was cut off, and a recomputed chain. Its power: without the head both pass, which verify says."""
    head, entries = ledger.head(), ledger._file.entries()
    for others in (entries[:-1], recomputed([entry for entry in entries if entry.number != 5])):  # 5: the file's name
        replace_all(ledger, others)
        blind = verify(ledger)
        assert blind.exit_code == 0 and "without a head this cannot show that entries were cut off" in blind.stderr
        seeing = verify(ledger, head)
        assert seeing.exit_code == 3
        assert f"no entry has the digest {head}: entries were cut off at the end, the chain was recomputed" in seeing.stdout


def test_a_smaller_spend_in_a_recomputed_chain_is_found_by_the_released_file(tmp_path, ledger):
    output = tmp_path / "r.kme"
    publish(FRAME, DOMAIN, **SMALL, ledger=ledger.path, table="adult", output=output)
    assert verify(ledger, output).exit_code == 0
    entries = ledger._file.entries()
    lowered = [
        replace(entry, facts=entry.facts.replace('"epsilon":0.5', '"epsilon":0.6')) for entry in entries
    ]  # fmt: skip
    replace_all(ledger, recomputed(lowered))
    assert ledger.account("adult").spends[-1].epsilon == 0.6  # it looks sound
    assert verify(ledger).exit_code == 0 and verify(ledger, output).exit_code == 3


def test_verify_says_what_a_head_covers(ledger):
    head = ledger.head()
    assert json.loads(verify(ledger, head, as_json=True).stdout) == {
        "ledger": str(ledger.path), "entries": 7, "head": head, "problems": [], "unseen": None,
    }  # fmt: skip
    ledger.record("census", SPEND)
    found = json.loads(verify(ledger, head, as_json=True).stdout)
    assert found["problems"] == [] and "the heads cover entries 1 to 7 of 8" in found["unseen"]
    assert "entries 1 to 7 of 8" in verify(ledger, head).stderr


def test_a_head_that_is_none_is_a_clear_error(ledger, tmp_path):
    publish(FRAME, DOMAIN, **SMALL, uncounted=True, output=tmp_path / "uncounted.kme")
    (tmp_path / "text.kme").write_text("no release", encoding="utf-8")
    for head, message in {
        "nowhere.kme": "is neither a digest (64 hexadecimal digits) nor an existing file. Name a released file",
        "uncounted.kme": "was published without a ledger: its header has no digest to compare with. Name a file",
        "text.kme": "is not a whole zip archive",
    }.items():
        result = verify(ledger, tmp_path / head)
        assert result.exit_code == 1 and message in result.stderr and result.stdout == ""


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_single_change_of_a_sound_chain_leaves_it_sound(ledger, data):
    entries = ledger._file.entries()
    index = data.draw(st.integers(0, len(entries) - 1))
    field = data.draw(st.sampled_from(FIELDS))
    anything = st.one_of(st.text(), st.integers(), st.none(), st.binary(), st.sampled_from([e.digest for e in entries]))
    old = getattr(entries[index], field)
    new = data.draw(anything.filter(lambda value: value != old or type(value) is not type(old)))
    changed = [*entries[:index], replace(entries[index], **{field: new}), *entries[index + 1 :]]
    assert first_fault(entries) is None and first_fault(changed) is not None


def test_facts_that_no_ledger_writes_are_refused_although_the_chain_fits(ledger):
    """Whoever recomputes the chain still cannot make a release cost less than its noise allows."""
    entries = ledger._file.entries()
    changes = {
        '"epsilon":0.3': '"epsilon":-1', '"mechanism":"discrete gaussian"': '"mechanism":"none"', '"table":"adult"': '"table":"b"',
        '"noise_multiplier":': '"noise_multiplier":1e-3,"x":', '"n_rows":1': '"n_rows":0',
        '"neighbouring":"replace-one"': '"neighbouring":"add-remove"', '"epsilon":2.0': '"epsilon":Infinity',
        '"output":"a.kme","release":1': '"output":"a.kme","release":9',
    }  # fmt: skip
    for old, new in changes.items():
        index = next(k for k, entry in enumerate(entries) if old in entry.facts)
        facts = entries[index].facts.replace(old, new, 1)
        replace_all(ledger, recomputed([*entries[:index], replace(entries[index], facts=facts), *entries[index + 1 :]]))
        assert verify(ledger).exit_code == 3, old
        assert "is not one that this software writes" in refusal(lambda: ledger.record("adult", SPEND)), old


def test_a_second_budget_of_a_table_is_refused_however_it_was_written(tmp_path):
    """Its chain is sound; the larger budget would admit what the first does not."""
    ledger = Ledger(tmp_path / "budget.ledger")
    ledger.init("adult", 0.5, 1e-6)
    with ledger._file.writing() as transaction:
        transaction.append("budget", {"table": "adult", "epsilon": 9.0, "delta": 1e-6})
    assert "has a budget already" in refusal(lambda: ledger.record("adult", SPEND))
    assert "has a budget already" in ledger.verify().problems[0]


def test_no_digest_can_be_guessed_from_what_was_recorded(tmp_path):
    """The same entries at the same time have other digests in another ledger: each has a salt of its own."""
    seen = set()
    for name in ("a", "b"):
        ledger = Ledger(tmp_path / name)
        ledger.init("adult", 1.0, 1e-6)
        ledger.record("adult", SPEND)
        entries = ledger._file.entries()
        assert all(len(entry.salt) == 64 for entry in entries)
        seen |= {entry.digest for entry in entries} | {entry.salt for entry in entries}
    assert len(seen) == 12


def test_the_header_has_the_digest_of_its_own_entry(ledger, tmp_path):
    """Uncounted releases and rehearsals have none. A copy of the ledger verifies as the ledger does."""
    output = tmp_path / "r.kme"
    release = publish(FRAME, DOMAIN, **SMALL, ledger=ledger.path, table="adult", output=output)
    assert release.statement is not None
    head = release.statement.ledger_head
    assert head == ledger.account("adult").releases[-1].digest and len(head) == 64
    assert read_release(output).statement == release.statement
    assert release.summary()["ledger"] == f"counted, head {head}"
    assert verify(ledger, output, head).exit_code == 0
    thin = tmp_path / "thin.kme"  # of the same measurement
    release.thin(3).transform({"double": "2 * age"}).write(thin)
    assert verify(ledger, thin).exit_code == 0
    shutil.copy(ledger.path, tmp_path / "copy")
    assert Ledger(tmp_path / "copy").verify([ledger.head()]).problems == ()
    for choice in ({"uncounted": True}, {"rehearsal": 1}):
        release = publish(FRAME, DOMAIN, **SMALL, **choice)
        assert release.statement is not None and release.statement.ledger_head is None
        assert "ledger" not in release.summary()


def test_functions_and_draws_have_heads_too(ledger, tmp_path):
    counted: dict[str, Any] = {"ledger": ledger.path, "table": "census"}
    function, drawn = tmp_path / "function.kme", tmp_path / "drawn.kme"
    publish_function(FRAME, DOMAIN, kind="density", epsilon=0.5, delta=1e-6, grid=5, **counted, output=function)
    ledger.init("drawn", unlimited=True)
    counted["table"] = "drawn"
    few = Domain((Integer(name="n", lower=0, upper=2),))
    publish(few.decode(few.draw(30, 1)), few, method="exponential", epsilon=0.5, delta=0, points=2, **counted, output=drawn)
    assert verify(ledger, function, drawn).exit_code == 0
    heads = [read_function(function).statement.ledger_head, read_release(drawn).statement.ledger_head]
    recorded = [ledger.account(table).releases[-1].digest for table in ("census", "drawn")]
    assert heads == recorded and "ledger" in read_function(function).summary()


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_only_its_owner_may_read_a_ledger_and_its_journal_and_an_existing_file_keeps_its_mode(tmp_path):
    """An empty file that somebody made is theirs; only what this software makes has its mode."""
    for umask in [0o000, 0o022, 0o777]:
        path, before = tmp_path / f"{umask}", os.umask(umask)
        try:
            Ledger(path).init("adult", 2.0, 1e-6)
            with Ledger(path)._file.writing() as transaction:
                transaction.append("budget", {"table": "b", "epsilon": None, "delta": None})
                journal = path.with_name(f"{umask}-journal")
                assert [stat.S_IMODE(each.stat().st_mode) for each in (path, journal)] == [0o600, 0o600]
        finally:
            os.umask(before)
    path = tmp_path / "theirs"
    path.touch()
    path.chmod(0o640)
    Ledger(path).init("adult", 1.0, 1e-6)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


LOSES_ENTRIES = {
    "a trigger that ignores": "CREATE TRIGGER x BEFORE INSERT ON entry BEGIN SELECT raise(ignore); END",
    "a trigger that deletes": "CREATE TRIGGER x AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = new.number; END",
    "another table": "CREATE TABLE other (x INTEGER)",
    "a view": "CREATE VIEW v AS SELECT * FROM entry",
    "an index": "CREATE INDEX i ON entry (kind)",
}


@pytest.mark.parametrize("statement", LOSES_ENTRIES.values(), ids=LOSES_ENTRIES.keys())
def test_a_ledger_with_anything_but_its_table_is_refused(ledger: Ledger, statement: str):
    """A trigger could undo an entry as it is written, so that every entry that is left fits the one before."""
    alter(ledger, statement)
    for action in (lambda: ledger.record("adult", SPEND), lambda: ledger.account("adult"), ledger.verify):
        assert "something other than its table of entries" in refusal(action)


def test_an_entry_that_the_file_does_not_keep_is_noticed_before_the_transaction_ends(ledger: Ledger, monkeypatch):
    """The second line of defence: what was written is read again."""
    monkeypatch.setattr("release_side.budget.ledger_file.LedgerFile._has_schema", lambda *_: True)
    alter(ledger, LOSES_ENTRIES["a trigger that ignores"])
    before = ledger.path.read_bytes()
    assert "does not hold what was just written to it" in refusal(lambda: ledger.record("census", SPEND))
    assert ledger.path.read_bytes() == before
