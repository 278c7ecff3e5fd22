"""Twenty rules of the American Community Survey's excerpt: rows that break one, in the table and in releases of it.

python tests/benchmarks/rules_of_acs.py [EPSILON [SEEDS]]: publishes shared/data/acs with and without the rules by the shipped
default, and prints the share of rows that break each rule and any, the rules that the measurement contradicts, and the
k-marginal score of shared/anchors/acs_score.py with its worst group (PUMA).
"""

from __future__ import annotations

import importlib.util
import sys
import time
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
    import tomllib

    return replace(domain, rules=rules_from(tomllib.loads(RULES.read_text(encoding="utf-8"))["rule"]))


def _scorer(shared: Path) -> Any:
    spec = importlib.util.spec_from_file_location("acs_score", shared / "anchors/acs_score.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _as_cells(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype(object).where(frame.notna(), "").astype(str)


def main(epsilon: float = 1.0, seeds: int = 1) -> None:
    shared = paths.SHARED
    if not (shared / "data/acs").is_dir():
        print(f"no data in {shared / 'data/acs'}: nothing is measured")
        return
    table = pd.read_csv(shared / "data/acs/ma2019.csv.gz", dtype=str, keep_default_na=False)
    free = read_domain(shared / "data/acs/domain.toml")
    domain, scorer = ruled(free), _scorer(shared)
    rules = rules_of(domain)
    broken = rules.broken_by(domain.encode(table))
    print(f"table: {len(table)} rows, {broken.any(axis=1).mean():.3%} break a rule, each at most {broken.mean(axis=0).max():.3%}")
    for name, own in (("without rules", free), ("with rules", domain)):
        for seed in range(seeds):
            start = time.time()
            release = release_side.publish(table, own, epsilon=epsilon, delta=1e-6, rehearsal=seed, method="random-features",
                                           target="PUMA" if False else None)  # fmt: skip
            took = time.time() - start
            rows = release.resample(len(table), rng=seed) if not release.is_probability else release.to_frame(view="resampled")
            X = free.encode(rows)
            each = rules.broken_by(X)
            score = scorer.score(shared / "data/acs/domain.toml", table, _as_cells(rows), "PUMA")
            named = [one.rule + 1 for one in violations_of(domain, release.measurement) if one.is_contradicted]
            print(
                f"{name}, ε = {epsilon:g}, seed {seed}: {each.any(axis=1).mean():.2%} of {len(X)} rows break a rule (by rule: "
                f"{' '.join(f'{100 * share:.1f}' for share in each.mean(axis=0))}), contradicted: {named or 'none'}, "
                f"k-marginal {score['k_marginal']:.1f}, two-way {score['k_marginal_2way']:.1f}, {took:.0f} s"
            )


if __name__ == "__main__":
    main(*(kind(argument) for kind, argument in zip((float, int), sys.argv[1:], strict=False)))
