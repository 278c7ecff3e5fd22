"""How well the best attack tells two neighbours apart: the empirical μ of the default measurement, beside the claim.

Two tables of five columns of six levels, N = 2,000, that differ in one row: one of a common level in each column, replaced by one
of five different rare levels. The attacker knows both tables, sees every number that the rounds release, and computes the
likelihood ratio of all rounds (of Gaussian sums, and of draws of tables). The measurement draws its real noise.

    right    share of runs in which the likelihood ratio names the true table, and its 95 % interval (Clopper–Pearson)
    μ        2 Φ⁻¹(right): that of Gaussian differential privacy under which the best attack is right so often
    claim    μ of the statement

    python tests/benchmarks/audit_of_measurement.py [--epsilon 10 3] [--runs 4000] [--workers 2]
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from harness import command_line, show
from scipy.special import logsumexp, ndtri
from scipy.stats import binomtest

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.statement import PopulationSize
from release_side.choices.choices import Choices
from release_side.door.door import Door
from release_side.door.mechanism import GaussianNoise
from release_side.publishing.methods.adaptive.method import AdaptiveMargins

N, DELTA = 2000, 1e-6
DOMAIN = Domain(tuple(Categorical(name=name, levels=tuple("uvwxyz")) for name in "abcde"))


@dataclass
class Witness:
    """The noise of a release, and what an attacker makes of it: each round's exact numbers, and what was released of them.

    replies   what another table's rounds released: these are released again, so that later rounds ask the same.
    """

    noise: GaussianNoise
    replies: list[Array] | None = None
    released: list[Array] = field(default_factory=list)
    log_likelihoods: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.noise.name

    @property
    def epsilon(self) -> float:
        return self.noise.epsilon

    def deviation(self, sensitivity: float) -> float:
        return self.noise.deviation(sensitivity)

    def of_round(self, number: int) -> Witness:
        return self

    def add_to(self, exact_sum: Array, *, sensitivity: float) -> Array:
        reply = self._reply() if self.replies else self.noise.add_to(exact_sum, sensitivity=sensitivity)
        away = (reply - exact_sum).astype(float) / self.deviation(sensitivity)
        return self._released(reply, -0.5 * float(away @ away))

    def largest(self, scores: Array, *, count: int, scale: float) -> Array:
        reply = self._reply() if self.replies else self.noise.largest(scores, count=count, scale=scale)
        left, total = scores.astype(float) / scale, 0.0
        for index in reply:
            total += left[index] - float(logsumexp(left))
            left[index] = -math.inf
        return self._released(reply, total)

    def _reply(self) -> Array:
        assert self.replies is not None
        return self.replies[len(self.released)]

    def _released(self, reply: Array, log_likelihood: float) -> Array:
        self.released.append(reply)
        self.log_likelihoods.append(log_likelihood)
        return reply


def neighbours() -> tuple[Array, Array]:
    """Two tables of codes: half of the rows have the first level everywhere, half the second; a row is replaced by a rare one."""
    first = np.zeros((N, 5))
    first[N // 2 :] = 1.0
    other = first.copy()
    other[0] = [1.0, 2.0, 3.0, 4.0, 5.0]
    return first, other


def is_right(setting: tuple[float, int]) -> bool:
    """Whether the likelihood ratio names the table of this run: the first one in even runs."""
    epsilon, run = setting
    true, other = neighbours() if run % 2 == 0 else neighbours()[::-1]
    noise = GaussianNoise(epsilon, DELTA)
    seen = Witness(noise)
    _measure(true, seen)
    again = Witness(noise, seen.released)
    _measure(other, again)
    return sum(seen.log_likelihoods) > sum(again.log_likelihoods)


def _measure(rows: Array, noise: Witness) -> None:
    size = PopulationSize(N)
    AdaptiveMargins(Choices()).measure(Door([rows], noise, size), DOMAIN, size)  # type: ignore[arg-type]


def main() -> None:
    options = command_line(__doc__, epsilon=(10.0, 3.0), runs=4000, workers=2)
    with ProcessPoolExecutor(options.workers) as pool:
        for epsilon in options.epsilon:
            runs = [(epsilon, run) for run in range(options.runs)]
            right = sum(pool.map(is_right, runs, chunksize=20))
            found = binomtest(right, options.runs)
            ends = found.proportion_ci()
            low, mu, high = (2 * ndtri(share) for share in (ends.low, found.statistic, ends.high))
            claim = 1 / GaussianNoise(epsilon, DELTA).multiplier()
            show([{"epsilon": epsilon, "runs": options.runs, "right": found.statistic, "μ": mu, "low": low, "high": high,
                   "claim": claim, "of the claim": mu / claim}])  # fmt: skip


if __name__ == "__main__":
    main()
