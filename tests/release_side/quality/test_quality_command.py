"""`release-side quality`: where its numbers go, and where they must not."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
import refusals
from command_line import curate as call
from exception_texts import everything_of
from quality_cases import DOMAIN, people

from kmeanalyst.cli.terminal import json_text
from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file import archive
from release_side.budget.ledger import Ledger
from release_side.budget.spending import LedgerWarning
from release_side.choices.internal_files import STAMP, warning_of_internal_files
from release_side.errors import PublishError
from release_side.private_rows.table import PrivateTable
from release_side.publishing.publish import publish
from release_side.quality import quality as room
from release_side.quality.quality import quality

MARKER = "kept4711"
STAMPED = json.dumps({"not_for_publication": STAMP}, ensure_ascii=False)
QUICK = ("--points", 40, "--kernel", "table", "--features", 40)
PUBLISH = ("publish", "private.csv", "--domain", "domain.toml", "--epsilon", 1, "--delta", 1e-6, *QUICK)


@pytest.fixture
def here(compared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with copies of the table, its release and its domain, as the current one."""
    for name in ("private.csv", "table.kme", "domain.toml"):
        (tmp_path / name).write_bytes((compared.folder / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(*more: str, release: str = "table.kme", private: str = "private.csv", output: str = "x.internal.html"):
    return call("quality", release, private, "--output", output, "--allow-rehearsal", *more)


def test_it_writes_a_page_and_its_json_and_prints_their_names_alone(here: Path, caplog: pytest.LogCaptureFixture):
    before = (here / "table.kme").read_bytes()
    result = compare("--json", "x.internal.json", "--group", "town")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "wrote x.internal.html\nwrote x.internal.json\n"
    assert (here / "table.kme").read_bytes() == before and not caplog.records
    assert sorted(os.listdir(here)) == ["domain.toml", "private.csv", "table.kme", "x.internal.html", "x.internal.json"]
    found = quality(read_release("table.kme", allow_rehearsal=True), "private.csv", group="town", source="table.kme")
    assert (here / "x.internal.json").read_text(encoding="utf-8") == json_text(found.to_dict()) + "\n"
    page = (here / "x.internal.html").read_text(encoding="utf-8")
    assert STAMP in page.replace("<strong>", "").replace("</strong>", "")


def test_its_files_are_of_their_owner_alone_before_they_have_a_byte(here: Path, monkeypatch: pytest.MonkeyPatch):
    """Who opened a file while it was empty would read on, whatever its mode is later."""
    old, modes, make, write = os.umask(0o000), [], archive._create, Path.write_bytes

    def made(path: Path, *mode: int) -> None:
        make(path, *mode)
        if mode:  # not the trial files, which hold nothing of the table
            modes.append(stat.S_IMODE(path.stat().st_mode))

    def written(path: Path, data: bytes) -> int:
        if data[:1] in (b"<", b"{"):
            modes.append(stat.S_IMODE(path.stat().st_mode))
        return write(path, data)

    monkeypatch.setattr(archive, "_create", made)
    monkeypatch.setattr(Path, "write_bytes", written)
    try:
        write(Path("x.internal.html"), b"older")
        os.chmod("x.internal.html", 0o644)
        compare("--json", "x.internal.json")
    finally:
        os.umask(old)
    assert modes == [0o600] * 4
    assert [stat.S_IMODE(os.stat(name).st_mode) for name in ("x.internal.html", "x.internal.json")] == [0o600, 0o600]


def test_what_does_not_fit_is_refused_before_a_row_is_read(here: Path, monkeypatch: pytest.MonkeyPatch):
    """refusals.txt: names of files before anything is read, and the rest by public facts."""
    monkeypatch.setattr(PrivateTable, "encoded", lambda *_: pytest.fail("a row was read"))
    os.symlink(here / "elsewhere", "link.internal.html")
    os.link("table.kme", "hard.internal.kme")
    os.link("private.csv", "rows.internal.csv")
    Path("w.internal.txt").write_text("age\n", encoding="utf-8")
    people(20).drop(columns="age").to_csv("other.csv", index=False)
    before = {path: path.read_bytes() for path in here.iterdir() if path.is_file()}

    def read(options: str, **named: str) -> None:
        result = compare(*options.split(), **named)
        assert (result.exit_code, result.stdout) == (1, "")
        raise click.ClickException(result.stderr.replace("\n", " "))

    def unread(options: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr("kmeanalyst.release.read_release", lambda *_: pytest.fail("the release was read"))
            read(options)

    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, {"read": read, "unread": unread}))
    assert {path: path.read_bytes() for path in here.iterdir() if path.is_file()} == before


def test_a_rehearsal_is_compared_only_if_that_is_asked_for_and_no_other_file_is_a_release(here: Path):
    result = call("quality", "table.kme", "private.csv", "--output", "x.internal.html")
    assert result.exit_code == 1 and "NOT PRIVATE" in result.stderr
    result = compare(release="domain.toml")
    assert result.exit_code == 1 and "details are withheld" not in result.stderr


def test_an_error_of_the_comparison_shows_no_text_of_it(here: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> None:
        try:
            raise ValueError(MARKER)
        except ValueError as error:
            raise ArithmeticError(f"{MARKER} again") from error

    monkeypatch.setattr(room, "table_scores", broken)
    with pytest.raises(PublishError, match="could not be compared") as caught:
        quality(read_release("table.kme", allow_rehearsal=True), "private.csv")
    assert MARKER not in everything_of(caught.value)
    result = compare()
    assert result.exit_code == 1 and MARKER not in result.output and result.stdout == ""
    assert not Path("x.internal.html").exists()


def test_an_interrupted_write_leaves_the_older_page_and_no_other_file(here: Path, monkeypatch: pytest.MonkeyPatch):
    Path("x.internal.html").write_text("older", encoding="utf-8")
    whole = Path.write_bytes

    def half(path: Path, data: bytes) -> int:
        if data.startswith(b"<!DOCTYPE"):
            whole(path, data[: len(data) // 2])
            raise OSError("no space left on device")
        return whole(path, data)

    monkeypatch.setattr(Path, "write_bytes", half)
    result = compare()
    assert result.exit_code == 1
    assert Path("x.internal.html").read_text(encoding="utf-8") == "older"
    assert sorted(os.listdir(here)) == ["domain.toml", "private.csv", "table.kme", "x.internal.html"]


def test_cells_that_the_domain_does_not_know_become_what_the_release_made_of_them(here: Path):
    """A row of bad cells is its defaults, in silence, as in publish."""
    frame = people(200)
    frame.iloc[7] = [MARKER, MARKER, MARKER, MARKER, MARKER]
    frame.to_csv("private.csv", index=False)
    result = compare("--json", "x.internal.json")
    assert result.exit_code == 0 and MARKER not in result.output
    for ending in ("html", "json"):  # among the cells that were not read, and in no other part
        before, found, after = (
            Path(f"x.internal.{ending}").read_text(encoding="utf-8").partition("commonest" if ending == "html" else '"cells"')
        )
        assert MARKER not in before and found and MARKER in after


@pytest.fixture(scope="module")
def visits() -> tuple[pd.DataFrame, Release]:
    """600 persons; those with many rows are old, so that rows and persons differ."""
    persons = people(600)
    times = np.where(persons["age"].astype(int) > 70, 9, 1)
    frame = persons.loc[np.repeat(persons.index, times)].assign(person=np.repeat(np.arange(600), times))
    domain = Domain((DOMAIN["age"], DOMAIN["town"]))
    return frame, publish(frame, domain, epsilon=50, delta=1e-4, rehearsal=1, unit="person", kernel="margins")


def test_every_unit_weighs_the_same_on_both_sides(visits: tuple[pd.DataFrame, Release]):
    frame, release = visits
    found = quality(release, frame, workload=["age", "age > 70"])
    by_person = frame.drop_duplicates("person")["age"].astype(int)
    answers = {each.question: each for each in found.questions.compared}
    assert answers["age"].table == pytest.approx(by_person.mean())
    assert answers["age > 70"].table == pytest.approx(np.mean(by_person > 70)) and answers["age > 70"].held
    assert found.sampled == 600 and "person" in found.counted and not found.notes
    assert next(each for each in found.tables.columns if each.name == "age").total_variation < 0.05
    rows = frame["age"].astype(int)
    assert abs(rows.mean() - by_person.mean()) > 10  # what rows would have said


def test_a_table_without_the_column_of_the_units_is_refused(visits: tuple[pd.DataFrame, Release]):
    frame, release = visits
    with pytest.raises(PublishError, match="no column 'person'"):
        quality(release, frame.drop(columns="person"))


def test_publish_ends_by_naming_the_command_that_runs_as_printed(here: Path):
    result = call(*PUBLISH, "--output", "new.kme", "--rehearsal", 1)
    last = result.stderr.splitlines()[-1]
    assert last.endswith("release-side quality new.kme private.csv --output new.internal.html --allow-rehearsal"), last
    named = last.partition("release-side ")[2].split()
    assert call(*named).exit_code == 0 and Path("new.internal.html").exists()
    quiet = call(*PUBLISH, "--output", "json.kme", "--rehearsal", 1, "--json")
    assert "quality" not in quiet.stderr and json.loads(quiet.stdout)["output"] == "json.kme"


def test_publish_warns_next_to_an_internal_page_and_spends_all_the_same(here: Path):
    Ledger("budget.ledger").init("people", 5.0, 1e-4)
    counted = ("--ledger", "budget.ledger", "--table", "people")
    assert "warning" not in call(*PUBLISH, "--output", "one.kme", *counted).stderr
    Path("x.internal.json").write_text(STAMPED, encoding="utf-8")
    result = call(*PUBLISH, "--output", "two.kme", *counted)
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("warning: ")]
    assert "x.internal.json" in warning and "no ε covers that choice" in warning and "release-side plan" in warning
    assert result.exit_code == 0 and Path("two.kme").exists()
    rehearsed = call(*PUBLISH, "--output", "three.kme", "--rehearsal", 1)
    assert "warning" not in rehearsed.stderr


def test_from_python_the_warning_is_one_of_the_ledger(here: Path):
    compare("--json", "x.internal.json", output="y.internal.html")
    Path("y.internal.html").unlink()
    with pytest.warns(LedgerWarning, match=r"x\.internal\.json"):
        publish(people(200), DOMAIN, epsilon=1, delta=1e-6, uncounted=True, output=here / "z.kme")


def test_only_files_of_this_command_are_named(tmp_path: Path):
    (tmp_path / "a.internal.html").write_text("<p>something else</p>", encoding="utf-8")
    (tmp_path / "b.internal.json").mkdir()
    (tmp_path / "page.html").write_text(STAMP, encoding="utf-8")
    assert warning_of_internal_files(tmp_path / "x.kme") is None
    (tmp_path / "c.internal.json").write_text(STAMPED, encoding="utf-8")
    assert "c.internal.json" in str(warning_of_internal_files(tmp_path / "x.kme"))


def test_a_table_of_a_database_is_compared_as_its_file_is(here: Path):
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect("private.duckdb")
    connection.execute("create table visits as select * from read_csv('private.csv', all_varchar = true)")
    connection.close()
    result = compare("--from", "visits", "--json", "x.internal.json", private="private.duckdb")
    assert (result.exit_code, result.stdout) == (0, "wrote x.internal.html\nwrote x.internal.json\n"), result.stderr
    assert compare("--json", "y.internal.json", output="y.internal.html").exit_code == 0
    of_database, of_file = (json.loads(Path(f"{name}.internal.json").read_text(encoding="utf-8")) for name in "xy")
    assert of_database["tables"]["k_marginal"] == of_file["tables"]["k_marginal"]
    assert of_database["questions"] == of_file["questions"]
    assert compare("--from", "visits", private="private.csv").exit_code == 1


def test_a_source_that_fails_while_it_is_read_says_no_more_than_that(here: Path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({name: pa.array(cells) for name, cells in people(3000).items()}), "private.parquet")
    whole = Path("private.parquet").read_bytes()
    Path("private.parquet").write_bytes(whole[:600] + MARKER.encode() * 40 + whole[600 + len(MARKER) * 40 :])
    result = compare(private="private.parquet")
    assert result.exit_code == 1 and result.stdout == ""
    assert "failed while it was read" in result.stderr and MARKER not in result.stderr
    assert not Path("x.internal.html").exists()
