"""Room 4: a sample beside a release: its rows encoded by the release's domain, block by block, and results about both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from kmeanalyst.inference.results import TestResult
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.releases.release import Release


class SampleRows:
    """An analyst's own rows, encoded by a release's domain.

    notes    what a reader should know of the encoding: ignored columns, clamped and unseen values.
    n_rows   L; at least two.
    Both are whole once `blocks` has been gone through.
    """

    def __init__(self, release: Release, sample: Any) -> None:
        if isinstance(sample, pd.DataFrame):
            self._rows, self.notes = release.domain.encode_sample(sample)
        else:
            self._rows, self.notes = as_rows(sample), []
            if self._rows.shape[1] != len(release.domain):
                raise ValueError(
                    f"the release has {len(release.domain)} columns, the sample {self._rows.shape[1]}. "
                    f"Pass a DataFrame with the columns {', '.join(release.domain.names)}."
                )
        if len(self._rows) < 2:
            raise ValueError(
                f"the sample needs at least two rows to show its own spread, got {len(self._rows)}. Add rows."
            )

    def blocks(self) -> Iterator[Array]:
        """Encoded rows (n, d), in blocks; may be asked for again."""
        yield self._rows

    @property
    def n_rows(self) -> int:
        """L, the number of rows."""
        return len(self._rows)


def result_about(release: Release, **fields: Any) -> TestResult:
    """A TestResult with what it says of a release filled in."""
    promise = release.statement
    return TestResult(
        noise_aware=release.measurement is not None,
        n_release_rows=promise.n_rows if promise else None,
        n_release_points=len(release),
        epsilon=promise.epsilon if promise else None,
        delta=promise.delta if promise else None,
        **fields,
    )
