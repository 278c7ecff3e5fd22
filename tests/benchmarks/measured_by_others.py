"""Noisy tables that other tools published: what intervals hold, beside those that their users have.

    python tests/benchmarks/measured_by_others.py [--sources opendp aim laplace census] [--draws 200] [--fits 40] [--workers 2]

Of each draw so many rows of a population (five columns of Adult; three levels of geography) are measured anew, and asked by
`from_measurements`; truth is the population's. Questions are fixed, by kind; a pair that no table shows is "not counted".

    opendp    OpenDP's contingency table (where its packages are installed, see `peer_mechanisms.py`), fixed marginals, ρ = .05
    aim       the log of AIM on mbi's estimator, ρ = .05: columns, and pairs that it chose
    laplace   three GROUP BYs of two columns with Laplace noise of scale 8
    census    a noisy measurement file of 2 states, 6 counties and 24 blocks: four queries at each of the three levels, the less
              precise the lower, and one of the country; states' totals are exact

    held, error    share of 95 % intervals with the truth; draws are the independent unit
    width          median, over that of the table's own rows if nothing were private
    rows           of `--fits` draws the share held by the usual interval of the tool's synthetic rows (opendp, aim), which takes
                   them for a sample
    std            share held by ± 1.96 of OpenDP's `.std` of a count, of cells that one table covers, and its width likewise
"""

from __future__ import annotations

import warnings
from argparse import Namespace
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from strangers import population

import kmeanalyst as ka

CUTS, RHO = (24, 34, 44, 60), 0.05
PAIRS = (("sex", "income"), ("age", "income"), ("sex", "marital"), ("education", "income"))
RICH, OLD, WED, SCHOOL = "income == '>50K'", "age > 44", "marital == 'Never-married'", "education == 'Bachelors'"
OF_ADULT = {
    "P(one)": [RICH, OLD, WED, "education == 'HS-grad'"],
    "P(two), counted": [f"sex == 'Female' and {RICH}", f"{OLD} and {RICH}", f"{SCHOOL} and {RICH}"],
    "P(two), not counted": [f"{OLD} and {WED}", "age <= 24 and sex == 'Female'", f"{SCHOOL} and sex == 'Male'"],
    "P(three)": [f"{OLD} and sex == 'Male' and {RICH}", f"{SCHOOL} and sex == 'Male' and {RICH}"],
    "P(a given b)": [(RICH, OLD), (RICH, SCHOOL)],
    "P(a given b), not counted": [(WED, OLD), (OLD, "sex == 'Male'")],
}
OF_CENSUS = {
    "P(one)": ["hispanic", "race == 'b'", "voting"],
    "P(place)": ["geo == 's0c1'", "geo == 's1c2'", "geo == 's0c1b2'", "geo == 's1c0b3'"],
    "P(two), in a state": ["race == 'b' and geo == 's0'", "hispanic and geo == 's1'", ("voting", "geo == 's0'")],
    "P(two), in a county": ["race == 'b' and geo == 's1c1'", ("hispanic", "geo == 's0c2'"), ("voting", "geo == 's1c0'")],
    "P(two), in a block": ["hispanic and geo == 's1c0b3'", ("race == 'b'", "geo == 's0c1b2'")],
    "P(three), counted": ["hispanic and voting and geo == 's1c1'", ("race == 'b'", "hispanic and voting")],
    "not counted": ["race == 'b' and hispanic and geo == 's1c1'", ("race == 'b'", "voting and geo == 's0'")],
}


@cache
def adult() -> tuple[pd.DataFrame, ka.Domain]:
    names = {"age": "age", "sex": "sex", "marital-status": "marital", "education": "education", "income": "income"}
    table = population("adult")[[*names]].rename(columns=names)
    levels = [ka.Categorical(name=name, levels=tuple(sorted(table[name].unique()))) for name in [*table][1:]]
    edges = tuple(cut + 1 for cut in CUTS)
    return table, ka.Domain((ka.Integer(name="age", lower=17, upper=90, edges=edges), *levels))


@cache
def country() -> tuple[pd.DataFrame, ka.Domain]:
    rng, n = np.random.default_rng(0), 100_000
    blocks = [f"s{s}c{c}b{b}" for s in range(2) for c in range(3) for b in range(4)]
    geo = rng.choice(blocks, n, p=rng.dirichlet(np.full(24, 3.0)))
    lift = dict(zip(sorted({one[:4] for one in blocks}), rng.normal(0, 0.5, 6), strict=True))
    there = np.array([lift[one[:4]] for one in geo])
    hispanic = rng.random(n) < 1 / (1 + np.exp(1.4 - there))
    is_b, is_c = rng.random(n) < np.where(hispanic, 0.1, 0.2) + 0.1 * (there > 0), rng.random(n) < 0.1
    race = np.select([is_b, is_c], ["b", "c"], "a")
    voting = rng.random(n) < np.where(hispanic, 0.65, 0.8)
    parents = {**{block: block[:4] for block in blocks}, **{block[:4]: block[:2] for block in blocks}}
    columns = ka.Tree(name="geo", parents=parents), ka.Categorical(name="race", levels=("a", "b", "c"))
    frame = pd.DataFrame({"geo": geo, "race": race, "hispanic": hispanic, "voting": voting})
    return frame, ka.Domain((*columns, ka.Boolean(name="hispanic"), ka.Boolean(name="voting")))


def counts(codes: dict[str, Any], sizes: dict[str, int], names: tuple[str, ...]) -> np.ndarray:
    shape = [sizes[name] for name in names]
    cells = np.ravel_multi_index([codes[name] for name in names], shape)
    return np.bincount(cells, minlength=np.prod(shape)).reshape(shape)


def coded(rows: pd.DataFrame, domain: ka.Domain) -> tuple[dict[str, Any], dict[str, int]]:
    codes = {name: pd.Categorical(rows[name], categories=domain[name].levels).codes for name in [*rows][1:]}
    codes |= {"age": np.searchsorted(CUTS, rows["age"])}
    return codes, {"age": len(CUTS) + 1} | {name: len(domain[name].levels) for name in [*rows][1:]}


def of_codes(codes: dict[str, Any], domain: ka.Domain, rng: np.random.Generator) -> ka.Release:
    """A tool's synthetic rows; a cell beyond the levels, OpenDP's for other values, is any level."""
    low, high = np.array([17, *(cut + 1 for cut in CUTS)]), np.array([*CUTS, 90])
    frame = {"age": rng.integers(low[codes["age"]], high[codes["age"]] + 1)}
    for name in domain.names[1:]:
        levels = np.array(domain[name].levels)
        anything = rng.integers(len(levels), size=len(codes[name]))
        frame[name] = levels[np.where(codes[name] < len(levels), codes[name], anything)]
    return ka.from_frame(pd.DataFrame(frame).assign(weight=1 / len(codes["age"])), domain=domain)


def laplace(rows: pd.DataFrame, rng: np.random.Generator, fits: bool) -> tuple[Any, Any, Any]:
    domain = adult()[1]
    codes, sizes = coded(rows, domain)
    sent = {pair: counts(codes, sizes, pair) for pair in (PAIRS[0], PAIRS[1], ("education", "marital"))}
    sent = {pair: own + rng.laplace(0, 8.0, own.shape) for pair, own in sent.items()}
    noisy = {pair: ka.NoisyTable(own, noise="laplace", scale=8.0) for pair, own in sent.items()}
    return ka.from_measurements(domain, noisy, n_rows=len(rows), statement="a GROUP BY"), None, None


def aim(rows: pd.DataFrame, rng: np.random.Generator, fits: bool) -> tuple[Any, Any, Any]:
    import peer_mechanisms as peers

    domain, log = adult()[1], []
    codes, sizes = coded(rows, domain)

    class Logged(peers.Private):
        def measure(self, columns: Any, multiplier: float) -> Any:
            log.append(super().measure(columns, multiplier))
            return log[-1]

    data = peers.mbi.Dataset(codes, peers.mbi.Domain([*codes], [sizes[name] for name in codes]))
    draw = peers.aim(Logged(data, Namespace(iterations=100, degree=2, model_size=1.0), rng), RHO)
    shapes = [[sizes[name] for name in one.clique] for one in log]
    noisy = [np.reshape(one.noisy_measurement, shape) for one, shape in zip(log, shapes, strict=True)]
    tables = [ka.NoisyTable(own, one.clique, scale=float(one.stddev)) for own, one in zip(noisy, log, strict=True)]
    rows_of_it = of_codes({name: np.asarray(own) for name, own in draw(len(rows)).data.items()}, domain, rng)
    return ka.from_measurements(domain, tables, n_rows=len(rows), statement="AIM"), rows_of_it, None


_known_scale: list[float] = []


def _opendp_scale(make: Any, *bounds: Any) -> float:
    """The scale of its noise, for which OpenDP searches half a minute, once for all draws: it depends on ρ alone."""
    import opendp.prelude as dp

    if not _known_scale:
        d_in, d_out, kind = bounds
        _known_scale.append(dp.binary_search_param(make, d_in, d_out, T=kind))
    return _known_scale[0]


def opendp(rows: pd.DataFrame, rng: np.random.Generator, fits: bool) -> tuple[Any, Any, Any]:
    import opendp.extras.mbi._fixed as module
    import opendp.prelude as dp
    import peer_mechanisms as peers
    import polars as pl

    module.binary_search_chain = lambda make, d_in, d_out, T: make(_opendp_scale(make, d_in, d_out, T))
    dp.enable_features("contrib")
    peers.mbi.Domain.attrs = property(lambda self: self.attributes)
    domain = adult()[1]
    columns = [domain["age"], *(replace(one, missing=True) for one in domain.columns[1:])]

    def estimator(own: Any, measurements: Any, *, potentials: Any = None) -> Any:
        if not fits:
            nothing = peers.mbi.CliqueVector.zeros(own, [(name,) for name in own.attributes])
            return peers.mbi.MarkovRandomField(potentials=nothing, marginals=nothing, total=1)
        return peers.mbi.estimation.MirrorDescent().estimate(own, list(measurements), warm_start=potentials, iters=200)

    frame = pl.LazyFrame({name: rows[name].tolist() for name in rows})
    loss = dp.loss_of(rho=RHO)
    context = dp.Context.compositor(data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss)
    keys = {name: list(domain[name].levels) for name in domain.names[1:]}
    fixed = dp.mbi.Fixed(estimator=estimator, queries=[dp.mbi.Count(pair) for pair in PAIRS])
    query = context.query(rho=RHO).select(*rows).contingency_table(keys=keys, cuts={"age": [*CUTS]}, algorithm=fixed)
    table = query.release()
    tables = []
    for one in table.marginals.flatten():
        shape = [len(CUTS) + 1 if name == "age" else len(keys[name]) + 1 for name in one.clique]
        noisy = np.reshape(one.noisy_measurement, shape)
        tables.append(ka.NoisyTable(noisy, one.clique, noise="discrete gaussian", scale=float(one.stddev)))
    release = ka.from_measurements(ka.Domain(tuple(columns)), tables, n_rows=len(rows), statement="OpenDP")
    drawn = table.model.synthetic_data(len(rows)).data if fits else {}
    synthetic = of_codes({name: np.asarray(own) for name, own in drawn.items()}, domain, rng) if fits else None

    def std(question: str) -> tuple[float, float]:
        """A cell of one of the tables, by the formula of `ContingencyTable.std`, which itself refuses queries of mbi 2.1."""
        parts = dict(part.split(" == ") for part in question.split(" and "))
        at = tuple([*table.keys[name]].index(level.strip("'")) for name, level in parts.items())
        own = next(one for one in table.marginals.flatten() if {*one.clique} == {*parts})
        return float(np.asarray(table.project(tuple(parts)))[at]) / len(rows), float(own.stddev) / len(rows)

    return (release, synthetic, std) if fits else (release, None, None)


def census(rows: pd.DataFrame, rng: np.random.Generator, fits: bool) -> tuple[Any, Any, Any]:
    def query(names: list[str], variance: float, length: int | None = None) -> pd.DataFrame | ka.NoisyTable:
        own = rows.assign(geo=rows["geo"].str[:length])
        cells = pd.MultiIndex.from_product([sorted(own[name].unique()) for name in names], names=names)
        of_rows = own.groupby(names).size()
        counts = [of_rows.get(cell if len(cell) > 1 else cell[0], 0) for cell in cells]
        table = pd.DataFrame({"count": counts}, index=cells).reset_index()
        if not variance:
            return ka.NoisyTable(table, exact=True)
        table["count"] = table["count"] + np.rint(rng.normal(0, variance**0.5, len(table)))
        return table.assign(variance=variance)

    tables = [query(["race", "hispanic", "voting"], 9.0), query(["geo"], 0, 2)]
    for length, variance in ((2, 9.0), (4, 16.0), (6, 25.0)):
        by = [["geo"], ["geo", "race"], ["geo", "hispanic"], ["geo", "hispanic", "voting"]]
        tables += [query(names, variance, length) for names in by if length > 2 or len(names) > 1]
    return ka.from_measurements(country()[1], tables, statement="a simulated bureau"), None, None


SOURCES = {
    **{one.__name__: (one, adult, OF_ADULT) for one in (opendp, aim, laplace)}, "census": (census, country, OF_CENSUS),
}  # fmt: skip


def asked(release: Any, question: Any) -> Any:
    event, given = (question, None) if isinstance(question, str) else question
    return release.probability(event, where=given)


@cache
def truths(source: str) -> list[float]:
    _, table, kinds = SOURCES[source]
    frame, domain = table()
    whole = ka.from_frame(frame.assign(weight=1 / len(frame)), domain=domain)
    return [asked(whole, question).value for questions in kinds.values() for question in questions]


def one_draw(source: str, n: int, fits: int, seed: int) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    measure, table, kinds = SOURCES[source]
    frame, domain = table()
    rng = np.random.default_rng(seed)
    rows = frame.iloc[rng.integers(len(frame), size=n)].reset_index(drop=True)
    release, synthetic, std = measure(rows, rng, seed < fits)
    own, lines = ka.from_frame(rows.assign(weight=1 / n), domain=domain), []
    named = [(kind, question) for kind, questions in kinds.items() for question in questions]
    for (kind, question), truth in zip(named, truths(source), strict=True):
        low, high = asked(release, question).interval()
        usual = asked(own, question).interval()
        line = {"source": source, "kind": kind, "question": str(question), "draw": seed, "held": low <= truth <= high,
                "width": (high - low) / (usual[1] - usual[0])}  # fmt: skip
        if synthetic is not None:
            low, high = asked(synthetic, question).interval()
            line["rows"] = float(low <= truth <= high)
        if std is not None and kind == "P(two), counted" and "age" not in question:
            value, error = std(question)
            line["std"] = float(abs(value - truth) <= 1.96 * error)
            line["width of std"] = 3.92 * error / (usual[1] - usual[0])
        lines.append(line)
    return lines


def main() -> None:
    args = command_line(__doc__, sources=tuple(SOURCES), draws=200, workers=2, rows=6000, fits=40)
    for source in args.sources:
        with ProcessPoolExecutor(args.workers, mp_context=get_context("forkserver")) as pool:
            draws = pool.map(partial(one_draw, source, args.rows, args.fits), range(args.draws))
            found = pd.DataFrame([line for lines in draws for line in lines])
        by_draw = found.groupby(["kind", "draw"]).held.mean().groupby("kind")
        others = [name for name in ("rows", "std", "width of std") if name in found]
        width = found.groupby("kind").width.median()
        shown = pd.DataFrame({"held": by_draw.mean(), "error": by_draw.sem(), "width": width})
        shown = shown.join(found.groupby("kind")[others].mean()).loc[found["kind"].unique()]
        least = found.groupby("question").held.mean().min()
        print(f"\n{source}: {args.draws} draws; least question {least:.3f}, all {found.held.mean():.3f}")
        show(shown.reset_index().to_dict("records"), 3)


if __name__ == "__main__":
    main()
