"""Release, the published object with a method for each question, and how one is read or made from weighted data."""

from __future__ import annotations

from kmeanalyst.release.release import Release, from_frame, read_release

__all__ = ["Release", "from_frame", "read_release"]
