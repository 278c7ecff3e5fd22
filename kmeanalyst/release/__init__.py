"""Release, the published object with a method for each question.

release     its views, what it is written to, and how one is read or made from weighted data
questions   what is asked of columns: means, quantiles, tables
inference   tests, models, draws and claims
"""

from __future__ import annotations

from kmeanalyst.release.release import Release, from_frame, read_release

__all__ = ["Release", "from_frame", "read_release"]
