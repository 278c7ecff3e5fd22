"""The files that the command lines are tried on."""

from __future__ import annotations

import pytest
from command_line import Files, city_files


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return city_files(tmp_path_factory.mktemp("sound files"))
