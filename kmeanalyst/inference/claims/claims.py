"""How probable claims are in the population, and how many false ones a list of those that are kept may have.

The difference of a claim's two sides has an estimate d with a standard error s, in which resolution counts as prior
variance. Under a flat prior for the difference it is normal, N(d, s²), once the release is known, so that "left > right" has
the posterior probability Φ(d/s). Two rules say which claims of a list to keep at a rate q of false ones:

    Bayesian      the largest set of claims whose mean probability of being false is at most q (Newton et al. 2004; Müller,
                  Parmigiani & Rice 2007). It is what posterior probabilities promise: right on average over differences as
                  large as the prior has them, and not for each population.
    Benjamini–Yekutieli   p-values 1 − Φ(d/s) of "the claim does not hold", adjusted for every claim of the list and for any
                  correlation of their errors (Benjamini & Yekutieli 2001): at most a share q of the kept claims is false on
                  average, for each population, as far as errors of resolution are like those of sampling.

Both count the claims of the list. Those that were considered and dropped because of what the release showed belong to it too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from kmeanalyst.inference.claims.grammar import Asked, ParsedClaim, parse_claim
from kmeanalyst.inference.estimate.estimate import Estimate
from kmeanalyst.inference.questions.expectation import expectation, probability, ratio
from kmeanalyst.inference.questions.moments import MatrixEstimate, corr, cov, std, var
from kmeanalyst.inference.questions.quantiles import quantile
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.expressions import ExpressionError
from kmeanalyst.releases.expressions.syntax import NUMBER, Arithmetic, Call, Constant, Node, Sign
from kmeanalyst.releases.release import ReleaseData, View

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Claim:
    """A claim and what the release says of it.

    text                  as it was written.
    difference            the larger side less the smaller one, as the claim has them: positive where it holds.
    probability           the posterior probability that it holds in the population.
    pvalue                of the hypothesis that it does not hold.
    adjusted_pvalue       the same, adjusted for all claims of the list (Benjamini–Yekutieli).
    kept                  whether it is among the claims that the Bayesian rule keeps at the list's rate.
    name                  a name for it; "" without one.
    """

    text: str
    difference: Estimate
    probability: float
    pvalue: float
    adjusted_pvalue: float
    kept: bool
    name: str = ""

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """The claim as plain numbers, as `claims --json` prints it.

        >>> release.claims(["mean(age) > 38"])[0].to_dict()["probability"]
        0.93...
        """
        own = {"claim": self.text, "name": self.name, "probability": self.probability, "pvalue": self.pvalue}
        kept = {"adjusted_pvalue": self.adjusted_pvalue, "kept": self.kept}
        return own | kept | {"difference": self.difference.to_dict(level)}


class Claims(tuple[Claim, ...]):
    """Claims in the order they were made; `rate` is the q of the Bayesian rule.

    >>> found = release.claims(["mean(age) > 38", "probability(age > 50) < probability(age < 30)"])
    >>> found.rate, [claim.kept for claim in found]
    (0.05, [True, True])
    >>> found.expected_false_share  # (0.065 + 0.000) / 2
    0.0323...
    """

    rate: float

    def __new__(cls, claims: Sequence[Claim] = (), rate: float = 0.05) -> Claims:
        """Claims at a rate of false ones among those that are kept."""
        made = super().__new__(cls, claims)
        made.rate = rate
        return made

    @property
    def expected_false_share(self) -> float:
        """The mean posterior probability of being false among kept claims; 0 where none is kept."""
        false = [1 - claim.probability for claim in self if claim.kept]
        return float(np.mean(false)) if false else 0.0

    def to_frame(self, level: float = 0.95) -> pd.DataFrame:
        """One row for each claim, indexed by its text: difference, standard_error, low, high, its parts, and what follows.

        >>> release.claims(["mean(age) > 38"]).to_frame()[["difference", "probability", "kept"]]
                       difference  probability   kept
        claim
        mean(age) > 38   0.597985     0.935216  False
        """
        import pandas as pd

        return pd.DataFrame([_row(claim, level) for claim in self]).set_index("claim")

    def __repr__(self) -> str:
        notes = dict.fromkeys(f"note: {note}" for claim in self for note in claim.difference.notes)
        return "\n".join([*map(_line, self), summary(self), *notes])


def claims(
    release: ReleaseData,
    texts: Sequence[str],
    *,
    rate: float = 0.05,
    names: Sequence[str] | None = None,
    view: View | None = None,
) -> Claims:
    """The probability of each claim in the population, and which of them to keep: see this module.

    texts    claims in the grammar of `grammar`, such as "mean(wage, where=degree == 'BA') > mean(wage)".
    rate     q in (0, 1), of false claims among those that are kept.
    names    a name for each; none by default.
    view     as in `expectation`.
    Errors   ExpressionError (a ValueError) for a text that is no claim, and ValueError where a statistic has no answer.
    """
    if isinstance(texts, str) or not isinstance(texts, Sequence) or not len(texts):
        raise ValueError(
            f"claims must be a list of at least one text, got {texts!r:.80}: rules for false claims are about lists. Write them "
            "in brackets, such as [\"mean(age) > 40\"]."
        )  # fmt: skip
    if not 0 < rate < 1:
        raise ValueError(f"rate must lie between 0 and 1, got {rate!r}: it is a share of false claims. Pass e.g. 0.05.")
    if names is not None and (isinstance(names, str) or len(names) != len(texts)):
        raise ValueError(
            f"names must be a list with a name for each of the {len(texts)} claims, got {names!r:.80}. Leave it out for none."
        )
    parsed = [parse_claim(text) for text in texts]
    answers = _Answers(release, view)
    differences = [answers.difference(one) for one in parsed]
    held = np.array([_probability(one, claim.sign) for one, claim in zip(differences, parsed, strict=True)])
    adjusted, kept = benjamini_yekutieli(1 - held), largest_set(held, rate)
    return Claims(
        [
            Claim(one.text, difference, float(p), float(1 - p), float(q), bool(k), name)
            for one, difference, p, q, k, name in zip(
                parsed, differences, held, adjusted, kept, names or [""] * len(parsed), strict=True
            )
        ],
        rate,
    )


def largest_set(probabilities: Array, rate: float) -> Array:
    """Which claims (k,) are in the largest set whose mean probability of being false is at most the rate.

    >>> largest_set(np.array([0.99, 0.80, 0.93, 0.10]), 0.05).tolist()
    [True, False, True, False]
    """
    order = np.argsort(-probabilities, kind="stable")
    means = np.cumsum(1 - probabilities[order]) / np.arange(1, len(order) + 1)
    kept = np.zeros(len(order), dtype=bool)
    kept[order[: int((means <= rate).sum())]] = True  # the means increase
    return kept


def benjamini_yekutieli(pvalues: Array) -> Array:
    """Adjusted p-values (k,), valid under any dependence: p₍ᵢ₎ k/i Σ1/j, made monotone (Benjamini & Yekutieli 2001, Thm 1.3).

    >>> benjamini_yekutieli(np.array([0.01, 0.5])).tolist()
    [0.03, 0.75]
    """
    k = len(pvalues)
    ranks = np.arange(1, k + 1)
    order = np.argsort(pvalues, kind="stable")
    scaled = pvalues[order] * k / ranks * (1 / ranks).sum()
    adjusted = np.empty(k)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted


def _probability(difference: Estimate, sign: str) -> float:
    """Φ(d/s); for a difference without an error, whether the claim holds."""
    if difference.standard_error > 0:
        return float(ndtr(difference.value / difference.standard_error))
    return float(difference.value > 0 or (difference.value == 0 and sign in ("<=", ">=")))


class _Answers:
    """The sides of claims on one release; a statistic that several claims name is asked once."""

    def __init__(self, release: ReleaseData, view: View | None) -> None:
        self.release, self.view = release, view
        self.known: dict[tuple[str, tuple[str, ...], str | None], Estimate] = {}

    def difference(self, claim: ParsedClaim) -> Estimate:
        """The side that is claimed to be larger less the other one."""
        larger, smaller = (claim.right, claim.left) if claim.sign in ("<", "<=") else (claim.left, claim.right)
        found: Estimate = self.value(larger, claim) - self.value(smaller, claim)
        return replace(found, question=claim.text)

    def value(self, node: Node, claim: ParsedClaim) -> Any:
        """An Estimate of a part with a statistic, np.float64 of one without; arithmetic keeps correlations."""
        match node:
            case Constant():
                return np.float64(node.value)
            case Asked():
                return self.statistic(node)
            case Call():
                operand = self.value(node.arguments[0], claim)
                with np.errstate(all="ignore"):
                    return getattr(np, node.function)(operand)
            case Sign():
                operand = self.value(node.operand, claim)
                return -operand if node.sign == "-" else operand
        assert isinstance(node, Arithmetic)
        found = self.value(node.first, claim)
        for sign, part in node.rest:
            operand = self.value(part, claim)
            if sign == "**" and isinstance(operand, Estimate):
                where = part.span
                raise ExpressionError(
                    "an exponent must be a number: the error of a power by a statistic is not known here. Write exp(b * log(a)).",
                    claim.text, where.start, where.end,
                )  # fmt: skip
            with np.errstate(all="ignore"):
                found = OPERATORS[sign](found, operand)
        return found

    def statistic(self, asked: Asked) -> Estimate:
        key = asked.statistic, asked.arguments, asked.where
        if key not in self.known:
            self.known[key] = _STATISTICS[asked.statistic](
                self.release, *asked.arguments, where=asked.where, view=self.view
            )
        return self.known[key]


def _of_matrix(matrix: Callable[..., MatrixEstimate]) -> Callable[..., Estimate]:
    return lambda release, a, b, **asked: matrix(release, [a, b], **asked)[a, b]


def _quantile(release: ReleaseData, a: str, order: str, **asked: Any) -> Estimate:
    if not NUMBER.fullmatch(order):
        raise ExpressionError(
            f"the order of a quantile is a number from 0 to 1, got {order!r:.60}. Write quantile({a}, 0.5)."
        )
    found = quantile(release, a, float(order), **asked)
    assert isinstance(found, Estimate)
    return found


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
}  # fmt: skip
_STATISTICS: dict[str, Callable[..., Estimate]] = {
    "mean": expectation, "probability": probability, "var": var, "std": std, "ratio": ratio, "quantile": _quantile,
    "cov": _of_matrix(cov), "corr": _of_matrix(corr),
}  # fmt: skip


def _row(claim: Claim, level: float) -> dict[str, Any]:
    estimate = claim.difference
    low, high = estimate.interval(level)
    return {
        "claim": claim.text, "difference": estimate.value, "standard_error": estimate.standard_error, "low": low, "high": high,
        **{name: np.nan if part is None else part for name, part in estimate.parts.items()},
        "probability": claim.probability, "pvalue": claim.pvalue, "adjusted_pvalue": claim.adjusted_pvalue,
        "kept": claim.kept, "name": claim.name, "note": "; ".join(estimate.notes),
    }  # fmt: skip


def _line(claim: Claim) -> str:
    named = f"{claim.name}: {claim.text}" if claim.name else claim.text
    return (
        f"{'kept' if claim.kept else 'not kept'}: {named} (probability {shown_share(claim.probability)}, adjusted p "
        f"{shown_share(claim.adjusted_pvalue)}, difference {claim.difference.written(claim.difference.value)} ± "
        f"{claim.difference.written(claim.difference.standard_error)})"
    )


def shown_share(share: float) -> str:
    """A probability with three decimals, of which the last tells it from 0 and 1."""
    return "< .001" if share < 0.001 else "> .999" if share > 0.999 else f"{share:.3f}".lstrip("0")


def summary(found: Claims) -> str:
    """Which rule kept how many claims, as a line for readers."""
    kept, by_pvalue = sum(claim.kept for claim in found), sum(claim.adjusted_pvalue <= found.rate for claim in found)
    return (
        f"{kept} of {len(found)} kept by a Bayesian rule: the mean probability that a kept claim is false is "
        f"{found.expected_false_share:.3f}, at most {found.rate:g}. Benjamini–Yekutieli keeps {by_pvalue} at {found.rate:g}."
    )
