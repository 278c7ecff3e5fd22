"""One measurement of margins from tables that others measured, each with noise of its own.

Every table has height ∝ 1/σ, σ its largest noise, so that one noise fits them all, and what cells have less is said beside it.
Errors follow from that as for a measurement of our own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from scipy.stats import chi2

from kmeanalyst.kernels.cells import summed_in
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.noisy_tables import TableCells
from kmeanalyst.releases.measurement import Measurement, mean_unit
from kmeanalyst.releases.statement import LAPLACE, is_whole
from kmeanalyst.releases.texts import shortened
from kmeanalyst.representation.tables.estimates import averaged_by_precision

# the least noise that a count is used with, exact ones too, since all tables are solved for together: half a row, or a part of the
# noisiest table's, if that is less; or more, where a part of that is small beside what so many rows vary by
_FLOOR, _OF_NOISIEST, _SOLVABLE, _OF_SAMPLING = 0.5, 0.1, 0.02, 0.05
_NOTHING = 30.0  # noise of a one-way table that is read off a larger one again, in units of its own: it adds .1 %
_CONTRADICTION = 1e-3  # p-value of tables that do not agree
_HEAVY = 2.5  # squares of Laplace noise vary as those of so many times fewer Gaussian numbers
_HALF_A_ROW, _ROUNDING = 0.5, 1e-9
_TIMES, _DEVIATIONS = 2.0, 5.0  # a total over 2 N or below N/2, further off than by its noise: of other rows


def measurement_of_tables(
    tables: Sequence[TableCells], domain: Domain, n_rows: int | None = None
) -> tuple[Measurement, tuple[str, ...]]:
    """A measurement of margins that says what the tables say, and notes on what was assumed.

    n_rows   N, where it is known; by default the total of an exact table, or an estimate from the tables' totals, whose error
             is in the noise of all cells.
    Errors   ValueError where N is not known, ranges of a column differ, exact totals disagree, counts are far from N in all, or a
             column is in no table.
    """
    if absent := sorted(set(range(len(domain))) - {j for table in tables for j in table.columns}):
        names = ", ".join(domain.names[j] for j in absent[:5])
        raise ValueError(f"no table has the column {names:.200}. Leave it out of the domain, or add a table of it.")
    N, is_known, note = _n_rows(tables, n_rows)
    for table in tables:
        total, error = float(table.values.sum()), math.sqrt((table.deviations**2).sum())
        off = is_known and not table.shares and abs(total - N) > _DEVIATIONS * error
        if off and not N / _TIMES <= total <= N * _TIMES:
            raise ValueError(
                f"the table of {table.name:.200} counts {total:,.6g} ± {error:.3g} rows in all, where there are {N:,} (n_rows, or "
                "the total of an exact table): correct that number or the counts, or leave n_rows out."
            )
    counted, floor = _as_counts(tables, N)
    notes = []
    if floor:
        notes.append(f"exact tables count with a standard deviation of {floor:.3g} rows in each cell")
    if correlated := ", ".join(table.name for table in tables if table.correlated):
        notes.append(f"correlated noise counts as independent noise that is no smaller in any direction: {correlated:.200}")
    laws = {table.law for table in tables if table.deviation}
    if len(laws) > 1:
        notes.append("some tables have Gaussian noise and some Laplace noise: tests take all of it for Laplace noise")
    notes += [*note, *_agreement(counted, float(N) if is_known else None)]
    merged = _without_twins(counted)
    shares = _as_shares(merged, float(N), is_known=is_known)
    law = LAPLACE if LAPLACE in laws else "discrete gaussian"
    return _measured(shares, domain, N, law), tuple(notes)


def _n_rows(tables: Sequence[TableCells], given: int | None) -> tuple[int, bool, list[str]]:
    """N, whether it is exact, and a note where it is not."""
    exact = {float(table.values.sum()): table.name for table in tables if not table.deviation and not table.shares}
    if given is not None:
        if not is_whole(given) or given < 1:
            raise ValueError(f"n_rows must be a whole number of at least 1, got {given!r:.80}: it counts the table's rows.")
        exact[float(given)] = "n_rows"
    if exact and max(exact) - min(exact) > _HALF_A_ROW:
        low, high = min(exact), max(exact)
        raise ValueError(
            f"exact totals disagree: {low:,.10g} ({exact[low]}) and {high:,.10g} ({exact[high]}). They count the same rows: "
            "correct one, or say what noise it has."
        )
    if exact:
        return max(1, round(min(exact))), True, []
    counts = [(table.values.sum(), (table.deviations**2).sum()) for table in tables if not table.shares]
    if not counts:
        raise ValueError("shares alone do not say how many rows they are of. Pass n_rows.")
    total, variance = averaged_by_precision(counts)
    if total < 1:
        raise ValueError(f"the tables' totals say that there are {float(total):.3g} rows. Pass n_rows, or correct the counts.")
    note = f"N = {round(float(total)):,} ± {math.sqrt(variance):.3g} follows from the tables' totals: pass n_rows where it is known"
    return round(float(total)), False, [note]


def _as_counts(tables: Sequence[TableCells], N: int) -> tuple[list[TableCells], float]:
    """The tables in counts, with no less noise than is used; and that noise where tables are exact, else 0."""

    def counts(table: TableCells) -> TableCells:
        return replace(table, values=table.values * N, deviations=table.deviations * N, shares=False)

    found = [counts(table) if table.shares else table for table in tables]
    noisy = [float(table.deviations.min()) for table in found if table.deviation]
    most = max(noisy, default=math.inf)
    floor = max(min(_FLOOR, _OF_NOISIEST * most), min(_SOLVABLE * most, _OF_SAMPLING * math.sqrt(N)) if noisy else 0.0)
    used = [replace(table, deviations=np.maximum(table.deviations, floor)) for table in found]
    return used, floor if len(noisy) < len(found) else 0.0


def _without_twins(tables: Sequence[TableCells]) -> list[TableCells]:
    """Tables of the same cells averaged, weighted by the inverse of their variances."""
    alike: dict[Any, list[TableCells]] = {}
    for table in tables:
        alike.setdefault((table.columns, table.edges, table.atoms), []).append(table)
    merged = []
    for first, *others in alike.values():
        values, variances = averaged_by_precision([(each.values, each.deviations**2) for each in (first, *others)])
        merged.append(replace(first, values=values, deviations=np.sqrt(variances)))
    return merged


def _as_shares(tables: Sequence[TableCells], N: float, *, is_known: bool) -> list[TableCells]:
    """The tables in shares of the rows: of N, where it is known, and otherwise of each one's own total, whose noise is in theirs.

    With p a table's shares and v its variances, dividing by its total multiplies the noise by the projector I − p 1ᵀ. Relative to
    the noise itself its squared norm is Σ p²/v · Σ v ≥ 1.
    """
    found = []
    for one in tables:
        total, spread, variances = float(one.values.sum()), 1.0, one.deviations**2
        if not is_known and total <= 0:
            raise ValueError(f"the total of {one.name:.200} is {total:.4g}, of which no shares follow. Pass n_rows.")
        if not is_known:
            squares = float((one.values**2 / variances).sum()) - one.values.size
            spread = math.sqrt(max(squares * float(variances.sum()) / total**2, 1.0))
        total = N if is_known else total
        found.append(replace(one, values=one.values / total, deviations=spread * one.deviations / total))
    return found


# ---------------------------------------------------------------------- the kernel and the vector


def _measured(tables: Sequence[TableCells], domain: Domain, N: int, law: str) -> Measurement:
    alone, together, finer, crossed = _arranged(tables, domain)
    kinds = alone, together, [*finer, *crossed]
    precisions = [[1 / one.deviation**2 for one in kind] for kind in kinds]
    total = math.fsum(map(math.fsum, precisions))
    squares: Any = tuple(tuple(each / total for each in kind) for kind in precisions)
    chains = [(one.columns[0], one.edges[0]) for one in finer]
    fine = dict(reversed(chains))  # the first of a column's; deeper ones follow
    numbers = {(j, own.edges[0]): j for j, own in enumerate(alone)} | {own: len(alone) + i for i, own in enumerate(chains)}
    kernel = ChosenMargins(
        edges=tuple(one.edges[0] for one in alone), atoms=tuple(one.atoms[0] for one in alone),
        missing=tuple(column.missing for column in domain.columns), shares=tuple(map(math.fsum, squares)),  # type: ignore[arg-type]
        fine=tuple(fine.get(j, ()) for j in range(len(domain))), squares=squares,
        chosen=tuple(one.columns for one in together), deeper=tuple(each for each in chains if each[1] != fine[each[0]]),
        crossed=tuple(tuple(numbers[own] for own in zip(one.columns, one.edges, strict=True)) for one in crossed),
    )  # fmt: skip
    features = MarginFeatures(kernel)
    heights = [math.sqrt(square) for kind in squares for square in kind]
    every = [one for kind in kinds for one in kind]
    vector = np.concatenate([height * one.values.ravel() for height, one in zip(heights, every, strict=True)])
    unit = mean_unit(n_rows=N, feature_map=features)
    relative = np.concatenate([one.deviations.ravel() / one.deviation for one in every])
    found = Measurement.from_sum(
        np.rint(vector / unit).astype(np.int64), grid_scale=1 / math.sqrt(total) / unit, n_rows=N, feature_map=features,
        noise_law=law,
    )  # fmt: skip
    return replace(found, relative_noise=relative) if relative.min() < 1 - _ROUNDING else found


def _arranged(tables: Sequence[TableCells], domain: Domain) -> tuple[list[TableCells], ...]:
    """In a kernel's order: a table of every column, larger ones of these cells, finer ones of single columns, larger finer ones.

    Of cells without a table of their column alone the sums of a larger one are there, with noise that drowns them.
    """
    together = sorted((one for one in tables if len(one.columns) > 1), key=lambda one: (len(one.columns), one.columns))
    alone: list[TableCells] = []
    chains: list[list[TableCells]] = []
    for j, column in enumerate(domain.columns):
        own = [one for one in tables if one.columns == (j,)]
        larger = sorted((_over(one, (j,)) for one in together if j in one.columns), key=lambda one: one.deviation)
        drowned = [replace(one, deviations=_NOTHING * one.deviations) for one in larger]
        by_edges = {one.edges: one for one in (*reversed(drowned), *own)}  # own ones, or of the least noise
        chain = sorted(by_edges.values(), key=lambda one: len(one.edges[0]))
        nested = all({*a.edges[0]} < {*b.edges[0]} for a, b in pairwise(chain))
        if not nested or len({one.atoms for one in (*larger, *own)}) > 1:
            raise ValueError(
                f"the ranges of {column.name!r:.80} differ between tables, and of any two of them one must have all edges of the "
                "other, and the same values that are cells of their own: merge ranges, or leave a table out."
            )
        alone.append(chain[0])
        chains.append(chain[1:])
    coarse = [one for one in together if all(alone[j].edges[0] == own for j, own in zip(one.columns, one.edges, strict=True))]
    crossed = [one for one in together if one not in coarse]
    return alone, coarse, [*(own[0] for own in chains if own), *(one for own in chains for one in own[1:])], crossed


def _over(table: TableCells, columns: tuple[int, ...], edges: Sequence[tuple[float, ...]] | None = None) -> TableCells:
    """The sums of a table over all but some of its columns; in ranges between these of its edges, if they are given."""
    at = [table.columns.index(j) for j in columns]
    others = tuple(i for i in range(len(table.columns)) if i not in at)
    sums, variances = (each.sum(axis=others) for each in (table.values, table.deviations**2))
    own = tuple(table.edges[i] for i in at)
    for axis, (finer, coarser) in enumerate(zip(own, own if edges is None else edges, strict=True)):
        sums, variances = (summed_in(each, axis, finer, coarser) for each in (sums, variances))
    return replace(
        table, columns=columns, edges=own if edges is None else tuple(edges), atoms=tuple(table.atoms[i] for i in at),
        values=sums, deviations=np.sqrt(variances),
    )  # fmt: skip


# ---------------------------------------------------------------------- whether tables agree


def _agreement(tables: Sequence[TableCells], N: float | None) -> list[str]:
    """A note on how far tables that overlap agree within their noise: the worst χ² of what several of them count."""
    tests = list(_overlaps(tables, N))
    if not tests:
        return []
    p, name, statistic, df = min(tests)
    p = min(1.0, p * len(tests))
    said = f"χ² = {statistic:.4g} on {df} df for {name}, p = {p:.2g} (the worst of {len(tests)}, Bonferroni)"
    if p < _CONTRADICTION:
        return [f"the tables contradict one another beyond their noise: {said}; errors do not allow for that"]
    return [f"tables that overlap agree within their noise: {said}"]


def _overlaps(tables: Sequence[TableCells], N: float | None) -> Iterator[tuple[float, str, float, int]]:
    """Of whatever several tables count, p-value, names, χ² of their sums around the mean (of totals around N), and its df."""
    shared = {tuple(sorted({*a.columns} & {*b.columns})) for a, b in combinations(tables, 2)} | {()}
    for columns in sorted(shared):
        sums = [_over(one, columns) for one in tables if {*columns} <= {*one.columns}]
        for edges, atoms in sorted({(one.edges, one.atoms) for one in sums}):
            finer = [one for one in sums if all({*a} <= {*b} for a, b in zip(edges, one.edges, strict=True))]
            alike = [_over(one, columns, edges) for one in finer if one.atoms == atoms]
            mean, _ = averaged_by_precision([(one.values, one.deviations**2) for one in alike])
            to_n = N is not None and not columns
            if df := (len(alike) - (not to_n)) * mean.size:
                centre = N if to_n else mean
                statistic = math.fsum(float((((one.values - centre) / one.deviations) ** 2).sum()) for one in alike)
                heavy = _HEAVY if any(one.law == LAPLACE for one in alike) else 1.0
                name = shortened(f"{'the totals of ' if not columns else ''}{' and '.join(one.name for one in alike)}", 200)
                yield float(chi2.sf(statistic / heavy, df / heavy)), name, statistic, df
