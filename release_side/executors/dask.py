"""The workers of a Dask cluster (dask.distributed).

Rows stay on the cluster: a worker reads its part of the table, and an exact sum comes back. Where units are protected, workers give
each other the encoded rows of each bucket. Names of tasks, which logs and dashboards show, have numbers only.
"""

from __future__ import annotations

import ipaddress
import operator
import pickle
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from release_side.errors import PublishError
from release_side.executors.executor import FAILED, LOST, Executor, Quiet, answers
from release_side.private_rows.table import guarded

_LEAST_IN_FLIGHT = 32
_PULSE = 1.0  # seconds between two looks at whether there are workers
_PATIENCE = 60.0  # seconds to wait for a first worker, or for another one
_NOT_INSTALLED = (
    "dask.distributed is not installed, so that there is no cluster. Install it with pip install 'kmeanalyst[cluster]'."
)


@dataclass(frozen=True)
class Dask(Executor):
    """The workers of a Dask cluster, with the same versions of Python, NumPy and kmeanalyst as here.

    client   a dask.distributed.Client. Off this machine it must be connected by TLS, because rows and exact sums are sent: start
             scheduler and workers with certificates, and pass Client("tls://…", security=distributed.Security(…)).
    Paths    of a table must name the same files on all workers. Write a DataFrame of Dask to Parquet files first: its partitions
             may have other rows each time that they are computed, and a row could count twice.
    Units    a 64th of the encoded rows must fit into a worker's memory.
    Errors   PublishError for something else, and for a client without TLS whose scheduler is on another machine.

    >>> from distributed import Client, LocalCluster  # doctest: +SKIP
    >>> with LocalCluster(dashboard_address=None) as cluster, Client(cluster) as client:  # doctest: +SKIP
    ...     release_side.publish(
    ...         "visits/*.parquet", domain, epsilon=1, delta=1e-9, uncounted=True, executor=release_side.Dask(client)
    ...     )
    >>> release_side.Dask("tls://scheduler:8786")
    Traceback (most recent call last):
    release_side.errors.PublishError: ...
    """

    client: Any
    same_disk = False

    def __post_init__(self) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise PublishError(_NOT_INSTALLED) from None
        if not isinstance(self.client, Client) or self.client.asynchronous:
            raise PublishError(
                f"Dask takes a dask.distributed.Client that is not asynchronous, got a {type(self.client).__name__}. Pass "
                "release_side.Dask(distributed.Client(address))."
            )
        check_address(self.client.scheduler.address)
        # where it listens: workers may join there later
        check_address(guarded(self.client.scheduler_info, LOST)["address"])

    @property
    def n_workers(self) -> int:
        """How many tasks can run at a time: the threads of all workers.

        >>> release_side.Dask(client).n_workers  # doctest: +SKIP
        16
        """
        return max(1, sum(self._workers().values()))

    def run(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """(number of a task, what `work` returned for it), in any order. Few are under way at a time.

        >>> sorted(release_side.Dask(client).run(abs, [-7, 5]))  # doctest: +SKIP
        [(0, 7), (1, 5)]
        """
        from distributed import Future

        most, sent = max(_LEAST_IN_FLIGHT, 2 * self.n_workers), self._sent(work)
        coming, waiting = enumerate(tasks), dict[Future[Any], int]()
        while True:
            for number, task in islice(coming, most - len(waiting)):
                waiting[self._call(operator.call, sent, task, name=f"part-{number}")] = number
            if not waiting:
                return
            for future in self._first_of(list(waiting)):
                yield waiting.pop(future), future.result()

    def exchanged(self, scatter: Callable[[Any], list[Any]], tasks: Sequence[Any]) -> list[Any]:
        """For each bucket what `scatter` made for it of every task, in memory of the workers: here comes only that it is done."""
        sent = self._sent(Quiet(scatter))
        scattered = [self._call(operator.call, sent, task, name=f"scatter-{i}") for i, task in enumerate(tasks)]
        n_buckets = min((n for _, n in answers(self, _n_buckets, scattered)), default=0)
        return [
            self._call(list, [self._call(_chunk, each, i, name=f"chunk-{i}") for each in scattered], name=f"bucket-{i}")
            for i in range(n_buckets)
        ]

    def _sent(self, work: Callable[[Any], Any]) -> Any:
        """A work on the cluster, once; PublishError if its workers do not know it."""
        import cloudpickle  # of Dask; kernels hold functions that pickle does not know

        sent = self._call(pickle.loads, cloudpickle.dumps(work), name="work")
        self._first_of([sent])
        if sent.status == "error":  # no row was read yet
            raise PublishError(
                "the workers of the cluster cannot load what they are asked to do. Nothing was spent. Install the same versions of "
                "kmeanalyst and its requirements on the scheduler and all workers."
            )
        return sent

    def _call(self, function: Callable[..., Any], *arguments: Any, name: str) -> Any:
        return self.client.submit(function, *arguments, key=f"{name}-{secrets.token_hex(8)}", pure=False)

    def _first_of(self, futures: list[Any]) -> set[Any]:
        """Those that are done, when one is; PublishError if there was no worker for a time."""
        from distributed import wait

        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return wait(futures, timeout=_PULSE, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                if self._workers():
                    deadline = time.monotonic() + _PATIENCE
                elif time.monotonic() > deadline:
                    raise PublishError(
                        f"the cluster has had no worker for {_PATIENCE:g} seconds. Nothing was spent. Start workers, and publish "
                        "again."
                    ) from None

    def _workers(self) -> dict[str, int]:
        """Address → threads of each worker now; PublishError if one is on another machine and has no TLS."""
        workers: dict[str, int] = guarded(self.client.nthreads, LOST)
        for address in workers:
            check_address(address)
        return workers


def check_address(address: str) -> None:
    """PublishError unless what is sent to a scheduler or worker stays on this machine, or is encrypted."""
    parts = urlsplit(address if "://" in address else f"tcp://{address}")  # as Dask reads it
    if parts.scheme in ("tls", "inproc") or (parts.scheme == "tcp" and _is_loopback(parts.hostname)):
        return
    raise PublishError(
        f"{address:.80} is not on this machine and not encrypted, so that rows and exact sums could be read on the way. Nothing "
        "was sent or spent. Start scheduler and workers with TLS certificates, and connect by tls:// with a distributed.Security."
    )


def _is_loopback(where: str | None) -> bool:
    try:
        return where == "localhost" or ipaddress.ip_address(where or "").is_loopback
    except ValueError:  # a name
        return False


@contextmanager
def connected(address: str) -> Iterator[Dask]:
    """The cluster of the scheduler at an address. Certificates are those of Dask's own configuration."""
    check_address(address)
    try:
        from distributed import Client
    except ImportError:
        raise PublishError(_NOT_INSTALLED) from None
    not_connected = (
        f"no Dask scheduler answers at {address:.80}, or not with the certificates of Dask's configuration "
        "(distributed.comm.tls). Nothing was spent. Check the address, the certificates and that the scheduler runs."
    )
    with guarded(lambda: Client(address, set_as_default=False), not_connected) as client:
        yield Dask(client)


# ---------------------------------------------------------------------- on the workers


def _n_buckets(scattered: tuple[list[Any]] | str | None) -> int:
    if not isinstance(scattered, tuple):
        raise PublishError(scattered or FAILED)
    return len(scattered[0])


def _chunk(scattered: tuple[list[Any]], bucket: int) -> Any:
    return scattered[0][bucket]
