"""How probable claims are in the population, and how many false ones a list of those that are kept may have.

An estimate d with standard error s is of a number that is claimed to be positive: under a flat prior with probability Φ(d/s). Of a
list, which counts every claim that was considered, two rules keep claims at a rate q of false ones: the Bayesian one (Newton et al.
2004) is right on average over the prior, that of p-values 1 − Φ(d/s) adjusted for any correlation (Benjamini & Yekutieli 2001) for
each population, if errors of resolution are like those of sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtr

from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.questions.expectation import expectation
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import Question, ReleaseData, View
from kmeanalyst.releases.texts import Printed


@dataclass(frozen=True)
class Claim:
    """A claim and what the release says of it.

    estimate          of the number that is claimed to be positive.
    probability       the posterior probability that it is, in the population.
    pvalue            of the hypothesis that it is not.
    adjusted_pvalue   the same, adjusted for all claims of the list (Benjamini–Yekutieli).
    kept              whether it is among the claims that the Bayesian rule keeps at the list's rate.
    """

    estimate: Estimate
    probability: float
    pvalue: float
    adjusted_pvalue: float
    kept: bool

    def __repr__(self) -> str:
        d, kept = self.estimate, "kept" if self.kept else "not kept"
        numbers = f"probability {_share(self.probability)}, adjusted p {_share(self.adjusted_pvalue)}"
        return f"{kept}: {d.question} > 0 ({numbers}, estimate {d.written(d.value)} ± {d.written(d.standard_error)})"


class Claims(Printed, tuple[Claim, ...]):
    """Claims in the order they were made; `rate` is the q of the Bayesian rule.

    >>> release.claims(["40 - age"]).rate
    0.05
    """

    rate: float

    def __new__(cls, claims: Sequence[Claim] = (), rate: float = 0.05) -> Claims:
        made = super().__new__(cls, claims)
        made.rate = rate
        return made

    @property
    def expected_false_share(self) -> float:
        """The mean posterior probability of being false among kept claims; 0 where none is kept.

        >>> release.claims(["40 - age"]).expected_false_share < 0.001
        True
        """
        false = [1 - claim.probability for claim in self if claim.kept]
        return float(np.mean(false)) if false else 0.0

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """One row for each claim, indexed by its question: its estimate, and what follows.

        >>> release.claims(["40 - age"]).to_frame()[["estimate", "kept"]]
                      estimate  kept
        claim
        40 - age > 0  1.402015  True
        """
        ends = np.array([claim.estimate.interval(level) for claim in self])
        return pd.DataFrame({
            "claim": [f"{claim.estimate.question} > 0" for claim in self],
            "estimate": [claim.estimate.value for claim in self],
            "standard_error": [claim.estimate.standard_error for claim in self], "low": ends[:, 0], "high": ends[:, 1],
            **{name: [getattr(claim, name) for claim in self] for name in ("probability", "pvalue", "adjusted_pvalue", "kept")},
        }).set_index("claim")  # fmt: skip

    def __repr__(self) -> str:
        kept, adjusted = sum(claim.kept for claim in self), sum(claim.adjusted_pvalue <= self.rate for claim in self)
        rule = (
            f"{kept} of {len(self)} kept by a Bayesian rule: the mean probability that a kept claim is false is "
            f"{self.expected_false_share:.3f}, at most {self.rate:g}. Benjamini–Yekutieli keeps {adjusted} at {self.rate:g}."
        )
        notes = dict.fromkeys(f"note: {note}" for claim in self for note in claim.estimate.notes)
        return "\n".join([*map(repr, self), rule, *notes])


def claims(
    release: ReleaseData, questions: Sequence[Estimate | Question], *, rate: float = 0.05, view: View | None = None
) -> Claims:
    """How probable it is that each of these numbers is positive in the population, and which claims to keep.

    questions  estimates, whose errors stay correlated where they are calculated with, or questions of `expectation`. List every
               claim that was considered, not only those that look true.
    rate       q in (0, 1), of false claims among those that are kept.
    view       of the questions, as in `expectation`.

    >>> release.claims([40 - release.mean("age"), release.std("age") - 13.5])
    kept: 40 - [age] > 0 (probability > .999, adjusted p .002, estimate 1.40 ± 0.44)
    not kept: [std(age)] - 13.5 > 0 (probability .778, adjusted p .333, estimate 0.47 ± 0.62)
    1 of 2 kept by a Bayesian rule: the mean probability that a kept claim is false is 0.001, at most 0.05.
        Benjamini–Yekutieli keeps 1 at 0.05.
    note: more than half of its variance is resolution: ...
    """
    if isinstance(questions, str) or not isinstance(questions, Sequence) or not len(questions):
        raise ValueError(
            f"claims must be a list of at least one estimate or question, got {questions!r:.80}: rules for false claims "
            "are about lists. Write it in brackets, such as [release.mean('age') - 40]."
        )
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate!r}: it is a share of false claims. Pass e.g. 0.05.")
    from scipy.stats import false_discovery_control  # late: it takes long to import

    estimates = [one if isinstance(one, Estimate) else expectation(release, one, view=view) for one in questions]
    holds = np.array([ndtr(d.value / s) if (s := d.standard_error) > 0 else d.value > 0 for d in estimates]) * 1.0
    adjusted, kept = false_discovery_control(1 - holds, method="by"), largest_set(holds, rate)
    rows = zip(estimates, holds.tolist(), (1 - holds).tolist(), adjusted.tolist(), kept.tolist(), strict=True)
    return Claims([Claim(*row) for row in rows], rate)


def largest_set(probabilities: Array, rate: float) -> Array:
    """Which claims (k,) are in the largest set whose mean probability of being false is at most the rate."""
    order = np.argsort(-probabilities, kind="stable")
    means = np.cumsum(1 - probabilities[order]) / np.arange(1, len(order) + 1)
    kept = np.zeros(len(order), dtype=bool)
    kept[order[: int((means <= rate).sum())]] = True  # the means increase
    return kept


def _share(share: float) -> str:
    """A probability with three decimals, of which the last tells it from 0 and 1."""
    return "< .001" if share < 0.001 else "> .999" if share > 0.999 else f"{share:.3f}".lstrip("0")
