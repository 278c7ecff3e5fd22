"""A sample to compare with a release: its rows encoded by the release's domain, block by block, and results about both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.kernels.base import Array, as_rows
from kmeanalyst.releases.domain.domain import Domain, SampleCounts
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.sources.tables import table_of


class SampleRows:
    """An analyst's own rows, encoded by a release's domain.

    sample   a DataFrame, or encoded rows (L, d): held in memory. Or rows that come in blocks, of which one at a time is
             held: a table of any source (see `table_of`), or an iterable of DataFrames. A generator or a RecordBatchReader
             can be read once, which is enough for the test of a release with a measurement.
    """

    def __init__(self, release: ReleaseData, sample: Any) -> None:
        self._counts: SampleCounts | None = None
        self._derived = [one.column.name for one in release.derived]
        table = sample if hasattr(sample, "encoded") else table_of(sample)
        self.read_once = isinstance(sample, Iterator) if table is None else table.read_once
        if table is not None:
            once = _once(table.encoded(release.domain)) if table.read_once else None
            self._blocks: Callable[[], Iterator[tuple[Array, SampleCounts]]] = once or (
                lambda: table.encoded(release.domain)
            )
        elif (frames := _frames_of(sample)) is not None:
            self._blocks = lambda: (_encoded_frame(release.domain, frame) for frame in frames())
        else:
            block = _encoded(release.domain, sample)
            self._blocks = lambda: iter([block])
            self._count()

    def blocks(self) -> Iterator[Array]:
        """Encoded rows (n, d), n ≥ 1, in blocks; can be repeated. A ValueError at the end if they are too few."""
        total = SampleCounts()
        for rows, counts in self._blocks():
            total += counts
            if len(rows):
                yield rows
        if total.n_rows < 2:
            raise ValueError(
                f"the sample needs at least two rows to show its own spread, got {total.n_rows}. Add rows."
            )
        if self._counts not in (None, total):
            raise ValueError(
                f"the sample had {self._counts.n_rows} rows when they were gone through before, and now it has other cells "
                f"or rows ({total.n_rows}): results of the two would not fit together. Pass rows that stay as they are."
            )
        self._counts = total

    def some(self, most: int) -> Array:
        """At most that many rows (n, d), drawn evenly in one pass, the same whatever the blocks."""
        return _drawn(self.blocks(), most)[0]

    def split_for_directions(self, most: int) -> tuple[Array, Array, Iterator[Array]]:
        """Half of the rows, at most so many, drawn evenly; their indices (n,); and all rows in blocks.

        A file is read twice for this: if it is sorted, its first rows are not like the others. Of what can be read once the
        first rows are used. A database may give its rows in another order the second time:
        then other rows have these indices, as many.
        """
        if not self.read_once:
            drawn, indices = _drawn(self.blocks(), 2 * most)
            return drawn[::2], indices[::2], self.blocks()
        blocks, first = self.blocks(), list[Array]()
        while sum(map(len, first)) < 2 * most and (block := next(blocks, None)) is not None:
            first.append(block)
        half = np.vstack(first)[: 2 * most : 2]
        return half, 2 * np.arange(len(half)), chain(first, blocks)

    def _count(self) -> SampleCounts:
        """The counts of all blocks, which are read for it if they have not been read yet."""
        if self._counts is None:
            for _ in self.blocks():
                pass
        assert self._counts is not None
        return self._counts

    @property
    def notes(self) -> list[str]:
        """What a reader should know of the encoding of all rows: ignored columns, clamped and unseen values."""
        counts = self._count()
        others = replace(counts, ignored=tuple(name for name in counts.ignored if name not in self._derived))
        return others.notes()

    @property
    def n_rows(self) -> int:
        """L, the number of rows; at least two."""
        return self._count().n_rows


def _drawn(blocks: Iterable[Array], most: int) -> tuple[Array, Array]:
    """At most that many rows, and their indices, in order."""
    rng = np.random.default_rng(0)
    kept, keys, indices, seen = np.empty((0, 0)), np.empty(0), np.empty(0, dtype=int), 0
    for rows in blocks:
        kept = np.vstack([kept, rows]) if len(kept) else rows
        keys = np.concatenate([keys, rng.random(len(rows))])
        indices = np.concatenate([indices, np.arange(seen, seen := seen + len(rows))])
        lowest = np.sort(np.argsort(keys)[:most])
        kept, keys, indices = kept[lowest], keys[lowest], indices[lowest]
    return kept, indices


def _frames_of(sample: Any) -> Callable[[], Iterator[Any]] | None:
    """A function that iterates over the sample's DataFrames; None for a sample that is one table."""
    if isinstance(sample, Iterator):
        return _once(sample)
    if isinstance(sample, Sequence):
        return (lambda: iter(sample)) if len(sample) and isinstance(sample[0], pd.DataFrame) else None
    if isinstance(sample, Iterable) and not isinstance(sample, pd.DataFrame) and not hasattr(sample, "__array__"):
        return lambda: iter(sample)
    return None


def _once(blocks: Iterator[Any]) -> Callable[[], Iterator[Any]]:
    """An iterator that can be started once: ValueError the second time."""
    left = [blocks]

    def begin() -> Iterator[Any]:
        if not left:
            raise ValueError(
                "the sample is a generator or a reader, which can be gone through only once, and the rows are needed again. "
                "Pass a list of DataFrames, a table, or the path of a file."
            )
        return left.pop()

    return begin


def _encoded(domain: Domain, sample: Any) -> tuple[Array, SampleCounts]:
    """A sample in memory: a DataFrame, or encoded rows (L, d)."""
    if isinstance(sample, pd.DataFrame):
        return domain.encode_counted(sample)
    rows = as_rows(sample)
    if rows.shape[1] != domain.width:
        raise ValueError(
            f"the release has {domain.width} columns, the sample {rows.shape[1]}. "
            f"Pass a DataFrame with the columns {', '.join(domain.names)}."
        )
    return rows, SampleCounts(n_rows=len(rows))


def _encoded_frame(domain: Domain, frame: Any) -> tuple[Array, SampleCounts]:
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(
            f"a sample in blocks gives DataFrames, and this one gave {type(frame).__name__}: its columns have no names. "
            "Give each block as a DataFrame, or all rows as one array."
        )
    return domain.encode_counted(frame)


_OF_UNITS = "the release gives each unit the same weight, however many rows it has: compare it with rows of which each unit has one"


def result_about(release: ReleaseData, *, notes: Sequence[str] = (), **fields: Any) -> TestResult:
    """A TestResult with the fields about a release filled in."""
    if derived := ", ".join(one.column.name for one in release.derived):
        notes = (*notes, f"derived columns were left out, as they follow from the measured ones: {derived}")
    if release.statement and release.statement.protects_units:
        notes = (*notes, _OF_UNITS)
    about = fields_about([release])
    return TestResult(n_release_points=len(release), notes=tuple(notes), **about, **fields)


def fields_about(releases: Sequence[ReleaseData]) -> dict[str, Any]:
    """The fields of a TestResult about the privacy of releases; N, ε and δ of a single one."""
    one = releases[0].statement if len(releases) == 1 else None
    return {
        "noise_aware": all(release.measurement is not None for release in releases),
        "n_release_rows": one and one.n_rows,
        "epsilon": one and one.epsilon,
        "delta": one and one.delta,
    }
