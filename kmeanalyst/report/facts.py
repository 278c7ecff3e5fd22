"""The numbers of a report, as the same questions give them elsewhere; the work is bounded, whatever a file declares."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.inference.contingency.association import Association, associations
from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
from kmeanalyst.inference.estimate.population import Population, estimates, population_of
from kmeanalyst.inference.questions.expectation import mean_of, statistic_of
from kmeanalyst.inference.questions.groups import MISSING, groups_of
from kmeanalyst.inference.questions.moments import deviation_of
from kmeanalyst.inference.questions.quantiles import quantiles_of
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Date, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.expressions.arrays import codes_of, numbers_of
from kmeanalyst.releases.release import ReleaseData, View
from kmeanalyst.representation.progress import Progress, silent

MOST_COLUMNS = 60  # columns on one page; `columns` chooses others
MOST_PAIRED = 20  # columns that pairs are shown of
MOST_LEVELS = 30  # levels of a column that are shown one by one
_MOST_GROUPS = 60  # declared edges and atoms: with more, ranges of equal width are used
_RANGES = 20


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The share of a group of a column's values.

    label     the level, value or range.
    together  whether it is the sum of the rarer levels.
    estimate  the share.
    """

    label: str
    estimate: Estimate
    together: bool = False


@dataclass(frozen=True, kw_only=True)
class ColumnFacts:
    """One column: its shares, and its statistics by name ("mean", "std", "median", "missing") where it has them."""

    column: Column
    description: str
    bars: tuple[Bar, ...] = ()
    statistics: dict[str, Estimate] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def commonest(self) -> Bar | None:
        """The most frequent level, or missing; None for numbers, days and texts."""
        bars = [bar for bar in self.bars if np.isfinite(bar.estimate.value) and not bar.together]
        return max(bars, key=lambda b: b.estimate.value) if bars and isinstance(self.column, Categorical) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name, "kind": self.column.kind,
            "statistics": {name: _plain(estimate) for name, estimate in self.statistics.items()},
            "shares": [{"label": bar.label, **_plain(bar.estimate)} for bar in self.bars], "notes": list(self.notes),
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """Everything that the page shows.

    source    the file's name without its folder, or None; sha256 and n_bytes are those of its bytes.
    left_out  how many columns the page does not show.
    """

    release: ReleaseData
    view: str
    columns: tuple[ColumnFacts, ...]
    pairs: tuple[Association, ...]
    paired: tuple[str, ...]
    source: str | None = None
    sha256: str | None = None
    n_bytes: int | None = None
    left_out: int = 0


def facts_of(
    release: ReleaseData, *, source: str | Path | None = None, columns: Sequence[str] | None = None,
    view: View | None = None, progress: Progress | None = None,
) -> ReleaseFacts:  # fmt: skip
    """Ask a release everything that a report shows. It takes some seconds, most of them for the posterior.

    source    the file that the release was read from: its name and SHA-256 identify the release on the page.
    columns   names of the columns to show; the first sixty by default.
    view      as in `Release.expectation`; quantiles and pairs are of the fitted view, or the probability view.
    progress  called with the name of the work, and the share that is done.
    """
    names = _chosen(release, columns)
    on_progress = progress or silent
    on_progress("report", 0.0)
    population = population_of(release, view=view)
    described = tuple(_each(release, names, population, lambda share: on_progress("report", 0.3 + 0.3 * share)))
    paired = tuple(name for name in names if not isinstance(release.columns[name], Text))[:MOST_PAIRED]
    pairs = associations(release, paired, view=_feasible(population), progress=lambda _, s: on_progress("report", 0.6 + 0.39 * s))
    on_progress("report", 1.0)
    return ReleaseFacts(
        release=release, view=population.view, columns=described, pairs=tuple(pairs), paired=paired,
        left_out=len(release.columns) - len(names), **file_facts(source),
    )  # fmt: skip


def file_facts(source: str | Path | None) -> dict[str, Any]:
    """The fields of ReleaseFacts about a file; none without one."""
    if source is None:
        return {}
    data = Path(source).read_bytes()
    return {"source": Path(source).name, "sha256": hashlib.sha256(data).hexdigest(), "n_bytes": len(data)}


def _chosen(release: ReleaseData, columns: Sequence[str] | None) -> list[str]:
    if columns is None:
        return list(release.columns.names[:MOST_COLUMNS])
    for name in columns:
        release.columns.position(name)  # KeyError with what there is
    names = list(dict.fromkeys(columns))
    if not 1 <= len(names) <= MOST_COLUMNS:
        raise ValueError(
            f"a report shows 1 to {MOST_COLUMNS} columns, got {len(names)}: a longer page is not read. "
            "Name fewer, and make a second report of the others."
        )
    return names


def _each(
    release: ReleaseData, names: Sequence[str], population: Population, on_progress: Callable[[float], None]
) -> Iterator[ColumnFacts]:
    described = {one.column.name: one.describe() for one in release.derived}
    for k, name in enumerate(names, start=1):
        column = release.columns[name]
        on_progress(k / len(names))
        yield _column_facts(population, column, described.get(name) or column.describe())


def _column_facts(population: Population, column: Column, description: str) -> ColumnFacts:
    """A column's shares and statistics; one that has no answer is left out, with a note that says why."""
    notes: list[str] = []

    def ask(what: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return what()
        except ValueError as refusal:
            notes.append(words.short(str(refusal), 300))
            return otherwise

    bars = ask(lambda: _bars(population, column), ())
    statistics: dict[str, Estimate] = {}
    if isinstance(column, Number) and not isinstance(column, Cyclic):  # numbers on a circle have no mean and no median
        statistics |= ask(lambda: _moments(population, column), {}) | ask(lambda: _quartiles(population, column), {})
    if column.missing:
        condition = f"missing({words.column(column.name)})"
        share = statistic_of(population, population.values(condition), condition)
        statistics |= ask(lambda: {"missing": estimates(population, [share])[0]}, {})
    found = [*population.model.notes, *(note for estimate in statistics.values() for note in estimate.notes)]
    return ColumnFacts(
        column=column, description=description, bars=bars, statistics=statistics,
        notes=tuple(dict.fromkeys([*notes, *found])),
    )  # fmt: skip


def _bars(population: Population, column: Column) -> tuple[Bar, ...]:
    if isinstance(column, Categorical) and not isinstance(column, Tree):
        return _level_bars(population, column)
    if not isinstance(column, Number | Tree):
        return ()
    many = isinstance(column, Number) and len(column.edges) + len(column.atoms) > _MOST_GROUPS
    groups = groups_of(population.release.columns, column.name, _RANGES if many else None)
    held = [(population.values(group.condition) == 1).astype(float) for group in groups]
    found = estimates(population, [statistic_of(population, h, g.condition) for h, g in zip(held, groups, strict=True)])
    return tuple(Bar(label=group.label, estimate=share) for group, share in zip(groups, found, strict=True))


def _level_bars(population: Population, column: Categorical) -> tuple[Bar, ...]:
    """The levels, in their order; if there are many, the rarer ones as one bar."""
    held = np.nan_to_num(codes_of(population.model.frame[column.name], column), nan=-1).astype(int)
    shares = np.bincount(held[: len(population.weights)] + 1, population.weights, minlength=len(column.levels) + 1)[1:]
    kept = np.sort(np.argsort(-shares, kind="stable")[:MOST_LEVELS])
    parts = [(column.levels[code], held == code) for code in kept]
    if rest := len(column.levels) - len(kept):
        parts.append((f"{rest} rarer levels", (held >= 0) & ~np.isin(held, kept)))
    if column.missing:
        parts.append((MISSING, held < 0))
    name = words.written(column.name)
    statistics = [statistic_of(population, mask.astype(float), f"{name} == {words.quoted(label)}") for label, mask in parts]
    found = estimates(population, statistics)
    many = [rest > 0 and k == len(kept) for k in range(len(parts))]
    return tuple(
        Bar(label=label, estimate=share, together=several) for (label, _), share, several in zip(parts, found, many, strict=True)
    )


def _feasible(population: Population) -> View:
    return "fitted" if population.view == "fitted" else "probability"


def _present(population: Population, column: Column, view: View | None = None) -> Population:
    if not column.missing and view is None:
        return population
    where = f"not missing({words.column(column.name)})" if column.missing else None
    same_view: Any = population.view
    return population_of(population.release, where=where, view=view or same_view)


def _question(column: Column) -> Any:
    """The column as a question; days are counted from 1970-01-01."""
    if isinstance(column, Date):
        return lambda rows: numbers_of(rows[column.name])
    return words.column(column.name)


def _moments(population: Population, column: Number) -> dict[str, Estimate]:
    there, question = _present(population, column), _question(column)
    mean, deviation = estimates(there, [mean_of(there, question), deviation_of(there, question)])
    return {"mean": mean, "std": deviation}


def _quartiles(population: Population, column: Number) -> dict[str, Estimate]:
    """The median and the quartiles, of the probability view or the fitted one."""
    there = _present(population, column, _feasible(population))
    question = _question(column) if isinstance(column, Date) else column.name
    found: Estimates = estimates(there, quantiles_of(there, question, np.array([0.25, 0.5, 0.75])))
    return {"lower quartile": found[0], "median": found[1], "upper quartile": found[2]}


def _plain(estimate: Estimate) -> dict[str, Any]:
    low, high = estimate.interval()
    return {
        "value": estimate.value, "standard_error": estimate.standard_error, "interval": [low, high],
        "parts": dict(estimate.parts), "view": estimate.view,
    }  # fmt: skip
