"""Tables that yield Arrow record batches, whatever library makes them.

What a column holds is judged by its declared type, before a row is read. Batches are cut again by row number: where a source
cuts them may depend on the lengths of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.sources.arrow_cells import cells_of, exact_cells_of, joined, pieces
from kmeanalyst.sources.arrow_types import why_refused
from kmeanalyst.sources.files import File
from kmeanalyst.sources.source import ArrowSource
from release_side.errors import PublishError
from release_side.private_rows.table import BROKE_OFF, PrivateTable, guarded


@dataclass(frozen=True, eq=False, repr=False)
class Batches(PrivateTable):
    """Arrow record batches behind a counter and an encoder."""

    source: ArrowSource

    @property
    def header(self) -> list[str]:
        return list(self.source.schema.names)

    @property
    def files(self) -> tuple[File, ...]:
        return self.source.files

    @property
    def read_once(self) -> bool:
        return self.source.read_once

    def count(self) -> int:
        return guarded(self.source.count, BROKE_OFF)

    def divided(self, n_rows: int) -> list[PrivateTable]:
        return [Batches(part) for part in guarded(lambda: self.source.divided(n_rows), BROKE_OFF)]

    def type_of(self, name: str) -> str:
        return ", ".join(
            f"{self.source.schema.field(i).type!s:.80}" for i in self.source.schema.get_all_field_indices(name)
        )

    def refusal(self, name: str, column: Column | None) -> str:
        return why_refused(self.source.schema.field(self.header.index(name)), column)

    def _pieces(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        for parts in self.cut(names, self.source.announced):
            yield {name: joined(parts, name, cells_of) for name in names}

    def identified(self, column: str, domain: Domain) -> Iterator[tuple[Any, Array]]:
        """As every table. The number of rows is not compared with another: where units are protected it is not public."""
        for parts in self.cut([column, *domain.names_read]):
            rows = domain.encode({each: joined(parts, each, cells_of) for each in domain.names_read})
            yield joined(parts, column, exact_cells_of), rows

    def cut(self, names: Sequence[str], announced: int | None = None) -> Iterator[list[Any]]:
        """Parts of batches that have together `piece` rows; at the end those that are left."""
        return pieces(self._batches(names, announced), self.piece)

    def _batches(self, names: Sequence[str], announced: int | None) -> Iterator[Any]:
        batches = guarded(lambda: iter(self.source.batches(names)), BROKE_OFF)
        n_rows = 0
        while (batch := guarded(lambda: next(batches, None), BROKE_OFF)) is not None:
            n_rows += batch.num_rows
            if announced is not None and n_rows > announced:  # it may have no end
                raise PublishError(
                    f"the stream has more rows than the {announced} that n_rows announces. Nothing was spent. Pass the number of "
                    "rows that it has."
                )
            yield batch
        if announced is not None and n_rows < announced:
            raise PublishError(
                f"the stream ended after {n_rows} rows, and n_rows announces {announced}. Nothing was spent. Pass the number of "
                "rows that it has, and a new stream if this one was read before."
            )
