"""Tables of others that do not show every pair: what intervals hold of the pairs that none of them shows.

    python tests/benchmarks/pairs_without_a_table.py [--tables adult acs fair ...] [--layouts 6] [--rows 3000] [--sigma 4.47]

For each layout six columns of a table are drawn, each cut into at most six cells, and five pairs of them, which hang together or
leave three groups; their counts among so many rows, drawn from the table, get Gaussian noise. From these tables alone
`from_measurements` answers P(a and b), P(a | b) and correlations of every pair, events at a cut or a level of a random row, of
probability .02 to .98. By kind, and by the strength of a pair among all rows (mean φ² of the best cells, √ of which is ≥ .25 for a
strong one), pairs that a table shows beside those that none does:

    held    share of 95 % intervals with the value among all rows; layouts are the independent unit
    width   mean width; of a probability that is not known at all it is the interval that both events' probabilities allow
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from strangers import TABLES, population

import kmeanalyst as ka

MOST, STRONG = 6, 0.25


def cut(table: pd.DataFrame) -> tuple[pd.DataFrame, ka.Domain]:
    """Columns with few cells: numbers between sixths of the rows, the most frequent levels and others."""
    columns, kept = [], {}
    for name in table:
        values = table[name]
        if values.dtype.kind in "if" and values.nunique() > MOST:
            ends = np.unique(np.quantile(values, np.linspace(0, 1, MOST + 1)[1:-1], method="inverted_cdf"))
            ends = tuple(float(end) for end in ends if values.min() < end <= values.max())
            if not ends:
                continue
            columns.append(ka.Real(name=name, lower=float(values.min()), upper=float(values.max()), edges=ends))
            kept[name] = values.astype(float)
        elif values.nunique() > 1:
            texts = values.map("{:.10g}".format) if values.dtype.kind in "if" else values.astype(str)
            top = [*texts.value_counts().index[: MOST - 1]]
            kept[name] = texts.where(texts.isin(top), "others")
            columns.append(ka.Categorical(name=name, levels=tuple(dict.fromkeys([*top, *kept[name].unique()]))))
    return pd.DataFrame(kept), ka.Domain(tuple(columns))


def cells(table: pd.DataFrame, domain: ka.Domain) -> tuple[np.ndarray, list[int]]:
    """(n, d) the cell of each row in each column, and how many each column has."""
    own = []
    for column in domain.columns:
        if isinstance(column, ka.Real):
            own.append(np.searchsorted(column.edges, table[column.name], side="right"))
        else:
            own.append(pd.Categorical(table[column.name], categories=column.levels).codes)
    sizes = [len(c.edges) + 1 if isinstance(c, ka.Real) else len(c.levels) for c in domain.columns]
    return np.stack(own, axis=1), sizes


def layout(d: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Five pairs of six columns: a random tree, or three pairs without a column in common."""
    order = [int(j) for j in rng.permutation(d)]
    if rng.random() < 0.5:
        return [tuple(sorted(order[i : i + 2])) for i in range(0, d, 2)]
    return [tuple(sorted((order[i], order[rng.integers(i)]))) for i in range(1, d)]


def event(table: pd.DataFrame, column: Any, rng: np.random.Generator) -> tuple[str, pd.Series]:
    for _ in range(50):
        if isinstance(column, ka.Real):
            end = float(rng.choice(column.edges))
            text, holds = f"`{column.name}` >= {end!r}", table[column.name] >= end
        else:
            level = table[column.name].iloc[rng.integers(len(table))]
            text, holds = f"`{column.name}` == '{level}'", table[column.name] == level
        if 0.02 <= holds.mean() <= 0.98:
            break
    return text, holds


def strength(own: np.ndarray, sizes: list[int], i: int, j: int) -> float:
    """The largest canonical correlation of two columns' cells."""
    table = np.bincount(own[:, i] * sizes[j] + own[:, j], minlength=sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
    shares = table / table.sum()
    a, b = shares.sum(axis=1), shares.sum(axis=0)
    scaled = shares / np.sqrt(np.outer(np.maximum(a, 1e-12), np.maximum(b, 1e-12)))
    return float(np.linalg.svd(scaled, compute_uv=False)[1])


def ask(release: ka.Release, everybody: pd.DataFrame, strengths: dict, pairs: list, rng: np.random.Generator) -> list:
    found, domain, texts, truths, of, free = [], release.domain, [], [], [], []
    for i, j in combinations(range(len(domain)), 2):
        for _ in range(2):
            (a, first), (b, second) = (event(everybody, domain.columns[k], rng) for k in (i, j))
            texts.append(f"{a} and {b}")
            truths.append((first & second).mean())
            p, q = first.mean(), second.mean()
            free.append(min(p, q) - max(p + q - 1, 0))
            of.append((i, j))
        estimate = release.probability(a, where=b)
        low, high = estimate.interval(0.95)
        found.append(("P(a | b)", (i, j), low <= first[second].mean() <= high, high - low, 1.0))
        if all(isinstance(domain.columns[k], ka.Real) for k in (i, j)):
            names = [domain.names[i], domain.names[j]]
            low, high = release.corr(names)[tuple(names)].interval(0.95)
            truth = everybody[names[0]].corr(everybody[names[1]])
            found.append(("corr", (i, j), low <= truth <= high, high - low, 2.0))
    for pair, truth, free_width, estimate in zip(of, truths, free, release.expectations(texts), strict=True):
        low, high = estimate.interval(0.95)
        found.append(("P(a and b)", pair, low <= truth <= high, high - low, free_width))
    return [
        {
            "kind": kind,
            "shown": pair in pairs,
            "strong": strengths[pair] >= STRONG,
            "held": held,
            "width": width,
            "free": free,
        }
        for kind, pair, held, width, free in found
    ]


def measure(name: str, layouts: int, rows: int, sigma: float) -> list[dict[str, Any]]:
    table, rng, found = population(name), np.random.default_rng(0), []
    whole, wide = cut(table)
    for number in range(layouts):
        chosen = sorted(rng.choice(len(wide), min(6, len(wide)), replace=False))
        domain = ka.Domain(tuple(wide.columns[j] for j in chosen))
        everybody = whole[list(domain.names)]
        own, sizes = cells(everybody, domain)
        pairs, sample = layout(len(domain), rng), rng.choice(len(own), rows)
        tables = {}
        for i, j in pairs:
            counts = np.bincount(own[sample, i] * sizes[j] + own[sample, j], minlength=sizes[i] * sizes[j])
            noisy = counts + np.rint(rng.normal(0, sigma, len(counts)))
            tables[domain.names[i], domain.names[j]] = ka.NoisyTable(noisy.reshape(sizes[i], sizes[j]), scale=sigma)
        if {j for pair in pairs for j in pair} != set(range(len(domain))):
            continue
        release = ka.from_measurements(domain, tables, n_rows=rows)
        strengths = {pair: strength(own, sizes, *pair) for pair in combinations(range(len(domain)), 2)}
        found += [{"table": name, "layout": number, **one} for one in ask(release, everybody, strengths, pairs, rng)]
    return found


def main() -> None:
    args = command_line(__doc__, tables=("adult", "acs", "pums", "randhie", "anes96"), layouts=6, rows=3000, sigma=4.47)
    found = pd.DataFrame([one for name in args.tables for one in measure(name, args.layouts, args.rows, args.sigma)])
    for by in (["kind", "shown", "strong"], ["table", "shown", "strong"], ["shown"]):
        together = found.groupby(by).agg(
            held=("held", "mean"), width=("width", "mean"), free=("free", "mean"), n=("held", "size")
        )
        show(together.reset_index().to_dict("records"), 3)


if __name__ == "__main__":
    assert set(TABLES)
    main()
