"""Whether public rows are the private rows, in any format, order and container.

The domain encodes both sides, as the release would hold them, and they are compared as multisets of rows. Numbers are
compared to 24 binary digits, because readers of CSV differ in the last digit and single precision has no more. An empty
line adds a row, so rows without a cell are ignored where the numbers of rows differ.

Private rows are read only if the numbers of rows differ by at most 8. A larger public table that contains the private
rows is not refused: where columns have few values, any large census contains any small table.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.cells import NO_CELL
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.sources.streams import can_be_read_once
from kmeanalyst.sources.tables import Table as PublicTable
from kmeanalyst.sources.tables import table_of
from release_side.errors import PublishError
from release_side.private_rows.rows import PrivateSource, Table, open_private
from release_side.private_rows.table import silently

_DIGITS = 24  # binary digits of a number that are compared: those of single precision
_EMPTY_LINES = 8  # largest difference of the numbers of rows
_DIGEST_BYTES = 16


def same_rows(private: PrivateSource, public: Table, domain: Domain) -> bool:
    """Whether the two tables hold the same rows, as the domain encodes them, in any order.

    False if a table lacks a column of the domain: the callers refuse such tables.
    """
    if can_be_read_once(private):
        raise PublishError(
            "public rows are compared with the private ones, and a RecordBatchReader can be read once only. Nothing was spent. "
            "Pass the private rows as a table or a file, or leave the public ones out."
        )
    rows = open_private(private)
    if not _has_columns(rows.header, domain):
        return False
    rows.check_columns(domain)
    count = rows.count()
    others = _count(public, domain, most=count + _EMPTY_LINES)
    if others is None or abs(others - count) > _EMPTY_LINES or 0 in (others, count):
        return False
    digests = _Digests(domain, empty_rows=others == count)
    return digests.of(_encoded(public, domain)) == digests.of(rows.encoded(domain)) != (0, 0)


def _has_columns(header: Iterable[object], domain: Domain) -> bool:
    present = Counter(header)
    return all(present[name] == 1 for name in domain.names_read)


def _encoded(public: Table, domain: Domain) -> Iterator[Array]:
    if isinstance(public, pd.DataFrame):
        yield silently(lambda: domain.encode(public))
        return
    blocks = _open_public(public).encoded(domain)
    while (block := silently(lambda: next(blocks, None))) is not None:
        yield block[0]


def _count(public: Table, domain: Domain, *, most: int) -> int | None:
    """The number of rows; None if there are more than `most`, or a column is missing."""
    headers = [public.columns] if isinstance(public, pd.DataFrame) else _open_public(public).headers
    if not all(_has_columns(header, domain) for header in headers):
        return None
    total = 0
    for rows in _encoded(public, domain):
        total += len(rows)
        if total > most:
            return None
    return total


def _open_public(public: str | Path) -> PublicTable:
    table = table_of(public)
    assert table is not None  # it is named by a path
    return table


class _Digests:
    """The number of rows and the sum of their keyed digests, which does not depend on their order.

    empty_rows   whether rows without a cell count.
    """

    def __init__(self, domain: Domain, *, empty_rows: bool) -> None:
        self._key = secrets.token_bytes(32)
        nothing = {name: np.array([NO_CELL], dtype=object) for name in domain.names_read}
        self._ignored = None if empty_rows else self._digest(_canonical(domain.encode(nothing))[0])

    def of(self, blocks: Iterable[Array]) -> tuple[int, int]:
        count, total = 0, 0
        for block in blocks:
            digests = [self._digest(row) for row in silently(lambda block=block: _canonical(block))]  # type: ignore[misc]
            kept = [digest for digest in digests if digest != self._ignored]
            count, total = count + len(kept), total + sum(kept)
        return count, total % 2 ** (8 * _DIGEST_BYTES)

    def _digest(self, row: Array) -> int:
        return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=_DIGEST_BYTES, key=self._key).digest())


def _canonical(rows: Array) -> Array:
    """Encoded rows to 24 binary digits, with one NaN and one zero."""
    mantissas, exponents = np.frexp(rows)
    rounded = np.ldexp(np.round(np.ldexp(mantissas, _DIGITS)), exponents - _DIGITS) + 0.0
    return np.ascontiguousarray(np.where(np.isnan(rows), np.nan, rounded))
