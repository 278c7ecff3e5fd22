"""A server of PostgreSQL, started once for a session of tests."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import pytest


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    pytest.importorskip("adbc_driver_postgresql", reason="ADBC's driver is not installed: pip install '.[sources]'")
    if postgres.binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb on the path or in /usr/lib/postgresql")
    with postgres.started() as running:
        yield running
