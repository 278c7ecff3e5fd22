"""`release-side publish-function`: parses, calls, prints."""

from __future__ import annotations

from typing import Any

import click

from kmeanalyst.cli.terminal import json_option, working
from release_side.choices.choices import FunctionChoices
from release_side.cli.publication import opened_for_publishing, options_of, publication_options, show_published

_DENSITY = {"kde": "density"}  # a second name


@click.command("publish-function", short_help="Publish a density, or a classifier or regression.")
@click.argument("private", metavar="PRIVATE", type=click.Path())
@publication_options(*options_of(FunctionChoices))
@json_option
def publish_function_command(
    private: str, domain_path: str, from_table: str | None, kind: str, as_json: bool, **choices: Any
) -> None:
    """Publish a function of PRIVATE once, with (ε, δ)-differential privacy, at points and between them.

    \b
    Examples:
      release-side publish-function private.csv --domain age.toml --kind density \\
          --epsilon 1 --delta 1e-6 --output age.kme --ledger budget.ledger --table people
      release-side publish-function private.csv --domain domain.toml --kind logistic --target ill \\
          --epsilon 1 --delta 1e-6 --output ill.kme --ledger budget.ledger --table people
    """
    from release_side.publishing.functions import publish_function

    table = opened_for_publishing(private, from_table, domain_path, choices)
    with working("publishing") as progress:
        function = publish_function(table, domain_path, kind=_DENSITY.get(kind, kind), progress=progress, **choices)
    show_published(function, choices, as_json=as_json, kind=function.kind, n_pivots=function.basis.dimension)
