"""Tables of the analyst or of the public: samples to test, public points, samples to draft from."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from kmeanalyst.releases.domain.column import DomainError

_BLOCK_ROWS = 20_000  # rows read at a time
_BUFFER = 2**20  # bytes of a Parquet column read at a time
_CSV: dict[str, Any] = {"keep_default_na": False, "encoding": "utf-8-sig"}


def read_table(path: str | Path) -> pd.DataFrame:
    """A .csv, .csv.gz or .parquet file as a DataFrame; CSV cells stay text, so that the domain reads them.

    Not for private rows: those go through release_side. DomainError says what is wrong with the file.
    """
    path = Path(path)
    with _as_domain_errors(path):
        table = pd.read_parquet(path) if _is_parquet(path) else pd.read_csv(path, dtype=str, **_cells_of(path))
    _check_rows(path, len(table))
    return table


def table_blocks(path: str | Path, *, rows: int = _BLOCK_ROWS) -> Iterator[pd.DataFrame]:
    """The rows of `read_table`, at most `rows` at a time, so that memory does not grow with their number.

    Cells encode as those of `read_table` do. The same files are refused, but damage at the end of a file is found only there.
    """
    path, total = Path(path), 0
    with _as_domain_errors(path):
        for block in _parquet_blocks(path, rows) if _is_parquet(path) else _csv_blocks(path, rows):
            total += len(block)
            yield block
    _check_rows(path, total)


def _is_parquet(path: Path) -> bool:
    """Whether the file is Parquet, and not CSV; DomainError if there is none, or it is neither."""
    if not path.exists():
        raise DomainError(f"no file at {path}. Check the path.")
    name = path.name.lower()
    if not name.endswith((".parquet", ".csv", ".csv.gz")):
        raise DomainError(f"{path} is neither .csv, .csv.gz nor .parquet. Convert it to one of these.")
    return name.endswith(".parquet")


def _check_rows(path: Path, rows: int) -> None:
    if rows == 0:
        raise DomainError(f"{path} has a header and no rows. Name a table with rows.")


@contextmanager
def _as_domain_errors(path: Path) -> Iterator[None]:
    """Turn a library's error about a file into a DomainError that names the file."""
    try:
        yield
    except DomainError:
        raise
    except pd.errors.EmptyDataError:
        raise DomainError(
            f"{path} is empty: it has no header line. Name a table whose first line names its columns."
        ) from None
    except (OSError, ValueError, EOFError, zlib.error) as error:  # the last two: a .gz file that is cut off or damaged
        reason = " ".join(str(error).split()).rstrip(".")
        raise DomainError(f"{path} could not be read as a table: {reason}. Write it again.") from None


def _cells_of(path: Path) -> dict[str, Any]:
    """How cells are read. A row's surplus cells are ignored, as on the private side; they never shift the others."""
    width = len(pd.read_csv(path, nrows=0, index_col=False, dtype=str, **_CSV).columns)
    return {"usecols": range(width), **_CSV}


def _csv_blocks(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Cells as Python's own text (dtype object): the same text as dtype str has, but several times faster to encode."""
    with pd.read_csv(path, dtype=object, chunksize=rows, **_cells_of(path)) as blocks:
        yield from blocks


def _parquet_blocks(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Batches as pandas has them, whatever the row groups; of a folder of files, whole row groups are in memory."""
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    if path.is_dir():
        folder = ds.dataset(path, format="parquet", partitioning="hive")
        yield from (
            batch.to_pandas() for batch in folder.to_batches(batch_size=rows, batch_readahead=0, fragment_readahead=0)
        )
        return
    with pq.ParquetFile(path, buffer_size=_BUFFER) as file:
        yield from (batch.to_pandas() for batch in file.iter_batches(batch_size=rows))
