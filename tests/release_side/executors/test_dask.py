"""Workers of a Dask cluster: the same integers whoever reads which part, and no cell outside the workers' memory.

dask.distributed is optional (`pip install '.[cluster]'`): without it these tests are skipped.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
import refusals
from click.testing import CliRunner
from cluster_cases import DOMAIN, MARKER, SMALL, HostilePart, in_files, integers_of, noisy_integers, raise_first_cell

import release_side
from kmeanalyst.release import read_release
from kmeanalyst.releases.domain.domain import domain_toml
from release_side import Ledger, PublishError, publish
from release_side.cli.main import main
from release_side.executors import dask as cluster_module
from release_side.executors.dask import Dask, check_address
from release_side.private_rows.rows import open_private
from release_side.publishing.publish import publish as publish_table

distributed = pytest.importorskip("distributed", reason="pip install '.[cluster]'")
dask = pytest.importorskip("dask", reason="pip install '.[cluster]'")


@contextmanager
def threads(n_workers: int = 1, **options: Any) -> Iterator[tuple[Any, Any]]:
    shape = {"n_workers": n_workers, "threads_per_worker": 1, "dashboard_address": ":0", "processes": False}
    with distributed.LocalCluster(**shape | options) as cluster, distributed.Client(cluster) as client:
        yield cluster, client


@pytest.fixture(scope="module")
def folder_of_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def both(folder_of_cluster: Path) -> Iterator[Any]:
    """A client of two processes, which are started again when they die."""
    with threads(2, processes=True, local_directory=str(folder_of_cluster)) as (_, client):
        yield client


@pytest.fixture
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of which a test kills workers."""
    with threads(2, processes=True, local_directory=str(tmp_path_factory.mktemp("mortal"))) as (_, client):
        yield client


class KillsAWorker(Dask):
    """Kills a worker between two tasks, and one between the passes over units."""

    def run(self, work: Callable[[Any], Any], tasks: Any) -> Iterator[tuple[int, Any]]:
        for i, answer in enumerate(super().run(work, tasks)):
            if i == len(tasks) // 2:
                self._kill()
            yield answer

    def exchanged(self, scatter: Callable[[Any], list[Any]], tasks: Any) -> list[Any]:
        buckets = super().exchanged(scatter, tasks)
        self._kill()
        return buckets

    def _kill(self) -> None:
        self.client.wait_for_workers(1)
        address, process = next(iter(self.client.run(os.getpid).items()))
        os.kill(process, signal.SIGKILL)
        while address in self.client.nthreads():  # until it is missed: the next call here would fail of a dead one
            time.sleep(0.05)


UNITS = pytest.mark.parametrize("unit", [None, "who"])


@UNITS
@pytest.mark.slow(but="7-who")
@pytest.mark.parametrize("parts", [1, 2, 7, 23])
def test_the_integers_are_those_of_one_machine(unit: str | None, parts: int, both: Any, tmp_path: Path):
    table = in_files(tmp_path, parts)
    assert noisy_integers(table, Dask(both), unit=unit) == noisy_integers(table, unit=unit)


@UNITS
@pytest.mark.slow
def test_a_worker_that_dies_inside_a_task_or_between_tasks_changes_nothing(unit: str | None, mortal: Any, tmp_path: Path):
    expected = noisy_integers(in_files(tmp_path, 7), unit=unit)
    assert noisy_integers(HostilePart(open_private(tmp_path), True, tmp_path / "died"), Dask(mortal), unit=unit) == expected
    assert (tmp_path / "died").exists()
    (tmp_path / "died").unlink()
    assert noisy_integers(tmp_path, KillsAWorker(mortal), unit=unit) == expected


@pytest.mark.slow
def test_few_tasks_are_under_way_at_a_time(both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_module, "_LEAST_IN_FLIGHT", 3)
    asked = list[int]()

    def tasks() -> Iterator[int]:
        for number in range(20):
            asked.append(number)
            yield number

    executor = Dask(both)
    given = executor.run(abs, tasks())  # type: ignore[arg-type]
    first = next(given)
    assert len(asked) <= 6
    assert sorted([first, *given]) == [(i, i) for i in range(20)]


def everything_said(client: Any, folder: Path, caught: pytest.ExceptionInfo[BaseException]) -> str:
    """Logs of scheduler and workers, their files, what dashboards and reports show, the exception as text and pickle."""
    logs = f"{client.get_scheduler_logs(n=10_000)} {client.get_worker_logs(n=10_000)} {client.get_worker_logs(nanny=True)}"
    files = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    chain, each = list[str](), caught.value
    while each is not None:
        chain.append(f"{each!r} {pickle.dumps(each)!r} {''.join(traceback.format_exception(each))}")
        each = each.__cause__ or each.__context__  # type: ignore[assignment]
    return " ".join([logs, str(client.get_task_stream()), str(client.profile()), files.decode("latin-1"), *chain])


@UNITS
@pytest.mark.slow(but="who")
def test_a_part_that_raises_shows_no_cell_anywhere(
    unit: str | None, both: Any, folder_of_cluster: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
):
    table, ledger = in_files(tmp_path, 7), tmp_path / "budget.ledger"
    Ledger(ledger).init("people", epsilon=9, delta=1e-5)
    options = {name: value for name, value in SMALL.items() if name != "rehearsal"} | {"ledger": ledger, "table": "people"}
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(PublishError, match=r"a worker could not read its part.*withheld.*nothing was spent") as caught,
    ):
        publish(HostilePart(open_private(table)), DOMAIN, unit=unit, executor=Dask(both), **options)
    said = everything_said(both, folder_of_cluster, caught) + caplog.text + "".join(capfd.readouterr())
    assert MARKER not in said and MARKER.encode() not in ledger.read_bytes()
    assert Ledger(ledger).account("people").total_epsilon == 0


@pytest.mark.slow
def test_the_check_above_would_see_a_cell(mortal: Any, folder_of_cluster: Path, tmp_path: Path, caplog: Any, capfd: Any):
    """Its power: without `Quiet` the cell is in the worker's log, in the exception, and in its context."""
    table = in_files(tmp_path, 2)
    with pytest.raises(BaseException, match=MARKER) as caught:
        mortal.submit(raise_first_cell, str(table / "00.csv")).result()
    assert MARKER in str(mortal.get_worker_logs(n=10_000))
    assert everything_said(mortal, folder_of_cluster, caught).count(MARKER) > 3


@pytest.mark.slow
def test_what_workers_spill_has_no_cell_of_text(tmp_path: Path):
    """Rows of units may be written to a worker's own folder where memory is short: encoded, without identifiers."""
    spill = {"distributed.worker.memory.target": 1e-9, "distributed.worker.memory.spill": 1e-9}  # at once
    table, scratch = in_files(tmp_path, 7), tmp_path / "scratch"
    with dask.config.set(spill), threads(local_directory=str(scratch)) as (_, client):
        seen = Spied(client, scratch)
        assert noisy_integers(table, seen, unit="who") == noisy_integers(table, unit="who")
        assert len(seen.found) > 20 and MARKER.encode() not in b"".join(seen.found)
        future = client.submit(pd.read_csv, str(table / "00.csv"), dtype=str)  # the power of this test
        distributed.wait(future)
        assert any(MARKER.encode() in found for found in spilled(scratch))


class Spied(Dask):
    """Reads what workers spilled between the passes over units."""

    def __init__(self, client: Any, scratch: Path) -> None:
        super().__init__(client)
        object.__setattr__(self, "scratch", scratch)
        object.__setattr__(self, "found", [])

    def exchanged(self, scatter: Callable[[Any], list[Any]], tasks: Any) -> list[Any]:
        buckets = super().exchanged(scatter, tasks)
        distributed.wait(buckets)
        self.found.extend(spilled(self.scratch))  # type: ignore[attr-defined]
        return buckets


def spilled(scratch: Path) -> list[bytes]:
    return [path.read_bytes() for path in scratch.rglob("storage/*") if path.is_file()]


@pytest.mark.slow
def test_names_of_tasks_have_numbers_alone(both: Any, tmp_path: Path):
    table = in_files(tmp_path, 3)
    noisy_integers(table, Dask(both), unit="who")
    keys = {str(key) for key, *_ in both.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.transition_log))}
    ours = [key for key in keys if key.split("-")[0] in ("work", "part", "scatter", "chunk", "bucket")]
    assert len(ours) > 64 and all(MARKER not in key and str(tmp_path) not in key for key in keys)


@pytest.mark.slow
def test_a_cluster_without_workers_or_that_loses_them_or_its_scheduler_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cluster_module, "_PATIENCE", 2.0)
    table = in_files(tmp_path, 7)
    with threads(0) as (_, client):
        start = time.monotonic()
        with pytest.raises(PublishError, match=r"no worker for 2 seconds. Nothing was spent. Start workers"):
            noisy_integers(table, Dask(client))
        assert time.monotonic() - start < 20
    with threads() as (cluster, client):
        executor = Dask(client)

        class Loses(Dask):
            def run(self, work: Callable[[Any], Any], tasks: Any) -> Iterator[tuple[int, Any]]:
                cluster.scale(0)
                while executor._workers():
                    time.sleep(0.1)
                return super().run(work, tasks)

        with pytest.raises(PublishError, match=r"no worker for 2 seconds"):
            noisy_integers(table, Loses(client))
    with distributed.LocalCluster(n_workers=1, dashboard_address=":0", processes=False) as cluster:
        client = distributed.Client(cluster)
        executor = Dask(client)
    with pytest.raises(PublishError, match=r"workers that read parts of the private table were lost"):
        noisy_integers(table, executor)
    client.close()


@pytest.mark.slow
def test_workers_that_make_other_numbers_are_refused(both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import release_side.door.exact_sums as sums

    monkeypatch.setattr(sums, "_machine", lambda: ("kmeanalyst 9", "numpy 9"))  # here; the workers have their own
    with pytest.raises(PublishError, match=r"a worker is not like this process.*numpy 2.*numpy 9.*Nothing was spent"):
        noisy_integers(in_files(tmp_path, 3), Dask(both))


@pytest.mark.slow
def test_workers_that_cannot_load_the_work_are_refused(both: Any):
    message = r"cannot load what they are asked to do. Nothing was spent. Install the same"
    with pytest.raises(PublishError, match=message):
        list(Dask(both).run(Unknown(), [1]))


class Unknown:
    """What has a module that workers do not have."""

    def __reduce__(self) -> Any:
        return import_module, ("a_module_of_another_version",)

    def __call__(self, task: Any) -> Any:
        return task


def test_what_leaves_this_machine_must_be_encrypted_and_go_to_a_client():
    for scheduler in ("tcp://127.0.0.1:8786", "tcp://[::1]:8786", "localhost:8786", "127.0.0.1:8786"):
        check_address(scheduler)
    for elsewhere in ("tls://scheduler:8786", "inproc://10.0.0.7/1/2"):
        check_address(elsewhere)
    refusals.check(Path(__file__).parent / "refusals_dask.txt", lambda text: eval(text, globals()))


def test_a_client_or_worker_elsewhere_without_tls_is_refused(both: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    executor = Dask(both)
    monkeypatch.setattr(both, "nthreads", lambda: {"tcp://127.0.0.1:1": 1, "tcp://10.0.0.8:1": 1})
    with pytest.raises(PublishError, match=r"tcp://10.0.0.8:1 is not on this machine and not encrypted"):
        noisy_integers(in_files(tmp_path, 3), executor)
    monkeypatch.setattr(both, "scheduler", SimpleNamespace(address="tcp://10.0.0.7:8786"))
    with pytest.raises(PublishError, match=r"tcp://10.0.0.7:8786 is not on this machine and not encrypted"):
        Dask(both)


@pytest.mark.slow
def test_tls_passes(tmp_path: Path):
    pytest.importorskip("cryptography")
    table = in_files(tmp_path, 3)
    with threads(protocol="tls://", security=distributed.Security.temporary()) as (_, client):
        assert client.scheduler.address.startswith("tls://")
        assert noisy_integers(table, Dask(client), unit="who") == noisy_integers(table, unit="who")


def test_without_dask_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(PublishError, match=r"pip install 'kmeanalyst\[cluster\]'"):
        release_side.Dask("tcp://127.0.0.1:8786")


@pytest.mark.slow
def test_the_command_line_names_a_cluster_or_processes(both: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "t").mkdir()
    table, domain, seen = in_files(tmp_path / "t", 3), tmp_path / "d.toml", list[Any]()
    domain.write_text(domain_toml(DOMAIN))
    monkeypatch.setattr(
        "release_side.publishing.publish.publish", lambda *a, **b: seen.append(b["executor"]) or publish_table(*a, **b)
    )

    def published(*options: str) -> Any:
        return CliRunner().invoke(main, [
            "publish", str(table), "--domain", str(domain), "--epsilon", "1", "--delta", "1e-6", "--points", "5",
            "--features", "64", "--rehearsal", "1", "--output", str(tmp_path / f"{len(seen)}.kme"), *options,
        ])  # fmt: skip

    for options in ((), ("--cluster", both.scheduler.address), ("--processes", "2")):
        assert published(*options).exit_code == 0
    assert [type(each).__name__ for each in seen] == ["NoneType", "Dask", "Processes"]
    integers = {tuple(integers_of(read_release(tmp_path / f"{i}.kme", allow_rehearsal=True))) for i in range(3)}
    assert len(integers) == 1
    for options, why in {
        ("--cluster", "tcp://10.0.0.7:8786"): "not on this machine and not encrypted",
        ("--processes", "2", "--cluster", "127.0.0.1:1"): "Name one of the two",
        ("--processes", "2", "--workers", "2"): "Pass one of the two",
        ("--processes", "0"): "processes must be a whole number of at least 1",
    }.items():
        result = published(*options)
        assert result.exit_code == 1 and why in result.output


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    with (
        dask.config.set({"distributed.comm.timeouts.connect": "1s"}),
        pytest.raises(PublishError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9.*Nothing was spent. Check the address"),
        cluster_module.connected("tcp://127.0.0.1:9"),
    ):
        pass
