"""`kmeanalyst claims`: how probable the findings of a study are in the population, as a text or as JSON."""

from __future__ import annotations

from typing import Any

import click

from kmeanalyst.cli.arguments import coverage_option, open_release, reading_options, release_argument, view_option
from kmeanalyst.cli.terminal import print_json, say, working


@click.command(short_help="How probable findings are in the population.")
@release_argument
@click.argument("findings_path", metavar="FINDINGS.toml", type=click.Path())
@click.option(
    "--rate",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of false claims among those that are kept; by default the file's, or 0.05.",
)
@view_option
@coverage_option
@reading_options
def claims(release_path: str, findings_path: str, rate: float | None, view: Any, level: float, as_json: bool) -> None:
    """How probable each claim of a list is in the population, and which to keep.

    FINDINGS.toml has claims = [texts], or [[claim]] tables with a text and perhaps a name, and perhaps a rate. A claim compares
    two sides, made of mean, probability, var, std, quantile, cov, corr, ratio (each with where=condition, if need be) and
    arithmetic, by <, <=, > or >=, such as "mean(wage, where=degree == 'BA') > mean(wage)".

    Claims are kept by a Bayesian rule: the largest set whose mean probability of being false is at most the rate. Next to it stand
    p-values adjusted for the whole list (Benjamini–Yekutieli). List every claim that was considered, not only those that look true.

    Example: kmeanalyst claims adult.kme findings.toml
    """
    from kmeanalyst.inference.claims.claims import summary
    from kmeanalyst.inference.claims.findings import read_findings

    findings = read_findings(findings_path)
    release = open_release(release_path)
    with working("answering"):
        found = release.claims(
            findings.texts, rate=rate or findings.rate or 0.05, names=findings.names, view=view
        )  # fmt: skip
    if not as_json:
        say(repr(found))
        return
    print_json({
        "rehearsal": release.is_rehearsal, "rate": found.rate, "expected_false_share": found.expected_false_share,
        "rule": summary(found), "claims": [claim.to_dict(level) for claim in found],
    })  # fmt: skip
