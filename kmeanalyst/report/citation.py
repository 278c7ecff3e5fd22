"""How to ask more, and how to cite. Commands are for copying: they hold no text of the file's maker that a shell could run."""

from __future__ import annotations

import re

from kmeanalyst.releases.domain.cyclic_column import Cyclic
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.expressions import words
from kmeanalyst.report.facts import ReleaseFacts

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")  # no quotes needed, in any shell
_PLAIN_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_BALOG = (
    "Balog, M., Tolstikhin, I. & Schölkopf, B. (2018). Differentially private database release via kernel mean embeddings. "
    "ICML, PMLR 80."
)
_HARDER = (
    "Harder, F., Adamczewski, K. & Park, M. (2021). DP-MERF: Differentially private mean embeddings with random features for "
    "practical privacy-preserving data generation. AISTATS, PMLR 130."
)
_MCSHERRY = "McSherry, F. & Talwar, K. (2007). Mechanism design via differential privacy. FOCS."
_BALLE = (
    "Balle, B. & Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy: analytical calibration and "
    "optimal denoising. ICML, PMLR 80."
)
_CANONNE = "Canonne, C., Kamath, G. & Steinke, T. (2020). The discrete Gaussian for differential privacy. NeurIPS 33."
_GRETTON = "Gretton, A., Borgwardt, K., Rasch, M., Schölkopf, B. & Smola, A. (2012). A kernel two-sample test. JMLR 13."


def commands(facts: ReleaseFacts) -> list[tuple[str, str]]:
    """(what it shows, command) for this release, as one would type them."""
    file = plain_file(facts)
    extra = " --allow-rehearsal" if facts.release.is_rehearsal else ""
    number, levels = _example(facts, Number), _example(facts, Categorical)
    asked = [("what the file is and guarantees", f"info {file}"), ("whether its claims hold", f"validate {file}")]
    if number:
        asked.append(("a mean, with its error in parts", f"expect {file} {number}"))
        asked.append(("quantiles", f"quantile {file} {number} 0.1 0.5 0.9"))
    if number and levels:
        asked.append(("the same in each group", f"expect {file} {number} --by {levels}"))
        asked.append(("a two-way table", f"table {file} {number} {levels}"))
    asked += [
        ("whether your own rows are from the same population", f"mmd-test {file} my_sample.csv"),
        ("where they differ", f"compare {file} my_sample.csv"),
        ("rows for other tools", f"export {file} rows.csv --view resampled --rows 10000"),
    ]
    return [(what, f"kmeanalyst {text}{extra}") for what, text in asked]


def plain_file(facts: ReleaseFacts) -> str:
    """The file's name if a shell takes it as it is, else a placeholder."""
    return facts.source if facts.source and _PLAIN_FILE.fullmatch(facts.source) else "FILE.kme"


def _example(facts: ReleaseFacts, kind: type) -> str | None:
    """The first column of a kind whose name needs no quotes."""
    for one in facts.columns:
        name = one.name
        if not isinstance(one.column, kind) or isinstance(one.column, Cyclic) or one.column.missing:
            continue
        if _PLAIN_NAME.fullmatch(name) and name not in words.WORDS and one.column.kind != "date":
            return name
    return None


def papers(facts: ReleaseFacts) -> list[str]:
    """What to cite: the methods that made the release and its guarantee."""
    statement, method = facts.release.statement, facts.release.method
    if statement is None:
        return []
    found = [_BALOG]
    if method == "generator":
        found.append(_HARDER)
    if statement.is_selection:
        found.append(_MCSHERRY)
    if statement.calibration == "analytic":
        found.append(_BALLE)
    if "gaussian" in statement.mechanism:
        found.append(_CANONNE)
    return [*found, _GRETTON]


def citation(facts: ReleaseFacts) -> str:
    """A sentence that names this release and no other."""
    statement = facts.release.statement
    described = "weighted points without a privacy guarantee"
    if statement is not None:
        kind = "NOT PRIVATE rehearsal of a release" if statement.is_rehearsal else "differentially private release"
        described = (
            f"{kind} of {statement.n_rows:,} {statement.counted} (ε = {statement.epsilon:g}, δ = {statement.delta:g}, "
            f"{statement.neighbouring}; {facts.release.method}, {statement.mechanism})"
        )
    digest = f" SHA-256 {facts.sha256}." if facts.sha256 else ""
    return f"{facts.source or 'A release'}: {described}.{digest}"
