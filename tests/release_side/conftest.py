"""What the tests of the release side share: rough points, because most of them ask about what comes before the points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kmeanalyst.representation import wanted
from kmeanalyst.representation.wanted import QUICK


@pytest.fixture(scope="module", autouse=True)
def rough_points() -> Iterator[None]:
    """Points in a moment; a test of how good a release is sets another `EFFORT`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wanted, "EFFORT", QUICK)
        yield
