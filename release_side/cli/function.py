"""`release-side publish-function`: parses, calls, prints."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from kmeanalyst.cli.terminal import json_option, print_json, say, working
from kmeanalyst.releases.statement import guarantee
from kmeanalyst.releases.texts import one_line
from release_side.cli.counting_options import check_counted, counted, counting_options

_DENSITY = {"kde": "density"}  # a second name


@click.command("publish-function", short_help="Publish a density, or a classifier or regression.")
@click.argument("private", metavar="PRIVATE", type=click.Path())
@click.option(
    "--domain", "domain_path", required=True, type=click.Path(), help="TOML file of public columns and bounds."
)
@click.option(
    "--kind",
    required=True,
    type=click.Choice(["density", "kde", "ridge", "logistic", "svm"]),
    help="A density (kde: the same), a regression of a number, or a classifier of two classes.",
)
@click.option("--epsilon", required=True, type=float, help="ε > 0 of the guarantee; up to 1 is strong.")
@click.option(
    "--delta", required=True, type=float, help=f"δ of the guarantee: {guarantee()}. Well below 1/N, e.g. 1e-6."
)
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="FILE.kme", help="File to write.")
@click.option("--force", is_flag=True, help="Replace FILE.kme if it exists.")
@click.option("--target", metavar="COLUMN", help="What ridge, logistic and svm predict.")
@click.option("--regularisation", type=float, metavar="LAMBDA", help="λ of mean loss + λ‖f‖²; by default from N.")
@click.option("--kernel", metavar="SPEC", help='As in publish, e.g. "gaussian:lengthscale=0.5".')
@click.option("--pivots", type=click.Path(), metavar="FILE", help="Public points at which the function is measured.")
@click.option("--grid", type=int, metavar="SIZE", help="Measure it on a grid: so many values of each number.")
@click.option("--calibration", type=click.Choice(["analytic", "zcdp"]), help="Analytic, the least noise, by default.")
@counting_options
@click.option(
    "--rehearsal", type=int, metavar="SEED", help="Noise that can be drawn again: the file is stamped NOT PRIVATE."
)
@click.option("--workers", type=int, metavar="N", help="Threads of a density; as many as processors by default.")
@json_option
def publish_function_command(private: str, domain_path: str, kind: str, as_json: bool, **choices: Any) -> None:
    """Publish a function of PRIVATE once, with (ε, δ)-differential privacy, at points and between them.

    \b
    Examples:
      release-side publish-function private.csv --domain age.toml --kind density \\
          --epsilon 1 --delta 1e-6 --output age.kme --ledger budget.ledger --table people
      release-side publish-function private.csv --domain domain.toml --kind logistic --target ill \\
          --epsilon 1 --delta 1e-6 --output ill.kme --ledger budget.ledger --table people
    """
    from kmeanalyst.releases.domain.domain import read_domain
    from release_side.private_rows.rows import open_private
    from release_side.publishing.functions import publish_function

    check_counted(choices)
    domain = read_domain(domain_path)
    extra = open_private(private).check_columns(domain)
    if extra:
        say(f"note: columns not in the domain are ignored: {', '.join(map(one_line, extra))}", err=True)
    with working("publishing") as progress:
        function = publish_function(private, domain_path, kind=_DENSITY.get(kind, kind), progress=progress, **choices)
    _show(function, choices["output"], choices["ledger"], choices["table"], as_json)


def _show(function: Any, output: str, ledger: str | None, table: str | None, as_json: bool) -> None:
    from release_side.errors import PublishError

    if as_json:
        print_json({
            "output": output, "kind": function.kind, "n_pivots": function.basis.dimension,
            "statement": function.statement.to_dict(),
        })  # fmt: skip
        return
    say(f"wrote {output}", err=True)
    if ledger and table:
        with suppress(PublishError):  # written and counted all the same
            say(counted(ledger, table), err=True)
    for label, text in function.summary().items():
        say(f"{label:<11} {text}")


__all__ = ["publish_function_command"]
