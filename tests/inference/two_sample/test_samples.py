"""Samples next to a release: rows from files and frames, block by block, are the rows of one frame in memory."""

from __future__ import annotations

import datetime
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import kmeanalyst as ka
from kmeanalyst.cli.main import main
from kmeanalyst.inference.two_sample import mmd_test as two_sample
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import SampleRows
from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.sources import tables
from kmeanalyst.sources.tables import read_table, table_of

ROWS = 53


@pytest.fixture
def frame(mixed_release) -> pd.DataFrame:
    """Rows of every kind of column, some of them beyond the bounds, unseen or missing, and a column too many."""
    frame = mixed_release.resample(ROWS, rng=0).assign(extra="x")
    frame["age"] = frame["age"].astype("Int64")
    frame.loc[[0, 20, 50], "age"] = [200, -3, 91]
    frame.loc[[4, 41], "age"] = pd.NA
    frame["city"] = frame["city"].astype(object)
    frame.loc[[1, 52], "city"] = "Atlantis"
    frame["joined"] = [stamp.date() for stamp in frame["joined"]]
    frame.loc[7, "joined"] = datetime.date(2060, 1, 1)
    return frame


def files_of(frame: pd.DataFrame, folder: Path) -> Iterator[Path]:
    """The frame in every kind of file; Parquet with row groups that no block size divides, and levels as dictionaries."""
    frame.to_csv(folder / "a.csv", index=False)
    yield folder / "a.csv"
    (folder / "a.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    yield folder / "a.csv.gz"
    frame.assign(city=frame["city"].astype("category")).to_parquet(folder / "a.parquet", row_group_size=11)
    yield folder / "a.parquet"
    table = pa.Table.from_pandas(frame.set_index("extra"), preserve_index=True)
    pq.write_table(table, folder / "b.parquet", row_group_size=ROWS, use_dictionary=["city"])
    yield folder / "b.parquet"


def in_blocks(release: Any, path: Path) -> list[np.ndarray]:
    table = table_of(path)
    assert table is not None
    return [rows for rows, _ in table.encoded(release.domain)]


def encoded(release: Any, sample: Any) -> tuple[np.ndarray, list[str], int]:
    rows = SampleRows(release, sample)
    return np.vstack(list(rows.blocks())), rows.notes, rows.n_rows


def test_a_file_in_blocks_encodes_as_the_frame_it_holds(mixed_release, frame, tmp_path, monkeypatch):
    for block in [1, 11, 1000]:
        monkeypatch.setattr(tables, "BATCH_ROWS", block)
        for path in files_of(frame, tmp_path):
            whole, blocks = encoded(mixed_release, read_table(path)), encoded(mixed_release, path)
            np.testing.assert_array_equal(blocks[0], whole[0])
            assert blocks[1:] == whole[1:], path
            sizes = [len(rows) for rows in in_blocks(mixed_release, path)]
            assert len(sizes) >= ROWS / block and max(sizes) <= block
        rows, notes, n_rows = encoded(mixed_release, frame)
        assert n_rows == ROWS and len(rows) == ROWS
        assert notes[:2] == [
            'ignored columns the release does not have: "extra"',
            "age: 3 of 53 values were outside the bounds and were clamped",
        ]


def test_the_test_of_a_path_is_the_test_of_its_frame(mixed_release, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 10)
    for path in files_of(frame, tmp_path):
        whole = ka.mmd_test(mixed_release, read_table(path))
        assert_same_test(ka.mmd_test(mixed_release, path), whole, rel=1e-12, pvalue=1e-9)
    assert_same_test(ka.mmd_test(mixed_release, str(path)), whole, rel=1e-12, pvalue=1e-9)


def test_points_without_a_measurement_take_a_path_too(foreign_release, frame, tmp_path):
    for path in files_of(frame, tmp_path):
        whole, blocks = (ka.mmd_test(foreign_release, sample) for sample in (read_table(path), path))
        assert_same_test(blocks, whole, rel=1e-10, pvalue=1e-6)


def assert_same_test(blocks: TestResult, whole: TestResult, *, rel: float, pvalue: float) -> None:
    assert blocks.statistic == pytest.approx(whole.statistic, rel=rel)
    assert blocks.pvalue == pytest.approx(whole.pvalue, rel=pvalue)
    assert blocks.mmd_squared == pytest.approx(whole.mmd_squared, rel=1e-9, abs=1e-12)
    assert (blocks.notes, blocks.n_sample_rows) == (whole.notes, ROWS)


def test_a_column_that_changes_its_looks_between_blocks_means_the_same(mixed_release, frame, tmp_path, monkeypatch):
    """Whole numbers, then fractions, then text: a cell means what it says, whatever its block looks like."""
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    text = frame.astype(str).replace({"<NA>": "", "nan": "", "NaT": "", "None": ""})
    text["age"] = ["30", "30", "30.0", "3e1", "x", "inf", "NA", *[" 30"] * (ROWS - 7)]
    text.to_csv(tmp_path / "a.csv", index=False)
    whole, blocks = (encoded(mixed_release, sample) for sample in (read_table(tmp_path / "a.csv"), tmp_path / "a.csv"))
    np.testing.assert_array_equal(blocks[0], whole[0])
    assert blocks[1:] == whole[1:]
    assert list(blocks[0][:4, 0]) == [30] * 4


def test_crooked_lines_of_csv_read_alike_in_blocks_and_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbfa,b\r\n1\r\n\r\n"2,\n2",3,4,5\r\n,NA\r\n6,"7""7"\r\n8,9,10\r\n')
    for block in (1, 2, 3, 100):
        monkeypatch.setattr(tables, "BATCH_ROWS", block)
        pd.testing.assert_frame_equal(
            pd.concat(tables._csv_blocks(path)).astype(object), read_table(path).astype(object), check_column_type=False
        )


def test_frames_one_after_another_are_one_sample(mixed_release, frame):
    """Empty ones too, and columns too many that only a later one has."""
    parts = [frame[:0], frame[:20].drop(columns="extra"), frame[20:20], frame[20:21], frame[21:].assign(other=1)]
    whole, blocks = ka.mmd_test(mixed_release, frame.assign(other=1)), ka.mmd_test(mixed_release, parts)
    assert blocks.statistic == pytest.approx(whole.statistic, rel=1e-12)
    assert blocks.notes == whole.notes

    class Again:
        def __iter__(self) -> Iterator[pd.DataFrame]:
            return iter(parts)

    rows = SampleRows(mixed_release, Again())
    first, second = (np.vstack(list(rows.blocks())) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert all(len(block) for block in rows.blocks())
    assert (rows.n_rows, tuple(rows.notes)) == (ROWS, whole.notes)  # counted once, however often they are gone through


def test_a_generator_is_gone_through_once_and_refused_if_it_is_needed_again(mixed_release, frame):
    whole = ka.mmd_test(mixed_release, frame)
    blocks = ka.mmd_test(mixed_release, (frame[i : i + 9] for i in range(0, ROWS, 9)))
    assert blocks.statistic == pytest.approx(whole.statistic, rel=1e-12) and blocks.notes == whole.notes
    for once in (iter([frame]), pa.Table.from_pandas(frame).to_reader()):
        rows = SampleRows(mixed_release, once)
        assert rows.n_rows == ROWS
        with pytest.raises(ValueError, match=r"generator or a reader, which can be gone through only once.*Pass a list"):
            list(rows.blocks())


@pytest.fixture
def sorted_ages(mixed_release) -> pd.DataFrame:
    """Three thousand rows in the order of their ages."""
    frame = mixed_release.resample(3000, rng=0)
    return frame.assign(age=np.linspace(17, 90, 3000))


def test_some_rows_are_drawn_evenly_whatever_the_blocks(mixed_release, sorted_ages):
    some = SampleRows(mixed_release, sorted_ages).some(500)
    parts = [sorted_ages[i : i + 170] for i in range(0, 3000, 170)]
    np.testing.assert_array_equal(SampleRows(mixed_release, parts).some(500), some)
    assert len(some) == 500
    assert abs(some[:, 0].mean() - 53.5) < 5 * 73 / np.sqrt(12 * 500)  # five standard errors


def test_the_half_of_a_sorted_sample_is_from_everywhere_and_no_row_is_lost(mixed_release, sorted_ages):
    everything = SampleRows(mixed_release, sorted_ages).some(3000)
    ages = []
    for rows in (sorted_ages, iter([sorted_ages[:1000], sorted_ages[1000:]])):
        some, indices, blocks = SampleRows(mixed_release, rows).split_for_directions(400)
        np.testing.assert_array_equal(everything[indices], some)
        np.testing.assert_array_equal(np.vstack(list(blocks)), everything)
        ages.append(some[:, 0])
    assert [len(each) for each in ages] == [400, 400]
    assert (ages[0].min(), ages[0].max()) == (17, 90) and ages[1].max() < 40  # of a generator the first ones
    for few in (sorted_ages[:31], iter([sorted_ages[:31]])):
        assert len(SampleRows(mixed_release, few).split_for_directions(400)[0]) == 16


def test_rows_that_change_between_two_readings_are_refused(mixed_release, frame, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    rows = SampleRows(mixed_release, tmp_path / "a.csv")
    assert rows.n_rows == ROWS
    frame[:-1].to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"had 53 rows when they were.*rows \(52\).*Pass rows that stay"):
        list(rows.blocks())


def refusal(read: Any) -> str:
    with pytest.raises(DomainError) as caught:
        read()
    return str(caught.value)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_a_file_that_is_no_table_is_refused_in_blocks_as_it_is_whole(ending, frame, mixed_release, tmp_path):
    path = tmp_path / f"a{ending}"
    write = pd.DataFrame.to_parquet if ending == ".parquet" else pd.DataFrame.to_csv
    assert refusal(lambda: in_blocks(mixed_release, path)) == refusal(lambda: read_table(path))
    for content in (b"", b"PAR1 is not enough", b"\x1f\x8b not quite \xff\n\xff"):
        if ending == ".csv" and content.startswith(b"PAR1"):
            content = b""  # it would be a header like any other
        path.write_bytes(content)
        texts = [refusal(lambda: in_blocks(mixed_release, path)), refusal(lambda: read_table(path))]
        assert all(str(path) in text and text.rstrip(".").rsplit(". ", 1)[-1].split()[0] in ("Write", "Name") for text in texts)
    write(frame[:0], path, index=False)
    assert refusal(lambda: in_blocks(mixed_release, path)) == refusal(lambda: read_table(path))
    assert "has a header and no rows. Name a table" in refusal(lambda: in_blocks(mixed_release, path))
    write(frame[:1], path, index=False)
    with pytest.raises(ValueError, match=r"needs at least two rows.*got 1\. Add rows"):
        ka.mmd_test(mixed_release, path)
    write(frame, path, index=False)
    path.write_bytes(path.read_bytes()[:-40])
    if ending != ".csv":  # a .csv that is cut off is a shorter one
        cut_off = "is not a Parquet file. " if ending == ".parquet" else "could not be read as a table: "
        assert f"{path} {cut_off}" in refusal(lambda: in_blocks(mixed_release, path))


def test_a_file_is_not_held_in_memory(mixed_release, frame, tmp_path, monkeypatch):
    """Each block is read when the one before it has been used."""
    frame.to_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(tables, "BATCH_ROWS", 5)
    alive: list[int] = []
    honest = tables.pieces

    def counted(batches: Any, rows: int) -> Iterator[Any]:
        for parts in honest(batches, rows):
            alive.append(sum(part.num_rows for part in parts))
            yield parts

    monkeypatch.setattr(tables, "pieces", counted)
    for used, _ in enumerate(SampleRows(mixed_release, tmp_path / "a.parquet").blocks(), 1):
        assert len(alive) == used
    assert sum(alive) == ROWS


def shown(monkeypatch: pytest.MonkeyPatch, path: Path, sample: Path, **fields: Any) -> str:
    about = {"method": "m", "noise_aware": True, "n_release_rows": 9, "n_release_points": 9, "n_sample_rows": 9}
    result = TestResult(statistic=1.0, pvalue=0.2, **(about | {"mmd_squared": 0.0009} | fields))
    monkeypatch.setattr(two_sample, "mmd_test", lambda release, sample, **_: result)
    return CliRunner().invoke(main, ["mmd-test", str(path), str(sample)]).stdout


def test_the_command_shows_the_numbers_that_a_result_has(mixed_path, monkeypatch):
    plain = shown(monkeypatch, mixed_path, mixed_path)
    assert not any(label in plain for label in ("MMD  ", "noise floor", "detectable"))
    whole = shown(
        monkeypatch, mixed_path, mixed_path, mmd_interval=(0.0, 0.0524), noise_floor=0.0123, detectable_mmd=0.0456,
        notes=("n",),
    )  # fmt: skip
    lines = whole.splitlines()
    assert lines[0] == "No difference found (p = 0.2, level 0.05): both sides may be of one population."
    assert lines[1] == "note         n"  # it may be the whole difference
    assert lines[2] == "MMD          0.03 (95 %: 0 to 0.0524)"
    assert lines[4:6] == [
        "noise floor  0.0123 (MMD of two sides of one population, before noise is subtracted)",
        "detectable   0.0456 (smallest MMD found at 5 % with 80 % power)",
    ]
    assert "negative values happen" in plain
    assert "(biased)" in shown(monkeypatch, mixed_path, mixed_path, estimator="biased")


def test_the_command_streams_its_sample(mixed_path, frame, tmp_path, monkeypatch):
    """No whole table is read: blocks twice, first for the rows that directions are taken from."""
    honest = tables.Table.encoded
    monkeypatch.setattr(tables, "BATCH_ROWS", 9)
    monkeypatch.setattr(tables.Table, "frame", lambda *_: pytest.fail("read whole"))
    for path in files_of(frame, tmp_path):
        seen: list[int] = []
        monkeypatch.setattr(tables.Table, "encoded", lambda table, domain, seen=seen: seen.append(1) or honest(table, domain))
        result = CliRunner().invoke(main, ["mmd-test", str(mixed_path), str(path)])
        assert result.exit_code == 0 and seen == [1, 1]
        assert "note         age: 3 of 53 values were outside the bounds" in result.stdout
