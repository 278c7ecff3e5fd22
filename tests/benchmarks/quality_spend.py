"""Coverage of the intervals of published scores, and how wide they are, on real tables.

    python tests/benchmarks/quality_spend.py [--draws 500]

The census excerpt (7,634 rows, 21 columns, by PUMA) and Adult (32,561 rows, 14 columns, by education) of ../shared/data; those
that are not there are left out with a line that says so. A release of each at ε = 1, δ = 1e-6 is scored by 500 draws of the door's
noise at ε = .05 and .5, Laplace (δ = 0) and Gaussian (δ = 1e-6), with means of five columns as questions. Printed for each part:

    held    the share of 95 % noise intervals that hold the score without noise, over all draws and scores of the part
    ±       the median half width: points of 1000 for k-marginal and groups, TV for columns, shares of the range for questions
    given   the share of scores that are given: groups of too small noisy sizes have none
"""

from __future__ import annotations

import argparse

import numpy as np
import synthesis
from never_below_independent import Table, excerpt, of_synthesis
from score_draws import draws_of

from kmeanalyst.releases.expressions import parse
from release_side import publish
from release_side.door.mechanism import noise_for
from release_side.publishing.scores import WIDEST, plan_quality

TABLES = {"excerpt": (excerpt, "PUMA"), "adult": (lambda: of_synthesis("adult"), "education-num")}


def lines(table: Table, group: str, draws: int) -> None:
    release = publish(table.rows, table.domain, epsilon=1, delta=1e-6, uncounted=True)
    encoded = table.domain.encode(table.rows[list(table.domain.names)])
    numbers = [f"`{column.name}`" for column in table.domain.columns if column.is_number and not column.missing]
    ranges = {name: (own := parse(name).extent(table.domain)).high - own.low for name in numbers}
    for epsilon in (0.05, 0.5):
        for delta in (0.0, 1e-6):
            noise = noise_for("gaussian" if delta else "laplace", epsilon, delta)
            exact, drawn = draws_of(release, encoded, noise, group=group, workload=numbers[:5], draws=draws)
            plan = plan_quality(release, epsilon=epsilon, delta=delta, group=group, workload=numbers[:5])
            for part, published in zip(plan["part"], plan["published"], strict=True):
                own = [k for k, score in enumerate(exact) if score.part == part and score.value is not None]
                pairs = [(scores[k], exact[k]) for scores in drawn for k in own if scores[k].value is not None]
                held = np.mean([a.low <= b.value <= a.high for a, b in pairs]) if pairs else np.nan
                width = np.median([(a.high - a.low) / 2 / ranges.get(a.name, 1) for a, _ in pairs]) if pairs else np.nan
                unit = f"{1000 * width:8.1f} points" if part in ("k-marginal", "groups") else f"{width:8.4f}       "
                given = len(pairs) / draws / max(len(own), 1)
                wide = "" if published else f"  refused unless asked for: above {WIDEST[part]:g}"
                start = f"  ε = {epsilon:4}, {noise.name:17}  {part:11}"
                print(f"{start} held {held:.3f}  ± {unit}  given {given:.2f}{wide}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the intervals of published scores.")
    parser.add_argument("--draws", type=int, default=500)
    draws = parser.parse_args().draws
    for name, (make, group) in TABLES.items():
        if not (synthesis.DATA / ("acs" if name == "excerpt" else name)).is_dir():
            print(f"{name}: not in {synthesis.DATA}")
            continue
        table = make()
        print(f"{name}: {len(table.rows):,} rows, {len(table.domain)} columns, by {group}", flush=True)
        lines(table, group, draws)


if __name__ == "__main__":
    main()
