"""A release against another, or tables against a sample: functions of columns, whose means each side knows with its own error.

Tables that a release measured give the mean of a function that is constant on their cells: a weighted mean over all tables that
hold its columns, with the noise that follows. A sample is counted in the same tables, without noise. Of smooth features the
release's error model gives the mean, with what they leave open.
So d_k = E_a h_k − E_b h_k is N(0, V_a + V_b) where both have one population, however each was measured, and the statistic of some
functions is Σ λ_k d_k²/V_kk, λ the variances of a kernel along them. The mean of few rows is not normal: see `resampled`.

Functions are the smoothest ones of every column, and products of them for sets of columns that both sides measured together;
where tables were measured, on cells that both have (shared or nested). Where rows decided which tables were measured, every set of
so many columns counts as a test, measured or not.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, pairwise, product

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.error_model import fitted_model
from kmeanalyst.inference.two_sample.column_functions import column_functions, leading_products, most_products, products
from kmeanalyst.inference.two_sample.resampled import Draws, null_tail, root_of
from kmeanalyst.inference.two_sample.result import TestResult, result_about
from kmeanalyst.inference.two_sample.sides import SampleRows, Side, covariance_of, measured_side
from kmeanalyst.inference.weighted_chi_squared import NormalQuadraticForm
from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.cells import Cells
from kmeanalyst.kernels.margins import MarginFeatures, Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import is_pure
from kmeanalyst.representation.weights.reweight import tilted_weights
from kmeanalyst.representation.weights.views import distinct_rows, systematic_indices, view_weights

_OF_A_COLUMN = 12  # functions
_DRAWN = 300  # rows of each domain, and released points of each side, on which functions have variance 1
USUAL_DIFFERENCE = 0.1  # D, relative variance between populations that differ: a shift of 0.3 standard deviations
_LEAST_SIZE = 1e-8  # smallest share of the variance of correlated functions that a direction counts with
_SOURCES = 37  # populations that small samples are drawn from, as the noise leaves them open
_LAPLACE_DRAWS = 64  # draws of the variances of Laplace noise; eight times as many for up to _FEW_FEATURES
_FEW_FEATURES = 1000
HEAVY = 2.5  # squares of Laplace noise vary as those of so many times fewer Gaussian numbers
_LEVEL = 0.05
_LEAST_P, _MOST_P = 1e-300, 0.99  # no p-value is 0, and of few rows many are 1
_LEAST_NOISE = 1e-12  # variance of the noise of a mean; exact tables have none


def _no_deviation() -> Iterator[Array]:
    return iter([np.zeros(())])


@dataclass(frozen=True, eq=False)
class Difference:
    """Means of some functions on one side, or their difference.

    means       (k,), d.
    covariance  V (k, k) of their errors.
    variances   λ (k,) of the kernel along the functions.
    heavy       how many times fewer Gaussian numbers vary as the squares of the noise.
    draws       of samples as small as the one that is a side; None without.
    deviations  by how much V may differ in truth, each as likely: of noise of random variance. Its mean is about 0.
    """

    means: Array
    covariance: Array
    variances: Array
    heavy: float
    draws: Draws | None = None
    deviations: Callable[[], Iterator[Array]] = _no_deviation

    def __sub__(self, other: Difference) -> Difference:
        covariance, heavy = self.covariance + other.covariance, max(self.heavy, other.heavy)
        return Difference(self.means - other.means, covariance, self.variances, heavy, other.draws)

    def __getitem__(self, part: slice) -> Difference:
        draws = self.draws and self.draws.along(np.eye(len(self.means))[:, part])
        return Difference(self.means[part], self.covariance[part, part], self.variances[part], self.heavy, draws)

    def whitened(self, signal: Array) -> Difference:
        """In coordinates of variance 1 under the hypothesis, weighted by their signal g/(1 + Dg), for smooth features.

        signal   (k, k) covariance of d that a difference of relative variance 1 would give it, up to a factor; g its variances.
        Nothing is left where nothing is seen of the functions.
        """
        if not len(self.means):
            return self
        scale = np.sqrt(np.maximum(np.diag(self.covariance), 1e-300))
        size, turn = np.linalg.eigh(self.covariance / scale / scale[:, None])
        white = turn / np.sqrt(np.maximum(size, _LEAST_SIZE)) / scale[:, None]
        gain, along = np.linalg.eigh(white.T @ signal @ white)
        keep = gain > 0
        gain, turned = gain[keep] / (1 + USUAL_DIFFERENCE * gain[keep]), white @ along[:, keep]
        turned *= np.sign(turned[np.abs(turned).argmax(axis=0), np.arange(len(gain))])  # or rounding errors choose it
        draws, covariance = self.draws and self.draws.along(turned), turned.T @ self.covariance @ turned

        def deviations() -> Iterator[Array]:
            return (turned.T @ each @ turned for each in self.deviations())

        others = _no_deviation if self.deviations is _no_deviation else deviations
        return Difference(self.means @ turned, covariance, gain, self.heavy, draws, others)

    @property
    def form(self) -> NormalQuadraticForm:
        """The statistic's, in coordinates √λ d."""
        scale = np.sqrt(self.variances)
        return NormalQuadraticForm(scale[:, None] * self.covariance * scale, 1 / np.diag(self.covariance))

    @property
    def statistic(self) -> float:
        return float(self.variances @ (self.means**2 / np.diag(self.covariance)))

    @property
    def pvalue(self) -> float:
        """NaN of no function."""
        if not len(self.means):
            return math.nan
        weights, sample, shrink = self.variances / np.diag(self.covariance), np.zeros(()), 0.0
        if self.draws is not None:
            sample, shrink = self.draws.of_a_row, 1 / self.draws.n_rows

        def rest() -> Iterator[Array]:
            return (self.covariance - shrink * sample + each for each in self.deviations())

        drawn = null_tail(self.statistic, weights, sample, shrink, rest, self.draws)
        if self.heavy == 1:
            return drawn
        e, degrees = self.heavy * self.form.coefficients, np.full(len(self.means), 1 / self.heavy)
        normal = NormalQuadraticForm(e, degrees=degrees).sf(self.statistic)
        return normal if self.draws is None else max(drawn, normal)


def difference_along(
    vectors: Array, means: Array, covariance: Array, noise: Measurement | None, draws: Draws | None = None
) -> Difference:
    """Means (k,) that are read along vectors (F, k) of features, to whose covariance (k, k) the noise of a measurement adds.

    Laplace noise is Gaussian of a random variance, exponential with mean τ²: given the variances the distribution is exact, and
    the p-value is its mean over draws of them from a fixed seed.
    """
    variance, size = 0.0 if noise is None else noise.noise_scale**2, len(vectors)

    def drawn() -> Iterator[Array]:
        rng = np.random.default_rng(0)
        for _ in range(8 * _LAPLACE_DRAWS if size <= _FEW_FEATURES else _LAPLACE_DRAWS):  # many features average out
            yield (vectors.T * (variance * (rng.exponential(size=size) - 1))) @ vectors

    of_laplace = noise is not None and is_pure(noise.noise_law)
    whole = covariance + variance * (vectors.T @ vectors)
    return Difference(means, whole, np.ones(len(means)), 1.0, draws, drawn if of_laplace else _no_deviation)


@dataclass(frozen=True, eq=False)
class Differences:
    """Between the populations of two sides.

    together   of functions of single columns, all of them.
    sets       of those of each column (j,), and of products for each larger set that both sides measured together.
    n_columns  of the sides.
    chosen     whether rows decided which sets were measured.
    n_rows     behind the second side.
    second     what it is.
    """

    together: Difference
    sets: dict[tuple[int, ...], Difference]
    n_columns: int
    chosen: bool
    n_rows: int | None
    second: str

    @property
    def pvalue(self) -> float:
        """Of all tests, by Cauchy's distribution however they depend (Liu & Xie 2020, J. Am. Stat. Assoc. 115, equation 1): all
        columns together weigh a half, and the sets of r columns 2⁻ʳ⁻¹, where those that were not measured have p = ½.
        """
        if self.n_columns == 1:
            return max(min([1.0, self.together.pvalue]), _LEAST_P)  # 1 of no function
        measured = Counter(map(len, self.sets))
        counts = {r: math.comb(self.n_columns, r) if self.chosen else n for r, n in measured.items()}
        tests = [(1 / 2, self.together), *((0.5 ** (len(own) + 1) / counts[len(own)], each) for own, each in self.sets.items())]
        weights, pvalues = np.array([(weight, each.pvalue) for weight, each in tests if len(each.means)]).reshape(-1, 2).T
        return float(np.arctan2(1.0, weights @ (1 / np.tan(math.pi * np.clip(pvalues, _LEAST_P, _MOST_P)))) / math.pi)

    def result(self, first: ReleaseData, notes: Sequence[str] = ()) -> TestResult:
        """Distances in it are along the functions of single columns."""
        every, form = self.together, self.together.form
        variances = np.diag(form.covariance)
        about = (
            f"compared in all columns together, in each, and in {len(self.sets) - self.n_columns} sets of columns that both "
            "measured together, p corrected for their number; a difference elsewhere cannot be found, and the interval is of the "
            f"distance along {len(every.means)} functions of single columns"
        )
        return result_about(
            first,
            statistic=every.statistic,
            pvalue=self.pvalue,
            mmd_squared=float(every.variances @ every.means**2 - variances.sum()),
            n_sample_rows=self.n_rows,
            method=f"noise-aware tests of columns and of sets of columns, release against {self.second}",
            noise_floor=float(np.sqrt(variances.sum())),
            mmd_interval=NormalQuadraticForm(form.covariance).interval(np.sqrt(every.variances) * every.means),
            detectable_mmd=form.detectable(every.variances, level=_LEVEL / 2),
            notes=(*notes, about, *["the two tables are assumed to share no persons"] * (self.second == "release")),
        )


def differences_of(a: ReleaseData, b: ReleaseData | SampleRows) -> Differences:
    """How the populations of a release and of another, or of tables and a sample, differ.

    ValueError where a release has no measurement, or other columns.
    """
    releases = [each for each in (a, b) if isinstance(each, ReleaseData)]
    if any(each.measurement is None for each in releases):
        raise ValueError("a release without a measurement cannot be tested against another: its noise is unknown. Use mmd.")
    mine, yours = (", ".join(f"{c.name} ({c.kind})" for c in releases[i].domain.columns) for i in (0, -1))
    if mine != yours:
        raise ValueError(
            f"the releases have different columns, {mine} and {yours}: rows of one say nothing about the "
            "other. Publish both with one domain."
        )
    known = [measured_side(each) for each in releases]
    kernels = known[0].feature_map.kernel, known[-1].feature_map.kernel
    functions = _Functions(releases, kernels)
    sides = [
        (_Tables if isinstance(side.feature_map, MarginFeatures) else _Features)(release, side, functions)
        for release, side in zip(releases, known, strict=True)
    ]
    if not isinstance(b, ReleaseData):
        assert isinstance(sides[0], _Tables)
        sides.append(sides[0].counted(b.blocks()))
    ours, theirs = sides
    columns = [functions.leading((j,), _OF_A_COLUMN) for j in range(len(a.domain))]
    ends, zeros = np.cumsum([0, *(len(own.variances) for own in columns)]), [np.zeros(())] * len(columns)
    parts = [side.read(columns, zeros) for side in sides]
    together = parts[0] - parts[1]
    found: dict[tuple[int, ...], Difference] = {(j,): together[slice(*own)] for j, own in enumerate(pairwise(ends))}
    # around the middle of both sides: that columns shift by themselves then moves no mean of a product
    middle = np.split((parts[0].means + parts[1].means) / 2, ends[1:-1])
    sets = _sets_of_both(*kernels, len(columns))
    most = most_products(len(sets))
    for own in sets:
        term = functions.leading(own, most)
        if len(term.variances):
            found[own] = ours.read([term], middle) - theirs.read([term], middle)
    chosen = any(each.measurement is not None and each.measurement.chosen_by_rows for each in releases)
    kind = "release" if isinstance(b, ReleaseData) else "sample"
    return Differences(together, found, len(columns), chosen, theirs.side.n_rows, kind)


def _sets_of_both(first: Kernel, second: Kernel, d: int) -> list[tuple[int, ...]]:
    """Sets of two columns and more that both measured together, those of fewest columns first; smooth features see all pairs."""
    ours, theirs = (
        kernel.counted if isinstance(kernel, Margins) else tuple(combinations(range(d), 2)) for kernel in (first, second)
    )
    shared = {tuple(sorted({*x} & {*y})) for x, y in product(ours, theirs)}
    found = {pair for own in shared for pair in combinations(own, 2)} | {own for own in shared if len(own) > 2}
    return sorted(found, key=lambda own: (len(own), own))


# ---------------------------------------------------------------- functions


@dataclass(frozen=True, eq=False)
class _Term:
    """Products of functions of some columns: which function of each column, positions (k,), and the kernel's variances (k,)."""

    columns: tuple[int, ...]
    chosen: tuple[Array, ...]
    variances: Array

    def __call__(self, values: Sequence[Array], centres: Sequence[Array]) -> Array:
        """(n, k), from values of all columns' functions at n rows, which are centred first."""
        return products([values[j] - centres[j] for j in self.columns], self.chosen)


class _Functions:
    """Functions of every column, constant on cells that all tables have where tables were measured.

    They have variance 1 on rows of the domains and on released points. Points were fitted to the noise, but not along which
    functions it is large.
    """

    def __init__(self, releases: Sequence[ReleaseData], kernels: Sequence[Kernel]) -> None:
        self.domain, tables = releases[0].domain, [kernel for kernel in kernels if isinstance(kernel, Margins)]
        self.cells = _common_cells(tables) if tables else None
        frames = [one.domain.decode(one.domain.draw(_DRAWN, 0)) for one in releases]
        frames += [one.frame.iloc[systematic_indices(view_weights(one, "probability"), _DRAWN)] for one in releases]
        rows = self.encoded(pd.concat(frames, ignore_index=True))
        self._of_columns = [column_functions(self.domain, (j,), rows, _OF_A_COLUMN) for j in range(len(self.domain))]

    def encoded(self, frame: pd.DataFrame) -> Array:
        """Rows, moved to one value in each cell."""
        rows = self.domain.encode(frame[list(self.domain.names)])
        if self.cells is None:
            return rows
        return np.take_along_axis(_rows_of_cells(self.domain, self.cells), self.cells.cells(rows), axis=0)

    def at(self, frame: pd.DataFrame) -> list[Array]:
        """The values (n, k) of each column's functions at rows."""
        rows = self.encoded(frame)
        if self.cells is None:
            return [each(rows) for each in self._of_columns]
        return [values[cells] for values, cells in zip(self.at_cells(self.cells), self.cells.cells(rows).T, strict=True)]

    def at_cells(self, finer: Cells) -> list[Array]:
        """The values (cells, k) of each column's functions in cells that are these or finer."""
        assert self.cells is not None
        rows = _rows_of_cells(self.domain, finer)
        rows = np.take_along_axis(_rows_of_cells(self.domain, self.cells), self.cells.cells(rows), axis=0)
        return [each(rows)[:size] for each, size in zip(self._of_columns, finer.sizes, strict=True)]

    def leading(self, columns: tuple[int, ...], most: int) -> _Term:
        return _Term(columns, *leading_products([self._of_columns[j] for j in columns], most))


def _common_cells(tables: Sequence[Margins]) -> Cells:
    edges, atoms = (
        tuple(tuple(sorted(set.intersection(*map(set, own)))) for own in zip(*each, strict=True))
        for each in ([one.edges for one in tables], [one.atoms for one in tables])
    )
    return Cells(edges, atoms, tables[0].missing)


def _rows_of_cells(domain: Domain, cells: Cells) -> Array:
    """(the most cells of a column, d) encoded: row i has a value of cell i of every column that has so many."""
    values = []
    for column, edges, atoms in zip(domain.columns, cells.edges, cells.atoms, strict=True):
        ends = np.array([column.bounds[0], *edges, column.bounds[1]])
        middle = (ends[:-1] + ends[1:]) / 2 if isinstance(column, Number) else np.ceil(ends[:-1])
        values.append(np.array([*middle, *atoms, *[np.nan] * column.missing]))
    return np.column_stack([np.resize(each, max(cells.sizes)) for each in values])


# ---------------------------------------------------------------- what each side says of them


class _Side(ABC):
    def __init__(self, release: ReleaseData, side: Side, functions: _Functions) -> None:
        self.side = side
        self.heavy = 1.0 if side.measurement is None or not is_pure(side.measurement.noise_law) else HEAVY
        self.prepare(release, functions)

    @abstractmethod
    def prepare(self, release: ReleaseData, functions: _Functions) -> None: ...

    @abstractmethod
    def read(self, terms: Sequence[_Term], centres: Sequence[Array]) -> Difference:
        """Means of the functions of all terms, one's after another's, with their errors."""


class _Features(_Side):
    """By the populations that the measurement allows (`Posterior`)."""

    def prepare(self, release: ReleaseData, functions: _Functions) -> None:
        self.posterior = fitted_model(release).posterior
        self.values = functions.at(release.decode(self.posterior.rows))

    def read(self, terms: Sequence[_Term], centres: Sequence[Array]) -> Difference:
        values = np.hstack([term(self.values, centres) for term in terms])
        covariance = np.sum(list(self.posterior.covariance(values).values()), axis=0)
        variances = np.hstack([term.variances for term in terms])
        return Difference(self.posterior.weights @ values, covariance, variances, self.heavy)


class _Tables(_Side):
    """By all measured tables that hold a term's columns, each with the weight of its precision; rows spread as the points do."""

    def prepare(self, release: ReleaseData, functions: _Functions) -> None:
        assert isinstance(self.side.feature_map, MarginFeatures)
        self.groups, kernel = self.side.feature_map.groups, self.side.feature_map.kernel
        at_cells, self.columns = functions.at_cells(kernel), kernel.columns
        self.within = {t for t in range(len(kernel.columns)) if kernel.is_within(t)}
        self.sizes = (*kernel.sizes, *kernel.fine_sizes)
        self.at_cells = [at_cells[j][kernel.coarser(t)] for t, j in enumerate(kernel.columns)]
        self.draws: Draws | None = None
        rows, self.weights = distinct_rows(release)
        self.at_rows = functions.at(release.decode(rows))
        # the points' shares are those measured, as far as the noise lets them: of few rows most are alike, and so is their mean
        terms = [functions.leading((j,), _OF_A_COLUMN) for j in range(len(self.at_rows))]
        centres = [np.zeros(())] * len(terms)
        values, means = np.hstack([term(self.at_rows, centres) for term in terms]), self.read(terms, centres)
        noise = means.covariance - covariance_of(values, self.weights) * self.side.row_variance
        scale = 1 / np.sqrt(np.maximum(np.diag(noise), _LEAST_NOISE))
        weights_at = partial(tilted_weights, values * scale, self.weights, noise_variance=1.0)
        self.weights = weights_at(means.means * scale)

        def populations() -> Array:
            shifts = np.random.default_rng(0).standard_normal((_SOURCES, len(scale))) @ root_of(scale[:, None] * noise * scale)
            return np.stack([weights_at(means.means * scale + shift) for shift in shifts])

        self.populations = populations

    def counted(self, blocks: Iterable[Array]) -> _Tables:
        """A sample, counted in these tables; its rows vary as the points do."""
        other, feature_map, total, n = copy(self), self.side.feature_map, np.zeros(self.side.feature_map.dimension), 0
        for rows in blocks:
            total, n = total + feature_map.mean(rows, np.ones(len(rows))), n + len(rows)
        other.side, other.heavy = Side(self.side.domain, feature_map, total / n, n), 1.0
        other.draws = Draws.of(np.zeros((len(self.weights), 0)), self.weights, n, 0, self.populations())
        return other

    def read(self, terms: Sequence[_Term], centres: Sequence[Array]) -> Difference:
        variances = np.hstack([term.variances for term in terms])
        size, ends = len(variances), np.cumsum([0, *(len(term.variances) for term in terms)])
        means, precision, noise = np.zeros(size), np.zeros(size), np.zeros((size, size))
        noises = np.zeros_like(self.side.mean) if self.side.measurement is None else self.side.measurement.variances
        for group in self.groups:
            for table, own, square in zip(group.tables, group.ranges, group.squares, strict=True):
                of = {self.columns[t]: t for t in table}
                held = [i for i, term in enumerate(terms) if {*term.columns} <= of.keys()]
                if not held or not {*table} <= self.within:
                    continue
                which = np.concatenate([np.arange(*ends[i : i + 2]) for i in held])
                weights = square * np.hstack([self._share_of_cells(of, terms[i]) for i in held])
                values = weights * np.hstack([self._over(of, terms[i], centres) for i in held])
                means[which] += self.side.mean[slice(*own)] @ values / math.sqrt(square)
                noise[np.ix_(which, which)] += values.T @ (noises[slice(*own), None] * values) / square
                precision[which] += weights
        noise /= np.outer(precision, precision)
        rows = np.hstack([term(self.at_rows, centres) for term in terms])
        sampling, draws = (covariance_of(rows, self.weights) * self.side.row_variance, self.draws and self.draws.of_values(rows))
        return Difference(means / precision, noise + sampling, variances, self.heavy, draws)

    def _share_of_cells(self, of: dict[int, int], term: _Term) -> Array:
        """(k,) one over the cells of other columns, and of finer ones in a cell: the noise of so many is in a sum over them."""
        cells = math.prod(self.sizes[t] for t in of.values()) / math.prod(self.sizes[j] for j in term.columns)
        return np.full(len(term.variances), 1 / cells)

    def _over(self, of: dict[int, int], term: _Term, centres: Sequence[Array]) -> Array:
        """The functions of a term (cells, k) over a table of these columns, each with its number in it."""
        factors = [(j, (self.at_cells[of[j]] - centres[j])[:, own]) for j, own in zip(term.columns, term.chosen, strict=True)]
        size, shape = len(term.variances), [self.sizes[t] for t in of.values()]
        spread = [own.reshape(*(len(own) if j == i else 1 for i in of), size) for j, own in factors]
        return np.broadcast_to(reduce(np.multiply, spread), (*shape, size)).reshape(math.prod(shape), size)
