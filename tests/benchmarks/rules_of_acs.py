"""Twenty rules of the American Community Survey's excerpt: rows that break one, in the table and in releases of it.

    python tests/benchmarks/rules_of_acs.py [--epsilon E] [--seeds N] [--shared ../shared] [--target PUMA]

Publishes ../shared/data/acs with and without the rules, by the defaults, and prints the share of rows that break each rule and
any, the rules that the measurement contradicts, and the k-marginal score of ../shared/anchors/acs_score.py by PUMA; then the means
over seeds, and how many times as long publishing takes with the rules, in processor time. Says so where the data are not there.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import paths

import release_side
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.rules.compiled import rules_of
from kmeanalyst.releases.rules.rule import rules_from
from kmeanalyst.releases.rules.violations import violations_of

RULES = Path(__file__).with_name("rules_of_acs.toml")


def ruled(domain: Domain) -> Domain:
    """The domain with the twenty rules."""
    return replace(domain, rules=rules_from(tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"]))


def _scorer(shared: Path) -> Any:
    spec = importlib.util.spec_from_file_location("acs_score", shared / "anchors/acs_score.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _as_cells(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(object).where(frame.notna(), "").astype(str)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--shared", type=Path, default=paths.ROOT.parent / "shared")
    parser.add_argument("--target")
    asked = parser.parse_args()
    data = asked.shared / "data/acs"
    if not data.is_dir():
        print(f"no data in {data}: nothing is measured")
        return
    table = pd.read_csv(data / "ma2019.csv.gz", dtype=str, keep_default_na=False)
    free = read_domain(data / "domain.toml")
    domain, scorer = ruled(free), _scorer(asked.shared)
    rules = rules_of(domain)
    broken = rules.broken_by(domain.encode(table))
    print(
        f"table: {len(table)} rows, {broken.any(axis=1).mean():.3%} break a rule, each at most {broken.mean(axis=0).max():.3%}"
    )
    found: dict[str, list[tuple[float, ...]]] = {}
    for seed in range(asked.seeds):
        for name, own in (("without rules", free), ("with rules", domain)):
            start = time.process_time()
            release = release_side.publish(
                table, own, epsilon=asked.epsilon, delta=1e-6, target=asked.target, rehearsal=seed
            )
            took, rows = time.process_time() - start, release.resample(len(table), rng=seed)
            each = rules.broken_by(free.encode(rows))
            score = scorer.score(data / "domain.toml", table, _as_cells(rows), "PUMA")
            named = [one.rule + 1 for one in violations_of(domain, release.measurement) if one.is_contradicted]
            print(
                f"{name}, ε = {asked.epsilon:g}, seed {seed}: {each.any(axis=1).mean():.2%} of the rows break a rule (of each, %: "
                f"{' '.join(f'{100 * share:.1f}' for share in each.mean(axis=0))}); contradicted: {named or 'none'}; "
                f"k-marginal {score['k_marginal']:.1f}, two-way {score['k_marginal_2way']:.1f}; {took:.0f} s",
                flush=True,
            )
            kept = each.any(axis=1).mean(), score["k_marginal"], score["k_marginal_2way"], score["pmse"], took
            found.setdefault(name, []).append(kept)
    for name, own in found.items():
        share, by_group, two_way, pmse, took = np.array(own).mean(axis=0)
        scores = f"k-marginal {by_group:.1f}, two-way {two_way:.1f}, pMSE {pmse:.4f}"
        print(f"mean {name}: {share:.2%} of the rows break a rule; {scores}; {took:.1f} s")
    seconds = [np.array(own)[:, -1].sum() for own in found.values()]
    print(f"processor time with rules over that without: {seconds[1] / seconds[0]:.2f}")


if __name__ == "__main__":
    main()
