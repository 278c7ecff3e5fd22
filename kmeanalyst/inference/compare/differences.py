"""The difference between a release and a sample in each mean and share, in standard deviations of one row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd

from kmeanalyst.inference.questions.expectation import expectation, probability
from kmeanalyst.inference.two_sample.sides import SampleRows
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.representation.weights.views import view_weights

_MOST_LEVELS = 30  # levels of a column: those that are most frequent in the sample


@dataclass
class _Sums:
    """Sums over one column of the sample, block by block, from which its mean and shares follow."""

    n: int = 0
    counts: Array = field(default_factory=lambda: np.zeros(0))  # of each level
    missing: int = 0
    mean: float = 0.0  # of the numbers that are there
    squares: float = 0.0  # Σ (x − mean)²

    def add(self, column: Column, values: Array) -> None:
        present = values[~np.isnan(values)]
        self.missing += len(values) - len(present)
        self.n += len(values)
        if isinstance(column, Categorical):
            counts = np.bincount(present.astype(np.intp), minlength=len(column.levels))
            self.counts = counts + (self.counts if len(self.counts) else 0)
        elif len(present) and column.is_number:
            self._add_numbers(natural(column, present), self.n - self.missing - len(present))

    def _add_numbers(self, x: Array, before: int) -> None:
        """Combine blocks without cancellation (Chan, Golub & LeVeque 1979)."""
        n, step = before + len(x), float(x.mean()) - self.mean
        self.squares += float(np.square(x - x.mean()).sum()) + step**2 * before * len(x) / n
        self.mean += step * len(x) / n


def natural(column: Column, encoded: Array) -> Array:
    """Encoded numbers (n,) in natural units, float64; dates in days since 1970-01-01."""
    if isinstance(column, Date):
        return encoded
    return column.decode(encoded).to_numpy(dtype=float, na_value=np.nan)


def standardised_differences(release: ReleaseData, sample: SampleRows) -> tuple[pd.DataFrame, list[str]]:
    """Every mean, share of a level and share of missing cells on both sides, and notes: see Comparison.

    One pass over the sample. Standard errors of the release's values are those of Release.expectation.
    """
    sums = [_Sums() for _ in release.domain.columns]
    for rows in sample.blocks():
        for column, own, values in zip(release.domain.columns, sums, rows[:, : len(sums)].T, strict=True):
            own.add(column, values)
    notes: list[str] = []
    lines = [
        line
        for column, own in zip(release.domain.columns, sums, strict=True)
        for line in _lines_of(release, column, own, notes)
    ]
    names = ["column", "quantity", "release", "sample", "difference", "standard_error"]
    frame = pd.DataFrame(lines, columns=names)
    order = np.argsort(-frame["difference"].abs().fillna(-1.0).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True), notes


_Line = tuple[str, str, float, float, float, float]


def _lines_of(release: ReleaseData, column: Column, own: _Sums, notes: list[str]) -> Iterator[_Line]:
    if isinstance(column, Categorical):
        most = np.argsort(-own.counts, kind="stable")[:_MOST_LEVELS]
        if len(most) < len(own.counts):
            notes.append(f"{column.name}: differences of the {len(most)} levels that the sample has most of")
        for code in most:
            equals = _condition(column, partial(np.equal, float(code)))
            yield _share(release, column, column.levels[code], equals, own.counts[code] / own.n, own.n)
    elif column.is_text:
        notes.append(f"{column.name}: strings have neither means nor levels; the tests compare them by their kernel")
    else:
        yield _mean(release, column, own, notes)
    if column.missing:
        yield _share(release, column, "missing", _condition(column, np.isnan), own.missing / own.n, own.n)


def _condition(column: Column, holds: Callable[[Array], Array]) -> Callable[[pd.DataFrame], Array]:
    """A condition on the column's encoded values, as a question."""
    return lambda frame: holds(column.encode(frame[column.name])[0].reshape(len(frame), -1)[:, 0]).astype(float)


def _share(
    release: ReleaseData, column: Column, what: str, condition: Callable[[pd.DataFrame], Array], share: float, n: int
) -> _Line:
    """Shares p, over √(p(1 − p)) at the mean of both."""
    found = probability(release, condition)
    middle = float(np.clip((found.value + share) / 2, 0, 1))
    error = np.hypot(found.standard_error, np.sqrt(share * (1 - share) / n))
    return (column.name, what, found.value, share, *_over(found.value - share, error, np.sqrt(middle * (1 - middle))))


def _mean(release: ReleaseData, column: Column, own: _Sums, notes: list[str]) -> _Line:
    """Means of the numbers that are there, over the root of the mean of both variances."""
    n = own.n - own.missing
    try:
        found = expectation(
            release,
            lambda frame: np.nan_to_num(natural(column, column.encode(frame[column.name])[0])),
            where=_condition(column, lambda x: ~np.isnan(x)) if column.missing else None,
        )
    except ValueError as refusal:  # no released weight where the column has a number
        notes.append(f"{column.name}: {refusal}")
        return (column.name, "mean", np.nan, own.mean, np.nan, np.nan)
    if n < 2:
        notes.append(f"{column.name}: fewer than two rows of the sample have a number")
        return (column.name, "mean", found.value, np.nan, np.nan, np.nan)
    variance = own.squares / (n - 1)
    pooled = np.sqrt((_released_variance(release, column) + variance) / 2)
    error = np.hypot(found.standard_error, np.sqrt(variance / n))
    return (column.name, "mean", found.value, own.mean, *_over(found.value - own.mean, error, pooled))


def _over(difference: float, error: float, spread: float) -> tuple[float, float]:
    if spread <= 0:
        return (0.0 if abs(difference) < 1e-12 else np.nan), np.nan
    return float(difference / spread), float(error / spread)


def _released_variance(release: ReleaseData, column: Column) -> float:
    values = natural(column, release.encoded_points[:, release.domain.position(column.name)])
    known = ~np.isnan(values)
    p = view_weights(release, "probability")[known]
    centred = values[known] - p @ values[known] / p.sum()
    return float(p @ centred**2 / p.sum())
