"""Is a sample, or a second release, from a release's population, and if not, where do they differ?

The two-sample test answers the first question; tests of each column and of each pair of columns, and standardised
differences, answer the second. All of them account for the privacy noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.compare.functionals import Seen, differences_seen, holm
from kmeanalyst.inference.estimate.estimate import pictured, z_of
from kmeanalyst.inference.questions.expectation import expectation, probability
from kmeanalyst.inference.two_sample.differences import differences_of
from kmeanalyst.inference.two_sample.mmd_test import alone, counts_tables, mmd_test
from kmeanalyst.inference.two_sample.result import TestResult
from kmeanalyst.inference.two_sample.sides import SampleRows, measured_side
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Date
from kmeanalyst.releases.marginal import marginal
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import aligned, shortened
from kmeanalyst.representation.weights.views import view_weights
from kmeanalyst.sources.tables import Recode, Rename, translated

_WIDEST = 24  # characters of a cell


def verdict(comparison: Comparison) -> str:
    first, second = comparison.sides
    outcome = f"{first} and {second} differ" if comparison.differs else "no difference that this release can show"
    noise = "privacy noise included" if comparison.overall.noise_aware else "privacy noise not known"
    return f"{outcome} (p = {comparison.pvalue:.3g}, level {comparison.level:g}; {noise})"


def sections(comparison: Comparison, top: int) -> list[tuple[str, pd.DataFrame | None]]:
    """(title, table) for each kind of answer; None where there is nothing to show."""
    together = f"all columns together: p = {comparison.overall.pvalue:.3g}, adjusted {comparison.adjusted:.3g}"
    found: list[tuple[str, pd.DataFrame | None]] = [(together, None)]
    for what, frame in (("columns", comparison.columns.reset_index()), ("pairs of columns", comparison.pairs)):
        differ = frame[frame["differs"]].sort_values("pvalue").drop(columns="differs")
        n = f"{len(differ)} of {len(frame)} {what} differ"
        shown = f"; the first {top}" * (len(differ) > top)
        title = f"{n} (p-values adjusted for their number{shown})" if len(differ) else n
        found.append((title, differ.head(top).dropna(axis="columns", how="all") if len(differ) else None))
    found.append(("differences of means and shares, in standard deviations of a row", comparison.differences.head(top)))
    return found


def table_text(frame: pd.DataFrame) -> str:
    """A table of texts: words to the left, numbers to the right."""
    shown, kinds = _shown(frame), enumerate(frame.dtypes)
    rows = [[{"standard_error": "± error"}.get(name, name) for name in shown.columns], *shown.to_numpy().tolist()]
    words = [i for i, kind in kinds if not pd.api.types.is_numeric_dtype(kind)]
    return "\n".join(f"  {line}" for line in aligned(rows, left=words))


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
    adjusted     its p-value, adjusted for the number of all tests here: this one, those of columns and of pairs (Holm).
    pvalue       the smallest adjusted one of all tests.
    columns      a row for each column: pvalue of a test of its distribution; adjusted likewise; differs, at the level; seen, the
                 share of the column's functions that the features see.
    pairs        the same for the association of each pair of columns: first, second, pvalue, adjusted, differs, seen.
                 Where little is seen, a small difference can be missed, and one elsewhere can show. Of tables, and of two
                 releases, it is NaN, and 0 for a pair that not both measured.
    differences  a row for each mean, share of a level and share of missing cells: the release's value, the sample's,
                 their difference in standard deviations of one row, and its standard_error, privacy noise included; those
                 first that are most standard errors.
    level        of the verdicts.
    notes        what a reader should know.
    sides        what is compared, as columns of `differences` are named.

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
    adjusted: float
    pvalue: float
    columns: pd.DataFrame
    pairs: pd.DataFrame
    differences: pd.DataFrame
    level: float
    notes: tuple[str, ...]
    sides: tuple[str, str] = ("release", "sample")

    @property
    def differs(self) -> bool:
        """Whether any of the tests finds a difference at the level: the overall one, one of a column or of a pair."""
        return self.pvalue <= self.level

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain numbers and texts, as `compare --json` prints it; what is not known is None.

        >>> comparison.to_dict()["differs"]
        True
        """
        others = {"pairs": self.pairs, "differences": self.differences}
        tables = {"columns": self.columns.reset_index(), **others}
        return {
            "overall": _plain(self.overall.to_dict() | {"adjusted": self.adjusted}), "pvalue": self.pvalue,
            "differs": self.differs, "level": self.level,
            **{name: _plain(frame.to_dict("records")) for name, frame in tables.items()}, "notes": list(self.notes),
        }  # fmt: skip

    def to_text(self, top: int = 10) -> str:
        """What differs, for a reader: at most `top` lines of each kind.

        >>> print(comparison.to_text(top=2))
        release and sample differ (p = ..., level 0.05; privacy noise included)
        <BLANKLINE>
        all columns together: p = ..., adjusted ...
        <BLANKLINE>
        1 of 7 columns differ (p-values adjusted for their number)
        ...
        """
        blocks = [verdict(self)]
        for title, frame in sections(self, top):
            blocks.append(title if frame is None else f"{title}\n{table_text(frame)}")
        notes = "\n".join(f"note: {note}" for note in self.notes)
        return "\n\n".join([*blocks, notes] if notes else blocks)

    def __repr__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        parts = [f"<div><strong>{escape(verdict(self))}</strong>"]
        for title, frame in sections(self, top=10):
            parts.append(f"<p>{escape(title)}</p>")
            if frame is not None:
                value, error = frame.reindex(columns=["difference", "standard_error"]).to_numpy(float).T
                numbers = np.array([value, value - z_of(0.95) * error, value + z_of(0.95) * error]).T
                parts.append(pictured(_shown(frame), numbers, index=False))
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return "\n".join([*parts, f"<ul>{notes}</ul></div>" if notes else "</div>"])


def compare(
    release: ReleaseData, sample: Any, *, level: float = 0.05, columns: Sequence[str] | None = None, rename: Rename = None,
    recode: Recode = None,
) -> Comparison:  # fmt: skip
    """Test whether a sample, or a second release, is from a release's population, and show where they differ.

    sample    as of `mmd_test`, but rows that can be read once only are refused; independent of the table's rows.
    columns, rename, recode   as of `mmd_test`.
    level     of the verdicts: the probability of any false alarm where both have one population; in (0, 1).
    Returns   Comparison.
    Assumes   that rows are independent. The level of each test does not depend on what the features see (see functionals.py);
              differences are attributed to columns and pairs as far as the features can distinguish them.

    >>> ka.compare(release, sample.assign(age=sample["age"] + 5)).columns.query("differs").index.tolist()
    ['age']
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level!r}: it is a probability. Pass e.g. 0.05.")
    if isinstance(sample, ReleaseData) and not isinstance(release, ReleaseData):
        raise ValueError("compare takes a release first and rows second. Exchange them.")
    if not isinstance(release, ReleaseData):
        raise ValueError(
            "compare is of a release with rows, or with another release: its tests are about what a release measured. For two "
            "tables of rows ka.mmd_test(x, y) tests whether they are from one population; with columns=[name] in one column."
        )
    known, release, sample = release.columns.names, marginal(release, columns), translated(sample, rename, recode)
    about = alone(release, columns)
    other = marginal(sample, columns) if isinstance(sample, ReleaseData) else SampleRows(release, sample, known)
    if isinstance(other, SampleRows):
        if other.read_once:
            raise ValueError(
                "compare goes through the sample several times, and a generator or a reader can be gone through only once. "
                "Pass a DataFrame, a table, or the path of a file."
            )
        about = (*about, *other.notes)
    if isinstance(other, ReleaseData) or counts_tables(release):
        differences = differences_of(release, other)
        overall = differences.result(release, about)
        found = {own: Seen(each.pvalue, np.nan) for own, each in differences.sets.items()}
        tested = list(combinations(range(len(release.domain)), 2))
    else:
        overall, evidence = mmd_test(release, other, columns=columns), measured_side(release)
        some = other.some(_SOME_ROWS)
        spread = float(evidence.feature_map(some).var(axis=0).sum())
        found = differences_seen(evidence, other, some, max(0.0, overall.mmd_squared) / max(spread, 1e-12))
        tested = [own for own in found if len(own) == 2]
    tests = [found.get(own, Seen(1.0, 0.0)) for own in [*((j,) for j in range(len(release.domain))), *tested]]
    family = holm(np.array([overall.pvalue, *(one.pvalue for one in tests)], dtype=float))
    theirs = _released(other) if isinstance(other, ReleaseData) else _summed(other.blocks(), release.domain)
    sides = ("release", "second release" if isinstance(other, ReleaseData) else "sample")
    own_columns, pairs = _tables_of(tests, release.domain.names, tested, family[1:], level)
    lines, more = _standardised_differences(_released(release), theirs, sides)
    return Comparison(
        overall=overall, adjusted=float(family[0]), pvalue=float(np.nanmin(family)), columns=own_columns, pairs=pairs,
        differences=lines, level=level, notes=(*overall.notes, *more, *_notes(own_columns, len(pairs))), sides=sides,
    )  # fmt: skip


def _tables_of(
    tests: Sequence[Seen], names: Sequence[str], pairs: Sequence[tuple[int, ...]], adjusted: Array, level: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of columns and of these pairs. Pairs that not both sides measured have p = 1, and count as tests."""
    d, pvalues, seen = len(names), *np.array([(one.pvalue, one.seen) for one in tests], dtype=float).T
    every = pd.DataFrame({"pvalue": pvalues, "adjusted": adjusted, "differs": adjusted <= level, "seen": seen})
    of_pairs = pd.DataFrame([(names[i], names[j]) for i, j in pairs], columns=["first", "second"])
    of_pairs = of_pairs.join(every[d:].reset_index(drop=True)).sort_values("pvalue", kind="stable", ignore_index=True)
    return every[:d].set_axis(pd.Index(names, name="column")), of_pairs


def _notes(columns: pd.DataFrame, n_pairs: int) -> list[str]:
    notes = []
    blurred = [str(name) for name in columns.index[columns["pvalue"].notna() & (columns["seen"] < _BLURRED)]]
    if blurred:
        notes.append(f"the release shows less than half of what these columns are like: {', '.join(blurred)}")
    if n_pairs < len(columns) * (len(columns) - 1) // 2:
        notes.append(f"pairs were tested among the columns of the smallest p-values only: {n_pairs} of them")
    return notes


def _plain(value: Any) -> Any:
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


# ---------------------------------------------------------------- differences of means and shares

_Share = tuple[float, float, float]  # of a level, or of missing cells; the error of a release's, else 0; 1/n of n rows, else 0
_MOST_LEVELS = 30  # levels of a column: those that are most frequent in the sample


@dataclass
class _Sums:
    """Sums over one column of rows, block by block, from which its mean and shares follow, each with its error."""

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

    def share(self, code: int | None) -> _Share:
        return (self.missing if code is None else self.counts[code]) / self.n, 0.0, 1 / self.n

    def moments(self) -> tuple[float, float, float]:
        n = self.n - self.missing
        variance = self.squares / (n - 1) if n > 1 else np.nan
        return self.mean, float(np.sqrt(variance / max(n, 1))), variance


@dataclass(frozen=True)
class _Released:
    """The same of a column of a release."""

    release: ReleaseData
    column: Column

    @property
    def _known(self) -> tuple[Array, Array]:
        """The released cells that are not missing, encoded, and their probabilities."""
        cells = self.release.encoded_points[:, self.release.domain.position(self.column.name)]
        known = ~np.isnan(cells)
        return cells[known], view_weights(self.release, "probability")[known]

    @property
    def counts(self) -> Array:
        codes, p = self._known
        return np.bincount(codes.astype(np.intp), p, minlength=len(self.column.levels))  # type: ignore[attr-defined]

    def share(self, code: int | None) -> _Share:
        found = probability(self.release, self._where(np.isnan if code is None else partial(np.equal, float(code))))
        return found.value, found.standard_error, 0.0

    def _where(self, holds: Callable[[Array], Array]) -> Callable[[pd.DataFrame], Array]:
        return lambda frame: holds(self.column.encode(frame[self.column.name])[0].reshape(len(frame), -1)[:, 0]).astype(float)

    def moments(self) -> tuple[float, float, float]:
        found = expectation(
            self.release,
            lambda frame: np.nan_to_num(natural(self.column, self.column.encode(frame[self.column.name])[0])),
            where=self._where(lambda x: ~np.isnan(x)) if self.column.missing else None,
        )
        cells, p = self._known
        x = natural(self.column, cells)
        return found.value, found.standard_error, float(p @ (x - p @ x / p.sum()) ** 2 / p.sum())


def natural(column: Column, encoded: Array) -> Array:
    """Encoded numbers (n,) in natural units, float64; dates in days since 1970-01-01."""
    if isinstance(column, Date):
        return encoded
    return column.decode(encoded).to_numpy(dtype=float, na_value=np.nan)


_OfRelease = Sequence[tuple[Column, _Released]]
_Quantities = Sequence[tuple[Column, _Sums | _Released]]
_Line = tuple[str, str, float, float, float, float]


def _released(release: ReleaseData) -> _OfRelease:
    return [(column, _Released(release, column)) for column in release.domain.columns]


def _summed(blocks: Iterable[Array], domain: Domain) -> _Quantities:
    """Of encoded rows in blocks, in one pass."""
    sums = [(column, _Sums()) for column in domain.columns]
    for rows in blocks:
        for (column, own), values in zip(sums, rows[:, : len(sums)].T, strict=True):
            own.add(column, values)
    return sums


def _standardised_differences(ours: _OfRelease, theirs: _Quantities, sides: tuple[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """Every mean, share of a level and share of missing cells on both sides, and notes: see Comparison.

    Standard errors of releases' values are those of Release.expectation.
    """
    notes: list[str] = []
    lines = [line for (column, own), (_, other) in zip(ours, theirs, strict=True) for line in _lines_of(column, own, other, notes)]
    frame = pd.DataFrame(lines, columns=["column", "quantity", *sides, "difference", "standard_error"])
    order = np.argsort(-(frame["difference"].abs() / frame["standard_error"]).fillna(-1.0).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True), notes


def _lines_of(column: Column, own: _Released, other: _Sums | _Released, notes: list[str]) -> Iterator[_Line]:
    if isinstance(column, Categorical):
        most = np.argsort(-other.counts, kind="stable")[:_MOST_LEVELS]
        if len(most) < len(other.counts):
            notes.append(f"{column.name}: differences of the {len(most)} levels that the sample has most of")
        for code in most:
            yield _share(column.name, column.levels[code], own.share(code), other.share(code))
    elif column.is_text:
        notes.append(f"{column.name}: strings have neither means nor levels; the tests compare them by their kernel")
    else:
        yield _mean(column.name, own, other, notes)
    if column.missing:
        yield _share(column.name, "missing", own.share(None), other.share(None))


def _share(name: str, what: str, own: _Share, other: _Share) -> _Line:
    """Shares over √(p(1 − p)) at the mean p of both, by which rows have an error too if none of them, or all, has the level."""
    (value, error, of_row), (share, its_error, its_row) = own, other
    middle = float(np.clip((value + share) / 2, 0, 1))
    variance = middle * (1 - middle)
    total = np.sqrt(error**2 + its_error**2 + variance * (of_row + its_row))
    return (name, what, value, share, *_over(value - share, total, np.sqrt(variance)))


def _mean(name: str, own: _Released, other: _Sums | _Released, notes: list[str]) -> _Line:
    """Means of the numbers that are there, over the root of the mean of both variances."""
    try:
        (value, error, spread), (mean, its_error, variance) = own.moments(), other.moments()
    except ValueError as refusal:  # no released weight where the column has a number
        notes.append(f"{name}: {refusal}")
        return (name, "mean", np.nan, getattr(other, "mean", np.nan), np.nan, np.nan)
    if np.isnan(variance):
        notes.append(f"{name}: fewer than two rows of the sample have a number")
        return (name, "mean", value, np.nan, np.nan, np.nan)
    over = _over(value - mean, np.hypot(error, its_error), np.sqrt((spread + variance) / 2))
    return (name, "mean", value, mean, *over)


def _over(difference: float, error: float, spread: float) -> tuple[float, float]:
    if spread <= 0:
        return (0.0 if abs(difference) < 1e-12 else np.nan), np.nan
    return float(difference / spread), float(error / spread)
