"""Releases of this package beside those of mbi and OpenDP: the same rows, cells and guarantee, by the same scores, in one run.

    pip install -e ".[peers]"    (which is mbi; the method opendp-mst needs polars==1.36.1 and randomgen, too)
    python tests/benchmarks/peers.py [--tables adult acs xor] [--methods ours ours-target aim mst opendp-mst]
        [--epsilon 1] [--draws 3] [--degree 2] [--model-size 80] [--iterations 1000]

Tables: the training rows of Adult (δ = 1e-5); the Massachusetts excerpt of the American Community Survey (δ = 1e-6); and XOR
(δ = 1e-6), 10,000 rows of 8 fair binary columns and a label y, whether the first two differ. Methods:

    ours, ours-target   default settings; with a target: income of Adult, PUMA of the excerpt, y of XOR
    aim                 AIM (McKenna, Mullins, Sheldon & Miklau 2022), as a loop of peer_mechanisms.py on mbi's mirror descent.
                        Its workload is all sets of `degree` columns of at most 10,000 cells, its model has at most `model-size`
                        MB. Pairs cannot show what y of XOR is: give --degree 3 there
    mst                 MST (McKenna, Miklau & Sheldon 2021), likewise
    opendp-mst          OpenDP 0.16's contingency table with its own MST, on the same mirror descent

Guarantee: all are ρ-zCDP, for the largest ρ from which (ε, δ) follows (ours needs a little less noise by default). Neighbours
replace one row. A table of counts then moves by √2 and the score of a selection by 2 (1 and 1 where a row is added or removed, as
in the peers' papers), and the number of rows is public.

Cells: numbers are cut at the domain's public edges and atoms; in a row of a peer a number is drawn evenly from its cell.
A line for each method, means over draws:

    ROC, PR       Adult: ROC-AUC and average precision on the test rows, over the nine classifiers of synthesis.py, and for each
    k-marginal    the excerpt: 1000 · (1 − total variation) of tables of two columns crossed with PUMA; higher is better
    accuracy      XOR: on 10,000 fresh rows, of a decision tree
    1-way, 2-way  total-variation distance to the private rows' tables of one and of two columns; 3-way of three (300 of them)
    s, MB         of the release alone, in a process of its own: its seconds, and its peak memory (imports included)
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
import synthesis
from harness import DATA, command_line, margins_apart, publish_alone, read_text, require, show, triples_apart
from sklearn.tree import DecisionTreeClassifier

from kmeanalyst.kernels.margins import Margins
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import one_way_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.representation.tables.within_cells import values_in_cells
from release_side import GaussianNoise, read_domain
from release_side.quality.score_tables import ScoreTables

XOR_ROWS = 10_000
PEERS = ("aim", "mst", "opendp-mst")
METHODS = dict.fromkeys(("ours", "ours-target", *PEERS))


def acs() -> synthesis.Table:
    rows = read_text("acs/ma2019.csv.gz")
    return synthesis.Table(read_domain(DATA / "acs/domain.toml"), rows, rows, "PUMA")


def xor() -> synthesis.Table:
    bits = np.random.default_rng(0).integers(2, size=(2 * XOR_ROWS, 8))
    frame = pd.DataFrame(bits, columns=[f"x{j}" for j in range(8)]).assign(y=bits[:, 0] ^ bits[:, 1]).astype(str)
    domain = Domain(tuple(Categorical(name=name, levels=("0", "1")) for name in frame))
    return synthesis.Table(domain, frame[:XOR_ROWS], frame[XOR_ROWS:], "y")


TABLES: dict[str, Callable[[], synthesis.Table]] = {"adult": synthesis.adult, "acs": acs, "xor": xor}


def scores(name: str, table: synthesis.Table, frame: pd.DataFrame) -> dict[str, float]:
    return scores_of_two(name, table, frame) | {"3-way": triples_apart(table.domain, frame, table.train)}


def scores_of_two(name: str, table: synthesis.Table, frame: pd.DataFrame) -> dict[str, float]:
    if name == "adult":
        return synthesis.scores(table, frame)
    found = dict(zip(("tv_1way", "tv_2way"), margins_apart(table.domain, frame, table.train), strict=True))
    if name == "acs":
        crossed = margins_apart(table.domain, frame, table.train, table.domain.position(table.target))[1]
        return found | {"k-marginal": 1000 * (1 - crossed)}
    seen, fresh = (synthesis.natural_rows(table.domain, rows) for rows in (frame, table.test))
    tree = DecisionTreeClassifier(random_state=0).fit(seen[:, :-1], seen[:, -1])
    return found | {"accuracy": tree.score(fresh[:, :-1], fresh[:, -1])}


def natural_frame(domain: Domain, codes: Any, rng: np.random.Generator) -> pd.DataFrame:
    """Rows with a level, or a number drawn evenly on its column's scale, for each cell (n, d) of `ScoreTables`."""
    kernel, columns = one_way_kernel(domain, tuple(range(len(domain))), ranged=True).kernel, range(len(domain))
    assert isinstance(kernel, Margins)
    return domain.decode(np.column_stack([values_in_cells(kernel, domain, j, codes[:, j], None, rng) for j in columns]))


def release(method: str, table: synthesis.Table, epsilon: float, delta: float, asked: Namespace, draw: int) -> Any:
    if method not in PEERS:
        target = {"target": table.target} if method == "ours-target" else {}
        options = {"epsilon": epsilon, "delta": delta, "calibration": "zcdp"} | target
        found, took, _, megabytes = publish_alone(table.train, table.domain, **options)
        return found.resample(len(table.train), rng=draw), took, megabytes
    from peer_mechanisms import run

    tables = ScoreTables(table.domain)
    rho = 0.5 / GaussianNoise(epsilon, delta, "zcdp").multiplier() ** 2
    sizes = [tables.sizes[j] for j in tables.columns]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        codes = tables.cells(table.domain.encode(table.train))
        codes, took, megabytes = pool.submit(run, method, codes, sizes, rho, asked, draw).result()
    return natural_frame(table.domain, codes, np.random.default_rng(draw)), took, megabytes


def line(method: str, found: Mapping[str, float]) -> dict[str, Any]:
    own = {key: found[key] for key in ("k-marginal", "accuracy", "3-way") if key in found}
    figures = {key: value for key, value in synthesis.line(method, found).items() if value is not None}
    return {"method": figures.pop("setting")} | own | figures


def main() -> None:
    options: dict[str, Any] = {"degree": 2, "model_size": 80.0, "iterations": 1000}
    asked = command_line(__doc__, tables=TABLES, methods=METHODS, epsilon=(1.0,), draws=3, **options)
    if {*asked.methods} & {*PEERS} and find_spec("mbi") is None:
        sys.exit('The peers need mbi: install it with `pip install "mbi>=2.0"`, or pass --methods ours ours-target.')
    require(DATA, synthesis.PROTOCOL)
    for name, epsilon in product(asked.tables, asked.epsilon):
        table, delta = TABLES[name](), synthesis.DELTA if name == "adult" else 1e-6
        lines = [line("real rows", scores(name, table, table.train))]
        for method in asked.methods:
            draws = []
            for draw in range(asked.draws):
                frame, took, megabytes = release(method, table, epsilon, delta, asked, draw)
                draws.append(scores(name, table, frame) | {"seconds": took, "peak_MB": megabytes})
            lines.append(line(method, pd.DataFrame(draws).mean()))
        print(f"\n{name}: {len(table.train):,} rows, {len(table.domain)} columns; ε = {epsilon:g}, δ = {delta:g}")
        show(lines)


if __name__ == "__main__":
    main()
