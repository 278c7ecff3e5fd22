"""How far a population may depart from the fitted rows, by sets of columns: what a measurement leaves open of a question.

Around rows of weights p a population is p (1 + Σ g_S), g_S a function of the columns in S, of variance κ_S for each direction of
mean square 1 that no part of S has. What the answers do not follow of a question, r = h − aᵀφ, is divided among the sets, each of
which has its κ_S: tutorials/derivations.md says from where, for columns, pairs, cells and larger sets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from kmeanalyst.inference.posterior.column_sums import OF_COLUMNS
from kmeanalyst.inference.posterior.scored_distances import squared_distances, squares_beyond
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.tables.estimates import free_cells, implied_by_pairs, over_pair

_OF_EVENTS = 9.0  # squared departure of an event in a larger set, relative to that of independent cells
_OF_PAIRS = 6.0  # the same in a pair, beside a trend
_OF_FEW = 0.15  # squared departure of a cell that few rows are in, relative to the most that it may depart
_NOT_SCORED = 0.05  # κ of a pair that was neither counted nor scored, where the rows drew others first
_NOT_LOOKED_AT = 0.12  # κ of a pair that others left out: of the strongest in a table, too
_OF_TRIPLES, _LEAST_OF_TRIPLES = 0.004, 1e-5  # κ of all further sets
_FEWEST_SETS = 6  # that show what usual sets are like
_OF_RELATIONS = 0.25  # variance of a correlation of which nothing is known
_OF_HEAPS = 0.5  # of a cell's mass, squared, that may be at one value
_PARTS = 4  # of a cell of the finest table, by its values
# correlation within a range: with a step to what is so beside it, deviations; with anything, of a range that has all rows
_BENT, _ANY_BEND = 0.6, 0.3
_OF_EVEN = 0.75  # E|f| E|g| of even ranks: of these a correlation is about the distance
_NO_ROWS, _SEVERAL = 1e-12, 1e-3  # a share; deviation of ranks within a range of several values
_BOUND = 1.96  # standard errors of a bound
_ANY = 1e9  # a distance that bounds nothing
_MOST_PLACES = 10**7  # rows times sets that are looked at: fewer rows of many columns
_HIDDEN, _RIDGE = 4.0, 0.01  # the most that tables of other columns hide of a trend; of their correlations
_ROUNDS = 10  # of taking away what fewer columns say
_SHOWN, _MOST_CELLS = 0.01, 20_000  # distance, and cells, of a set of three that is looked at
_TOGETHER = 64  # sets whose cells are summed at once


@dataclass(frozen=True, eq=False)
class Interactions:
    """Sets of columns, the cell of each row in each, and how far each set may depart.

    n         rows of the fit; chosen (m,) which of them are looked at; weights (m,) theirs.
    cells     (d, m) of each column; sizes their numbers, of which ranges are the first, in order.
    within    for each column the part of a cell (m,) that a row is in, and the cell (parts,) that it is a part of.
    counted   the sets of two columns and more that were counted; pairs the columns of each pair, and of each larger set that was
              counted or scored.
    spreads   (P,) κ of each; most (P,) the most that its distance may be, very large where there is no score, and
              infinite where nobody looked; usual (P,) what its score leaves likely, 0 where nothing was scored;
    squared (P,) correlation of its columns' ranks that may be: a normal pair's is about the squared distance that its
              score alone says. 0 or NaN of larger sets.
    further   κ of all other sets; that of single columns is `OF_COLUMNS`.
    values    (d, m) by which cells stand in order; None: they do as they are.
    scored    of larger sets that were only scored how far their tables are likely to be, in L1, from what their pairs say.
    """

    n: int
    chosen: Any
    weights: Array
    cells: Array
    sizes: tuple[int, ...]
    ranges: tuple[int, ...]
    within: tuple[tuple[Array, Array], ...]
    counted: tuple[tuple[int, ...], ...]
    pairs: tuple[tuple[int, ...], ...]
    spreads: Array
    most: Array
    squared: Array
    usual: Array
    further: float = _OF_TRIPLES
    values: Array | None = None
    scored: Mapping[tuple[int, ...], float] = field(default_factory=dict)

    @classmethod
    def of(cls, measurement: Measurement, rows: Array, weights: Array, spread: float) -> Interactions:
        assert isinstance(measurement.feature_map, MarginFeatures)
        kernel = measurement.feature_map.kernel
        scored = measurement.drawn.sets if measurement.drawn else ()
        larger = [each for each in kernel.counted if len(each) > 2]
        pairs = (*combinations(range(len(kernel.edges)), 2), *dict.fromkeys((*larger, *scored)))
        m = int(min(len(rows), max(_MOST_PLACES // max(len(pairs), 1), 1)))
        n = len(rows)
        chosen: Any = slice(None)
        if m < len(rows):  # evenly by weight, for the same sums
            ends = np.cumsum(weights) / weights.sum()
            chosen = np.minimum(np.searchsorted(ends, (np.arange(m) + 0.5) / m), len(rows) - 1)
            weights = np.full(m, 1 / m)
        rows = rows[chosen]
        cells = np.ascontiguousarray(kernel.cells(rows).T.astype(np.int32))
        finest = dict(zip(kernel.finer, kernel.fine_cells(rows).T, strict=True))
        within = tuple(_parts(own, finest.get(j, own), rows[:, j], weights) for j, own in enumerate(cells))
        found = cls(
            n, chosen, weights, cells, kernel.sizes, tuple(len(edges) + 1 for edges in kernel.edges), within, kernel.counted, pairs,
            np.full(len(pairs), spread), np.full(len(pairs), _ANY), np.full(len(pairs), np.nan), np.zeros(len(pairs)),
            values=rows.T,
        )  # fmt: skip
        if isinstance(kernel, ChosenMargins):
            of_two = pairs[: math.comb(len(kernel.edges), 2)]
            found._score(measurement, np.flatnonzero([pair[1] not in found._beside[pair[0]] for pair in of_two]))
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
        expected = self._expected(self.pairs[: len(last.noisy)])
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
                first, second = (self._ranks[table.columns[axis]] for axis in axes)
                v = first**2 @ table.variances.sum(axis=others) @ second**2 + 1 / measurement.n_rows
                if v < error[own]:
                    error[own], shrunk = v, _OF_RELATIONS / (_OF_RELATIONS + v)
                    found = shrunk * (first @ table.shares.sum(axis=others) @ second)
                    self.squared[own] = found**2 + shrunk * v

    def _expected(self, sets: Sequence[tuple[int, ...]]) -> Array:
        """Σ √E over the cells of each set of columns, if they are independent."""
        roots = [
            float(np.sqrt(np.bincount(own, self.weights, minlength=size)).sum())
            for own, size in zip(self.cells, self.sizes, strict=True)
        ]
        return np.array([math.prod(roots[j] for j in own) for own in sets])

    def _with_sets(self, measurement: Measurement, counted: set[tuple[int, ...]]) -> Interactions:
        """The same with what the scores of larger sets say: of those that were not counted, and of all further ones."""
        drawn = measurement.drawn
        assert drawn is not None
        scores = drawn.scores.noisy / (drawn.scores.step * measurement.n_rows)
        noise = measurement.noise_scale * measurement.grid_steps / drawn.scores.step
        own = np.array([float(np.abs(self._apart(each)).sum()) for each in drawn.sets])
        shapes = [[self.sizes[j] for j in each] for each in drawn.sets]
        per_direction = np.array([(math.prod(shape) - 1) / max(free_cells(shape), 1) for shape in shapes])
        expected = self._expected(drawn.sets)
        scale = math.pi / 2 * per_direction / expected**2
        chance = 1 / measurement.n_rows + float(self.weights @ self.weights)
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

    def _apart(self, columns: tuple[int, ...]) -> Array:
        """How far the rows' own table of these columns is from what its pairs say."""
        table = self._places(columns)[1].reshape([self.sizes[j] for j in columns])
        pairs = {pair: over_pair(table, columns, pair) for pair in combinations(columns, 2)}
        return np.asarray(table - implied_by_pairs(columns, pairs))

    @cached_property
    def _beside(self) -> list[set[int]]:
        """Of each column those that it was counted with, and itself."""
        return [{j}.union(*(each for each in self.counted if j in each)) for j in range(len(self.cells))]

    def _hidden(self, j: int, others: Iterable[int]) -> float:
        """By how much less is left of a trend in a column where tables of others are held: 1/(1 − R²) of ranks, up to `_HIDDEN`."""
        others = sorted({*others} - {j})
        found = self._correlations[np.ix_(others, others)] + _RIDGE * np.eye(len(others))
        own = self._correlations[j, others]
        return min(1 / max(1 - float(own @ np.linalg.solve(found, own)), 1e-300), _HIDDEN)

    @cached_property
    def _correlations(self) -> Array:
        """(d, d) of ranks."""
        ranks = np.array([own[cells] for own, cells in zip(self._ranks, self.cells, strict=True)])
        return np.asarray((ranks * self.weights) @ ranks.T)

    @cached_property
    def _factors(self) -> Array:
        """(P,) by how much a trend of a pair is larger than what is left of it: 1 of counted ones."""
        found = np.ones(len(self.pairs))
        for i, (one, *others) in enumerate(self.pairs):
            if len(others) == 1 and others[0] not in self._beside[one]:
                found[i] = max(self._hidden(*pair) for pair in ((one, self._beside[others[0]]), (others[0], self._beside[one])))
        return found

    @cached_property
    def _directions(self) -> list[tuple[tuple[int, ...], Array]]:
        """Of larger sets that were not counted functions g of their cells, so that p (1 − g) may be the table.

        Of three columns where rows depend because two were counted with a column that the third hangs on, as the table need not:
        p (1 − g) has no such dependence. And of sets that were scored a trend, as far as the score lets it.
        """
        found, held = dict[tuple[int, ...], Array](), dict[tuple[int, int], set[int]]()
        for two in {two for own in self.counted if len(own) > 2 for two in combinations(own, 2)}:
            held[two] = set().union(*(own for own in self.counted if {*two} < {*own})) - {*two}
        for two, those in sorted(held.items()):
            for c in sorted(set().union(*(self._beside[x] for x in those)) - those - {*two}):
                columns = tuple(sorted((*two, c)))
                if math.prod(self.sizes[j] for j in columns) <= _MOST_CELLS:
                    apart = self._hidden(c, those) * self._apart(columns).ravel()
                    if np.abs(apart).sum() > max(_SHOWN, np.abs(found.get(columns, 0.0)).sum()):
                        found[columns] = apart
        directions = [(columns, own / np.maximum(self._places(columns)[1], _NO_ROWS)) for columns, own in found.items()]
        return directions + [(each, self._along_ranks(each, far)) for each, far in self.scored.items() if far > _SHOWN]

    def _along_ranks(self, columns: tuple[int, ...], distance: float) -> Array:
        """(cells,) the product of the columns' ranks less what fewer of them say of it, as far as this distance."""
        shares = self._places(columns)[1].reshape([self.sizes[j] for j in columns])
        g = functools.reduce(np.multiply.outer, (self._ranks[j] for j in columns))
        for axis in _ROUNDS * [*range(len(columns))]:
            g = g - (shares * g).sum(axis=axis, keepdims=True) / np.maximum(shares.sum(axis=axis, keepdims=True), _NO_ROWS)
        return np.asarray(distance / max(float((shares * np.abs(g)).sum()), _NO_ROWS) * g.ravel())

    @cached_property
    def _places_of_directions(self) -> list[_Places]:
        return list(self._prepared([columns for columns, _ in self._directions]))

    def left_open(self, rest: Array, ranges: Array) -> Array:
        """(k, k) joint covariance of what is left open of questions.

        rest     r (n, k), of mean 0: each set has its part along E[r | cells].
        ranges   (k,) of the questions.
        """
        among = rest[self.chosen]
        joint = (self.weights[:, None] * among).T @ among
        total = joint.diagonal()
        alone = dict(enumerate(own for own, *_ in self._between(self._columns, rest, total)))
        singles = np.minimum(sum(alone.values()), total)
        owned, of_pairs = np.zeros_like(total), np.zeros_like(joint)
        explained, of_few, strongest = np.zeros_like(total), np.zeros_like(total), dict[int, tuple[Any, ...]]()
        for i, own, reach, trend, means, roots, cells in self._of_pairs(rest, total, alone, ranges):
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
        further, within = self.further * np.maximum(left - owned, 0.0), self._heaps(rest, total) + self._bends(rest)
        of_pairs *= np.sqrt(np.outer(share, share))
        through = self._dependence(rest)
        return with_diagonal(joint, OF_COLUMNS * singles + further) + of_pairs + within + through.T @ through

    def _dependence(self, rest: Array) -> Array:
        """(t, k) how far answers move along the directions of larger sets."""
        weighted, found = self.weights[:, None] * rest[self.chosen], [np.zeros(rest.shape[1])]
        directions = iter(self._directions)
        for places in self._places_of_directions:
            sums = places.sums @ weighted
            found += [next(directions)[1][cells] @ sums[own] for own, _, cells in places.of_sets]
        return np.array(found)

    def _trend(self, i: int, cells: Array, sums: Array) -> Array:
        """(t, k) how far answers move for trends that are left possible in a pair, of E[r; cell] (c, k) in these cells."""
        rho = self._trends[i]
        if not rho.any():
            return np.zeros((1, sums.shape[1]))
        f, g = self._of_trends(i)
        table = np.zeros((f.shape[1] * g.shape[1], sums.shape[1]))
        table[cells] = sums
        moved = g @ (f @ table.reshape(f.shape[1], -1)).reshape(len(f), g.shape[1], -1)
        return (rho[:, :, None] * moved).reshape(-1, sums.shape[1])

    def _of_trends(self, i: int) -> tuple[Array, ...]:
        """The functions f and g of the cells of a pair's columns that its trends are of."""
        return tuple(self._functions[j][0][:count] for j, count in zip(self.pairs[i], self._trends[i].shape, strict=True))

    @cached_property
    def _trends(self) -> list[Array]:
        """For each pair correlations ρ (f, g) of functions of its columns, the first those of ranks: p (1 + ρ f g) is a trend.

        Its distance from independent columns is ρ E|f| E|g|. All that a score leaves likely may be in one trend of ranks, or
        parts of it in trends of levels, as far as shares let them be correlated: so rare levels have more than the average cell.
        Where other columns' tables are held, a trend moves answers by more than what these leave of it (`_factors`).
        """
        found = []
        of_pairs = zip(self.pairs, np.nan_to_num(self.squared).tolist(), self.usual, self._factors, strict=True)
        for pair, squared, usual, factor in of_pairs:
            rho = np.full((1, 1), math.sqrt(min(squared, 1.0)))
            if usual > 0:
                (_, mean_f, apart_f, part_f), (_, mean_g, apart_g, part_g) = (self._functions[j] for j in pair)
                largest = np.minimum.outer(apart_f, apart_g) / np.maximum.outer(apart_f, apart_g)
                rho = np.minimum(_OF_EVEN * math.sqrt(squared) / np.outer(mean_f, mean_g), largest) * np.outer(part_f, part_g)
            found.append(factor * rho)
        return found

    @cached_property
    def _functions(self) -> list[tuple[Array, Array, Array, Array]]:
        """Of each column functions of its cells (f, size) of mean 0 and variance 1: of ranks, and of levels which one a row has.

        And E|f|, √(share · rest), which is 1/√3 of ranks, and the root of the part of a distance that may be in it.
        """
        found = []
        for j, (own, size, ranks) in enumerate(zip(self.cells, self.sizes, self._ranks, strict=True)):
            mass = np.bincount(own, self.weights, minlength=size)
            levels = np.flatnonzero(mass)
            levels = levels[: 0 if len(levels) < 3 or j in self._leanings else None]  # of two, ranks say which it is
            apart = np.sqrt(mass[levels] * (1 - mass[levels]))
            functions = np.vstack([ranks, (np.eye(size)[levels] - mass[levels][:, None]) / apart[:, None]])
            means = np.maximum(np.abs(functions) @ mass, _NO_ROWS)
            parts = np.append(1.0, np.full(len(levels), 1 / math.sqrt(max(len(levels) - 1, 1))))
            found.append((functions, means, np.append(1 / math.sqrt(3), apart), parts))
        return found

    @cached_property
    def _ranks(self) -> list[Array]:
        """Of the cells of each column the shares below them, of mean 0 and variance 1."""
        found, in_order = [], self.cells if self.values is None else self.values
        for own, size, values in zip(self.cells, self.sizes, in_order, strict=True):
            mass = np.bincount(own, self.weights, minlength=size)
            order = np.argsort(np.bincount(own, self.weights * values, minlength=size) / np.maximum(mass, 1e-300))
            ranks = np.empty(size)
            ranks[order] = np.cumsum(mass[order]) - mass[order] / 2 - mass.sum() / 2
            found.append(ranks / math.sqrt(max(float(mass @ ranks**2), 1e-300)))
        return found

    def draws(self, k: int, rng: np.random.Generator) -> Array:
        """(n, k) draws of how the weights of all rows may depart before anything is measured; each sums to 0 nearly."""
        scale = np.sqrt(self.further / np.where(self.weights > 0, self.weights, np.inf))
        drawn = scale[:, None] * rng.standard_normal((len(self.weights), k))
        sets: list[tuple[tuple[int, ...], float]] = [((j,), OF_COLUMNS) for j in range(len(self.cells))]
        sets += [(pair, float(own)) for pair, own in zip(self.pairs, self.spreads, strict=True)]
        for columns, spread in sets:
            places, shares = self._places(columns)
            scale = np.sqrt(spread / np.where(shares > 0, shares, np.inf))
            drawn += (scale[:, None] * rng.standard_normal((len(shares), k)))[places]
        for i, (pair, rho) in enumerate(zip(self.pairs, self._trends, strict=True)):
            if rho.any():
                f, g = self._of_trends(i)
                z = rho[:, :, None] * rng.standard_normal((*rho.shape, k))
                drawn += np.einsum("fa,fgk,gb->abk", f, z, g, optimize=True).reshape(-1, k)[self._places(pair)[0]]
        for columns, g in self._directions:
            drawn += g[self._places(columns)[0], None] * rng.standard_normal(k)
        for parts, parents in self.within:
            own = np.bincount(parts, self.weights, minlength=len(parents))
            scale = np.sqrt(_OF_HEAPS * np.bincount(parents, own)[parents] / np.where(own > 0, own, np.inf))
            drawn += (scale[:, None] * rng.standard_normal((len(parents), k)))[parts]
        drawn *= self.weights[:, None]
        drawn -= self.weights[:, None] * drawn.sum(axis=0)
        of_all = np.zeros((self.n, k))
        np.add.at(of_all, self.chosen, drawn)
        return of_all

    def _most(self, i: int, ranges: Array, cells: Array, means: Array, roots: Array) -> Array:
        """(k,) how far answers may move for a pair: half of its distance for an event; without a score, what its columns allow.

        With the shares of one column as they are, the rows of each of its cells move within what E[r | cells] has there.
        """
        if np.isfinite(self.most[i]):
            return self.most[i] * ranges / 2
        reach, places = [], divmod(cells, self.sizes[self.pairs[i][1]])
        values, shares = means / roots[:, None], roots[:, None] ** 2
        for rows, columns in (places, places[::-1]):
            mass = np.bincount(columns, shares[:, 0])
            effects = _sums(columns[:, None], len(mass), shares * values) / np.maximum(mass, 1e-300)[:, None]
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
        for own in divmod(cells, self.sizes[self.pairs[i][1]]):
            mass = np.bincount(own, shares)
            apart = apart - (np.bincount(own, shares * apart) / np.maximum(mass, 1e-300))[own]
            most = np.minimum(most, (mass * (1 - mass))[own])
        most[most >= self.usual[i] / 2] = 0.0
        return float(_OF_FEW * ((most * apart) ** 2).max())

    def _places(self, columns: tuple[int, ...]) -> tuple[Array, Array]:
        """The cell of each row (m,), and the cells' shares."""
        places = self.cells[columns[0]]
        for j in columns[1:]:
            places = places * self.sizes[j] + self.cells[j]
        return places, np.bincount(places, self.weights, minlength=math.prod(self.sizes[j] for j in columns))

    def _of_pairs(
        self, rest: Array, total: Array, alone: dict[int, Array], ranges: Array
    ) -> Iterator[tuple[int, Array, Array, Array, Array, Array, Array]]:
        """For each pair its number, the variance (k,) of its own, the most (k,) that answers may move for it, and by a trend (k,),
        means (c, k) by roots of shares, these (c,), and the cells (c,).

        And for each larger set that was counted, after all pairs.
        """
        known = dict[tuple[int, ...], Array]()
        for i, (between, means, roots, cells) in enumerate(self._between(self._pairs, rest, total)):
            pair = self.pairs[i]
            parts = [alone[j] for j in pair]
            parts += [own for part, own in known.items() if set(part) < set(pair)] if len(pair) > 2 else []
            known[pair] = own = np.maximum(between - sum(parts), 0.0)
            trend = self._trend(i, cells, means * roots[:, None])
            yield i, own, self._most(i, ranges, cells, means, roots), trend, means, roots, cells

    def _between(self, prepared: list[_Places], rest: Array, total: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
        """For each set the variance (k,) between its cells beyond chance, means (c, k) times roots (c,) of shares, these, and which
        cells (c,) they are of.
        """
        weighted = self.weights[:, None] * rest[self.chosen]
        effective = 1 / float(self.weights @ self.weights)
        for places in prepared:
            sums = places.sums @ weighted
            for own, roots, cells in places.of_sets:
                means = sums[own] / roots[:, None]
                between = (means**2).sum(axis=0)
                chance = (len(cells) - 1) * np.maximum(total - between, 0.0) / max(effective - len(cells), 1.0)
                yield np.maximum(between - chance, 0.0), means, roots, cells

    @cached_property
    def _columns(self) -> list[_Places]:
        return list(self._prepared([(j,) for j in range(len(self.cells))]))

    @cached_property
    def _pairs(self) -> list[_Places]:
        return list(self._prepared(self.pairs))

    def _prepared(self, sets: Sequence[tuple[int, ...]]) -> Iterator[_Places]:
        for first in range(0, len(sets), _TOGETHER):
            some = [self._places(columns) for columns in sets[first : first + _TOGETHER]]
            used = [np.flatnonzero(shares > 0) for _, shares in some]
            ends = np.cumsum([0, *map(len, used)])
            number = [np.cumsum(shares > 0).clip(1) - 1 + start for (_, shares), start in zip(some, ends, strict=False)]
            places = np.stack([new[own] for (own, _), new in zip(some, number, strict=True)], axis=1)
            roots = [np.sqrt(shares[cells]) for (_, shares), cells in zip(some, used, strict=True)]
            of_sets = zip((slice(*own) for own in pairwise(ends)), roots, used, strict=True)
            yield _Places(_summing(places, int(ends[-1])), list(of_sets))

    def _heaps(self, rest: Array, total: Array) -> Array:
        """(k, k) from mass that heaps within cells."""
        weighted = self.weights[:, None] * rest[self.chosen]
        effective = 1 / float(self.weights @ self.weights)
        found, along = np.zeros_like(total), []
        for parts, parents in self.within:
            shares = np.bincount(parts, self.weights, minlength=len(parents))
            sums = _sums(parts[:, None], len(parents), weighted)
            cells = np.bincount(parents, shares)
            cell_sums = _sums(parents[:, None], len(cells), sums)
            used = shares > 0
            own, parent = shares[used][:, None], parents[used]
            mass = cells[parent][:, None]
            apart = sums[used] / own - cell_sums[parent] / mass
            steps = np.sqrt(_OF_HEAPS * mass * own) * apart
            chance = _OF_HEAPS * float((mass[:, 0] - own[:, 0]).sum()) * total / effective
            found += np.maximum((steps**2).sum(axis=0) - chance, 0.0)
            along.append(steps)
        return _along(np.vstack(along), found)

    def _bends(self, rest: Array) -> Array:
        """(k, k) from how columns may depend on a number within its ranges: of the column for which that is most.

        The correlation there is about that of a step to what is so in the ranges beside, and, where a range has most rows, so that
        ranges show little, any.
        """
        weighted = self.weights[:, None] * rest[self.chosen]
        found, along = np.zeros(rest.shape[1]), [np.zeros((1, rest.shape[1]))]
        for j, lean in self._leanings.items():
            for other in (own for own in range(len(self.cells)) if own != j):
                places, shares = self._places((j, other))
                table = shares.reshape(self.sizes[j], -1)[: self.ranges[j]]
                sums = _sums(places[:, None], len(shares), lean[:, None] * weighted)
                sums = sums.reshape(self.sizes[j], -1, rest.shape[1])[: self.ranges[j]]
                alone, there = table.sum(axis=1, keepdims=True), np.maximum(table, _NO_ROWS)
                given = table / np.maximum(alone, _NO_ROWS)
                sums = sums - given[:, :, None] * sums.sum(axis=1, keepdims=True)
                beside = np.gradient(given, axis=0) if len(given) > 1 else np.zeros_like(given)
                bent = _BENT * ((beside * alone / there * (table > _NO_ROWS))[:, :, None] * sums).sum(axis=1)
                free = (_ANY_BEND * (alone / np.sqrt(there))[:, :, None] * sums).reshape(-1, rest.shape[1])
                found = np.maximum(found, np.abs(bent).sum(axis=0) ** 2 + (free**2).sum(axis=0))
                along += [bent, free]
        return _along(np.vstack(along), found)

    @cached_property
    def _leanings(self) -> dict[int, Array]:
        """For each column whose ranges have several values the ranks (m,) of rows within theirs, of mean 0 and variance 1."""
        found, in_order = {}, self.cells if self.values is None else np.nan_to_num(self.values)
        for j, (cells, values) in enumerate(zip(self.cells, in_order, strict=True)):
            each, number = np.unique(cells + 1j * values, return_inverse=True)  # by cells, and values in each
            cell, mass = each.real.astype(np.intp), np.bincount(number, self.weights)
            whole = np.bincount(cell, mass)
            ranks = np.cumsum(mass) - mass / 2 - (np.cumsum(whole) - whole / 2)[cell]
            roots = np.sqrt(np.bincount(cell, mass * ranks**2) / np.maximum(whole, _NO_ROWS))
            several = roots > _SEVERAL * whole
            if several.any():
                found[j] = np.where(several[cell], ranks / np.maximum(roots[cell], _NO_ROWS), 0.0)[number]
        return found


@dataclass(frozen=True, eq=False)
class _Places:
    """Cells of some sets that have rows: what sums rows over them (c, m), and of each set its own, roots of shares, and numbers."""

    sums: Any
    of_sets: list[tuple[slice, Array, Array]]


def _sums(places: Array, size: int, values: Array) -> Array:
    """(size, k) sums of values (m, k), each of which counts in several places (m, c)."""
    return _summing(places, size) @ values


def _summing(places: Array, size: int) -> Any:
    """(size, m) what sums values of m rows over the places (m, c) of each."""
    m, count = places.shape
    ends = np.arange(0, m * count + 1, count, dtype=np.int32)
    return csr_array((np.ones(m * count, np.int8), places.ravel().astype(np.int32), ends), (m, size)).T


def _along(means: Array, variances: Array) -> Array:
    """(k, k) a covariance along means (c, k) with these variances (k,) on its diagonal."""
    return with_diagonal(means.T @ means, variances)


def with_diagonal(covariance: Array, variances: Array) -> Array:
    """(k, k) the covariance of as correlated numbers with these variances (k,); 0 of those that had none."""
    own = covariance.diagonal()
    scale = np.sqrt(np.divide(variances, own, out=np.zeros_like(own), where=own > 0))
    return scale[:, None] * covariance * scale


def _parts(cells: Array, finest: Array, values: Array, weights: Array) -> tuple[Array, Array]:
    """The part of a cell of the finest table (m,) that each row is in, a quarter of it by its values; and its cell (parts,)."""
    values = np.nan_to_num(values, nan=np.inf)
    order = np.lexsort((values, finest, cells))
    cell, fine, value = cells[order], finest[order], values[order]
    begins = np.concatenate([[True], (cell[1:] != cell[:-1]) | (fine[1:] != fine[:-1])])
    number = np.cumsum(begins) - 1
    before = np.cumsum(weights[order]) - weights[order]
    mass = np.bincount(number, weights[order])
    same = np.concatenate([[False], (value[1:] == value[:-1]) & ~begins[1:]])
    first = np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))  # rows of one value stay together
    share = (before[first] - before[begins][number]) / np.maximum(mass, 1e-300)[number]
    quarter = np.minimum((_PARTS * share).astype(int), _PARTS - 1)
    _, part = np.unique(_PARTS * number + quarter, return_inverse=True)
    parts = np.empty(len(order), dtype=np.int32)
    parts[order] = part
    parents = np.zeros(int(part.max()) + 1, dtype=np.int32)
    parents[part] = number
    return parts, parents
