"""How far a population may depart from the fitted rows, by sets of columns: what a measurement leaves open of a question.

Around rows of weights p a population is p (1 + Σ g_S), g_S a function of the columns in S, of variance κ_S for each direction of
mean square 1 that no part of S has. What the answers do not follow of a question, r = h − aᵀφ, is divided among the sets, each of
which has its κ_S: tutorials/derivations.md says from where, for columns, pairs, cells and larger sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from kmeanalyst.inference.posterior.cells_of_rows import CellsOfRows, SumsOfSets, summing
from kmeanalyst.inference.posterior.column_sums import OF_COLUMNS
from kmeanalyst.inference.posterior.directions import Trend, beside, scored_trends, shown_through_others, trends
from kmeanalyst.inference.posterior.heaps_and_bends import OF_HEAPS, bends, heaps
from kmeanalyst.inference.posterior.scored_distances import squared_distances, squares_beyond
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.estimates import free_cells

_OF_EVENTS = 9.0  # squared departure of an event in a larger set, relative to that of independent cells
_OF_PAIRS = 6.0  # the same in a pair, beside a trend
_OF_FEW = 0.15  # squared departure of a cell that few rows are in, relative to the most that it may depart
_NOT_SCORED = 0.05  # κ of a pair that was neither counted nor scored, where the rows drew others first
_NOT_LOOKED_AT = 0.12  # κ of a pair that others left out: of the strongest in a table, too
_OF_TRIPLES, _LEAST_OF_TRIPLES = 0.004, 1e-5  # κ of all further sets
_FEWEST_SETS = 6  # that show what usual sets are like
_OF_RELATIONS = 0.25  # variance of a correlation of which nothing is known
_BOUND = 1.96  # standard errors of a bound
_ANY = 1e9  # a distance that bounds nothing


@dataclass(frozen=True, eq=False)
class Interactions:
    """Sets of columns, the cells of rows in each, and how far each set may depart.

    counted   the sets of two columns and more that were counted; pairs the columns of each pair, and of each larger set that was
              counted or scored.
    spreads   (P,) κ of each; most (P,) the most that its distance may be, very large where there is no score, and
              infinite where nobody looked; usual (P,) what its score leaves likely, 0 where nothing was scored;
    squared (P,) correlation of its columns' ranks that may be: a normal pair's is about the squared distance that its
              score alone says. 0 or NaN of larger sets.
    further   κ of all other sets; that of single columns is `OF_COLUMNS`.
    scored    of larger sets that were only scored how far their tables are likely to be, in L1, from what their pairs say.
    """

    rows: CellsOfRows
    counted: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, ...], ...]
    spreads: Array
    most: Array
    squared: Array
    usual: Array
    further: float = _OF_TRIPLES
    scored: Mapping[tuple[int, ...], float] = field(default_factory=dict)

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array, spread: float) -> Interactions:
        assert isinstance(measurement.feature_map, MarginFeatures)
        kernel = measurement.feature_map.kernel
        scored = measurement.drawn.sets if measurement.drawn else ()
        larger = [each for each in kernel.counted if len(each) > 2]
        pairs = (*combinations(range(len(kernel.edges)), 2), *dict.fromkeys((*larger, *scored)))
        found = cls(
            CellsOfRows.of(kernel, rows, weights, len(pairs)), kernel.counted, pairs,
            np.full(len(pairs), spread), np.full(len(pairs), _ANY), np.full(len(pairs), np.nan), np.zeros(len(pairs)),
        )  # fmt: skip
        if isinstance(kernel, ChosenMargins):
            of_two, held = pairs[: math.comb(len(kernel.edges), 2)], beside(kernel.counted, len(kernel.edges))
            found._score(measurement, np.flatnonzero([pair[1] not in held[pair[0]] for pair in of_two]))
        found._count(measurement)
        return found if measurement.drawn is None else found._with_sets(measurement, set(larger))

    def _score(self, measurement: Measurement, left: Array) -> None:
        if not measurement.scores:
            self.squared[left] = _OF_RELATIONS
            if measurement.chosen_by_rows:
                self.spreads[left] = _NOT_SCORED
            else:
                self.spreads[left], self.most[left] = _NOT_LOOKED_AT, np.inf
            return
        last = measurement.scores[-1]
        expected = self.rows.expected(self.pairs[: len(last.noisy)])
        scores = last.noisy / (last.step * measurement.n_rows)
        noise = measurement.noise_scale * measurement.grid_steps / last.step
        usual = squared_distances(scores, noise, expected)
        self.spreads[left] = _OF_PAIRS * math.pi / 2 * (usual / expected**2)[left]
        self.squared[left] = squares_beyond(scores, noise, expected, measurement.n_rows)[left]
        self.usual[left] = np.sqrt(usual)[left]
        self.most[left] = np.maximum(scores + _BOUND * noise, 0.0)[left]

    def _count(self, measurement: Measurement) -> None:
        """Of pairs that were counted the squared correlation of ranks that their noisy tables leave possible."""
        error, place = np.full(len(self.pairs), np.inf), {pair: i for i, pair in enumerate(self.pairs)}
        for table in measurement.tables():
            for axes in combinations(range(len(table.columns)), 2):
                own = place[table.columns[axes[0]], table.columns[axes[1]]]
                others = tuple(axis for axis in range(len(table.columns)) if axis not in axes)
                first, second = (self.rows.ranks[table.columns[axis]] for axis in axes)
                v = first**2 @ table.variances.sum(axis=others) @ second**2 + 1 / measurement.n_rows
                if v < error[own]:
                    error[own], shrunk = v, _OF_RELATIONS / (_OF_RELATIONS + v)
                    found = shrunk * (first @ table.shares.sum(axis=others) @ second)
                    self.squared[own] = found**2 + shrunk * v

    def _with_sets(self, measurement: Measurement, counted: set[tuple[int, ...]]) -> Interactions:
        """The same with what the scores of larger sets say: of those that were not counted, and of all further ones."""
        drawn = measurement.drawn
        assert drawn is not None
        scores = drawn.scores.noisy / (drawn.scores.step * measurement.n_rows)
        noise = measurement.noise_scale * measurement.grid_steps / drawn.scores.step
        own = np.array([float(np.abs(self.rows.apart(each)).sum()) for each in drawn.sets])
        shapes = [[self.rows.sizes[j] for j in each] for each in drawn.sets]
        per_direction = np.array([(math.prod(shape) - 1) / max(free_cells(shape), 1) for shape in shapes])
        expected = self.rows.expected(drawn.sets)
        scale = math.pi / 2 * per_direction / expected**2
        chance = 1 / measurement.n_rows + float(self.rows.weights @ self.rows.weights)
        kappas = scale * (scores**2 - noise**2 + own**2) - chance
        further, usual = self.further, kappas[drawn.draws.count :]
        if len(usual) >= _FEWEST_SETS:
            mean, error = float(usual.mean()), 2 * float(usual.std(ddof=1)) / math.sqrt(len(usual))
            most = max(_OF_EVENTS * (mean + error), _LEAST_OF_TRIPLES)
            further = min(max(further, _OF_EVENTS * (mean - error)), most)
        for each, kappa in zip(drawn.sets, kappas, strict=True):
            if each not in counted:
                i = self.pairs.index(each)
                self.spreads[i], self.squared[i] = max(_OF_EVENTS * kappa, further), 0.0
        likely = np.sqrt(squared_distances(scores, noise, expected)).tolist()
        scored = {each: distance for each, distance in zip(drawn.sets, likely, strict=True) if each not in counted}
        return replace(self, further=further, scored=scored)

    @cached_property
    def _trends(self) -> dict[tuple[int, ...], Trend]:
        return trends(self.rows, self.counted, self.pairs, self.squared, self.usual)

    @cached_property
    def _directions(self) -> list[tuple[tuple[int, ...], Array]]:
        """Larger sets with functions g (cells,) of their cells, so that p (1 − g) may be the table."""
        return shown_through_others(self.rows, self.counted) + scored_trends(self.rows, self.scored)

    @cached_property
    def _sums(self) -> list[SumsOfSets]:
        """Of columns, and of pairs."""
        return list(self.rows.sums_of([*((j,) for j in range(len(self.rows.cells))), *self.pairs]))

    @cached_property
    def _sums_of_directions(self) -> list[SumsOfSets]:
        return list(self.rows.sums_of([columns for columns, _ in self._directions]))

    def left_open(self, rest: Array, ranges: Array) -> Array:
        """(k, k) joint covariance of what is left open of questions.

        rest     r (n, k), of mean 0: each set has its part along E[r | cells].
        ranges   (k,) of the questions.
        """
        weighted = self.rows.weights[:, None] * rest[self.rows.chosen]
        joint = weighted.T @ rest[self.rows.chosen]
        total = joint.diagonal()
        between = self.rows.between(self._sums, weighted, total)
        alone = [next(between)[0] for _ in self.rows.cells]
        singles = np.minimum(sum(alone), total)
        owned, of_pairs = np.zeros_like(total), np.zeros_like(joint)
        explained, of_few, strongest = np.zeros_like(total), np.zeros_like(total), dict[int, tuple[Any, ...]]()
        for i, own, reach, trend, means, roots, cells in self._of_pairs(between, alone, ranges):
            most = (reach / _BOUND) ** 2  # no interval is longer than the most that answers may move for it
            along, usual = _along(means, self.spreads[i] * own), self.spreads[i] * own + (trend**2).sum(axis=0)
            of_pairs += with_diagonal(along + trend.T @ trend, np.minimum(usual, most))
            owned += own
            for k in np.flatnonzero(own > explained).tolist():  # a question's pair is the one that explains most of it
                explained[k], strongest[k] = own[k], (i, means[:, k], roots, cells, usual[k], most[k])
        for k, (*pair, known, most) in strongest.items():
            of_few[k] = max(min(self._of_few(*pair), most) - known, 0.0)
        of_pairs = with_diagonal(of_pairs, of_pairs.diagonal() + of_few)
        left = total - singles
        share = left / np.maximum(np.maximum(owned, left), 1e-300)
        further = self.further * np.maximum(left - owned, 0.0)
        within = _along(*heaps(self.rows, weighted, total)) + _along(*bends(self.rows, weighted))
        of_pairs *= np.sqrt(np.outer(share, share))
        through = self._dependence(weighted)
        return with_diagonal(joint, OF_COLUMNS * singles + further) + of_pairs + within + through.T @ through

    def _dependence(self, weighted: Array) -> Array:
        """(t, k) how far answers move along the directions of larger sets, after a row of zeros."""
        found, directions = [np.zeros(weighted.shape[1])], iter(self._directions)
        for some in self._sums_of_directions:
            sums = some.sums @ weighted
            found += [next(directions)[1][cells] @ sums[own] for own, _, cells in some.of_sets]
        return np.array(found)

    def draws(self, k: int, rng: np.random.Generator) -> Array:
        """(n, k) draws of how the weights of all rows may depart before anything is measured; each sums to 0 nearly."""
        rows, weights = self.rows, self.rows.weights
        scale = np.sqrt(self.further / np.where(weights > 0, weights, np.inf))
        drawn = scale[:, None] * rng.standard_normal((len(weights), k))
        sets: list[tuple[tuple[int, ...], float]] = [((j,), OF_COLUMNS) for j in range(len(rows.cells))]
        sets += [(pair, float(own)) for pair, own in zip(self.pairs, self.spreads, strict=True)]
        for columns, spread in sets:
            places, shares = rows.places(columns)
            scale = np.sqrt(spread / np.where(shares > 0, shares, np.inf))
            drawn += (scale[:, None] * rng.standard_normal((len(shares), k)))[places]
        for pair, trend in self._trends.items():
            drawn += trend.draws(k, rng)[rows.places(pair)[0]]
        for columns, g in self._directions:
            drawn += g[rows.places(columns)[0], None] * rng.standard_normal(k)
        for parts, parents in rows.within:
            own = np.bincount(parts, weights, minlength=len(parents))
            scale = np.sqrt(OF_HEAPS * np.bincount(parents, own)[parents] / np.where(own > 0, own, np.inf))
            drawn += (scale[:, None] * rng.standard_normal((len(parents), k)))[parts]
        drawn *= weights[:, None]
        drawn -= weights[:, None] * drawn.sum(axis=0)
        of_all = np.zeros((rows.n, k))
        np.add.at(of_all, rows.chosen, drawn)
        return of_all

    def _most(self, i: int, ranges: Array, cells: Array, means: Array, roots: Array) -> Array:
        """(k,) how far answers may move for a pair: half of its distance for an event; without a score, what its columns allow.

        With the shares of one column as they are, the rows of each of its cells move within what E[r | cells] has there.
        """
        if np.isfinite(self.most[i]):
            return self.most[i] * ranges / 2
        reach, places = [], divmod(cells, self.rows.sizes[self.pairs[i][1]])
        values, shares = means / roots[:, None], roots[:, None] ** 2
        for rows, columns in (places, places[::-1]):
            mass = np.bincount(columns, shares[:, 0])
            effects = summing(columns, len(mass)) @ (shares * values) / np.maximum(mass, 1e-300)[:, None]
            apart = values - effects[columns]
            ends = np.full((2, int(rows.max()) + 1, len(ranges)), -np.inf)
            for end, each in zip(ends, (apart, -apart), strict=True):
                np.maximum.at(end, rows, each)
            reach.append((shares * ends.sum(axis=0)[rows]).sum(axis=0) / 2)
        return np.minimum(*reach)

    def _of_few(self, i: int, means: Array, roots: Array, cells: Array) -> float:
        """Variance if a cell (c,) of a pair that was only scored has a part of the most that it may depart by.

        That is what its row or its column have, where this is less than half of the likely distance: rare levels may be tied to
        each other, which hardly makes a distance.
        """
        if not self.usual[i]:
            return 0.0
        shares, apart, most = roots**2, means / roots, np.full(len(cells), self.usual[i] / 2)
        for own in divmod(cells, self.rows.sizes[self.pairs[i][1]]):
            mass = np.bincount(own, shares)
            apart = apart - (np.bincount(own, shares * apart) / np.maximum(mass, 1e-300))[own]
            most = np.minimum(most, (mass * (1 - mass))[own])
        most[most >= self.usual[i] / 2] = 0.0
        return float(_OF_FEW * ((most * apart) ** 2).max())

    def _of_pairs(
        self, found: Iterator[tuple[Array, Array, Array, Array]], alone: list[Array], ranges: Array
    ) -> Iterator[tuple[int, Array, Array, Array, Array, Array, Array]]:
        """For each pair its number, the variance (k,) of its own, the most (k,) that answers may move for it, and by a trend (k,),
        means (c, k) by roots of shares, these (c,), and the cells (c,).

        And for each larger set that was counted, after all pairs.
        """
        known = dict[tuple[int, ...], Array]()
        for i, (between, means, roots, cells) in enumerate(found):
            pair = self.pairs[i]
            parts = [alone[j] for j in pair]
            parts += [own for part, own in known.items() if set(part) < set(pair)] if len(pair) > 2 else []
            known[pair] = own = np.maximum(between - sum(parts), 0.0)
            sums = means * roots[:, None]
            trend = self._trends[pair].moved(cells, sums) if pair in self._trends else np.zeros((1, len(ranges)))
            yield i, own, self._most(i, ranges, cells, means, roots), trend, means, roots, cells


def _along(means: Array, variances: Array) -> Array:
    """(k, k) a covariance along means (c, k) with these variances (k,) on its diagonal."""
    return with_diagonal(means.T @ means, variances)


def with_diagonal(covariance: Array, variances: Array) -> Array:
    """(k, k) the covariance of as correlated numbers with these variances (k,); 0 of those that had none."""
    own = covariance.diagonal()
    scale = np.sqrt(np.divide(variances, own, out=np.zeros_like(own), where=own > 0))
    return scale[:, None] * covariance * scale
