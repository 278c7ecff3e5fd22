"""The files that the command lines are tried on; a release is read once, and rough points do."""

from __future__ import annotations

import command_line
import pytest
from command_line import Files, city_files

import kmeanalyst.release
from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wanted, "EFFORT", QUICK)
    monkeypatch.setattr(kmeanalyst.release, "read_release", command_line.read_release)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", QUICK)
        return city_files(tmp_path_factory.mktemp("sound files"))
