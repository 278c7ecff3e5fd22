"""What the tests of publishing share."""

from __future__ import annotations

import pytest

from release_side.door.mechanism import GaussianNoise


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact integers are released without noise: for tests only."""
    monkeypatch.setattr(GaussianNoise, "add_to", lambda self, exact, *, sensitivity: exact)
