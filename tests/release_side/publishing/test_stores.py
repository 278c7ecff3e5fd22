"""Files in object stores and Arrow Flight: the integers of the CSV file, refusals, and silent failures.

fsspec and s3fs are optional (`pip install '.[sources]'`): without them these tests are skipped. The server of S3 is moto's.
"""

from __future__ import annotations

import gzip
import logging
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import refusals
import servers
from command_line import call
from source_cases import DOMAIN, MARKER, SMALL, N, as_csv, fail_with_a_cell, integers, people, refused_and_shown

from kmeanalyst.learning.training.pipeline import read_model
from kmeanalyst.releases.domain.domain import domain_toml
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.texts import shown
from kmeanalyst.sources.stores import is_url
from release_side import Ledger, PublishError, publish
from release_side.choices.public_inputs import refuse_private_as_public, refuse_private_as_workload, samples_of
from release_side.private_rows.rows import open_private, paths_of
from release_side.private_rows.table import PrivateTable

fsspec: Any = pytest.importorskip("fsspec", reason="fsspec, of the extra [sources], is not installed")


def as_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=77)


def as_gz(table: pa.Table, path: Path) -> None:
    path.write_bytes(gzip.compress(as_csv(table, path.with_suffix(".plain")).read_bytes()))


def as_files_that_differ(table: pa.Table, folder: Path) -> None:
    """Other orders of columns and other types; in the first file a column without a value has no type; kinds are mixed."""
    folder.mkdir()
    first = table.slice(0, 1)
    pq.write_table(first.set_column(1, "gain", pa.nulls(1)), folder / "0.parquet")
    pq.write_table(table.slice(1, 99).select(table.schema.names[::-1]), folder / "1.parquet")
    texts = table.slice(100, 60)
    pq.write_table(texts.set_column(0, "age", texts["age"].cast(pa.string())), folder / "2.parquet")
    as_csv(table.slice(160, 40), folder / "3.csv")
    pyarrow.feather.write_feather(table.slice(200), folder / "4.feather", chunksize=41)
    (folder / "notes.txt").write_text("no table", encoding="utf-8")


KINDS: dict[str, Callable[[pa.Table, Path], object]] = {
    "t.csv": as_csv,
    "t.csv.gz": as_gz,
    "t.parquet": as_parquet,
    "t.feather": lambda table, path: pyarrow.feather.write_feather(table, path, chunksize=41),
    "t.arrow": lambda table, path: pyarrow.feather.write_feather(table, path, compression="uncompressed"),
    "parts": as_files_that_differ,
}


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as monkeypatch, servers.s3(monkeypatch) as store:
        yield store


@pytest.fixture
def memory() -> Iterator[Any]:
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


def put(store: Any, path: Path) -> str:
    """The URL of a copy of a file or folder."""
    for file in path.iterdir() if path.is_dir() else [path]:
        store.pipe_file(f"visits/{file.relative_to(path.parent)}", file.read_bytes())
    return f"{'memory' if store.protocol == 'memory' else 's3'}://visits/{path.name}"


def test_the_noisy_integers_are_those_of_the_csv_file(memory, s3, tmp_path, monkeypatch):
    """Of rows and of units. S3 is asked for files of every kind; a request to its server takes most of the time."""
    table = people(pa.string())
    path = as_csv(table, tmp_path / "expected.csv")
    expected = (integers(path), integers(path, unit="who"))
    monkeypatch.setattr(PrivateTable, "piece", 19)
    for name, write in KINDS.items():
        write(table, tmp_path / name)
        for source in (put(memory, tmp_path / name), tmp_path / name):
            assert (integers(source), integers(source, unit="who")) == expected, name
    assert integers(put(s3, tmp_path / "parts"), unit="who") == expected[1]
    assert integers(put(s3, tmp_path / "t.csv.gz")) == expected[0]


def test_a_glob_and_a_folder_are_the_files_that_they_match(memory, s3, tmp_path):
    as_files_that_differ(people(), tmp_path / "glob")
    for url in (put(memory, tmp_path / "glob"), put(s3, tmp_path / "glob")):
        for folder in (url, url + "/"):
            names = [str(path).rpartition("/")[2] for path in paths_of(folder)]
            assert names == ["0.parquet", "1.parquet", "2.parquet", "3.csv", "4.feather"]
        assert [path.name for path in paths_of(url + "/*.parquet")] == names[:3]
        assert [path.name for path in paths_of(url + "/[0-4].*")] == names


def test_a_table_that_was_replaced_is_read_anew(memory, s3, tmp_path):
    """By another program: what fsspec remembers of a folder has the old sizes."""
    (tmp_path / "again").mkdir()
    for store in (memory, s3):
        for rows in (5, 300):
            as_csv(people()[:rows], tmp_path / "again" / "t.csv")
            url = put(type(store)(skip_instance_cache=True), tmp_path / "again")
            assert open_private(url).count() == sum(map(len, open_private(url).encoded(DOMAIN))) == rows


def test_parts_are_the_table_and_pickles_of_them_hold_no_credentials(memory, s3, tmp_path):
    for store, name in ((s3, "t.parquet"), (memory, "t.csv"), (memory, "t.feather")):
        KINDS[name](people(), tmp_path / name)
        table = open_private(put(store, tmp_path / name))
        parts = table.divided(100)
        pickled = pickle.dumps(parts)
        assert servers.KEY.encode() not in pickled
        assert len(parts) == (2 if name == "t.parquet" else 1)
        rows = np.concatenate([rows for part in pickle.loads(pickled) for rows in part.encoded(DOMAIN)])
        np.testing.assert_array_equal(rows, np.concatenate(list(table.encoded(DOMAIN))))


def test_arrow_flight_is_read(tmp_path):
    table = people(pa.string())
    expected = as_csv(table, tmp_path / "t.csv")
    with servers.flight(table) as reader:
        assert integers(reader(), n_rows=N) == integers(expected)
        assert integers(reader(), n_rows=N, unit="who") == integers(expected, unit="who")
        with pytest.raises(PublishError, match=r"can be read once only, .* Nothing was spent"):
            integers(reader())


def refused(source: Any) -> None:
    """Publish; an error that comes from another one, or after it, is wrong."""
    try:
        publish(source, DOMAIN, **SMALL)
    except PublishError as error:
        assert error.__cause__ is error.__context__ is None
        raise


def test_what_is_not_in_s3_is_refused(s3, tmp_path):
    put(s3, as_csv(people()[:5], tmp_path / "t.csv"))
    for wrong in ("visits/nothing.csv", "visits/*.dta", "visits/nothing/", "nowhere/*.csv", "nowhere"):
        with pytest.raises(PublishError, match=r"no file at s3://(visits|nowhere).* Check the bucket and the path"):
            refused(f"s3://{wrong}")


def test_what_is_not_there_or_cannot_be_opened_is_refused(memory, tmp_path, monkeypatch):
    put(memory, as_csv(people()[:5], tmp_path / "t.csv"))

    def held(name: str, content: bytes) -> str:
        memory.pipe_file(f"visits/{name}", content)
        return f"memory://visits/{name}"

    def without(package: str, source: str) -> None:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            refused(source)

    class NoCredentialsError(Exception):
        pass

    def failing(error: Exception, function: str, name: str) -> None:
        def fails(*_: object, **__: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(type(memory), function, fails)
            refused(f"memory://visits/{name}")

    names = globals() | locals()
    refusals.check(Path(__file__).parent / "refusals_stores.txt", lambda text: eval(text, names))


def test_a_secret_in_a_url_is_refused_and_not_repeated(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    for url in (
        "s3://AKIA:s3cret@visits/t.csv", "s3://AKIA:s3c/ret@visits/*.csv", "sftp://me:s3cret@host/t.csv",
        "https://host/t.csv?X-Amz-Signature=s3cret", "az://visits/t.csv?sv=1&sig=s3cret", "https://host/t.csv;sig=s3cret",
        "https://host/t.csv#sig=s3cret", "s3://s3cret@visits/t.csv",
    ):  # fmt: skip
        with pytest.raises(PublishError, match=r"^the URL holds a password .* repeated here: .* into the env"):
            refused(url)
        for command in ("check-source", "publish --uncounted --epsilon 1 --delta 1e-6 --output a.kme"):
            result = call("release-side", *command.split(), url, "--domain", "d.toml")
            assert result.exit_code == 1 and "not repeated here" in result.stderr
            assert "s3c" not in result.output + caplog.text


ADDRESSES = (
    "postgresql+psycopg2://me:s3cret@host/db", "postgresqls://me:s3c/ret@host/db", "host=h user=me password=s3cret",
    "Driver=SQL Server;Server=h;UID=me;PWD=s3cret", "md:db?motherduck_token=s3cret", "me:s3cret@host/db", "key=a secret=s3cret",
    "md:db?motherduck_token=" + 300 * "s3cret",  # no name of a file is as long
)  # fmt: skip


def test_what_is_no_file_and_looks_like_an_address_is_not_repeated(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    Path("t.csv").write_text("a\n1\n", encoding="utf-8")
    for address in ADDRESSES:
        for command in (
            "release-side check-source @ --domain d.toml", "kmeanalyst info @", "kmeanalyst validate @",
            "kmeanalyst train @ --target y --output m",
            "release-side plan --rows 9 --epsilon 1 --delta 1e-6 --domain @", "release-side ledger show @", "release-side finish @",
            "release-side publish t.csv --domain @ --uncounted --epsilon 1 --delta 1e-6 --output a.kme",
        ):  # fmt: skip
            result = call(*(address if word == "@" else word for word in command.split()))
            assert result.exit_code and "not repeated here" in result.output and "s3c" not in result.output, command
        with pytest.raises(FileNotFoundError, match="not repeated here"):
            read_model(address)
        with pytest.raises(OSError, match=r"not repeated here|too long"), atomic_write(f"{address}/model.skops"):
            pass
    for name in ("no/such.csv", "year=2020/t.csv", "C:\\t.csv", "a@b/t.csv", "part-[0-9]?.csv", "über uns.csv"):
        assert shown(name) == name


def test_an_address_of_a_database_and_a_path_are_no_urls():
    no_urls = ("postgresql://host/db", "postgresql:", "C:\\t.csv", "t.csv", "a/b://c", Path("s3://a/b"))
    assert not any(map(is_url, no_urls))
    assert all(map(is_url, ("s3://a/b", "abfs://box@account.dfs.core.windows.net/t.csv", "memory://t.csv")))


def test_a_private_table_in_a_store_is_no_public_file(memory, tmp_path):
    path = as_csv(people(), tmp_path / "public.csv")
    url = put(memory, path)
    other = as_csv(people(pa.string())[:50], tmp_path / "other.csv")
    message = r"the public points are the private table itself: .*\((memory|/).* (same|file)"
    for public in (path, str(path), url, "memory://visits/*.csv"):
        with pytest.raises(PublishError, match=message):
            refuse_private_as_public(open_private(url), public, DOMAIN)
    with pytest.raises(PublishError, match="the public points are the private table itself"):
        refuse_private_as_public(open_private(path), url, DOMAIN)
    with pytest.raises(PublishError, match="the workload is the private table itself"):
        refuse_private_as_workload(open_private(url), path)
    as_gz(people(), tmp_path / "t.csv.gz")
    for private in (url, put(memory, tmp_path / "t.csv.gz")):
        with pytest.raises(PublishError, match="the domain was drafted from the private table itself"):
            refuse_private_as_public(open_private(private), None, DOMAIN, samples_of(path))
    as_parquet(people(), tmp_path / "t.parquet")
    with pytest.raises(PublishError, match="the two hold the same rows"):
        refuse_private_as_public(open_private(put(memory, tmp_path / "t.parquet")), path, DOMAIN)
    refuse_private_as_public(open_private(url), other, DOMAIN, samples_of(other))


def test_the_command_line_reads_urls_and_writes_here(s3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    as_files_that_differ(people(), tmp_path / "parts")
    url = put(s3, tmp_path / "parts") + "/*.parquet"
    shutil.rmtree("parts")
    Path("d.toml").write_text(domain_toml(DOMAIN), encoding="utf-8")
    result = call("release-side", "check-source", url, "--domain", "d.toml")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines()[1].split() == ["age", "integer", "int64,", "string"]
    ledger = Ledger(tmp_path / "budget.ledger")
    ledger.init("people", epsilon=2, delta=1e-5)
    words = f"--epsilon 1 --delta 1e-6 --points 5 --features 64 --table people --ledger {ledger.path}".split()
    result = call("release-side", "publish", url, "--domain", "d.toml", *words, "--output", "a.kme")
    assert result.exit_code == 0 and Path("a.kme").exists(), result.stderr
    result = call("release-side", "publish", url, "--domain", "d.toml", *words, "--output", "s3://visits/a.kme")
    assert result.exit_code == 1 and "does not exist or is not writable" in result.stderr


class BreaksOff:
    """A file of a store that fails once so many bytes of its files were read, with a cell in the text of the error."""

    def __init__(self, file: Any, left: list[int]) -> None:
        self.file, self.left = file, left

    def read(self, n: int = -1) -> bytes:
        data = self.file.read(n)
        self.left[0] -= len(data)
        if self.left[0] < 0:
            fail_with_a_cell(lambda: OSError(5, MARKER))
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def __enter__(self) -> BreaksOff:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


SHARES = [
    *((name, 0.5, None) for name in KINDS), ("t.csv", 0.5, "who"), ("t.parquet", 0.5, "who"), ("t.csv", 0.0, "who"),
    ("t.parquet", 0.0, None),
]  # fmt: skip


def test_a_store_that_breaks_off_shows_no_cell(memory, tmp_path, monkeypatch, capfd, caplog, recwarn):
    table = people().append_column("diary", pa.array([f"{MARKER} {x}" for x in np.random.default_rng(1).random(N)]))
    left, opened = [0], type(memory).open
    monkeypatch.setattr(type(memory), "open", lambda *which, **how: BreaksOff(opened(*which, **how), left))
    for number, (name, share, unit) in enumerate(SHARES):
        (folder := tmp_path / str(number)).mkdir()
        KINDS[name](table, folder / name)
        left[0] = 10**9
        url = put(memory, folder / name)
        left[0] = int(share * ((folder / name).stat().st_size if name != "parts" else 20_000))
        shown = refused_and_shown(
            url, DOMAIN, folder / "out", (capfd, caplog, recwarn), unit=unit,
            match=r"withheld .* nothing was spent|could not be listed or opened",
        )  # fmt: skip
        assert "HIV" not in shown and "KeyError" not in shown


def test_the_logs_of_the_libraries_show_no_cell(s3, tmp_path, caplog):
    """Even where someone turns all of them on."""
    caplog.set_level(logging.DEBUG)
    table = people().append_column("diary", pa.array([f"{MARKER} {x}" for x in range(N)]))
    for name in ("t.csv", "t.parquet"):
        KINDS[name](table, tmp_path / name)
        integers(put(s3, tmp_path / name), unit="who")
    assert "visits/t.csv" in caplog.text and "HIV" not in caplog.text
