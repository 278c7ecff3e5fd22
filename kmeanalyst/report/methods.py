"""A paragraph for papers: what was measured, the guarantee, the file, how errors are read, and what cannot be answered."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

from kmeanalyst import __version__
from kmeanalyst.kernels import Margins
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.report.facts import ReleaseFacts, file_facts
from kmeanalyst.report.guarantee import how_made
from kmeanalyst.report.page import citation, papers


def methods(release: ReleaseData, source: str | Path | None = None) -> dict[str, Any]:
    """The paragraph as "text" and by sentences, and the "papers" to cite; ValueError for points without a statement."""
    if (statement := release.statement) is None:
        raise ValueError(
            "nothing is known of how these weighted points were made, so there is nothing to say of it. Ask for the methods of a "
            "release with a privacy statement, or describe the source of the points yourself."
        )
    facts = ReleaseFacts(release=release, view="", columns=(), pairs=(), paired=(), **file_facts(source))
    counted = f"{statement.n_rows:,} {statement.counted} with the columns {words.names(release.domain.names)}"
    if release.measurement is None:
        measured = f"No private row was seen: the exponential mechanism drew rows in place of those of {counted}."
        errors = "Standard errors take these rows for a sample, and leave out the error of the mechanism, which is not known."
    else:
        dimension, several = release.measurement.feature_map.dimension, statement.declared_by is not None
        noise = "" if several else f" of standard deviation {statement.noise_scale:.4g}"
        measured = (
            f"No private row was seen: the data are a noisy measurement of {counted} ({how_made(release)}): "
            f"{dimension:,} features, each with {statement.mechanism} noise{noise}."
        )
        errors = (
            "Answers are those of the population that the measurement makes most plausible. Their standard errors add up in "
            "squares the noise for privacy, the sampling of the table from its population, and resolution, which is what the "
            "measurement does not tell apart; 95 % intervals are for the population, and assume densities that are smooth between "
            "declared values and relations that were not counted to be no stronger than usual ones."
        )
    mu = "" if statement.mu is None else f" (μ = {statement.mu:.3g} in Gaussian differential privacy)"
    privacy = f"It was {statement.claim}."
    if isinstance(statement, PrivacyStatement):
        law = f"(ε = {statement.epsilon:g}, δ = {statement.delta:g})-differentially private{mu}"
        replaced = f"unit of {statement.unit!r}" if statement.protects_units else "row"
        neighbours = f"tables that differ by replacing one {replaced} ({statement.neighbouring})"
        privacy = f"The release is {law} for {neighbours}."
    if release.is_rehearsal:
        privacy = f"NOT PRIVATE: a rehearsal, whose noise can be drawn again from a seed. {privacy.replace('is', 'would be', 1)}"
    sentences = {
        "measured": measured, "privacy": privacy, "errors": errors, "not_answered": _not_answered(release),
        "file": f"{citation(facts)} Answers by kmeanalyst {__version__}.",
    }  # fmt: skip
    about = {"sha256": facts.sha256, "mu": statement.mu, "statement": statement.to_dict(), "papers": papers(facts)}
    return {"text": " ".join(sentences.values())} | sentences | about


def _not_answered(release: ReleaseData) -> str:
    start = "Single rows and columns that are not listed cannot be asked about"
    if release.measurement is None:
        return f"{start}."
    if not isinstance(release.kernel, Margins):
        return f"{start}; details finer than the smooth features of all columns have wide intervals."
    names, together = list(map(words.written, release.domain.names)), release.measurement.counted_together
    pairs = [f"{names[i]} × {names[j]}" for i, j in combinations(range(len(names)), 2) if not together(i, j)]
    left_out = f" pairs of columns that were not counted together ({words.listed(pairs)})," if pairs else ""
    return f"{start}; values within ranges of numbers,{left_out} and larger sets of columns have wide intervals."
