"""Servers that tests start themselves, on this machine, and that end with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

KEY = "AKIA-of-the-test"


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of S3 with the bucket `visits`, which the environment names; the file system of s3fs for it."""
    moto = pytest.importorskip("moto.server", reason="moto[server], of the extra [test], is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs, of the extra [sources], is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem.clear_instance_cache()
        store = s3fs.S3FileSystem()
        store.mkdir("visits")
        yield store
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


@contextmanager
def flight(table: Any) -> Iterator[Any]:
    """An Arrow Flight server of one table; calls give its readers, each to be read once."""
    import pyarrow.flight as flight

    class Server(flight.FlightServerBase):
        def do_get(self, context: object, ticket: object) -> Any:
            return flight.RecordBatchStream(table)

    with Server("grpc://127.0.0.1:0") as server, flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield lambda: client.do_get(flight.Ticket(b"")).to_reader()
