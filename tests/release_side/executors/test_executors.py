"""Executors: the same integers whoever reads the parts, answers that cannot be trusted, and units in bounded memory."""

from __future__ import annotations

import gzip
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import refusals
from cluster_cases import MARKER, HostilePart
from exception_texts import everything_of

from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import Ledger, Processes, PublishError, publish
from release_side.door import exact_sums
from release_side.door.exact_sums import PartialSum
from release_side.door.private_mean import ExactSums, integer_heights
from release_side.executors.executor import Executor, Here
from release_side.private_rows import reading, unit_buckets, unit_rows
from release_side.private_rows.rows import open_private
from release_side.private_rows.table import PrivateTable

DOMAIN = Domain((
    Integer(name="age", lower=17, upper=90, default=40), Categorical(name="city", levels=("Zürich", "Basel", "13")),
))  # fmt: skip
N = 300
SMALL: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "points": 5, "features": 64, "rehearsal": 1}
MARGINS = SMALL | {"kernel": "margins", "features": None}


def frame_of(n_rows: int = N) -> pd.DataFrame:
    """Text cells, some of them bad; identifiers with empty ones, and one unit that has a third of the rows."""
    rng = np.random.default_rng(3)
    who = rng.integers(0, 40, n_rows).astype(str).astype(object)
    who[rng.random(n_rows) < 0.3] = "13"
    who[rng.random(n_rows) < 0.1] = ""
    return pd.DataFrame({
        "age": rng.integers(10, 100, n_rows).astype(str), "who": who,
        "city": rng.choice(["Zürich", "Basel", "13", "Bern", ""], n_rows),
    })  # fmt: skip


def as_csv(folder: Path) -> Path:
    frame_of().to_csv(folder / "t.csv", index=False)
    return folder / "t.csv"


def as_gzip(folder: Path) -> Path:
    with gzip.open(folder / "t.csv.gz", "wt", encoding="utf-8") as file:
        frame_of().to_csv(file, index=False)
    return folder / "t.csv.gz"


def as_parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pandas(frame_of()), folder / "t.parquet", row_group_size=7)
    return folder / "t.parquet"


def as_folder(folder: Path) -> Path:
    table, into = frame_of(), folder / "parts"
    into.mkdir()
    table[:100].to_csv(into / "a.csv", index=False)
    pq.write_table(pa.Table.from_pandas(table[100:200]), into / "b.parquet", row_group_size=30)
    (into / "c.csv").write_bytes(table[200:].to_csv(index=False).rstrip("\n").encode())  # no newline at the end
    return into


SOURCES: dict[str, Callable[[Path], Path]] = {
    "CSV": as_csv, "gzip": as_gzip, "Parquet": as_parquet, "a folder": as_folder,
}  # fmt: skip


def integers(source: Any, **options: Any) -> list[int]:
    measurement = publish(source, DOMAIN, **(SMALL | options)).measurement
    assert measurement is not None
    return measurement.noisy_sum.tolist()


@dataclass(frozen=True)
class Backwards(Executor):
    """This process, the last task first; `spoil` may change, repeat or leave out what is answered."""

    spoil: Callable[[Iterator[tuple[int, Any]]], Iterator[Any]] = iter
    same_disk = True
    n_workers = 3

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        return self.spoil((number, work(tasks[number])) for number in reversed(range(len(tasks))))


@pytest.fixture(params=[1, 7, 100], ids="parts of {} rows".format)
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(reading, "_LEAST", 1)
    monkeypatch.setattr(reading, "_MOST", request.param)
    return request.param


@cache
def expected_integers(unit: str | None, kernel: str | None) -> list[int]:
    return integers(frame_of(), unit=unit, **(MARGINS if kernel else SMALL))


@pytest.mark.slow(but=[f"parts of 7 rows-{source}-{unit}" for source, unit in zip(SOURCES, (None, "who") * 2, strict=True)])
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("source", SOURCES)
def test_the_integers_are_those_of_one_process(source: str, unit: str | None, small_parts: int, tmp_path: Path):
    path = SOURCES[source](tmp_path)
    for options in (SMALL, MARGINS):
        expected = expected_integers(unit, options.get("kernel"))
        assert integers(path, unit=unit, **options) == expected
        assert integers(path, unit=unit, executor=Backwards(), **options) == expected


@pytest.mark.slow(but="a folder-who")
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("source", ["CSV", "a folder"])
def test_processes_give_the_same_integers(source: str, unit: str | None, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(reading, "_LEAST", 1)
    path = SOURCES[source](tmp_path)
    assert integers(path, unit=unit, executor=Processes(2)) == expected_integers(unit, None)


@pytest.mark.parametrize("method", ["subspace", "generator", "exponential"])
def test_every_method_reads_parts(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if method == "generator":
        pytest.importorskip("torch")
    monkeypatch.setattr(reading, "_LEAST", 1)
    monkeypatch.setattr(reading, "_MOST", 60)
    domain = Domain((DOMAIN["city"],))
    options: dict[str, Any] = {"method": method, "rehearsal": 1, "epsilon": 1.0, "points": 3}
    options["delta"] = 0.0 if method == "exponential" else 1e-6
    one = publish(as_csv(tmp_path), domain, **options)
    other = publish(as_csv(tmp_path), domain, executor=Backwards(), **options)
    pd.testing.assert_frame_equal(one.points.to_dataframe(), other.points.to_dataframe())


def test_a_table_is_divided_by_public_numbers_and_its_parts_are_the_table(tmp_path: Path):
    for make in SOURCES.values():
        table = open_private(make(tmp_path))
        whole = np.concatenate(list(table.encoded(DOMAIN)))
        for n_rows in (1, 7, 99, 10**6):
            divided = table.divided(n_rows)
            assert sum(part.count() for part in divided) == N
            assert all(part.header for part in divided)
            found = np.concatenate([rows for part in divided for rows in part.encoded(DOMAIN)])
            np.testing.assert_array_equal(found, whole)
    assert len(open_private(as_csv(tmp_path)).divided(7)) == 43  # and not by the bytes of the rows


def test_lines_of_a_file_without_rows_or_a_last_newline_are_divided(tmp_path: Path):
    for n_rows in [1, 2, 3]:
        for text, count in (("age,city\n", 0), ("age,city", 0), ("age,city\n1,13\n\n3,13", 3), ("age,city\n1,13\n2,13\n", 2)):
            (tmp_path / "t.csv").write_text(text)
            table = open_private(tmp_path / "t.csv")
            assert sum(part.count() for part in table.divided(n_rows)) == count == table.count()


def test_wrong_executors_and_tables_without_parts_are_refused():
    refusals.check(Path(__file__).parent / "refusals.txt", lambda text: eval(text, globals()))


# ---------------------------------------------------------------------- answers that cannot be trusted


def changed(**fields: Any) -> Callable[[Iterator[tuple[int, Any]]], Iterator[Any]]:
    def spoil(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
        for number, answer in found:
            (partial,) = answer
            if number == 1 and isinstance(partial, PartialSum):
                answer = (replace(partial, **{k: v(getattr(partial, k)) for k, v in fields.items()}),)
            yield number, answer

    return spoil


def fails(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    yield next(found)
    raise RuntimeError(f"worker died with {MARKER}")


SPOILT: dict[str, tuple[Callable[[Iterator[tuple[int, Any]]], Iterator[Any]], str]] = {
    "a part is left out": (lambda found: (a for a in found if a[0] != 1), "parts of .* were not answered for"),
    "no part is answered": (lambda found: iter([]), "parts of .* were not answered for"),
    "parts that do not exist": (lambda found: ((a[0] + 6, a[1]) for a in found), "parts of .* were not answered for"),
    "a lie about N": (changed(n_rows=lambda n: n + 1), "the table has 301 rows, not the 300 that were announced"),
    "less than no rows": (changed(n_rows=lambda n: -n), "a worker's answer is not a partial sum"),
    "no whole number of rows": (changed(n_rows=float), "a worker's answer is not a partial sum"),
    "other features": (changed(vector=lambda v: v[1:]), "a worker's answer is not a partial sum"),
    "a sum that would spread": (changed(vector=lambda v: v[:1]), "a worker's answer is not a partial sum"),
    "floats": (changed(vector=lambda v: v.astype(float)), "a worker's answer is not a partial sum"),
    "a list": (changed(vector=list), "a worker's answer is not a partial sum"),
    "another version": (
        changed(worker=lambda facts: (facts[0], "numpy 1.0", *facts[2:])), r"it has .*numpy 1\.0.* Install the same"),
    "other features of public rows": (
        changed(worker=lambda facts: (*facts[:-1], "0" * 32)), "a worker is not like this process: it has .* 000"),
    "no sum": (lambda found: ((number, (7,)) for number, _ in found), "a worker's answer is not a partial sum"),
    "an error": (fails, "the workers that read parts of the private table were lost"),
    "no number": (lambda found: ((None, a) for _, a in found), "parts of .* were not answered for"),
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_answers_that_are_not_the_sums_of_all_parts_are_refused(how: str, tmp_path: Path, monkeypatch, caplog):
    monkeypatch.setattr(reading, "_LEAST", 50)
    monkeypatch.setattr(reading, "_MOST", 50)
    caplog.set_level(logging.DEBUG)
    spoil, said = SPOILT[how]
    Ledger(tmp_path / "l").init("t", epsilon=2.0, delta=1e-5)
    counted = {key: value for key, value in SMALL.items() if key != "rehearsal"} | {"ledger": tmp_path / "l", "table": "t"}
    with pytest.raises(PublishError, match=said) as caught:
        publish(as_csv(tmp_path), DOMAIN, executor=Backwards(spoil), **counted)
    assert MARKER not in everything_of(caught.value) + caplog.text
    assert Ledger(tmp_path / "l").account("t").total_epsilon == 0
    assert Ledger(tmp_path / "l").account("t").spends == ()


def test_a_part_that_is_answered_twice_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The second answer is not looked at: it may be another, or none."""
    monkeypatch.setattr(reading, "_LEAST", 50)
    path, expected = as_csv(tmp_path), integers(frame_of())

    def repeated(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
        for number, answer in found:
            yield from ((number, answer), (number, answer), (number, None), (number, (7,)))

    assert integers(path, executor=Backwards(repeated)) == expected


# ---------------------------------------------------------------------- workers that fail


@pytest.mark.slow(but=["raises-None", "ends-who"])
@pytest.mark.parametrize("unit", [None, "who"])
@pytest.mark.parametrize("ends", [False, True], ids=["raises", "ends"])
def test_what_a_worker_says_of_a_row_is_seen_by_nobody(ends: bool, unit: str | None, tmp_path: Path, monkeypatch, capfd, caplog):
    """Its message is in no exception, log, output or file; power: raised in this process it would be."""
    monkeypatch.setattr(reading, "_LEAST", 50)
    monkeypatch.setattr(reading, "_MOST", 50)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    caplog.set_level(logging.DEBUG)
    table = HostilePart(open_private(as_csv(tmp_path)), ends)
    monkeypatch.setattr("release_side.publishing.opening.open_private", lambda *_: table)
    said = "the workers that read parts .* were lost" if ends else "a worker could not read its part"
    with pytest.raises(PublishError, match=said) as caught:
        publish("t.csv", DOMAIN, unit=unit, executor=Processes(2), **SMALL)
    out, err = capfd.readouterr()
    assert MARKER not in everything_of(caught.value) + out + err + caplog.text
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]
    if not ends and unit is None:
        with pytest.raises(BaseException, match=MARKER):
            publish("t.csv", DOMAIN, **SMALL)


# ---------------------------------------------------------------------- units in bounded memory


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Ten rows are held at a time, and everything else goes to this folder."""
    monkeypatch.setattr(reading, "_MOST_HELD", 10 * 32)
    monkeypatch.setattr(unit_buckets, "_MOST_BYTES", 10 * 32)
    monkeypatch.setattr(unit_buckets, "BUCKETS", 4)
    monkeypatch.setattr(unit_buckets, "_BITS", 2)
    monkeypatch.setattr(PrivateTable, "piece", 16)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("executor", [None, Backwards()], ids=["here", "parts"])
@pytest.mark.parametrize("options", [SMALL, MARGINS], ids=["features", "cells"])
def test_rows_of_units_that_memory_does_not_hold_give_the_same_sum(
    options: dict[str, Any], executor: Executor | None, little_memory: Path, tmp_path: Path, monkeypatch
):
    path, seen = as_csv(tmp_path), []
    with monkeypatch.context() as undone:
        undone.setattr(reading, "_MOST_HELD", 2**24)
        undone.setattr(unit_buckets, "_MOST_BYTES", 2**22)
        expected = integers(path, unit="who", **options)
    read = unit_buckets.ReadUnits.__call__

    def reading_units(self: Any, bucket: Any) -> Iterator[Any]:
        for found in read(self, bucket):
            seen.append(found)
            yield found

    monkeypatch.setattr(unit_buckets.ReadUnits, "__call__", reading_units)
    monkeypatch.setattr("release_side.door.private_mean._MOST_KEYS", 5)
    assert integers(path, unit="who", executor=executor, **options) == expected
    large = [each for each in seen if isinstance(each, unit_rows.OneUnit)]
    assert large and all(len(each) == 1 for each in large)  # the unit with a third of the rows stays on the disk
    assert max(len(each.encoded) for each in seen) <= 10
    assert list(little_memory.iterdir()) == []


def test_records_in_memory_are_read_a_few_at_a_time_too():
    """A block of all rows of a large unit would tell how many there are where memory ends."""
    for most in [1, 7, 1000]:
        record = unit_rows.record_of(1)
        chunk = np.zeros(50, dtype=record).tobytes()
        found = [len(each) for each in unit_rows.records_of([chunk, b"", chunk], record, most)]
        assert sum(found) == 100 and max(found) == min(most, 50)


def test_temporary_files_are_the_curators_alone_and_gone_after_a_failure(little_memory: Path, tmp_path: Path):
    with (
        pytest.raises(RuntimeError, match="stop"),
        reading.counted_rows(open_private(as_csv(tmp_path)), DOMAIN, "who", Here()) as (rows, size),
    ):
        (folder,) = little_memory.iterdir()
        assert folder.stat().st_mode & 0o077 == 0 and any(folder.iterdir())
        assert len({id(each) for each in rows}) and size.count == frame_of()["who"].nunique()
        raise RuntimeError("stop")
    assert list(little_memory.iterdir()) == []


def test_a_folder_that_cannot_be_removed_is_named_and_the_release_is_made(little_memory: Path, tmp_path: Path, monkeypatch):
    path, expected = as_csv(tmp_path), integers(frame_of(), unit="who")
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    with pytest.warns(UserWarning, match="temporary rows could not be removed: delete the folder"):
        assert integers(path, unit="who") == expected


def test_a_unit_on_the_disk_gives_its_first_rows_alone(little_memory: Path, tmp_path: Path, monkeypatch):
    """Of more rows than 64 bits can sum the first count."""
    frame = frame_of().assign(who="A")
    more, expected = (integers(frame[:n], unit="who") for n in (26, 25))
    monkeypatch.setattr(unit_rows, "MOST_ROWS", 25)
    frame.to_csv(tmp_path / "all.csv", index=False)
    assert integers(tmp_path / "all.csv", unit="who") == expected != more


# ---------------------------------------------------------------------- the sum


def test_a_partial_sum_is_of_64_bits_and_n_rows_of_any_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Parts of more rows than could ever be read here: their sums are added exactly."""
    monkeypatch.setattr(reading, "_LEAST", 50)
    monkeypatch.setattr(reading, "_MOST", 50)
    table, feature_map = open_private(as_csv(tmp_path)), MarginFeatures(margin_kernel(DOMAIN))

    def sums(times: int) -> Any:
        def repeat(found: Iterator[tuple[int, Any]]) -> Iterator[Any]:
            for number, (partial,) in found:
                yield number, (replace(partial, vector=partial.vector * times, n_rows=partial.n_rows * times),)

        with reading.counted_rows(table, DOMAIN, None, Backwards(repeat)) as (rows, _):
            exact = ExactSums(feature_map, integer_heights(feature_map))
            return exact_sums.sum_over_rows(rows, exact, n_rows=N * times)

    assert sums(2**23).tolist() == [2**23 * each for each in sums(1).tolist()] and sums(2**23).max() > 2**55
