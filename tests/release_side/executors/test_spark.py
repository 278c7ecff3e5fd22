"""DataFrames of Spark: the same integers whatever partitions they have, and one sentence where a partition cannot be read.

Spark is optional (`pip install pyspark`, and Java): without them these tests are skipped. A session takes 20 s to start.
"""

from __future__ import annotations

import logging
import os
import pickle
import shutil
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from cluster_cases import DOMAIN, MARKER, SMALL, integers_of, noisy_integers, people
from spark_cases import RowsThatDie, RowsThatRaise, as_they_are, raise_first_cell

import release_side
import release_side.spark
from release_side import DomainError, Ledger, PublishError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
    pytest.mark.filterwarnings("ignore:.*pandas:FutureWarning", "ignore::ResourceWarning"),  # pyspark's own
]
pyspark = pytest.importorskip("pyspark", reason="pip install pyspark")
TEXT = "who string, age string, `capital.gain` string, city string"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of everything that Spark writes."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="module")
def spark(logs: Path) -> Iterator[Any]:
    """Two threads that start Python workers; a task may fail four times."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        (logs / "events").mkdir()
        from pyspark.sql import SparkSession

        own, log = os.dup(2), os.open(logs / "log.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 2)  # Java's
        session = (
            SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
            .config("spark.local.dir", str(logs / "local")).config("spark.sql.warehouse.dir", str(logs / "warehouse"))
            .config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", (logs / "events").as_uri())
            .config("spark.sql.shuffle.partitions", "3").config("spark.driver.host", "127.0.0.1")
            .config("spark.shuffle.compress", "false").config("spark.eventLog.compress", "false").getOrCreate()
        )  # fmt: skip
        os.dup2(own, 2)
        for each in (own, log):
            os.close(each)
        yield session
        session.stop()


def texts(value: Any) -> Any:
    """A cell of a column of text: empty cells stay as they are."""
    return None if value is None or value != value else str(value)


def marked() -> pd.DataFrame:
    """The people as text; the identifiers None, "" and "13" among them, and the marker in the first row."""
    table = people().map(texts).astype(object)
    table.loc[0, ["who", "city"]] = MARKER
    return table


def frame_of(spark: Any, folder: Path, parts: int) -> Any:
    """The people in so many partitions."""
    for i in range(parts):
        marked().iloc[i::parts].to_parquet(folder / f"{i}.parquet", index=False)
    spark.conf.set("spark.sql.files.openCostInBytes", str(2**30))  # a partition for each file
    return spark.read.schema(TEXT).parquet(str(folder))


UNITS = pytest.mark.parametrize("unit", [None, "who"])


@UNITS
@pytest.mark.parametrize("parts", [1, 3, 7])
def test_the_integers_are_those_of_one_machine(unit: str | None, parts: int, spark: Any, tmp_path: Path):
    frame = frame_of(spark, tmp_path, parts)
    assert frame.rdd.getNumPartitions() == parts
    release = release_side.spark.publish(frame, DOMAIN, unit=unit, **SMALL)
    assert integers_of(release) == noisy_integers(marked(), unit=unit)


@UNITS
def test_declared_types_are_read_as_such_and_other_columns_are_not_read(unit: str | None, spark: Any):
    frame = people().assign(who=range(len(people())), age=people()["age"].astype(int), other=1)
    frame["who"] = frame["who"] // 7
    given = spark.createDataFrame(
        frame.astype(object).where(frame.notna(), None).values.tolist(),
        "who long, age int, `capital.gain` string, city string, other int",
    ).selectExpr("*", "make_interval(1) as odd")  # fmt: skip
    assert integers_of(release_side.spark.publish(given, DOMAIN, unit=unit, **SMALL)) == noisy_integers(
        frame, unit=unit
    )


@UNITS
def test_a_python_worker_that_dies_changes_nothing(unit: str | None, spark: Any, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(release_side.spark, "_Rows", RowsThatDie)
    release = release_side.spark.publish(frame_of(spark, tmp_path, 3), DOMAIN, unit=unit, **SMALL)
    assert integers_of(release) == noisy_integers(marked(), unit=unit)


# ---------------------------------------------------------------------- no cell leaves the workers


def chain_of(error: BaseException | None) -> str:
    """An exception and all before it, as text and pickles."""
    texts = list[str]()
    while error is not None:
        texts.append(f"{error!r} {pickle.dumps(error)!r} {''.join(traceback.format_exception(error))}")
        error = error.__cause__ or error.__context__
    return " ".join(texts)


def written(folder: Path) -> bytes:
    """Everything in Spark's folder: its log, event logs, shuffle files."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@UNITS
def test_a_partition_that_raises_shows_no_cell_anywhere(
    unit: str | None, spark: Any, logs: Path, tmp_path: Path, monkeypatch: Any, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "t").mkdir()
    frame, ledger = frame_of(spark, tmp_path / "t", 3), tmp_path / "budget.ledger"
    Ledger(ledger).init("people", epsilon=9, delta=1e-5)
    monkeypatch.setattr(release_side.spark, "_Rows", RowsThatRaise)
    options = {name: value for name, value in SMALL.items() if name != "rehearsal"} | {
        "ledger": ledger,
        "table": "people",
    }
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(PublishError, match=r"a worker could not read its part.*withheld.*nothing was spent") as caught,
    ):
        release_side.spark.publish(frame, DOMAIN, unit=unit, **options)
    assert MARKER not in chain_of(caught.value) + caplog.text
    assert MARKER.encode() not in written(logs) + ledger.read_bytes()
    assert Ledger(ledger).account("people").total_epsilon == 0


def test_the_check_above_would_see_a_cell(spark: Any, logs: Path, tmp_path: Path):
    """Its power: without `Quiet` the cell is in the exception and in Spark's log, and a shuffle of cells writes it to a file."""
    frame = frame_of(spark, tmp_path, 1).select("city")  # one partition, so that its error is the one that is shown
    with pytest.raises(Exception, match=MARKER):
        frame.mapInArrow(raise_first_cell, frame.schema).collect()
    assert written(logs).count(MARKER.encode()) > 3
    assert MARKER.encode() not in written(logs / "local")
    frame.repartition(2, "city").mapInArrow(as_they_are, frame.schema).collect()
    assert MARKER.encode() in written(logs / "local")


# ---------------------------------------------------------------------- what is refused


def test_types_are_refused_before_a_row_is_read(spark: Any, tmp_path: Path, monkeypatch: Any):
    monkeypatch.setattr(release_side.spark._Tasks, "answers", None)  # no job
    frame = frame_of(spark, tmp_path, 2)
    odd = frame.selectExpr("who", "array(age) as age", "`capital.gain`", "cast(city as float) as city")
    with pytest.raises(PublishError, match=r"'age' has the type list.*'city' has the type float"):
        release_side.spark.publish(odd, DOMAIN, **SMALL)
    with pytest.raises(DomainError, match=r"age"):
        release_side.spark.publish(frame.drop("age"), DOMAIN, **SMALL)


@pytest.mark.parametrize(("options", "why"), [
    ({"executor": None}, "executor has no meaning here"), ({"workers": 2}, "workers has no meaning here"),
    ({"n_rows": 3}, "n_rows has no meaning here"),
    ({"public_points": people()}, "read by the workers of its cluster alone.*Nothing was spent"),
])  # fmt: skip
def test_options_without_a_meaning_are_refused(options: dict[str, Any], why: str, spark: Any, tmp_path: Path):
    with pytest.raises(PublishError, match=why):
        release_side.spark.publish(frame_of(spark, tmp_path, 1), DOMAIN, **(SMALL | {"points": None} | options))


def test_other_tables_are_refused_with_the_function_to_use():
    with pytest.raises(PublishError, match=r"a DataFrame is not a DataFrame of Spark.*release_side.publish"):
        release_side.spark.publish(people(), DOMAIN, **SMALL)


@UNITS
def test_a_table_without_rows_is_refused(unit: str | None, spark: Any):
    with pytest.raises(PublishError, match=r"rows"):
        release_side.spark.publish(spark.createDataFrame([], TEXT), DOMAIN, unit=unit, **SMALL)


def test_a_frame_that_fails_by_value_says_only_that(spark: Any, tmp_path: Path):
    frame = frame_of(spark, tmp_path, 2).selectExpr(
        "who", "age", "`capital.gain`", "cast(cast(city as int) as string) as city"
    )
    with pytest.raises(PublishError, match=r"workers .* were lost.*withheld") as caught:
        release_side.spark.publish(frame, DOMAIN, **SMALL)
    assert MARKER not in chain_of(caught.value)
