"""AIM and MST as short loops on mbi's mirror descent, and OpenDP's MST: the peers that peers.py compares with.

A mechanism takes a `Private` table and ρ, and gives a function that draws rows of its model. Source: McKenna, Mullins, Sheldon &
Miklau 2022 (AIM, Algorithm 2); McKenna, Miklau & Sheldon 2021 (MST); McKenna, Sheldon & Miklau 2019 (the estimator).
"""

from __future__ import annotations

import math
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import jax
import networkx as nx
import numpy as np
from harness import peak
from opt_einsum import contract
from scipy.cluster.hierarchy import DisjointSet

jax.config.update("jax_enable_x64", True)  # both as mbi asks for, before it is imported
jax.config.update("jax_enable_compilation_cache", False)
import mbi  # noqa: E402
from mbi.junction_tree import hypothetical_model_size, make_junction_tree  # noqa: E402

MOST_CELLS = 10_000  # of a set of columns in AIM's workload
Columns = tuple[str, ...]
Draw = Callable[[int], mbi.Dataset]  # so many rows of a model


@dataclass(frozen=True)
class Private:
    """The private table. A neighbour has one row replaced: counts are then √2 apart, scores by two rows; their number is public."""

    data: mbi.Dataset
    asked: Namespace
    rng: np.random.Generator
    known: dict[Columns, Any] = field(init=False, default_factory=dict)

    def counts(self, columns: Columns) -> Any:
        if columns not in self.known:
            self.known[columns] = np.asarray(self.data.project(columns).datavector(flatten=False))
        return self.known[columns]

    def measure(self, columns: Columns, multiplier: float) -> mbi.LinearMeasurement:
        """A table with Gaussian noise: 1 / (2 · multiplier²) of ρ."""
        counts, deviation = self.counts(columns).ravel(), math.sqrt(2) * multiplier
        noisy = counts + self.rng.normal(0, deviation, counts.size)
        return mbi.LinearMeasurement(noisy, columns, stddev=deviation)

    def choose(self, scores: Mapping[Columns, float], epsilon: float, weight: float = 1) -> Columns:
        """The exponential mechanism, ε²/8 of ρ (Cesar & Rogers 2021); one row more moves a score by at most `weight`."""
        noisy = {columns: epsilon / (4 * weight) * score + self.rng.gumbel() for columns, score in scores.items()}
        return max(noisy, key=noisy.__getitem__)

    def fit(self, measurements: list[mbi.LinearMeasurement], model: Any = None) -> Any:
        options = {"known_total": float(self.data.records), "iters": self.asked.iterations, "warm_start": model}
        return mbi.estimation.MirrorDescent().estimate(self.data.domain, measurements, **options)

    def errors(self, model: Any, sets: Iterable[Columns]) -> dict[Columns, float]:
        """Σ|count − count of the model| for each set of columns."""
        tables = model_tables(model, sets)
        return {columns: float(np.abs(self.counts(columns) - table).sum()) for columns, table in tables.items()}


def model_tables(model: Any, sets: Iterable[Columns]) -> dict[Columns, Any]:
    """Tables of a model, by contraction of its junction tree's P(clique | parent); mbi's `project` takes .5 s for each."""
    index = {name: i for i, name in enumerate(model.domain.attributes)}
    tree = make_junction_tree(model.domain, list(model.cliques))[0]
    margins = mbi.marginal_oracles.message_passing_stable(model.potentials.expand(list(tree.nodes)), 1.0)
    factors: list[Any] = []
    for part in nx.connected_components(tree):
        parents = {child: parent for parent, child in nx.bfs_edges(tree, next(iter(part)))}
        for clique in part:
            table = np.asarray(margins.project(clique).datavector(flatten=False), dtype=float)
            new = tuple(i for i, name in enumerate(clique) if name not in parents.get(clique, ()))
            given = table.sum(axis=new, keepdims=True)  # 1 for the root
            factors += [np.divide(table, given, out=np.zeros_like(table), where=given > 0), [index[c] for c in clique]]
    return {columns: float(model.total) * contract(*factors, [index[c] for c in columns]) for columns in sets}


def aim(private: Private, rho: float) -> Draw:
    """Measure in each round the set of columns that the model has most wrong, with more of ρ once a round teaches little."""
    domain, asked = private.data.domain, private.asked
    sets = [c for size in range(1, asked.degree + 1) for c in combinations(domain.attributes, size)]
    workload = [set(c) for c in sets if len(c) == asked.degree and domain.size(c) <= MOST_CELLS]
    weights = {c: sum(len(w & {*c}) for w in workload) for c in sets if any({*c} <= w for w in workload)}
    rounds, last = 16 * len(domain), False
    sigma, epsilon = math.sqrt(rounds / (1.8 * rho)), math.sqrt(0.8 * rho / rounds)  # 90 % on tables, 10 % on choices
    taken = [private.measure((name,), sigma) for name in domain.attributes]
    model, spent = private.fit(taken), len(taken) / (2 * sigma**2)
    while not last:
        if last := rho - spent < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon = 1 / math.sqrt(1.8 * (rho - spent)), math.sqrt(0.8 * (rho - spent))
        spent += 0.5 / sigma**2 + epsilon**2 / 8
        most, cliques = asked.model_size * spent / rho, list(model.cliques)
        small = [
            c for c in weights
            if any({*c} <= {*q} for q in cliques) or hypothetical_model_size(domain, [*cliques, c]) <= most
        ]  # fmt: skip
        bias = {c: 2 / math.sqrt(math.pi) * sigma * domain.size(c) for c in small}  # Σ|noise|
        scores = {c: weights[c] * (error - bias[c]) for c, error in private.errors(model, small).items()}
        chosen = private.choose(scores, epsilon, max(weights[c] for c in small))
        taken.append(private.measure(chosen, sigma))
        before, model = model_tables(model, [chosen])[chosen], private.fit(taken, model)
        if np.abs(model_tables(model, [chosen])[chosen] - before).sum() <= bias[chosen]:
            sigma, epsilon = sigma / 2, epsilon * 2
    return model.synthetic_data


def mst(private: Private, rho: float) -> Draw:
    """Each column, then a spanning tree of the pairs that the model of columns has most wrong; a third of ρ for each step."""
    names, domain = tuple(private.data.domain.attributes), private.data.domain
    first = [private.measure((name,), math.sqrt(3 * len(names) / (2 * rho))) for name in names]
    frequent = {one.clique[0]: one.noisy_measurement >= 3 * one.stddev for one in first}
    merged = {name: np.where(many, many.cumsum() - 1, many.sum()) for name, many in frequent.items() if not many.all()}
    first = [one.compress(merged, domain) for one in first]
    private = replace(private, data=private.data.compress(merged))
    errors, joined, second = private.errors(private.fit(first), combinations(names, 2)), DisjointSet(names), []
    while joined.n_subsets > 1:
        apart = {pair: error for pair, error in errors.items() if not joined.connected(*pair)}
        pair = private.choose(apart, math.sqrt(8 * rho / 3 / (len(names) - 1)))
        joined.merge(*pair)
        second.append(private.measure(pair, math.sqrt(3 * (len(names) - 1) / (2 * rho))))
    model = private.fit(first + second)
    return lambda rows: model.synthetic_data(rows).decompress(merged)


def opendp_mst(private: Private, rho: float) -> Draw:
    """OpenDP 0.16's own MST, told of one row: replacing one costs twice the ρ of tables (95 %), and four times that of choices."""
    import opendp.extras.mbi._mst as module
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    mbi.Domain.attrs = property(lambda self: self.attributes)  # as mbi 1 has it, for which OpenDP 0.16 is written
    module.prior = lambda share: share * (1 - 1e-9)  # its own is one rounding lower: too few for the sum of many shares
    rho /= 2 * 0.95 + 4 * 0.05
    sizes, options = private.data.domain.config, {"iters": private.asked.iterations}

    def estimator(domain: mbi.Domain, measurements: Any, *, potentials: Any = None) -> Any:
        return mbi.estimation.MirrorDescent().estimate(domain, list(measurements), warm_start=potentials, **options)

    frame = pl.LazyFrame({name: codes.astype(np.int64) for name, codes in private.data.to_dict().items()})
    loss = dp.loss_of(rho=rho)
    context = dp.Context.compositor(data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss)
    keys = {name: list(range(size)) for name, size in sizes.items()}
    query, algorithm = context.query(rho=rho).select(*sizes), dp.mbi.MST(estimator=estimator)
    model = query.contingency_table(keys=keys, algorithm=algorithm).release().model

    def draw(rows: int) -> mbi.Dataset:
        drawn, any_cell = model.synthetic_data(rows).data, private.rng.integers
        codes = {  # OpenDP has one more cell, for other values
            name: np.where(drawn[name] < size, drawn[name], any_cell(size, size=rows)) for name, size in sizes.items()
        }
        return mbi.Dataset(codes, private.data.domain)

    return draw


MECHANISMS: dict[str, Callable[[Private, float], Draw]] = {"aim": aim, "mst": mst, "opendp-mst": opendp_mst}


def run(name: str, codes: Any, sizes: list[int], rho: float, asked: Namespace, seed: int) -> tuple[Any, float, float]:
    """Cells (n, d) of a mechanism's rows, its seconds, and the peak MB of this process."""
    warnings.simplefilter("ignore")
    names = [f"c{j}" for j in range(len(sizes))]
    data = mbi.Dataset(dict(zip(names, codes.T, strict=True)), mbi.Domain(names, sizes))
    start = time.perf_counter()
    draw = MECHANISMS[name](Private(data, asked, np.random.default_rng(seed)), rho)
    took, rows = time.perf_counter() - start, draw(len(codes)).data
    return np.stack([rows[c] for c in names], axis=1).astype(int), took, peak()
