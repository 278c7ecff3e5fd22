"""Is a sample from a release's population, and if not, where do they differ?

The two-sample test answers the first question; tests of each column and of each pair of columns, standardised
differences and the witness function answer the second. All of them account for the privacy noise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.compare import attribution
from kmeanalyst.inference.compare.differences import standardised_differences
from kmeanalyst.inference.compare.functionals import RidgeProjector, reference_rows
from kmeanalyst.inference.compare.witness import Witness, witness_of, witness_rows
from kmeanalyst.inference.two_sample.mmd_test import mmd_test
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import SampleRows, Side, measured_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import shortened

_WIDEST = 24  # characters of a cell


def verdict(comparison: Comparison) -> str:
    """The overall test in a line."""
    outcome = "release and sample differ" if comparison.differs else "no difference that this release can show"
    noise = "privacy noise included" if comparison.overall.noise_aware else "privacy noise not known"
    return f"{outcome} (p = {comparison.overall.pvalue:.3g}, level {comparison.level:g}; {noise})"


def sections(comparison: Comparison, top: int) -> list[tuple[str, pd.DataFrame | None]]:
    """(title, table) for each kind of answer; None where there is nothing to show."""
    found: list[tuple[str, pd.DataFrame | None]] = []
    for what, frame in (("columns", comparison.columns.reset_index()), ("pairs of columns", comparison.pairs)):
        differ = frame[frame["differs"]].sort_values("pvalue").drop(columns="differs")
        n = f"{len(differ)} of {len(frame)} {what} differ"
        adjusted = f"{n} (p-values adjusted for their number)" if len(differ) else n
        found.append((adjusted, differ.head(top) if len(differ) else None))
    found.append(("differences of means and shares, in standard deviations of a row", comparison.differences.head(top)))
    witness, first = comparison.witness, (top + 1) // 2
    ends = witness if len(witness) <= top else pd.concat([witness.head(first), witness.tail(top - first)])
    found.append(("where the release has more (witness > 0), and where the sample has", ends if len(witness) else None))
    return found


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
    return shortened(str(value), _WIDEST)


_SOME_ROWS = 2000  # rows of the sample that show its columns' distributions, and where its mass is
_BLURRED = 0.5  # share seen below which a verdict is noted to be blurred


@dataclass(frozen=True, eq=False)
class Comparison:
    """Where a release and a sample differ.

    overall      the TestResult of mmd_test: is it one population?
    columns      a row for each column: pvalue of a test of its distribution; adjusted, for the number of columns (Holm);
                 differs, at the level; seen, the share of the column's functions that the features see.
    pairs        the same for the association of each pair of columns: first, second, pvalue, adjusted, differs, seen.
                 Where little is seen, a small difference can be missed, and one elsewhere can show.
    differences  a row for each mean, share of a level and share of missing cells: the release's value, the sample's,
                 their difference in standard deviations of one row, and its standard_error, privacy noise included; the
                 largest first.
    witness      released points and rows of the sample, from where the release has most mass beyond the sample's
                 (witness > 0) to the contrary, with standard_error (as if both had one population) and z. These rows
                 are selected: the largest of many z is often beyond 2 even if both have one population.
    level        of the verdicts.
    notes        what a reader should know.
    function     the witness as a function of encoded rows.

    >>> comparison.differs  # of ka.compare(release, sample.assign(age=sample["age"] + 5))
    True
    >>> comparison.columns["differs"].head(3)
    column
    age                True
    education-num     False
    marital-status    False
    Name: differs, dtype: bool
    >>> comparison.differences.head(1)[["release", "sample"]]
         release  sample
    0  38.248069  43.384
    """

    overall: TestResult
    columns: pd.DataFrame
    pairs: pd.DataFrame
    differences: pd.DataFrame
    witness: pd.DataFrame
    level: float
    notes: tuple[str, ...]
    function: Witness = field(repr=False)

    @property
    def differs(self) -> bool:
        """Whether the overall test rejects one population at the level."""
        return bool(self.overall.pvalue <= self.level)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain numbers and texts, as `compare --json` prints it; what is not known is None.

        >>> comparison.to_dict()["differs"]
        True
        """
        others = {"pairs": self.pairs, "differences": self.differences, "witness": self.witness}
        tables = {"columns": self.columns.reset_index(), **others}
        return {
            "overall": _plain(self.overall.to_dict()),
            "differs": self.differs,
            "level": self.level,
            **{name: _plain(frame.to_dict("records")) for name, frame in tables.items()},
            "notes": list(self.notes),
        }

    def to_text(self, top: int = 10) -> str:
        """What differs, for a reader: at most `top` lines of each kind.

        >>> print(comparison.to_text(top=2))
        release and sample differ (p = ..., level 0.05; privacy noise included)
        <BLANKLINE>
        1 of 7 columns differ (p-values adjusted for their number)
        ...
        """
        blocks = [verdict(self)]
        for title, frame in sections(self, top):
            blocks.append(title if frame is None else f"{title}\n{aligned(frame)}")
        notes = "\n".join(f"note: {note}" for note in self.notes)
        return "\n\n".join([*blocks, notes] if notes else blocks)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        parts = [f"<div><strong>{escape(verdict(self))}</strong>"]
        for title, frame in sections(self, top=10):
            parts.append(f"<p>{escape(title)}</p>" + ("" if frame is None else _shown(frame).to_html(index=False)))
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return "\n".join([*parts, f"<ul>{notes}</ul></div>" if notes else "</div>"])


def compare(release: ReleaseData, sample: Any, *, level: float = 0.05) -> Comparison:
    """Test whether a sample is from a release's population, and show where they differ.

    sample    as of `mmd_test`, but rows that can be read once only are refused; independent of the table's rows.
    level     of the verdicts: the probability of any false alarm among the columns, and among the pairs, where both have one
              population; in (0, 1).
    Returns   Comparison.
    Assumes   that rows are independent. The level of each test does not depend on what the features see (see functionals.py);
              differences are attributed to columns and pairs as far as the features can distinguish them.

    >>> ka.compare(release, sample.assign(age=sample["age"] + 5)).columns.query("differs").index.tolist()
    ['age']
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}: it is a probability. Pass e.g. 0.05.")
    rows = SampleRows(release, sample)
    if rows.read_once:
        raise ValueError(
            "compare goes through the sample several times, and a generator or a reader can be gone through only once. Pass a "
            "DataFrame, a table, or the path of a file."
        )
    overall, evidence = mmd_test(release, rows), measured_side(release, beforehand=True)
    some = rows.some(_SOME_ROWS)
    witness = witness_of(release, evidence, rows, some)
    elsewhere = max(0.0, overall.mmd_squared) / max(witness.spread, 1e-12)
    columns, pairs = attributed(evidence, rows, some, elsewhere, level, release)
    differences, notes = standardised_differences(release, rows)
    return Comparison(
        overall=overall,
        columns=columns,
        pairs=pairs,
        differences=differences,
        witness=witness_rows(witness, release, some),
        level=level,
        notes=(*overall.notes, *_notes(columns, len(pairs)), *notes),
        function=witness,
    )


def attributed(
    evidence: Side, rows: SampleRows, some: Array, elsewhere: float, level: float, release: ReleaseData | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Verdicts on each column and on pairs of columns: the tables of Comparison.

    evidence    for columns. Pairs are tested by all that the release measured: a pair that was not chosen has p = 1 and counts in
                the correction for their number, so that choosing pairs by the table itself costs no level.
    some        rows of the sample.
    elsewhere   the relative variance by which the two populations differ as a whole.
    release     that the evidence is of, where it may have chosen pairs.
    """
    names = evidence.domain.names
    projector = RidgeProjector(evidence, reference_rows(evidence, some))
    functions = attribution.Columns(projector)
    tests, shifts = attribution.column_tests(functions, projector, rows, elsewhere)
    columns = attribution.verdicts(tests, level).set_axis(pd.Index(names, name="column"))
    known = [shift * differs for shift, differs in zip(shifts, columns["differs"], strict=True)]
    chosen = attribution.pairs_to_test(columns["pvalue"].to_numpy())
    measurement = None if release is None else release.measurement
    if release is not None and measurement is not None and measurement.chosen_by_rows:
        projector = RidgeProjector(measured_side(release), projector.rows)
        functions = attribution.Columns(projector)
    of_pairs = attribution.pair_tests(chosen, functions, known, projector, rows, elsewhere, some, measurement)
    pairs = pd.DataFrame([(names[i], names[j]) for i, j in chosen], columns=["first", "second"])
    pairs = pairs.join(attribution.verdicts(of_pairs, level))
    return columns, pairs.sort_values("pvalue", kind="stable", ignore_index=True)


def _notes(columns: pd.DataFrame, n_pairs: int) -> list[str]:
    notes = []
    blurred = [str(name) for name in columns.index[columns["pvalue"].notna() & (columns["seen"] < _BLURRED)]]
    if blurred:
        notes.append(f"the release shows less than half of what these columns are like: {', '.join(blurred)}")
    if n_pairs < len(columns) * (len(columns) - 1) // 2:
        notes.append(f"pairs were tested among the columns of the smallest p-values only: {n_pairs} of them")
    return notes


def _plain(value: Any) -> Any:
    """A value for JSON: numbers, texts, lists and dictionaries; None for what is not known."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, pd.Timestamp):
        return value.date().isoformat()
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
