"""Rare levels, tails, and events that few rows meet: what intervals hold, of single columns and of two.

    python tests/benchmarks/rare_levels.py [--tables adult fair ...] [--releases 4] [--epsilon 1 0.1 10] [--keep FOLDER]

The tables, and how they are drawn and released, are those of strangers.py (whose files `--keep` shares). Questions are not drawn at
random: of each column of levels the six most frequent and the rarest twelve of .1 % and more; of each number nine tails, mean and
standard deviation; of two columns 80 events at random (each column's of .4 to 20 %), and the 60 that are most tied to each other:
the largest (P(a and b) − P(a) P(b)) / √(P(a) P(b)) of .2 % and more. No prior holds these all.

    held, width     share of 95 % intervals that hold the population's value; the median of their width over sampling's
    rms             root mean square of the answers' errors over the stated ones
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show
from strangers import MOST, Questions, _domain, population, released

TAILS = (0.01, 0.03, 0.08, 0.2, 0.5, 0.8, 0.92, 0.97, 0.99)


def of_one(table: pd.DataFrame, asked: Questions) -> Iterator[tuple[str, str, str, float, float]]:
    """Kind, call and question, the population's value and its standard deviation over rows."""
    for name in asked.levels:
        shares = table[name].value_counts(normalize=True)
        shares = shares[shares >= 0.001]
        for level, p in pd.concat([shares[:6], shares[6:][-12:]]).items():
            text = f"{level:.10g}" if table[name].dtype.kind in "if" else level
            yield "level" if p >= 0.02 else "rare level", "probability", f"`{name}` == '{text}'", p, (p * (1 - p)) ** 0.5
    for name in asked.numbers:
        for q in TAILS:
            value = float(np.quantile(table[name], q, method="inverted_cdf"))
            p = float((table[name] > value).mean())
            if 0.002 <= p <= 0.998:
                kind = "number" if 0.02 <= p <= 0.98 else "tail"
                yield kind, "probability", f"`{name}` > {value!r}", p, (p * (1 - p)) ** 0.5
        yield "mean", "mean", name, table[name].mean(), table[name].std()
        yield "std", "std", name, table[name].std(ddof=0), table[name].std()


def of_two(table: pd.DataFrame, asked: Questions) -> Iterator[tuple[str, str, str, float, float]]:
    events = list[tuple[str, str, np.ndarray]]()
    for name in asked.levels:
        for level in table[name].value_counts().index[:40]:
            text = f"{level:.10g}" if table[name].dtype.kind in "if" else level
            events.append((name, f"`{name}` == '{text}'", (table[name] == level).to_numpy()))
    for name in asked.numbers:
        for q in (0.02, 0.07, 0.15):
            low, high = (float(np.quantile(table[name], at, method="inverted_cdf")) for at in (q, 1 - q))
            events.append((name, f"`{name}` < {low!r}", (table[name] < low).to_numpy()))
            events.append((name, f"`{name}` > {high!r}", (table[name] > high).to_numpy()))
    events = [event for event in events if 0.004 <= event[2].mean() <= 0.2]
    held = np.array([event[2] for event in events], dtype=np.float32)
    together, alone = held @ held.T / len(table), held.mean(axis=1)
    pairs = np.array([(i, j) for i, j in combinations(range(len(events)), 2) if events[i][0] != events[j][0]])
    p, expected = together[*pairs.T], alone[pairs[:, 0]] * alone[pairs[:, 1]]
    tied = np.argsort(-np.where(p >= 0.002, (p - expected) / np.sqrt(expected), -1.0), kind="stable")[:60]
    drawn = np.random.default_rng(1).permutation(len(pairs))[:80]
    for kind, chosen in (("two, tied", tied[p[tied] >= 0.002]), ("two, at random", drawn)):
        for i, j in pairs[chosen]:
            own = float(together[i, j])
            yield kind, "probability", f"{events[i][1]} and {events[j][1]}", own, (own * (1 - own)) ** 0.5


def answers(setting: tuple[str, float, int, str | None]) -> list[dict[str, Any]]:
    warnings.simplefilter("ignore")
    name, epsilon, seed, keep = setting
    table = population(name)
    release, asked, lines = released(table, name, epsilon, seed, keep, None), Questions(table, _domain(table)), []
    for kind, call, text, truth, spread in (*of_one(table, asked), *of_two(table, asked)):
        found = getattr(release, call)(text)
        low, high = found.interval()
        off = (found.value - truth) / found.standard_error if found.standard_error else np.nan
        sampling = 3.92 * spread / min(len(table), MOST) ** 0.5
        held = low - 1e-9 <= truth <= high + 1e-9
        lines.append(
            {"kind": kind, "table": name, "held": held, "off": off, "width": (high - low) / sampling if spread else np.nan}
        )
    return lines


def main() -> None:
    tables = ("randhie", "fair", "adult", "acs", "pums", "flchain", "Hdma", "Chile", "bfi")
    options = command_line(__doc__, tables=tables, releases=4, epsilon=(1.0, 0.1, 10.0), workers=2, keep=None)
    with ProcessPoolExecutor(options.workers, mp_context=get_context("forkserver")) as pool:
        for epsilon in options.epsilon:
            settings = [(name, epsilon, seed, options.keep) for name in options.tables for seed in range(options.releases)]
            lines = pd.DataFrame([line for own in pool.map(answers, settings) for line in own])
            print(f"\nepsilon {epsilon:g}: {options.releases} releases of each of {len(options.tables)} tables")
            show([
                {"kind": kind, "answers": len(own), "held": own.held.mean(), "worst": own.groupby("table").held.mean().min(),
                 "at": own.groupby("table").held.mean().idxmin(), "width": own.width.median(), "rms": (own.off**2).mean() ** 0.5}
                for kind, own in lines.groupby("kind", sort=False)
            ], digits=3)  # fmt: skip


if __name__ == "__main__":
    main()
