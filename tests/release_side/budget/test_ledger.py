"""The ledger: no spend is lost, none above the budget is recorded, and every refusal says what, why and how to fix it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import paths
import pytest
from command_line import answer
from command_line import curate as call
from ledger_cases import gaussian, laplace, refusal

from kmeanalyst.releases.statement import GAUSSIAN, LAPLACE
from release_side.budget import account as account_module
from release_side.budget import ledger_file as room
from release_side.budget.composition import Spend, fits, one_more, total_epsilon
from release_side.budget.ledger import Ledger

PROCESSES = paths.SUPPORT / "ledger_processes.py"
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger in which "adult" may spend (1, 1e-6)."""
    made = Ledger(tmp_path / "budget.ledger")
    made.init("adult", 1.0, 1e-6)
    return made


def processes(what: str, folder: Path, *numbers: int) -> Any:
    """What ledger_processes.py found."""
    command = [sys.executable, "-W", "error", str(PROCESSES), what, str(folder), *map(str, numbers)]
    one_thread = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # what is forked has no others
    done = subprocess.run(command, capture_output=True, text=True, env=one_thread, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return json.loads(done.stdout)


def test_what_is_recorded_is_read_back_bit_for_bit(ledger):
    ledger.init("people", unlimited=True)
    spends = [gaussian(0.1 + 0.2), laplace(1 / 3), Spend(0.1, 1e-7 / 3, GAUSSIAN, "zcdp", 1e3 / 7, 2**62, "generator")]
    numbers = [ledger.record("people", spend) for spend in spends]
    ledger.published(numbers[1], Path("out") / "people.kme")
    adult, people = ledger.accounts()
    assert people.spends == tuple(spends)
    assert [release.id for release in people.releases] == numbers == sorted(set(numbers))
    assert [release.output for release in people.releases] == [None, str(Path("out") / "people.kme"), None]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", release.time) for release in people.releases)
    assert (adult.name, adult.epsilon, adult.delta, adult.spends) == ("adult", 1.0, 1e-6, ())


def test_an_unlimited_table_in_a_file_of_any_name_is_counted_and_not_limited(tmp_path):
    ledger = Ledger(tmp_path / "a?b#c %41'ü.ledger")
    ledger.init("adult", unlimited=True)
    for _ in range(3):
        ledger.check("adult", gaussian(50.0))
        ledger.record("adult", gaussian(50.0))
    assert list(tmp_path.iterdir()) == [ledger.path]
    (account,) = ledger.accounts()
    assert (account.epsilon, account.delta, account.epsilon_left) == (None, None, None)
    assert (account.total_delta, account.total_epsilon) == (1e-6, total_epsilon([gaussian(50.0)] * 3, 1e-6))


def test_a_release_of_the_whole_budget_is_recorded_and_then_nothing_is(ledger):
    ledger.check("adult", gaussian(1.0))
    ledger.record("adult", gaussian(1.0))
    for attempt in (ledger.check, ledger.record):
        message = refusal(lambda attempt=attempt: attempt("adult", gaussian(0.01)))  # type: ignore[misc]
        assert message == (
            "table 'adult' has a budget of epsilon 1, delta 1e-06, and its one release has spent epsilon 1 at delta 1e-06: a "
            "Gaussian release of epsilon 0.01, delta 1e-06 does not fit. At delta 1e-06 no Gaussian release fits: use what is "
            "published."
        )
    assert len(ledger.accounts()[0].releases) == 1


@pytest.mark.parametrize("asked", [gaussian(0.9), gaussian(0.9, 1e-8), laplace(0.9)], ids=lambda spend: spend.mechanism)
def test_what_a_refusal_says_is_left_really_fits_and_one_percent_more_does_not(ledger, asked):
    ledger.record("adult", gaussian(0.6))
    ledger.record("adult", laplace(0.1))
    message = refusal(lambda: ledger.record("adult", asked))
    assert f"epsilon {asked.epsilon:g}, delta {asked.delta:g} does not fit" in message
    assert "its 2 releases have together spent epsilon 0.6784" in message
    left = float(re.search(rf"At delta {asked.delta:g} .* epsilon up to (\S+) still fits: ask for that\.", message)[1])
    refusal(lambda: ledger.record("adult", one_more(left * 1.01, asked.delta, asked.mechanism)))
    ledger.record("adult", one_more(left, asked.delta, asked.mechanism))
    assert len(ledger.accounts()[0].releases) == 3


def test_tables_have_budgets_of_their_own_under_one_name_in_any_unicode_spelling(ledger):
    ledger.init("Zürich", 0.3, 0.0)
    ledger.record("adult", gaussian(1.0))
    ledger.record("Zürich", laplace(0.1))
    ledger.record("Zu\u0308rich", laplace(0.2))
    assert "At delta 1e-06 no Gaussian release fits" in refusal(lambda: ledger.check("Zürich", gaussian(0.1)))
    assert [(account.epsilon_left, len(account.releases)) for account in ledger.accounts()] == [(0, 2), (0, 1)]


def test_a_budget_given_later_counts_what_was_recorded_before(tmp_path):
    ledger = Ledger(tmp_path / "late.ledger")
    for table in ("adult", "census"):
        ledger.init(table, unlimited=True)
    ledger.record("adult", gaussian(0.9))
    ledger.record("census", gaussian(3.0))
    assert ledger.init("adult", 1.0, 1e-6).spends == (gaussian(0.9),)
    assert ledger.init("census", 1.0, 1e-6).epsilon_left == 0  # overspent already
    for table in ("adult", "census"):
        refusal(lambda table=table: ledger.record(table, gaussian(0.9)))  # type: ignore[misc]


def test_neither_a_check_nor_showing_writes_or_creates_anything(ledger, tmp_path):
    before = ledger.path.read_bytes()
    ledger.check("adult", gaussian(0.5))
    ledger.accounts()
    refusal(lambda: ledger.check("adult", gaussian(1.5)))
    other = Ledger(tmp_path / "other.ledger")
    for action in (lambda: other.check("adult", gaussian(1.5)), other.accounts):
        assert refusal(action).startswith("there is no ledger ")
    assert ledger.path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [ledger.path]


@needs_fork
def test_of_eight_processes_at_once_exactly_three_spend_a_budget_of_three_and_four_that_make_a_ledger_make_one(tmp_path):
    for *said, found in processes("race", tmp_path, 2, 8, 1):
        assert sorted(text for text in said if text.startswith("recorded")) == [f"recorded {k}" for k in (1, 2, 3)]
        assert sum("does not fit. At delta 1e-06 no Gaussian release fits" in text for text in said) == 5
        assert found == "found 3"
    (tmp_path / "new").mkdir()
    for *said, found in processes("race", tmp_path / "new", 4, 4, 0):
        assert sorted(said) == [f"recorded {k}" for k in (1, 2, 3, 4)]
        assert found == "found 4"


@needs_fork
@pytest.mark.parametrize("begun", [1, 0], ids=["a ledger in use", "a new ledger"])
@pytest.mark.slow
def test_a_kill_at_any_line_leaves_a_sound_ledger_with_all_of_a_spend_or_nothing_of_it(tmp_path, begun):
    """A spend is there if `record` had returned."""
    findings = processes("kill", tmp_path, begun)
    assert len(findings) > 50
    assert all(f["killed"] for f in findings[:-1]) and not findings[-1]["killed"]
    for finding in findings:
        assert finding["whole"]
        assert finding["found"] in (begun, begun + 1)
        assert finding["found"] == begun + 1 or not finding["marked"]
        assert finding["next"] == finding["found"] + 1
    # the kills came before, between and after: else the above would show little
    assert [begun, begun + 1] == sorted({f["found"] for f in findings[:-1] if not f["marked"]})
    assert findings[-2]["marked"]


@needs_fork
@pytest.mark.parametrize("begun", [1, 0], ids=["a ledger in use", "a new ledger"])
def test_a_transaction_that_was_half_written_when_its_process_died_is_undone(tmp_path, begun):
    assert processes("half_written", tmp_path, begun) == {
        "hot": True, "as_before": True, "whole": True, "journal": False,
    }  # fmt: skip


def test_a_spend_is_on_the_disk_when_record_returns(ledger):
    """3 is EXTRA: the folder too is flushed, so that the journal's deletion, which ends a transaction, cannot be lost."""
    with ledger._file.writing() as transaction:
        connection = transaction.connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (3,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.in_transaction


def test_a_ledger_in_use_is_waited_for_and_then_reported(ledger, monkeypatch):
    monkeypatch.setattr(room, "_TIMEOUT", 0.05)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        message = refusal(lambda: ledger.record("adult", gaussian(0.1)))
    assert message.endswith("was in use by another process for a minute. Nothing was recorded. Try again when that has ended.")
    assert ledger.record("adult", gaussian(0.1)) == 1


def test_the_lock_is_released_before_a_refusal_is_computed(ledger, monkeypatch):
    """The remaining budget takes a search of many steps; other processes may write meanwhile."""
    recorded = []
    ledger.init("other", unlimited=True)

    def search(*_: Any, **__: Any) -> float:
        recorded.append(Ledger(ledger.path).record("other", gaussian(0.1)))
        return 0.0

    monkeypatch.setattr(room, "_TIMEOUT", 0.05)
    monkeypatch.setattr(account_module, "largest_epsilon_left", search)
    refusal(lambda: ledger.record("adult", gaussian(2.0)))
    assert recorded == [1]


def test_nothing_heavy_is_imported_to_record(tmp_path):
    code = (
        "import sys\nfrom release_side.budget.ledger import Ledger\nfrom release_side.budget.composition import Spend\n"
        "Ledger(sys.argv[1]).init('adult', unlimited=True)\n"
        "Ledger(sys.argv[1]).record('adult', Spend(0.5, 0, 'discrete laplace', 'pure', 2.9, 10, 'subspace'))\n"
        "print([m for m in ('opendp', 'dp_accounting', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "l")], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_cannot_be_printed_or_looks_like_another_is_refused(tmp_path):
    ledger = Ledger(tmp_path / "l")
    empty, plain = (
        r"must be a text that is not empty, got .*\. Pass one",
        r"must have at most 200 printable .* got '.*: .*\. Pass a plain",
    )
    names = [*(("", empty), ("   ", empty), (None, empty))]
    names += [(name, plain) for name in ("x" * 201, "a\nb", "a\x00", "\x1b[2J", " a", "\udcff")]
    for name, message in names:
        for action in (
            lambda name=name: ledger.init(name, 1.0, 1e-6),
            lambda name=name: ledger.check(name, gaussian(0.1)),
            lambda name=name: ledger.record(name, gaussian(0.1)),
        ):
            assert re.search(f"the name of a table {message}", refusal(action))
    assert list(tmp_path.iterdir()) == []


def test_a_budget_is_given_once_and_not_removed_and_unlimited_is_said_once(ledger):
    for again in ((1.0, 1e-6, False), (2.0, 1e-6, False), (None, None, True)):
        message = refusal(lambda again=again: ledger.init("adult", *again[:2], unlimited=again[2]))  # type: ignore[misc]
        assert re.search(r"has a budget already, epsilon 1, delta 1e-06: a budget is a guarantee .*, and stays\. Keep", message)
    assert ledger.accounts()[0].epsilon == 1.0
    ledger.init("open", unlimited=True)
    message = refusal(lambda: ledger.init("open", unlimited=True))
    assert re.search(r"table 'open' is unlimited already\. Keep it, or give it a budget", message)
    assert ledger.init("open", 1.0, 1e-6).epsilon_left == 1.0


def test_a_file_is_noted_once_and_for_a_recorded_release(ledger):
    number = ledger.record("adult", gaussian(0.1))
    ledger.published(number, "a.kme")
    for wrong in (number, number + 1):
        message = refusal(lambda wrong=wrong: ledger.published(wrong, "b.kme"))  # type: ignore[misc]
        assert re.search(rf"has no release {wrong} that waits for its file\. Pass the number", message)
    assert ledger.accounts()[0].releases[0].output == "a.kme"


def another_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE release (id INTEGER)")


def later_format(path: Path) -> None:
    Ledger(path).init("adult", unlimited=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 3")


def marked_but_empty(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {room._APPLICATION}")
        connection.execute("PRAGMA user_version = 1")


def torn(path: Path) -> None:
    Ledger(path).init("adult", unlimited=True)
    Ledger(path).record("adult", gaussian(0.1))
    content = path.read_bytes()
    path.write_bytes(content[:4096] + bytes([255]) * (len(content) - 4096))


OTHER_KIND = r"is not a ledger, but a file of another kind\. .*Name another"
WRONG_FILES = [
    (another_application, r"belongs to another application: it is not a ledger\. Nothing was changed\. Name another file"),
    (later_format, r"is format 3; this kmeanalyst reads format 1\. Nothing was read: .*\. Upgrade kmeanalyst"),
    (marked_but_empty, r"holds something other than its table of entries .*\. Nothing was recorded\. Restore the ledger from"),
    (torn, r"is damaged\. Nothing was recorded\. Restore it from a copy"),
    (lambda path: path.write_bytes(b"age,wage\n1,2\n"), OTHER_KIND),
    (lambda path: path.write_bytes(os.urandom(9999)), OTHER_KIND),
    (lambda path: path.mkdir(), r"is not a plain file\. Nothing was recorded\. Name one"),
    (lambda path: path.parent.rmdir(), r"there is no folder .* for the ledger\. Nothing was recorded\. Make it first"),
]  # fmt: skip


def test_a_file_that_is_no_sound_ledger_is_refused_and_left_as_it_is(tmp_path):
    for number, (make, message) in enumerate(WRONG_FILES):
        path = tmp_path / f"{number}" / "folder" / "wrong.ledger"
        path.parent.mkdir(parents=True)
        make(path)
        before = {each: each.is_file() and each.read_bytes() for each in tmp_path.rglob("*")}
        ledger = Ledger(path)
        for action in (
            ledger.accounts,
            lambda ledger=ledger: ledger.init("census", 1.0, 1e-6),
            lambda ledger=ledger: ledger.check("adult", gaussian(0.1)),
            lambda ledger=ledger: ledger.record("adult", gaussian(0.1)),
            lambda ledger=ledger: ledger.published(1, "a.kme"),
        ):
            found = refusal(action)
            assert str(path.parent) in found and re.search(message, found), found
        assert {each: each.is_file() and each.read_bytes() for each in tmp_path.rglob("*")} == before


def test_an_empty_file_becomes_a_ledger_and_shows_as_none(tmp_path):
    path = tmp_path / "empty.ledger"
    path.touch()
    for action in (
        Ledger(path).accounts,
        lambda: Ledger(path).check("adult", gaussian(0.5)),
        lambda: Ledger(path).record("adult", gaussian(0.5)),
    ):
        assert re.search(r"is empty: it has no entries yet\. .* Make one: release-side ledger init", refusal(action))
    assert path.read_bytes() == b""
    Ledger(path).init("adult", unlimited=True)
    assert Ledger(path).record("adult", gaussian(0.5)) == 1


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder whose permissions apply to this process too: root gives up its own."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o777)
        root = os.geteuid() == 0
        if root:
            os.setresuid(65534, 65534, 0)
        try:
            yield path
        finally:
            if root:
                os.setresuid(0, 0, 0)
            path.chmod(0o777)


@pytest.mark.skipif(not hasattr(os, "setresuid"), reason="rights of files")
def test_a_ledger_without_the_right_to_write_it_is_refused_before_anything_is_drawn(unprivileged):
    for number, (folder_rights, file_rights) in enumerate([(0o755, 0o444), (0o555, 0o644), (0o755, 0o000)]):
        within = unprivileged / f"{number}"
        within.mkdir()
        ledger = Ledger(within / "l")
        ledger.init("adult", 1.0, 1e-6)
        ledger.path.chmod(file_rights)
        within.chmod(folder_rights)
        for action in (
            lambda ledger=ledger: ledger.init("census", 1.0, 1e-6),
            lambda ledger=ledger: ledger.check("adult", gaussian(0.1)),
            lambda ledger=ledger: ledger.record("adult", gaussian(0.1)),
        ):
            said = refusal(action)
            assert re.search(r"cannot be written\. Nothing was recorded\. Make it and its folder writable", said)
        if file_rights:
            assert ledger.accounts()[0].epsilon == 1.0  # reading needs no right to write
        else:
            assert re.search(r"cannot be opened or written\. .*Make the file and its folder", refusal(ledger.accounts))
        if folder_rights == 0o555:
            assert "cannot be written" in refusal(lambda within=within: Ledger(within / "new").check("adult", gaussian(0.1)))
        within.chmod(0o755)


def test_errors_of_the_disk_become_messages(ledger, monkeypatch):
    for code, message in {
        "SQLITE_FULL": r"cannot grow: the disk is full\. Nothing was recorded\. Make room on the disk",
        "SQLITE_IOERR_FSYNC": r"could not be read or written: the disk failed\. Nothing.*\. Check the disk, then show",
        "SQLITE_READONLY_DBMOVED": r"cannot be opened or written\. Nothing was recorded\. Make the file",
        None: r"is damaged\. Nothing was recorded\. Restore it from a copy",
    }.items():
        error = sqlite3.OperationalError("as the library words it")
        if code is not None:
            error.sqlite_errorcode = getattr(sqlite3, code)
        monkeypatch.setattr(room.sqlite3, "connect", Mock(side_effect=error))
        said = refusal(lambda: ledger.record("adult", gaussian(0.1)))
        assert re.search(message, said) and "as the library" not in said


def test_init_gives_a_budget_and_prints_it(tmp_path):
    path, other = str(tmp_path / "l"), str(tmp_path / "other")
    result = call("ledger", "init", path, "--table", "adult", "--epsilon", "2", "--delta", "1e-6")
    assert result.exit_code == 0
    assert result.stderr == f"wrote {path}\n"
    assert result.stdout.splitlines() == [
        "table   adult", "budget  epsilon 2, delta 1e-06", "spent   epsilon 0, delta 1e-06",
        "left    epsilon 2, delta 1e-06, in one Gaussian release",
    ]  # fmt: skip
    assert answer(call("ledger", "init", other, "--table", "adult", "--epsilon", "2", "--delta", "0", "--json")) == {
        "ledger": other, "table": "adult", "epsilon": 2.0, "delta": 0.0, "spent": {"epsilon": 0.0, "delta": 0.0},
        "left": {"epsilon": 2.0, "delta": 0.0, "mechanism": LAPLACE}, "protects": None, "holds_if_adaptive": True,
        "releases": [],
    }  # fmt: skip


def test_show_has_a_line_for_each_release(ledger):
    ledger.published(ledger.record("adult", gaussian(0.5)), "adult\n.kme")
    ledger.record("adult", laplace(0.1))
    ledger.init("unlimited", unlimited=True)
    ledger.record("unlimited", gaussian(0.25))
    result = call("ledger", "show", str(ledger.path))
    assert result.exit_code == 0 and result.stderr == ""
    shown = [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2030-01-01 12:00:00", line) for line in result.stdout.splitlines()]
    assert shown == [
        "table   adult",
        "budget  epsilon 1, delta 1e-06",
        "spent   epsilon 0.5816, delta 1e-06",
        "left    epsilon 0.7609, delta 1e-06, in one Gaussian release",
        "  time (UTC)           epsilon  delta  noise                        N       method  file",
        "  2030-01-01 12:00:00  0.5      1e-06  discrete gaussian, analytic  1 rows  any     adult\\n.kme",
        "  2030-01-01 12:00:00  0.1      0      discrete laplace, pure       1 rows  any     not published",
        "",
        "table   unlimited",
        "budget  unlimited: releases are counted and none is refused",
        "spent   epsilon 0.25, delta 1e-06",
        "left    no limit",
        "attack  of 100 guesses which of two rows is in the table at most 52 are right (μ = 0.0649, Gaussian differential privacy)",
        "  time (UTC)           epsilon  delta  noise                        N       method  file",
        "  2030-01-01 12:00:00  0.25     1e-06  discrete gaussian, analytic  1 rows  any     not published",
    ]


def test_show_json_has_numbers_and_null_for_what_is_none_or_infinite(ledger):
    ledger.published(ledger.record("adult", gaussian(0.5)), "a.kme")
    for table in ("overspent", "unlimited"):
        ledger.init(table, unlimited=True)
    ledger.record("overspent", gaussian(0.5))
    ledger.init("overspent", 1.0, 0.0)  # a Gaussian release is beyond every budget without delta
    ledger.record("unlimited", laplace(0.5))
    found = answer(call("ledger", "show", str(ledger.path), "--json"))
    assert found["ledger"] == str(ledger.path)
    adult, overspent, unlimited = found["tables"]
    assert adult["spent"] == {"epsilon": pytest.approx(0.5), "delta": 1e-6}
    assert adult["left"]["mechanism"] == GAUSSIAN
    assert fits([gaussian(0.5), gaussian(adult["left"]["epsilon"])], 1.0, 1e-6)
    (release,) = adult["releases"]
    assert set(release) == {
        "id", "time", "epsilon", "delta", "mechanism", "calibration", "noise_multiplier", "n_rows", "method", "output",
        "neighbouring", "unit", "digest",
    }  # fmt: skip
    assert (release["epsilon"], release["output"]) == (0.5, "a.kme")
    assert overspent["spent"] == {"epsilon": None, "delta": 0.0}
    assert overspent["left"] == {"epsilon": 0.0, "delta": 0.0, "mechanism": LAPLACE}
    assert (unlimited["epsilon"], unlimited["delta"], unlimited["left"]) == (None, None, None)
    assert unlimited["releases"][0]["output"] is None


def test_facts_nested_too_deeply_are_no_facts():
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    with pytest.raises(room.PublishError, match="the facts of entry 1 are not a JSON object"):
        room.Entry(1, "", "release", deep, "", "", "").read()
