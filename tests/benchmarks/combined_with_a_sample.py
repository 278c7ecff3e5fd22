"""A release asked together with a sample of one's own: what intervals hold, and their width beside that of either side alone.

    python tests/benchmarks/combined_with_a_sample.py [--tables adult acs ...] [--releases 8] [--sizes 200 500 2000] [--epsilon 1]
        [--shift 0]

Tables of `strangers.py`, each a population: 20,000 rows drawn from it are released, and a sample of the same population is asked
with them. Questions are drawn by a fixed seed: events at a row's values of one, two and three columns, means, standard deviations,
means under an event of another column, their differences, and correlations. `--shift` adds so many standard deviations to the
sample's first column of numbers, of which the assumption of one population is false.

    held      share of 95 % intervals with the population's value, by kind, of both together, with one weight, of each
              alone; its error is of both, over releases, which are the independent unit
    release, sample   median width of the combined interval over that of either side alone
    one       the same over that of the best mean of both answers with one weight
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from strangers import _domain, as_text, drawn, population

import kmeanalyst as ka
from kmeanalyst.inference import combination
from release_side.publishing.publish import publish

EACH = 6  # questions of a kind


def event(table: pd.DataFrame, numbers: list[str], rng: np.random.Generator, pool: list[str], k: int, least: float) -> str:
    """Columns beyond, or at, the values of a random row; codes are levels."""
    for _ in range(1000):
        row, parts, holds = table.iloc[rng.integers(len(table))], [], np.ones(len(table), dtype=bool)
        for name in rng.choice(pool, k, replace=False):
            level = row[name] if isinstance(row[name], str) else f"{row[name]:.10g}"
            parts.append(f"`{name}` > {level}" if name in numbers else f"`{name}` == '{level}'")
            holds &= (table[name] > row[name]) if name in numbers else table[name] == row[name]
        if least < holds.mean() < 1 - least:
            return " and ".join(parts)
    raise ValueError("no event was found")


def questions(table: pd.DataFrame, domain: Any, rng: np.random.Generator) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    columns = [name for name in table if table[name].nunique() > 1]
    numbers = [name for name in columns if isinstance(domain[name], ka.Integer | ka.Real)]
    for _ in range(EACH):
        for kind, k, least in (("P(one)", 1, 0.05), ("P(two)", 2, 0.03), ("P(three)", 3, 0.02)):
            yield kind, partial(lambda r, e: r.probability(e), e=event(table, numbers, rng, columns, k, least))
        x, pair = rng.choice(numbers), tuple(rng.choice(numbers, 2, replace=False))
        given = event(table, numbers, rng, [name for name in columns if name != x], 1, 0.1)
        yield "mean", partial(lambda r, x: r.mean(x), x=x)
        yield "std", partial(lambda r, x: r.std(x), x=x)
        yield "mean given", partial(lambda r, x, e: r.mean(x, where=e), x=x, e=given)
        yield "difference", partial(lambda r, x, e: r.mean(x, where=e) - r.mean(x, where=f"not ({e})"), x=x, e=given)
        yield "corr", partial(lambda r, pair: r.corr([*pair])[pair], pair=pair)


@cache
def published(name: str, seed: int, epsilon: float) -> Any:
    table = population(name)
    return publish(as_text(drawn(table, seed)), _domain(table), epsilon=epsilon, delta=1e-6, uncounted=True)


def main() -> None:
    args = command_line(__doc__, tables=("adult", "acs"), releases=8, sizes=(200, 500, 2000), epsilon=1.0, shift=0.0)
    warnings.simplefilter("ignore")
    much, lines = combination._MUCH, []
    for name in args.tables:
        table = population(name)
        asked = list(questions(table, domain := _domain(table), np.random.default_rng(0)))
        truth = ka.from_frame(as_text(table).assign(weight=1 / len(table)), domain=domain)
        truths = [ask(truth).value for _, ask in asked]
        for seed, n in product(range(args.releases), args.sizes):
            release = published(name, seed, args.epsilon)
            sample = table.sample(n, replace=True, random_state=1000 + seed).reset_index(drop=True)
            first = next(column for column in table if table[column].dtype.kind in "if")
            sample[first] += args.shift * table[first].std()
            both = ka.combine(release, as_text(sample))
            alone = ka.from_frame(as_text(sample).assign(weight=1 / n), domain=domain)
            sides = ("both", both, much), ("one", both, np.inf), ("release", release, much), ("sample", alone, much)
            for (kind, ask), right in zip(asked, truths, strict=True):
                widths, held = {}, {}
                for how, side, least in sides:
                    combination._MUCH = least
                    try:
                        low, high = ask(side).interval()
                    except ValueError:  # too few of the sample's rows
                        continue
                    widths[how] = high - low
                    held[f"held, {how}"] = float(low <= right <= high)
                ratios = {how: widths["both"] / width for how, width in widths.items() if how != "both" and width > 0}
                lines.append({"table": name, "n": n, "kind": kind, "seed": seed, **held, **ratios})
    found = pd.DataFrame(lines)
    sides = [f"held, {how}" for how in ("both", "one", "release", "sample")]
    by_release = found.groupby(["n", "kind", "table", "seed"])[sides].mean().groupby(["n", "kind"])
    shown = by_release.mean().join(found.groupby(["n", "kind"])[["release", "sample", "one"]].median())
    shown.insert(1, "error", by_release[sides[0]].sem())
    show(shown.loc[found.set_index(["n", "kind"]).index.unique()].reset_index().to_dict("records"), 3)
    show(found.groupby(["table", "n"])[sides].mean().reset_index().to_dict("records"), 3)


if __name__ == "__main__":
    main()
