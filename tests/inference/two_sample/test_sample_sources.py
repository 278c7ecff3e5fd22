"""Samples next to a release, whatever holds them: the test of a CSV file is that of every other source of its rows.

Most libraries are optional (`pip install '.[sources]'`): what needs one that is absent is skipped.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import servers
from click.testing import CliRunner
from source_cases import DOMAIN, SMALL, as_csv, people

import kmeanalyst as ka
from kmeanalyst import plots
from kmeanalyst.cli.main import main
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import SampleRows
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.file import write_release
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK
from kmeanalyst.sources import tables
from kmeanalyst.sources.tables import read_table
from release_side import draft_domain, publish

pytestmark = pytest.mark.usefixtures("rough_representation")


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A rehearsal on the first half of the table, with rough points."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(wanted, "EFFORT", QUICK)
        return publish(as_csv(people()[:150], tmp_path_factory.mktemp("private") / "t.csv"), DOMAIN, **SMALL)


@pytest.fixture(autouse=True)
def figures_are_closed() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def sample() -> pa.Table:
    """The second half: empty cells, values beyond the bounds, a level that the domain does not have, a column too many."""
    table, city = people()[150:], people()["city"][150:].to_pylist()
    odd = [i for i, each in enumerate(city) if each in (None, "", "Bern")]
    city = ["13" if i in odd[6:] else each for i, each in enumerate(city)]  # six are fewer than a twentieth
    return table.set_column(table.schema.names.index("city"), "city", pa.array(city))


def as_feather(table: pa.Table, path: Path) -> Path:
    pyarrow.feather.write_feather(table, path)
    return path


def as_parquet(table: pa.Table, path: Path) -> Path:
    pq.write_table(table, path, row_group_size=11)
    return path


def in_a_folder(table: pa.Table, folder: Path) -> Path:
    """Files of three formats, with their columns in other orders."""
    folder.mkdir()
    as_csv(table[:20], folder / "a.csv")
    (folder / "b.csv.gz").write_bytes(gzip.compress(as_csv(table[20:50], folder / "x").read_bytes()))
    (folder / "x").unlink()
    as_parquet(table[50:90].select(table.column_names[::-1]), folder / "c.parquet")
    as_feather(table[90:], folder / "d.arrow")
    return folder


def as_dataset(table: pa.Table, folder: Path) -> ds.Dataset:
    folder.mkdir()
    for i in range(3):
        as_parquet(table[i * 50 : (i + 1) * 50], folder / f"{i}.parquet")
    return ds.dataset(folder, format="parquet")


def as_polars(table: pa.Table, _: Path) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").from_arrow(table)


def as_relation(table: pa.Table, _: Path) -> Any:
    connection = pytest.importorskip("duckdb", reason="duckdb is not installed").connect()
    connection.register("people", table)
    return connection.sql("from people")


def in_duckdb(table: pa.Table, path: Path) -> Path:
    with pytest.importorskip("duckdb", reason="duckdb is not installed").connect(path) as connection:
        connection.register("rows", table)
        connection.execute("create table people as from rows")
    return path


SOURCES: dict[str, Callable[[pa.Table, Path], Any]] = {
    "polars": as_polars,
    "table": lambda table, folder: table,
    "batch": lambda table, folder: table.combine_chunks().to_batches()[0],
    "levels": lambda table, folder: table.set_column(2, "city", table["city"].dictionary_encode()),
    "reader": lambda table, folder: table.to_reader(max_chunksize=13),
    "dataset": lambda table, folder: as_dataset(table, folder / "parts"),
    "relation": as_relation,
    "duckdb": lambda table, folder: ka.sql(in_duckdb(table, folder / "a.duckdb"), "people"),
    "parquet": lambda table, folder: as_parquet(table, folder / "a.parquet"),
    "glob": lambda table, folder: str(as_parquet(table, folder / "a.parquet").parent / "*.parquet"),
    "folder": lambda table, folder: in_a_folder(table, folder / "mixed"),
    "feather": lambda table, folder: as_feather(table, folder / "a.feather"),
}


def assert_same_test(found: TestResult, expected: TestResult) -> None:
    numbers = [(one.statistic, one.pvalue, one.mmd_squared) for one in (found, expected)]
    assert numbers[0] == numbers[1]
    assert (found.notes, found.n_sample_rows) == (expected.notes, 150)


@pytest.fixture(scope="module")
def in_blocks(rehearsal, sample, tmp_path_factory) -> TestResult:
    """The test of the CSV file, read 40 rows at a time."""
    path = as_csv(sample, tmp_path_factory.mktemp("expected") / "sample.csv")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "BATCH_ROWS", 40)
        return ka.mmd_test(rehearsal, path)


@pytest.fixture
def expected(rehearsal, sample, tmp_path) -> TestResult:
    return ka.mmd_test(rehearsal, as_csv(sample, tmp_path / "sample.csv"))


@pytest.mark.parametrize("kind", SOURCES)
def test_the_test_of_every_source_is_that_of_its_csv_file(kind, rehearsal, sample, in_blocks, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 40)
    found = ka.mmd_test(rehearsal, SOURCES[kind](sample, tmp_path))
    assert in_blocks.notes[:2] == (
        'ignored columns the release does not have: "who"',
        "age: 23 of 150 values were outside the bounds and were clamped",
    )
    assert "cells had no value of the domain and became its default" in " ".join(in_blocks.notes)
    if kind in ("dataset", "folder"):  # of several files: blocks end where files do, so that sums are of other parts
        assert found.pvalue == pytest.approx(in_blocks.pvalue, rel=1e-9)
        found = replace(found, **{name: getattr(in_blocks, name) for name in ("pvalue", "statistic", "mmd_squared")})
    assert_same_test(found, in_blocks)


def test_the_test_of_a_table_of_postgresql_is_that_of_the_csv_file(server, rehearsal, sample, expected):
    server.load("people", sample)
    assert_same_test(ka.mmd_test(rehearsal, ka.sql(server.uri, "people")), expected)
    with server.connect() as connection:
        assert_same_test(ka.mmd_test(rehearsal, ka.sql(connection, "public.people")), expected)


def test_the_test_of_a_file_in_s3_is_that_of_the_csv_file(rehearsal, sample, expected, tmp_path, monkeypatch):
    writers = {"a.csv": as_csv, "b.parquet": as_parquet, "c.feather": as_feather}
    paths = [write(sample, tmp_path / name) for name, write in writers.items()]
    paths.append(tmp_path / "e.csv.gz")
    paths[-1].write_bytes(gzip.compress(paths[0].read_bytes()))
    with servers.s3(monkeypatch) as store:
        for path in paths:
            store.put(str(path), f"visits/{path.stem}/{path.name}")
        for url in ("a/a.csv", "a/*", "b", "c/c.feather", "e.csv/*"):
            assert_same_test(ka.mmd_test(rehearsal, f"s3://visits/{url}"), expected)


@pytest.mark.parametrize("kind", ["polars", "folder"])
def test_compare_and_scores_and_plots_take_them_too(kind, rehearsal, sample, tmp_path):
    csv, source = as_csv(sample, tmp_path / "sample.csv"), SOURCES[kind](sample, tmp_path)
    ours, theirs = ka.compare(rehearsal, source), ka.compare(rehearsal, csv)
    pd.testing.assert_frame_equal(ours.columns, theirs.columns)
    assert ours.notes == theirs.notes
    (drawn,) = plots.histogram(rehearsal, "age", sample=source).figure.axes
    (other,) = plots.histogram(rehearsal, "age", sample=csv).figure.axes
    assert [line.get_xydata().tolist() for line in drawn.lines] == [line.get_xydata().tolist() for line in other.lines]


def test_what_can_be_read_once_is_refused_where_it_is_needed_again(rehearsal, sample):
    for once in (sample.to_reader(), iter([sample.to_pandas()])):
        with pytest.raises(ValueError, match=r"compare goes through the sample several times.*Pass a DataFrame, a table"):
            ka.compare(rehearsal, once)


def test_a_frame_of_polars_is_not_read_in_one_block(rehearsal, sample, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 40)
    assert [len(block) for block in SampleRows(rehearsal, as_polars(sample, Path())).blocks()] == [40, 40, 40, 30]


def test_no_column_of_a_database_is_read_but_those_of_the_release(rehearsal, sample, tmp_path):
    in_duckdb(sample.append_column("odd", pa.array([[1]] * 150)), tmp_path / "a.duckdb")
    source = ka.sql(tmp_path / "a.duckdb", "people")
    asked: list[tuple[str, ...]] = []
    honest = type(source).batches
    object.__setattr__(source, "batches", lambda names: asked.append(tuple(names)) or honest(source, names))
    assert ka.mmd_test(rehearsal, source).notes[0] == 'ignored columns the release does not have: "who", "odd"'
    assert set(asked) == {DOMAIN.names}


def test_the_index_of_a_dataframe_is_no_column_of_its_file(rehearsal, sample, tmp_path):
    frame = sample.to_pandas()
    frame[frame["age"] > 40].to_parquet(tmp_path / "a.parquet")
    assert "__index_level_0__" in pq.read_schema(tmp_path / "a.parquet").names
    assert SampleRows(rehearsal, tmp_path / "a.parquet").notes[0].endswith('does not have: "who"')


def test_plain_samples_and_distances_keep_the_names_of_columns(rehearsal, sample, tmp_path):
    """In another order: an array of them would compare ages with gains."""
    for as_source in [as_polars, as_relation, lambda table, _: table]:
        numbers = sample.select(["age", "gain"]).drop_null()
        other = as_source(numbers.select(["gain", "age"])[:60], tmp_path)
        frames = numbers.to_pandas(), numbers[:60].to_pandas()
        found = ka.mmd_test(as_source(numbers, tmp_path), other, permutations=99, rng=0)
        assert (found.pvalue, found.mmd_squared) == (lambda t: (t.pvalue, t.mmd_squared))(
            ka.mmd_test(*frames, permutations=99, rng=0)
        )
        assert ka.mmd(rehearsal, as_source(sample, tmp_path)) == ka.mmd(rehearsal, sample.to_pandas())
        with pytest.raises(DomainError, match="in single precision"):
            ka.mmd(rehearsal, single_precision(sample))


def refusals_of(release: Release, source: Any) -> list[str]:
    texts = []
    for read in (
        lambda: ka.mmd_test(release, source),
        lambda: ka.compare(release, source),
        lambda: read_table(source, release.domain),
        lambda: plots.histogram(release, "age", sample=source),
    ):
        with pytest.raises(DomainError) as caught:
            read()
        texts.append(str(caught.value))
    return texts


def single_precision(table: pa.Table) -> pa.Table:
    return table.set_column(2, "city", pa.array(np.full(150, 0.1, dtype=np.float32)))


def test_a_sample_that_would_be_read_wrongly_is_refused_by_every_reader(rehearsal, sample):
    for spoil, message in [
        (single_precision, "column 'city' has the type float: in single precision 0.1 is 0.10000000149"),
        (lambda t: t.set_column(0, "age", pa.array([[1]] * 150)), "column 'age' has the type list<item: int64>: "),
        (lambda t: t.set_column(3, "joined", pa.array([True] * 150)), "column 'joined' has the type bool: true and"),
        (lambda t: t[:0], "the sample has a header and no rows. Name a table with rows."),
    ]:
        assert all(text.startswith(message) for text in refusals_of(rehearsal, spoil(sample)))


def test_types_are_judged_before_a_row_of_any_file_is_read(rehearsal, sample, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "pieces", lambda *_: pytest.fail("rows were read"))
    as_parquet(sample, tmp_path / "a.parquet")
    as_parquet(single_precision(sample), tmp_path / "b.parquet")
    assert all("in single precision" in text for text in refusals_of(rehearsal, tmp_path))


def test_what_names_no_table_is_refused(rehearsal, tmp_path, monkeypatch):
    for source, message in [
        ("postgresql:", r'this is a database.*Add --from TABLE \(in Python kmeanalyst.sql\("postgresql:"'),
        ("a.duckdb", "this is a database"),
        ("a.dta", "of a statistical package.*Read it with pyreadstat"),
        ("a.xlsx", "is a spreadsheet.*Save the sheet as CSV"),
        ("a.json", "the name of a table ends in .csv, .csv.gz, .parquet, .*Convert it to one of these"),
        ("*.feather", "no file at .*Check the path; a glob must match at least one file"),
        ("a.feather", "a.feather is not an Arrow IPC file. Write the table again, or name another"),
        ("s3://user:secret@bucket/a.csv", "the URL holds a password or a signature, so it is not repeated here"),
    ]:
        monkeypatch.chdir(tmp_path)
        if source.startswith("a."):
            Path(source).write_bytes(b"nothing")
        assert all(re.search(message, text) and "secret" not in text for text in refusals_of(rehearsal, source))


def test_what_a_library_says_about_the_analysts_own_rows_is_shown_in_one_sentence(rehearsal, sample):
    connection = pytest.importorskip("duckdb", reason="duckdb is not installed").connect()
    connection.register("people", sample)
    broken = connection.sql("select * replace (city::int as city) from people")
    assert all(
        "Could not convert string" in text and text.endswith("Write it again, or pass another.") and "\n" not in text
        for text in refusals_of(rehearsal, broken)
    )
    with pytest.raises(TypeError, match=r"a int is not a table that can be read\. Pass a path"):
        read_table(3)


@pytest.mark.parametrize("kind", ["folder"])
def test_public_points_and_samples_of_domains_come_from_every_file(kind, sample, tmp_path):
    private, csv = as_csv(people()[:150], tmp_path / "t.csv"), as_csv(sample, tmp_path / "s.csv")
    source = SOURCES[kind](sample, tmp_path)
    options = SMALL | {"points": None}
    ours, theirs = (publish(private, DOMAIN, **{**options, "public_points": each}) for each in (source, csv))
    pd.testing.assert_frame_equal(ours.to_frame(), theirs.to_frame())
    drafted = [draft_domain(each, this_sample_is_public=True).domain for each in (source, csv)]
    assert drafted[0].columns == drafted[1].columns


@pytest.mark.parametrize("kind", ["feather", "folder"])
def test_public_points_that_are_the_private_rows_are_refused_in_every_format(kind, sample, tmp_path):
    private, public = as_csv(sample, tmp_path / "t.csv"), SOURCES[kind](sample, tmp_path)
    with pytest.raises(ValueError, match="the two hold the same rows"):
        publish(private, DOMAIN, **SMALL | {"points": None, "public_points": public})


def told(*words: Any) -> Any:
    return CliRunner().invoke(main, [*map(str, words)])


def test_commands_take_files_of_other_formats_and_tables_of_databases(rehearsal, sample, tmp_path):
    write_release(rehearsal, path := tmp_path / "r.kme")
    csv, database = as_csv(sample, tmp_path / "sample.csv"), in_duckdb(sample, tmp_path / "a.duckdb")
    for command in (
        ["mmd-test", path, csv], ["compare", path, csv], ["plot", path, "age", "--output", tmp_path / "a.png", "--sample", csv],
        ["train", path, "--target", "gain", "--output", tmp_path / "a.skops", "--test", csv],
    ):  # fmt: skip
        found = []
        for source in ([csv], [database, "--from", "people"]):
            words = [*command[: command.index(csv)], *source, *command[command.index(csv) + 1 :]]
            done = told(*words, "--json", "--allow-rehearsal")
            assert done.exit_code == 0, done.output
            found.append(json.loads(done.stdout))
        assert found[0] == found[1]


def test_commands_refuse_half_of_a_table(rehearsal, sample, tmp_path, monkeypatch):
    for words, message in [
        (["mmd-test", "r.kme", "sample.csv", "--from", "people"], "a table of a database, and SAMPLE is not one"),
        (["mmd-test", "r.kme", "r.kme", "--from", "people"], "a table of a database, and SAMPLE is not one"),
        (["compare", "r.kme", "a.duckdb"], "this is a database, and a table of it has a name. Add --from TABLE"),
        (["compare", "r.kme", "a.duckdb", "--from", "a; drop table b"], "'a; drop table b' is not the name of a table"),
        (["plot", "r.kme", "age", "--output", "a.png", "--from", "people"], "--from names a table"),
        (["train", "r.kme", "--target", "city", "--output", "a.skops", "--from", "people"], "--from names a table"),
        (["train", "r.kme", "--target", "city", "--output", "a.skops", "--test", "b.csv"], "no file at b.csv"),
    ]:
        monkeypatch.chdir(tmp_path)
        write_release(rehearsal, "r.kme")
        as_csv(sample, Path("sample.csv"))
        done = told(*words, "--allow-rehearsal")
        assert done.exit_code == 1 and message in done.stderr
        assert not Path("a.skops").exists() and not Path("a.png").exists()
