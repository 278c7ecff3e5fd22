"""Room 4: a comparison in words, for a terminal and for a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmeanalyst.texts import shortened

if TYPE_CHECKING:
    from kmeanalyst.inference.comparison import Comparison

_WIDEST = 24  # of a cell


def as_text(comparison: Comparison, top: int) -> str:
    """The verdict, and at most `top` lines for each of columns, pairs, differences and telling rows."""
    blocks = [verdict(comparison)]
    for title, frame in sections(comparison, top):
        blocks.append(title if frame is None else f"{title}\n{aligned(frame)}")
    notes = "\n".join(f"note: {note}" for note in comparison.notes)
    return "\n\n".join([*blocks, notes] if notes else blocks)


def as_html(comparison: Comparison, top: int = 10) -> str:
    """The same as tables."""
    parts = [f"<div><strong>{escape(verdict(comparison))}</strong>"]
    for title, frame in sections(comparison, top):
        parts.append(f"<p>{escape(title)}</p>" + ("" if frame is None else _shown(frame).to_html(index=False)))
    notes = "".join(f"<li>{escape(note)}</li>" for note in comparison.notes)
    return "\n".join([*parts, f"<ul>{notes}</ul></div>" if notes else "</div>"])


def verdict(comparison: Comparison) -> str:
    """The overall test in a line."""
    told = "release and sample differ" if comparison.differs else "no difference that this release can show"
    noise = "privacy noise included" if comparison.overall.noise_aware else "privacy noise not known"
    return f"{told} (p = {comparison.overall.pvalue:.3g}, level {comparison.level:g}; {noise})"


def sections(comparison: Comparison, top: int) -> list[tuple[str, pd.DataFrame | None]]:
    """(title, table) for each kind of answer; None where there is nothing to show."""
    found: list[tuple[str, pd.DataFrame | None]] = []
    for what, frame in (("columns", comparison.columns.reset_index()), ("pairs of columns", comparison.pairs)):
        differ = frame[frame["differs"]].sort_values("pvalue").drop(columns="differs")
        n = f"{len(differ)} of {len(frame)} {what} differ"
        adjusted = f"{n} (p-values adjusted for their number)" if len(differ) else n
        found.append((adjusted, differ.head(top) if len(differ) else None))
    found.append(("differences of means and shares, in standard deviations of a row", comparison.differences.head(top)))
    found.append(("where the release has more (witness > 0), and where the sample has", _ends(comparison.witness, top)))
    return found


def _ends(witness: pd.DataFrame, top: int) -> pd.DataFrame | None:
    """The first rows and the last, half of them each."""
    if len(witness) == 0:
        return None
    first = (top + 1) // 2
    return witness if len(witness) <= top else pd.concat([witness.head(first), witness.tail(top - first)])


def aligned(frame: pd.DataFrame) -> str:
    """A table of texts: words to the left, numbers to the right."""
    shown = _shown(frame)
    cells = [[str(name) for name in shown.columns], *shown.to_numpy().tolist()]
    widths = [max(len(row[i]) for row in cells) for i in range(len(shown.columns))]
    right = [pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes]
    pad = [str.rjust if numeric else str.ljust for numeric in right]
    return "\n".join(
        "  " + "  ".join(p(cell, w) for p, cell, w in zip(pad, row, widths, strict=True)).rstrip() for row in cells
    )


def _shown(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({str(name): [_cell(value) for value in frame[name]] for name in frame.columns})


def _cell(value: Any) -> str:
    if value is pd.NA or value is pd.NaT or (isinstance(value, float) and np.isnan(value)):
        return "-"
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    if isinstance(value, float):  # numpy's float64 is one
        return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.0f}"
    text = str(value)
    return shortened(text, _WIDEST)
