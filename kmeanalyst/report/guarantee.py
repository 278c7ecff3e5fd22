"""What a release promises, in plain words and in numbers. The words are those of release_side/PROMISE.md, for a reader."""

from __future__ import annotations

import math

from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PrivacyStatement, guarantee, is_pure, loss_above_epsilon

_METHODS = {
    "random-features": "weighted points fitted to the noisy mean of random features (Algorithm 2)",
    "subspace": "re-weighted points of a subspace of functions (Algorithm 1)",
    "generator": "rows of a network trained on a noisy mean (DP-MERF)",
    "exponential": "a small table drawn by the exponential mechanism",
    "foreign": "weighted points from elsewhere",
}
_NO_FACTOR = 20.0  # ε from which e^ε is too large to picture


def plain_words(release: ReleaseData) -> list[str]:
    """The promise as paragraphs."""
    promise = release.statement
    if promise is None:
        return [
            "No privacy promise is known for these weighted points: they come from elsewhere, without a measurement. Treat "
            "them as you would treat the rows they were made from."
        ]
    if promise.is_rehearsal:
        return [
            "This is a rehearsal. Its noise was drawn from a seed, and whoever knows the seed can remove it: nobody "
            "whose row is in the table is protected. The numbers below are what the same release would promise with real noise."
        ]
    return [_of_likelihood(promise), _of_guessing(promise), *_of_everything(promise)]


def _who(promise: PrivacyStatement) -> tuple[str, str]:
    """Whose, and what of theirs is replaced."""
    return (
        ("unit", f"all rows of your unit of {promise.unit!r} had")
        if promise.protects_units
        else ("row", "your row had")
    )


def _of_likelihood(promise: PrivacyStatement) -> str:
    _, replaced = _who(promise)
    others = "those of another unit" if promise.protects_units else "any other"
    start = (
        f"Whoever sees this page, or the file, learns almost the same about you as from a file made after {replaced} been "
        f"replaced by {others}: "
    )
    if promise.epsilon > _NO_FACTOR:
        return start + f"in theory. With ε = {promise.epsilon:g} the word “almost” covers nearly everything."
    return start + guarantee(promise.epsilon, promise.delta, units=promise.protects_units) + "."


def guessing_right(promise: PrivacyStatement) -> float:
    """The most that a guess between two candidate rows is right, each as likely beforehand.

    Source   (e^ε + δ)/(1 + e^ε): Kairouz, Oh & Viswanath 2015, the point of the trade-off curve with equal errors.

    >>> from types import SimpleNamespace
    >>> round(guessing_right(SimpleNamespace(epsilon=1.0, delta=0.0)), 3)
    0.731
    """
    odds = math.exp(-promise.epsilon)
    return min((1 + promise.delta * odds) / (1 + odds), 1.0)


def _of_guessing(promise: PrivacyStatement) -> str:
    yours = "the rows of your unit are" if promise.protects_units else "your row is"
    return (
        f"Somebody who knows everything else in the table, and only has to decide which of two candidates {yours}, is right in "
        f"at most {100 * guessing_right(promise):.3g} % of cases, where blind guessing is right in 50 %."
    )


def _of_everything(promise: PrivacyStatement) -> list[str]:
    return [
        "This holds whatever else they know, now or later, and for everything computed from the file, this page included. It "
        "does not hide what is true of the population as a whole.",
        f"Several releases of one table add up, and only the curator’s ledger counts them. {_who(promise)[0].capitalize()}s are "
        "what is protected: "
        + (
            f"all rows of one unit together, where a unit is what the column {promise.unit!r} identifies."
            if promise.protects_units
            else "somebody with several rows is protected less, and the members of a group together less than each."
        )
        + " That the noise was drawn as stated cannot be checked from the file: it rests on trust in its maker.",
    ]


def numbers(release: ReleaseData) -> list[tuple[str, str]]:
    """The promise and the release in numbers: label and text."""
    weights, promise = release.weights, release.statement
    lines = [] if promise is None else _of_promise(promise)
    if release.measurement is not None:
        lines.append(("features measured", f"{release.measurement.feature_map.dimension:,}"))
    lines += [
        ("method", f"{release.method}: {_METHODS[release.method]}" if release.method in _METHODS else release.method),
        (
            "points",
            f"{len(release):,} weighted rows of {len(release.columns):,} columns, {release.weight_view} weights",
        ),
        ("sum of weights", f"{weights.sum():.4g}"),
        ("sum of their sizes", f"{abs(weights).sum():.4g}"),
        ("negative weights", f"{100 * (weights < 0).mean():.3g} %"),
    ]
    if release.residual_over_noise is not None:
        lines.append(("misfit", f"{release.residual_over_noise:.3g} times the size of the noise"))
    return lines


def _of_promise(promise: PrivacyStatement) -> list[tuple[str, str]]:
    noise = promise.noise_scale
    lines = [
        ("N", f"{promise.n_rows:,} {promise.counted}"),
        ("ε (epsilon)", f"{promise.epsilon:g}"),
        ("δ (delta)", f"{promise.delta:g}"),
        *_of_loss(promise),
        ("ρ (zCDP)", f"{promise.rho:.4g}"),
        ("neighbours", f"tables that differ by replacing one {f'unit of {promise.unit!r}' if promise.protects_units else 'row'} "
                       f"({promise.neighbouring})"),
        ("mechanism", f"{promise.mechanism}, {promise.calibration} calibration"),
        ("sensitivity", f"{promise.sensitivity:.4g}"),
    ]  # fmt: skip
    if noise is not None:
        lines.append(("noise", f"standard deviation {noise:.4g} on each feature"))
    if promise.n_databases is not None:
        lines.append(("drawn from", f"{promise.n_databases:,} databases"))
    if promise.public_points:
        lines.append(("public points", f"{promise.public_points:,} of the points were given as public rows"))
    return lines


def _of_loss(promise: PrivacyStatement) -> list[tuple[str, str]]:
    """How probable a privacy loss above ε is; nothing for laws of noise under which there is none."""
    if promise.is_selection or is_pure(promise.mechanism):
        return []
    probability = loss_above_epsilon(epsilon=promise.epsilon, noise_multiplier=promise.noise_multiplier)
    return [("P(privacy loss > ε)", f"{probability:.2g}, which is not δ; for the worst pair of neighbours")]
