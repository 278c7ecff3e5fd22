from kmeanalyst.kernels.base import Array

def add_rows(
    n_rows: int,
    n_frequencies: int,
    values: Array,
    numbers: Array,
    codes: Array,
    tables: list[Array],
    waves: Array,
    extra: int,
    sums: Array,
) -> None:
    """Add the whole numbers of rows to sums (2R,) int64."""
