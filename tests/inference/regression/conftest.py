"""The plain rows as a release, made once."""

import pytest
from regression_rows import released

from kmeanalyst.release import Release


@pytest.fixture(scope="session")
def plain() -> Release:
    return released()
