"""How a private table's cells are read by a domain: for the curator's eyes, before a release would hide it.

A cell that is not a value of its column becomes the column's default, in silence, since nothing may depend on a private cell.
Garbage is then published as if it were data. The numbers here are exact, so that they go where those of the internal page go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kmeanalyst.releases.domain.cells import text_of, texts_of
from kmeanalyst.releases.domain.column import CLAMPED, KEPT, REPLACED, Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import DERIVE
from release_side.private_rows.table import PrivateTable, guarded

ALARM = 0.01  # of a column's cells: more that are no value, or out of bounds, are in the headline
_SHOWN = 5  # texts of a column
_MOST_TEXTS = 5000  # of a column that are kept from piece to piece: the most frequent ones
_FAILED = (
    "the cells of the private table could not be counted. What failed is withheld because it may hold a private value, and nothing "
    "was written."
)


@dataclass
class CellsRead:
    """What became of a column's cells; of a derived column's values; of a rule `unread` is how many rows break it.

    becomes   what a cell without a value becomes: the default, or "missing".
    empty     of the unread cells, those that are empty: a missing value that the domain does not declare.
    texts     (text, cells) of cells without a value or out of bounds, the most frequent first.
    """

    name: str
    kind: str
    becomes: str
    rows: int = 0
    unread: int = 0
    empty: int = 0
    missing: int = 0
    clamped: int = 0
    counted: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def texts(self) -> list[tuple[str, int]]:
        return self.counted.most_common(_SHOWN)

    @property
    def is_alarming(self) -> bool:
        """Whether more than one in a hundred cells are not read as they stand."""
        return self.unread + self.clamped > ALARM * self.rows

    def add(self, column: Column, cells: Any) -> None:
        """Count some cells."""
        cells = column.without_codes(cells)
        values, status = column.encode(cells)
        self.rows += len(status)
        self.unread += int((status == REPLACED).sum())
        self.clamped += int((status == CLAMPED).sum())
        kept = values[status == KEPT] if values.ndim == 1 else np.empty(0)
        self.missing += int(np.isnan(kept).sum())
        odd = texts_of(cells, status != KEPT)
        self.counted.update(odd)
        self.empty += odd[""]
        if len(self.counted) > _MOST_TEXTS:
            self.counted = Counter(dict(self.counted.most_common(_MOST_TEXTS // 2)))

    def to_dict(self) -> dict[str, Any]:
        """As the page's JSON has it."""
        names = ("name", "kind", "rows", "unread", "becomes", "empty", "missing", "clamped")
        return {name: getattr(self, name) for name in names} | {
            "texts": [{"text": text, "cells": cells} for text, cells in self.texts]
        }


def cells_read(table: PrivateTable, domain: Domain) -> list[CellsRead]:
    """What became of the cells of each column, derived ones too, and of each rule, in one reading; those read worst first.

    Errors   PublishError, by public facts alone.
    """
    rules, columns = rules_of(domain), [domain[name] for name in domain.names_read]
    derived = [(domain.columns[j], expression) for j, expression in rules.derived.items()]
    found = [CellsRead(one.name, one.kind, _becomes(one)) for one in (*columns, *(column for column, _ in derived))]
    kept = [CellsRead(rule.named(i + 1), "rule", "") for i, rule in enumerate(domain.rules)]

    def read() -> None:
        for piece in table._pieces(domain.names_read):
            for column, own in zip(columns, found, strict=False):
                own.add(column, piece[column.name])
            if not domain.rules:
                continue
            frame = domain.decode(rows := domain.encode(piece))
            for (column, expression), own in zip(derived, found[len(columns) :], strict=True):
                own.add(column, expression.evaluate(frame, domain))
            for own, broken in zip(kept, rules.broken_by(rows).sum(axis=0), strict=True):
                own.rows, own.unread = own.rows + len(rows), own.unread + int(broken)

    guarded(read, _FAILED)
    found += [own for own, rule in zip(kept, domain.rules, strict=True) if rule.kind != DERIVE]
    return sorted(found, key=lambda own: -(own.unread + own.clamped))


def _becomes(column: Column) -> str:
    if column.default is not None:
        return text_of(column.default) or ""
    if column.missing or column.is_text:
        return "missing" if column.missing else "an empty text"
    return str(column.decode(np.array([column.default_code])).iloc[0])


def alarms(cells: Sequence[CellsRead]) -> list[str]:
    """A sentence for each column of which many cells are not read as they stand, and each rule that many rows break."""
    of_rule = "{own.unread:,} of {own.rows:,} rows break it"
    of_cells = "{own.unread:,} of {own.rows:,} cells are no value of the domain and become {own.becomes}, "
    of_cells += "{own.clamped:,} are out of bounds"
    kinds = [(own, of_rule if own.kind == "rule" else of_cells) for own in cells if own.is_alarming]
    return [f"{own.name}: {text.format(own=own)}" for own, text in kinds]
