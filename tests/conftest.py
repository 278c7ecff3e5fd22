"""Small releases, made as `publish` makes them, for tests of everything after the door."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import postgres
import pytest
from simulated_releases import release_of
from threadpoolctl import threadpool_limits

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
from kmeanalyst.releases.domain.numbers import Date, Integer, Real
from kmeanalyst.releases.file import write_release
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # for the processes that tests start
    os.environ.setdefault(_threads, "1")

N_ROWS = 2000


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A marker's `but` names the cases of a test that stay in the default tier: one id, or several."""
    for item in items:
        kept = [mark for mark in item.own_markers if not _is_excepted(item, mark)]
        item.own_markers[:] = kept


def _is_excepted(item: pytest.Item, mark: pytest.Mark) -> bool:
    names = mark.kwargs.get("but", ())
    case = item.name.partition("[")[2].removesuffix("]")
    return case in ([names] if isinstance(names, str) else names)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """The suite's matrices are small: on busy cores a second thread waits ten times longer than it works."""
    with threadpool_limits(limits=1):
        yield


@pytest.fixture(scope="session")
def mixed_domain() -> Domain:
    """One column of every kind, with and without missing values."""
    return Domain(
        (
            Integer(name="age", lower=17, upper=90, edges=(30, 50)),
            Integer(name="children", lower=0, upper=12, missing=True),
            Real(name="income", lower=1.0, upper=1e6, scale="log"),
            Real(name="capital.gain", lower=0.0, upper=99999.0, scale="log1p", atoms=(0,), missing=True),
            Categorical(name="city", levels=("Zürich", "St. Gallen", "東京", '"quoted, text"')),
            Ordinal(name="school", levels=("none", "some", "degree"), missing=True),
            Boolean(name="married"),
            Boolean(name="insured", missing=True),
            Date(name="joined", lower="1950-01-01", upper="2024-12-31"),
            Date(name="left", lower="1950-01-01", upper="2024-12-31", missing=True),
        )
    )


@pytest.fixture(scope="session")
def numeric_release() -> Release:
    """Algorithm 1: two real columns, a subspace of 40 points, the published weights."""
    domain = Domain((Real(name="x", lower=-4.0, upper=4.0), Real(name="y", lower=-4.0, upper=4.0)))
    rng = np.random.default_rng(5)
    rows = np.clip(rng.normal([1.0, -0.5], [1.0, 0.5], (N_ROWS, 2)), -4, 4)
    kernel = Gaussian(1.0)
    spanning = domain.draw(40, rng)
    feature_map = Nystroem.fit(kernel, spanning)
    points = domain.decode(spanning)
    return release_of(rows, domain, kernel, feature_map, points, method="subspace", view="published")


@pytest.fixture(scope="session")
def mixed_release(mixed_domain: Domain) -> Release:
    """Algorithm 2's measurement: every column kind, 200 random features, 60 points with probability weights."""
    rng = np.random.default_rng(7)
    kernel = table_kernel(mixed_domain)
    feature_map = RandomFourier.draw(
        kernel, n_columns=len(mixed_domain), dimension=200, missing_columns=mixed_domain.missing_columns, rng=1
    )
    points = mixed_domain.decode(mixed_domain.draw(60, rng))
    rows = mixed_domain.draw(N_ROWS, rng)
    return release_of(rows, mixed_domain, kernel, feature_map, points, method="random-features", view="probability")


@pytest.fixture(scope="session")
def levels_release(mixed_domain: Domain) -> Release:
    """A subspace over levels and missing cells: basis points that hold codes and NaN."""
    domain = Domain(tuple(mixed_domain[name] for name in ("city", "school", "capital.gain")))
    rng = np.random.default_rng(11)
    kernel = table_kernel(domain)
    points = domain.decode(domain.draw(30, rng))
    feature_map = Nystroem.fit(kernel, domain.encode(points))
    rows = domain.draw(N_ROWS, rng)
    return release_of(rows, domain, kernel, feature_map, points, method="subspace", view="probability")


@pytest.fixture(scope="session")
def foreign_release(mixed_domain: Domain) -> Release:
    """Signed weighted points from elsewhere: no measurement, no statement."""
    rng = np.random.default_rng(3)
    points = mixed_domain.decode(mixed_domain.draw(25, rng))
    return Release(
        points=points, weights=rng.normal(size=25), measurement=None, kernel=table_kernel(mixed_domain),
        domain=mixed_domain, statement=None,
    )  # fmt: skip


@pytest.fixture(params=["mixed_release", "numeric_release", "levels_release", "foreign_release"])
def release(request: pytest.FixtureRequest) -> Release:
    return request.getfixturevalue(request.param)


@pytest.fixture
def mixed_path(mixed_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "mixed.kme"
    write_release(mixed_release, path)
    return path


@pytest.fixture
def numeric_path(numeric_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "numeric.kme"
    write_release(numeric_release, path)
    return path


@pytest.fixture
def levels_path(levels_release: Release, tmp_path: Path) -> Path:
    path = tmp_path / "levels.kme"
    write_release(levels_release, path)
    return path


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    """A server of PostgreSQL, started once for a session of tests."""
    pytest.importorskip("adbc_driver_postgresql", reason="ADBC's driver is not installed: pip install '.[sources]'")
    if postgres.binaries() is None:
        pytest.skip("PostgreSQL is not installed: no initdb on the path or in /usr/lib/postgresql")
    with postgres.started() as running:
        yield running


@pytest.fixture
def rough_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rough points in a moment: for tests of what comes before and after them."""
    monkeypatch.setattr(wanted, "EFFORT", QUICK)
