"""Codes with a tree: how well intervals hold the probabilities of chapters, blocks and codes, and what privacy costs.

A simulated table of N rows with a column like ICD-10 (20 chapters, 250 blocks, 2,500 codes, in no way even) and four columns that
depend on the chapter, published by default. For each depth: the share of 95 % intervals that hold the probability of
the distribution that the rows were drawn from, and the median of their widths over that of sampling alone, of all nodes and of
those that a table would have ten rows of or more.

    python tests/benchmarks/codes.py [--epsilon E] [--rows N] [--draws K]
"""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
from harness import command_line, show

import kmeanalyst as ka
import release_side
from kmeanalyst.inference.questions.expectation import expectations
from kmeanalyst.releases.expressions import words

CHAPTERS, BLOCKS, CODES = 20, 250, 2500
DEPTHS = ("chapter", "block", "code")


def tree_of_codes(rng: np.random.Generator) -> tuple[ka.Tree, np.ndarray]:
    """A tree, and the probability of each of its codes."""
    chapter = np.sort(np.concatenate([np.arange(CHAPTERS), rng.integers(0, CHAPTERS, BLOCKS - CHAPTERS)]))
    block = np.sort(np.concatenate([np.arange(BLOCKS), rng.integers(0, BLOCKS, CODES - BLOCKS)]))
    shares = rng.dirichlet(np.full(CHAPTERS, 1.0))[chapter[block]]
    for below, above in ((block, chapter), (np.arange(CODES), block)):
        weights = rng.gamma(0.5, size=below.max() + 1)
        shares = shares * (weights / np.bincount(above, weights)[above])[below]
    parents = {f"B{b:03}": f"C{chapter[b]:02}" for b in range(BLOCKS)}
    parents |= {f"D{code:04}": f"B{block[code]:03}" for code in range(CODES)}
    return ka.Tree(name="cause", parents=parents), shares


def table_of(domain: ka.Domain, shares: np.ndarray, rows: int, rng: np.random.Generator) -> pd.DataFrame:
    """Rows whose other columns depend on the chapter of their code."""
    cause = domain["cause"]
    codes = rng.choice(CODES, rows, p=shares)
    chapter = np.searchsorted(cause.starts(0), codes, side="right") - 1
    age = np.clip(rng.normal(25 + 2.5 * chapter, 12), 0, 99).round()
    return pd.DataFrame({
        "cause": np.array(cause.levels)[codes], "sex": np.where(rng.random(rows) < 0.3 + 0.02 * chapter, "F", "M"),
        "age": age, "region": [f"R{k}" for k in (chapter + rng.integers(0, 5, rows)) % 8],
        "cost": np.exp(rng.normal(6 + 0.05 * chapter + 0.01 * age, 0.8)),
    })  # fmt: skip


def domain_of(cause: ka.Tree) -> ka.Domain:
    return ka.Domain((
        cause, ka.Categorical(name="sex", levels=("F", "M")), ka.Integer(name="age", lower=0, upper=99),
        ka.Categorical(name="region", levels=tuple(f"R{k}" for k in range(8))),
        ka.Real(name="cost", lower=1, upper=1e5, scale="log"),
    ))  # fmt: skip


def measured(epsilon: float, rows: int, seed: int) -> pd.DataFrame:
    """One line for each node: its depth, probability, whether the interval holds it, and its width over sampling's."""
    rng = np.random.default_rng(seed)
    cause, shares = tree_of_codes(rng)
    domain = domain_of(cause)
    begun = time.perf_counter()
    release = release_side.publish(
        table_of(domain, shares, rows, rng), domain, epsilon=epsilon, delta=1e-6, rehearsal=seed, uncounted=True
    )
    published = time.perf_counter()
    lines = []
    for depth, name in enumerate(DEPTHS):
        nodes = [node for node in cause.nodes if node.startswith("CBD"[depth])]
        found = expectations(release, [f"cause == {words.literal(node)}" for node in nodes])
        for node, estimate in zip(nodes, found, strict=True):
            truth = shares[slice(*cause.span(node))].sum()
            low, high = estimate.interval(0.95)
            alone = 2 * 1.96 * np.sqrt(truth * (1 - truth) / rows)
            lines.append((name, truth, low <= truth <= high, (high - low) / alone, estimate.value - truth))
    print(f"seed {seed}: published in {published - begun:.1f} s, asked in {time.perf_counter() - published:.1f} s")
    return pd.DataFrame(lines, columns=["depth", "truth", "held", "price", "error"])


def main() -> None:
    chosen = command_line(__doc__, epsilon=1.0, rows=20_000, draws=3)
    found = pd.concat([measured(chosen.epsilon, chosen.rows, seed) for seed in range(chosen.draws)])
    often = found[found.truth >= 10 / chosen.rows]
    for which, some in (("all", found), ("of ten rows or more", often)):
        by = some.groupby("depth")
        table = pd.DataFrame({"nodes": by.size() / chosen.draws, "held": by.held.mean(), "price": by.price.median()})
        table["mean |error|"] = by.error.apply(lambda error: error.abs().mean())
        show({"nodes of": f"{depth}, {which}"} | table.loc[depth].to_dict() for depth in DEPTHS)


if __name__ == "__main__":
    main()
