"""Forecast against outcome: the k-marginal score that a plan forecasts, and that of releases.

    python tests/benchmarks/score_forecast.py [--tables pums excerpt housing adult] [--epsilon 0.1 1 10] [--draws 2]
        [--draws-at-tenth 5] [--parts facts sample] [--sample-share 0.5]

The four real tables of never_below_independent.py, read from ../shared. Where that is absent, a line says so.

    facts    the forecast from public facts alone (domain, N, ε, δ) against releases of the whole table: does the range hold the
             mean score of the draws? The share of rows whose random sample has the score likewise.
    sample   one random half of the table is private, and of all its rows a share, from the other half, is the public sample:
             mean forecast less mean score of the draws, in points of 1000. A sample smaller than the half is extrapolated.
"""

from __future__ import annotations

import argparse
import logging
from dataclasses import replace
from typing import Any

import never_below_independent as measured
import numpy as np
import pandas as pd
import synthesis

from kmeanalyst.kernels.base import Array
from kmeanalyst.representation.tables.score_tables import ScoreTables, k_marginal, shares_of
from kmeanalyst.representation.tables.sub_sample import SampleScores
from release_side import plan, publish

TABLES = ("pums", "excerpt", "housing", "adult")


def forecast(table: measured.Table, epsilons: list[float], sample: pd.DataFrame | None = None) -> list[dict[str, Any]]:
    found = plan(
        table.domain, rows=len(table.rows), delta=table.delta, epsilon=epsilons, score=True, group=table.group,
        public_sample=sample,
    )  # fmt: skip
    return found.to_dict("records")


def outcomes(table: measured.Table, epsilon: float, draws: int) -> Array:
    """(draws, 2): k-marginal of releases against the table, and the share of rows whose random sample has it.

    Four times as many draws of a table of up to 1,000 rows: they are quick, and differ most.
    """
    draws *= 4 if len(table.rows) <= 1000 else 1
    group = None if table.group is None else table.domain.position(table.group)
    tables = ScoreTables(table.domain, group)
    counts = tables.counts(table.domain.encode(table.rows))
    samples = SampleScores.of(tables, counts)
    assert samples is not None
    found = []
    for seed in range(draws):
        release = publish(table.rows, table.domain, epsilon=epsilon, delta=table.delta, rehearsal=1000 + seed)
        of_release = tables.counts(release.encoded_points, release.weights)
        score = k_marginal(tables, shares_of(tables, counts), shares_of(tables, of_release))
        assert score is not None
        found.append((score, samples.rows_of(score) / samples.n_rows))
    return np.array(found)


def halves(table: measured.Table, share: float) -> tuple[measured.Table, pd.DataFrame]:
    """A random half as the private table, and so large a share of all rows from the other half."""
    order = np.random.default_rng(0).permutation(len(table.rows))
    half = len(order) // 2
    of_sample = order[half : half + round(share * len(order))]
    return replace(table, rows=table.rows.iloc[order[:half]]), table.rows.iloc[of_sample]


def main() -> None:
    """A line for each table and ε, and the counts."""
    logging.disable()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=list(TABLES))
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0, 10.0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--draws-at-tenth", type=int, default=10, help="draws at ε ≤ 0.1")
    parser.add_argument("--parts", nargs="+", choices=("facts", "sample"), default=["facts", "sample"])
    parser.add_argument("--sample-share", type=float, nargs="+", default=[0.5], help="of all rows of the table")
    arguments = parser.parse_args()
    if not (synthesis.DATA.is_dir() and synthesis.PROTOCOL.is_file()):
        print(f"the data and the protocol are not at {synthesis.SHARED}: nothing to forecast. Skipped.")
        return

    def draws(epsilon: float) -> int:
        return arguments.draws if epsilon > 0.1 else arguments.draws_at_tenth

    if "facts" in arguments.parts:
        _from_facts(arguments.tables, arguments.epsilon, draws)
    if "sample" in arguments.parts:
        for share in arguments.sample_share:
            _with_sample(arguments.tables, arguments.epsilon, share, draws)


def _from_facts(names: list[str], epsilons: list[float], draws: Any) -> None:
    held, of = 0, 0
    print(f"{'table':8} {'ε':>4}  {'outcome':>14}  {'forecast':>22}  held  {'like a sample':>13}  forecast")
    for name in names:
        table = measured.TABLES[name]()
        for epsilon, each in zip(epsilons, forecast(table, epsilons), strict=True):
            scores, shares = outcomes(table, epsilon, draws(epsilon)).T
            inside = each["k_marginal_low"] <= scores.mean() <= each["k_marginal_high"]
            held, of = held + inside, of + 1
            print(
                f"{name:8} {epsilon:4g}  {scores.mean():6.1f} ± {scores.std():5.1f}  {each['k_marginal_low']:6.1f} "
                f"{each['k_marginal']:6.1f} {each['k_marginal_high']:6.1f}  {'yes' if inside else 'no':4}  {shares.mean():13.3f}  "
                f"{each['sample_share_low']:.3f} to {each['sample_share_high']:.3f}",
                flush=True,
            )
    print(f"the range holds {held} of {of} mean outcomes")


def _with_sample(names: list[str], epsilons: list[float], share: float, draws: Any) -> None:
    near, of = 0, 0
    print(f"half of the table private, {share:g} of its rows as the public sample")
    print(f"{'table':8} {'ε':>4}  {'outcome':>14}  {'forecast':>22}  difference")
    for name in names:
        table, sample = halves(measured.TABLES[name](), share)
        for epsilon, each in zip(epsilons, forecast(table, epsilons, sample), strict=True):
            scores = outcomes(table, epsilon, draws(epsilon))[:, 0]
            difference = each["k_marginal"] - scores.mean()
            near, of = near + (abs(difference) <= 20), of + 1
            print(
                f"{name:8} {epsilon:4g}  {scores.mean():6.1f} ± {scores.std():5.1f}  {each['k_marginal_low']:6.1f} "
                f"{each['k_marginal']:6.1f} {each['k_marginal_high']:6.1f}  {difference:+10.1f}",
                flush=True,
            )
    print(f"within 20 points: {near} of {of}")


if __name__ == "__main__":
    main()
