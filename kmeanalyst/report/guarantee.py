"""What a release guarantees, in words and in numbers. The words follow release_side/PROMISE.md."""

from __future__ import annotations

import math
from collections import Counter

from kmeanalyst.kernels import Margins
from kmeanalyst.releases.declared_statement import DeclaredStatement
from kmeanalyst.releases.release import ReleaseData, made_by
from kmeanalyst.releases.statement import PrivacyStatement, guarantee, loss_above_epsilon, right_guesses

_METHODS = {
    "random-features": "weighted points fitted to the noisy mean of random features (Algorithm 2)",
    "subspace": "re-weighted points of a subspace of functions (Algorithm 1)",
    "generator": "rows of a network trained on a noisy mean (DP-MERF)",
    "exponential": "a small table drawn by the exponential mechanism",
    "foreign": "weighted points from elsewhere",
}
_NO_FACTOR = 20.0  # ε from which e^ε is too large to picture


def plain_words(release: ReleaseData) -> list[str]:
    """The guarantee as paragraphs."""
    statement = release.statement
    if statement is None:
        return [
            "No privacy guarantee is known for these weighted points: they come from elsewhere, without a measurement. Treat "
            "them as you would treat the rows they were made from."
        ]
    if isinstance(statement, DeclaredStatement):
        return [
            f"What this release knows was {statement.claim}. Errors are right if the noise is as declared, and what that protects "
            "is for those to say who drew it."
        ]
    if release.is_rehearsal:
        return [
            "This is a rehearsal. Its noise was drawn from a seed, and whoever knows the seed can remove it: no row of "
            "the table is protected. The numbers below are what the same release would guarantee with real noise."
        ]
    return [_of_likelihood(statement), _of_guessing(statement), *_of_everything(statement)]


def _of_likelihood(statement: PrivacyStatement) -> str:
    if statement.protects_units:
        change = f"all rows of your unit of {statement.unit!r} had been replaced by those of another unit"
    else:
        change = "your row had been replaced by any other"
    start = f"Whoever sees this page, or the file, learns almost the same about you as from a file made after {change}: "
    if statement.epsilon > _NO_FACTOR:
        return start + f"in theory. With ε = {statement.epsilon:g} the word “almost” covers nearly everything."
    return start + guarantee(statement.epsilon, statement.delta, units=statement.protects_units) + "."


def guessing_right(statement: PrivacyStatement) -> float:
    """The largest probability of guessing which of two candidate rows is in the table, each as likely beforehand.

    Source   Under Gaussian noise Φ(μ/2) (Dong, Roth & Su 2022); otherwise (e^ε + δ)/(1 + e^ε) (Kairouz, Oh & Viswanath 2015):
             the points of the trade-off curves with equal errors.
    """
    if statement.mu is not None:
        return right_guesses(statement.mu)
    odds = math.exp(-statement.epsilon)
    return min((1 + statement.delta * odds) / (1 + odds), 1.0)


def _of_guessing(statement: PrivacyStatement) -> str:
    yours = "the rows of your unit are" if statement.protects_units else "your row is"
    return (
        f"An attacker who knows everything else in the table, and only has to decide which of two candidates {yours}, is right "
        f"in at most {100 * guessing_right(statement):.3g} % of cases, where blind guessing is right in 50 %."
    )


def _of_everything(statement: PrivacyStatement) -> list[str]:
    if statement.protects_units:
        protected = (
            "Units are what is protected: all rows of one unit together, where a unit is what the column "
            f"{statement.unit!r} identifies."
        )
    else:
        protected = (
            "Rows are what is protected: a person with several rows is protected less, and the members of a group together "
            "less than each."
        )
    return [
        "This holds whatever else they know, now or later, and for everything computed from the file, this page included. It "
        "does not hide what is true of the population as a whole.",
        f"Several releases of one table add up, and only the curator’s ledger counts them. {protected} That the noise was drawn "
        "as stated cannot be checked from the file: it rests on trust in its maker.",
    ]


def numbers(release: ReleaseData) -> dict[str, str]:
    """The release in numbers, label → text: as it sums itself up, how it was made, and how probable a loss above ε is."""
    statement = release.statement
    lines = release.summary() | {"method": how_made(release)}
    if isinstance(statement, PrivacyStatement) and statement.mu is not None:  # of other noise the loss is never above ε
        above = loss_above_epsilon(epsilon=statement.epsilon, noise_multiplier=statement.noise_multiplier)
        lines["P(privacy loss > ε)"] = f"{above:.2g}, which is not δ; for the worst pair of neighbours"
    return lines


def how_made(release: ReleaseData) -> str:
    name = made_by(release)
    if not isinstance(release.kernel, Margins) or name == release.method:
        return f"{name}: {_METHODS[name]}" if name in _METHODS else name
    sizes = sorted(Counter(map(len, release.kernel.counted)).items())
    tables = [f"{len(release.kernel.edges):,} of single columns", *(f"{n:,} of {size} columns" for size, n in sizes)]
    return f"{name}: rows drawn to fit noisy tables, {', '.join(tables)}"
