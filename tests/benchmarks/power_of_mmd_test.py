"""Power of the noise-aware two-sample test compared with the non-private one.

    python tests/benchmarks/power_of_mmd_test.py [--repetitions 40] [--shifts 0 0.06 0.08 0.3]
    python tests/benchmarks/power_of_mmd_test.py --adult adaptive margins [--repetitions 100] [--epsilon 1 10]
    python tests/benchmarks/power_of_mmd_test.py --releases chosen like smooth [--repetitions 60]

Reads ../shared/anchors (the five-dimensional mixture of Balog, Tolstikhin & Schölkopf 2018) and says so when it is not
there. N = 10,000 rows are the table, L = 500 others the sample, shifted in its first column by so many
of its standard deviations; level 5 %, default sizes, δ = 1e-6. On the same rows: the permutation test of table and sample (nothing
private), the noise-aware test of releases at ε = 1 and 0.1.

With --adult instead: 6,000 rows of Adult (../shared/data, drawn with replacement from both files) are the table, 1,500 others
two years older the sample, and the table is published by these kernels.

With --releases pairs of tables of 6,000 rows of Adult are published at ε = 1 and compared: "chosen" each with its own choice of
tables, "like" both with those of a third release, "smooth" five columns by random features, each release with its own. Level: every
release of the population against the next four of them. Power: a third as many altered ones of each kind, each against two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from harness import ANCHORS, command_line, require, show
from level_of_mmd_test import fit_nothing
from populations import population

import kmeanalyst as ka
import release_side
from kmeanalyst.kernels import Gaussian
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.numbers import Real

ANCHOR = ANCHORS / "mixture_of_Gaussians_N100000_D5.npz"
N, L, DELTA = 10_000, 500, 1e-6
EPSILONS = (1.0, 0.1)


def pvalues(shifts: Sequence[float], repetitions: int) -> dict[tuple[float, str], list[float]]:
    """p-values by shift and test."""
    require(ANCHOR)
    rows = np.load(ANCHOR)["X_private"]
    domain = Domain(tuple(Real(name=f"x{j}", lower=-700, upper=700) for j in range(rows.shape[1])))
    kernel = Gaussian(float(np.sqrt(1e4 * rows.shape[1] / 2)))
    fit_nothing(rows[::10])
    found: dict[tuple[float, str], list[float]] = defaultdict(list)
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        table, sample = np.split(rows[rng.choice(len(rows), N + L, replace=False)], [N])
        frame = pd.DataFrame(table, columns=domain.names)
        releases = {epsilon: _published(frame, domain, epsilon, rng, kernel=kernel) for epsilon in EPSILONS}
        for shift in shifts:
            moved = sample + shift * rows[:, 0].std() * np.eye(rows.shape[1])[0]
            named = pd.DataFrame(np.clip(moved, domain.columns[0].lower, domain.columns[0].upper), columns=domain.names)
            plain = ka.mmd_test(table, moved, kernel=kernel, permutations=199, rng=repetition)
            found[shift, "not private"].append(plain.pvalue)
            for epsilon, release in releases.items():
                found[shift, f"ε = {epsilon:g}"].append(ka.mmd_test(release, named).pvalue)

        _tell(found, repetition + 1)
    return found


def _tell(found: dict[tuple[float, str], list[float]], repetitions: int) -> None:
    if repetitions % 10 == 0:
        print(f"after {repetitions} repetitions; rejections at 5 %")
        show(
            {"shift": shift, "test": name, "rejected": np.mean(np.array(some) <= 0.05)}
            for (shift, name), some in sorted(found.items())
        )


def tell_older(kernels: Sequence[str], epsilons: Sequence[float], repetitions: int) -> None:
    """Print how often a sample of Adult that is two years older is rejected at 5 %."""
    domain, draw, _ = population("adult")
    fit_nothing(domain.encode(draw(1000, np.random.default_rng(0))))
    for kernel, epsilon in product(kernels, epsilons):
        found = []
        for repetition in range(repetitions):
            rng = np.random.default_rng([repetition, int(epsilon * 10)])
            table, sample = draw(6000, rng), draw(1500, rng)
            release = _published(table, domain, epsilon, rng, kernel=kernel, workers=1)
            older = sample.assign(age=(sample["age"].astype(int) + 2).astype(str))
            found.append(ka.mmd_test(release, older).pvalue <= 0.05)
        print(f"Adult, ε = {epsilon:g}, {kernel}: {np.mean(found):.3f} of {repetitions}", flush=True)


_FIVE = ("age", "education-num", "sex", "hours-per-week", "income")
_NEXT = 4  # releases that each is compared with


def tell_releases(kinds: Sequence[str], repetitions: int) -> None:
    """Print how often two releases are taken for different ones at 5 %, of one population and of altered ones."""
    domain, draw, _ = population("adult")
    few = Domain(tuple(domain[name] for name in _FIVE))
    with TemporaryDirectory() as folder:
        first = Path(folder) / "first.kme"
        table = draw(6000, np.random.default_rng(5))
        release_side.publish(table, domain, epsilon=1, delta=DELTA, kernel="adaptive", uncounted=True, output=first)
        options: dict[str, tuple[Domain, dict[str, Any]]] = {
            "chosen": (domain, {"kernel": "adaptive"}), "like": (domain, {"like": first}),
            "smooth": (few, {"kernel": "table", "features": 400, "points": 150}),
        }  # fmt: skip
        for kind in kinds:
            (own, how), releases = options[kind], dict[str, list[ka.Release]]()
            for j, alter in enumerate(_ALTERED):
                seeds = [np.random.default_rng([kinds.index(kind), j, i]) for i in range(repetitions // (3 if j else 1))]
                tables = [_ALTERED[alter](draw, rng)[list(own.names)] for rng in seeds]
                releases[alter] = [
                    _published(rows, own, 1.0, rng, workers=1, **how) for rows, rng in zip(tables, seeds, strict=True)
                ]
            same = releases["one population"]
            for alter, others in releases.items():
                steps = range(1, _NEXT + 1) if others is same else range(2)
                pairs = [(same[(i + step) % len(same)], other) for i, other in enumerate(others) for step in steps]
                rejected = np.mean([ka.mmd_test(*pair).pvalue <= 0.05 for pair in pairs])
                print(f"{kind}, {alter}: {rejected:.3f} of {len(pairs)} pairs", flush=True)


def _older(draw: Draw, rng: np.random.Generator) -> pd.DataFrame:
    table = draw(6000, rng)
    return table.assign(age=np.minimum(table["age"].astype(int) + 2, 90).astype(str))


def _over_sampled(draw: Draw, rng: np.random.Generator) -> pd.DataFrame:
    """Rows of one race are half as frequent again."""
    table = draw(20_000, rng)
    return table.sample(6000, weights=np.where(table["race"] == "Black", 1.5, 1.0), random_state=rng)


def _weakened(draw: Draw, rng: np.random.Generator) -> pd.DataFrame:
    """In half of the rows sex is as in others, whatever the rest of the row is."""
    table = draw(6000, rng)
    sex, half = table["sex"].to_numpy().copy(), rng.random(6000) < 0.5
    sex[half] = rng.permutation(sex[half])
    return table.assign(sex=sex)


Draw = Callable[[int, np.random.Generator], pd.DataFrame]
_ALTERED: dict[str, Callable[[Draw, np.random.Generator], pd.DataFrame]] = {
    "one population": lambda draw, rng: draw(6000, rng), "two years older": _older, "a group over-sampled": _over_sampled,
    "sex half shuffled": _weakened,
}  # fmt: skip


def _published(table: pd.DataFrame, domain: Domain, epsilon: float, rng: np.random.Generator, **options: Any) -> ka.Release:
    return release_side.publish(table, domain, epsilon=epsilon, delta=DELTA, rehearsal=int(rng.integers(2**62)), **options)


def main() -> None:
    """Print the rates, after every ten repetitions."""
    choice = command_line(__doc__, repetitions=40, shifts=(0.0, 0.06, 0.08, 0.3), adult=(), releases=(), epsilon=(1.0, 10.0))
    if choice.adult:
        tell_older(choice.adult, choice.epsilon, choice.repetitions)
        return
    if choice.releases:
        tell_releases(choice.releases, choice.repetitions)
        return
    print(f"N = {N}, L = {L}")
    pvalues(choice.shifts, choice.repetitions)


if __name__ == "__main__":
    main()
