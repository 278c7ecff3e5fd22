"""`kmeanalyst glm`: a coefficient table of a formula, as a text or as JSON."""

from __future__ import annotations

from typing import Any

import click

from kmeanalyst.cli.arguments import coverage_option, open_release, reading_options, release_argument, view_option
from kmeanalyst.cli.terminal import print_json, say, working


@click.command("glm", short_help="Regression: a coefficient table of a formula.")
@release_argument
@click.argument("formula", metavar="FORMULA")
@click.option(
    "--family",
    default="gaussian",
    show_default=True,
    type=click.Choice(["gaussian", "binomial", "poisson", "gamma", "multinomial", "ordinal"]),
    help="The distribution of the target.",
)
@click.option("--link", help="logit, probit, log, inverse, ...; the family's canonical link by default.")
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="COLUMN=LEVEL",
    help="The level that the others of a column, or of a multinomial target, are compared with; by default the first. May be "
    "repeated.",
)
@click.option("--where", metavar="CONDITION", help="Only rows for which this holds, e.g. \"sex == 'Female'\".")
@view_option
@coverage_option
@reading_options
def glm_command(
    release_path: str,
    formula: str,
    family: str,
    link: str | None,
    references: tuple[str, ...],
    where: str | None,
    view: Any,
    level: float,
    as_json: bool,
) -> None:
    """A generalised linear model of a formula in R's notation: coefficients, standard errors in parts, intervals, p-values.

    Factors are columns or expressions, joined by + - : * ^ ( ). Of a column of levels the first is what the others are compared
    with. With --family binomial the target is a condition, or a column of two levels of which the second is success.

    Odds ratios, average marginal effects, Wald and score tests, and predictions with intervals: in Python, of what
    release.glm(FORMULA, family=...) returns.

    \b
    Examples:
      kmeanalyst glm adult.kme "income ~ age + sex" --family binomial
      kmeanalyst glm adult.kme "income ~ sex" --family binomial --reference sex=Male
      kmeanalyst glm adult.kme '`hours-per-week` ~ age * sex' --where "age < 65" --json
    """
    release = open_release(release_path)
    with working("fitting"):
        found = release.glm(formula, family, link=link, reference=_levels(references), where=where, view=view)
        answer: Any = found.to_dict(level) if as_json else found.summary(level)
    if as_json:
        print_json({"rehearsal": release.is_rehearsal, "formula": formula, **answer})
    else:
        say(answer)


def _levels(references: tuple[str, ...]) -> dict[str, str]:
    """Column → level, of texts "column=level"; the first "=" divides them."""
    if wrong := [text for text in references if "=" not in text]:
        raise click.BadParameter(f"{wrong[0]!r:.80} is no COLUMN=LEVEL.", param_hint="--reference")
    return dict(text.split("=", 1) for text in references)
