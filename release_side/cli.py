"""The curator's command line: parses, calls, prints. Messages name public facts only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from kmeanalyst.terminal import json_option, print_json, progress_line


class PublicErrors(click.Group):
    """Shows the errors that are made of public facts; of any other, only that it happened.

    An unforeseen exception raised while private rows are in hand may carry a private value in its text.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise
        except Exception as error:
            raise click.ClickException(str(error) if isinstance(error, _public_errors()) else _WITHHELD) from None


_WITHHELD = (
    "something failed that should not, and its details are withheld because they may hold private values. Nothing was "
    "written. Try the same on a public sample from Python, which shows the details, and report those."
)


def _public_errors() -> tuple[type[Exception], ...]:
    """Errors whose texts name public facts only."""
    from kmeanalyst.releases.columns import DomainError
    from release_side.mechanism import PublishError

    return DomainError, PublishError, OSError


@click.group(cls=PublicErrors, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kmeanalyst", prog_name="release-side")
def main() -> None:
    """Publish a private table as a differentially private release (.kme).

    \b
    Examples:
      release-side draft-domain public_sample.csv --output domain.toml
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme
    """


@main.command("draft-domain")
@click.argument("public_sample", metavar="PUBLIC_SAMPLE")
@click.option(
    "--output", type=click.Path(dir_okay=False), help="Where to write the domain; standard output by default."
)
@json_option
def draft_domain_command(public_sample: str, output: str | None, as_json: bool) -> None:
    """Draft a domain file (columns, bounds, levels) from a PUBLIC sample, never from the private table.

    Bounds are drafted wider than the sample; lines marked CHECK want your eye.

    Example: release-side draft-domain public_sample.csv --output domain.toml
    """
    from kmeanalyst.releases.atomic import written_whole
    from kmeanalyst.releases.domain import domain_toml
    from kmeanalyst.releases.draft import draft_domain
    from kmeanalyst.releases.tables import read_table

    draft = draft_domain(read_table(public_sample))
    head = (
        "# Drafted from a public sample. Everything in this file becomes public with the release: see each CHECK.\n\n"
    )
    text = head + domain_toml(draft.domain, draft.notes)
    checks = sum(note.startswith("CHECK") for notes in draft.notes.values() for note in notes)
    if output is not None:
        with written_whole(Path(output)) as temporary:
            temporary.write_text(text, encoding="utf-8")
        click.echo(f"wrote {output}: {len(draft.domain)} columns, {checks} places marked CHECK", err=True)
    if as_json:
        print_json({"output": output, "columns": draft.domain.to_dict(), "notes": draft.notes, "checks": checks})
    elif output is None:
        click.echo(text, nl=False)


@main.command()
@click.argument("private", metavar="PRIVATE")
@click.option(
    "--domain", "domain_path", required=True, type=click.Path(), help="TOML file of public columns and bounds."
)
@click.option("--epsilon", required=True, type=float, help="ε > 0: the bound on the privacy loss.")
@click.option("--delta", required=True, type=float, help="δ in (0, 1): the chance that the bound fails, e.g. 1e-6.")
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="FILE.kme")
@click.option(
    "--method", default="random-features", show_default=True, type=click.Choice(["random-features", "subspace"])
)
@click.option("--public-points", type=click.Path(), help="Rows that are already public: points to use or start from.")
@click.option("--points", type=int, metavar="M", help="How many points the release has.")
@click.option("--features", type=int, metavar="F", help="How many feature coordinates are measured (even).")
@click.option(
    "--kernel", metavar="SPEC", help='"table" (default), "gaussian:lengthscale=158.1", "laplacian:lengthscale=2".'
)
@click.option(
    "--weights",
    default="probability",
    show_default=True,
    type=click.Choice(["probability", "bounded", "signed", "published"]),
)
@click.option(
    "--bound", type=float, metavar="C", help="Largest Σ|w| for bounded (default 1) and signed (default 2) weights."
)
@json_option
def publish(private: str, domain_path: str, output: str, as_json: bool, **choices: Any) -> None:
    """Publish PRIVATE (.csv, .csv.gz, .parquet, a directory or a glob) once, with (ε, δ)-differential privacy.

    \b
    Example:
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme
    """
    from kmeanalyst.releases.domain import read_domain
    from release_side.mechanism import PublishError
    from release_side.publishing import publish as publish_table
    from release_side.rows import open_private

    folder = Path(output).absolute().parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):  # before anything is spent
        raise PublishError(
            f"the folder {folder} is not there or not writable, so {output} could not appear. Make it first."
        )
    domain = read_domain(domain_path)
    extra = open_private(private).check_columns(domain)
    if extra:
        click.echo(f"note: columns not in the domain are ignored: {', '.join(extra)}", err=True)
    release = publish_table(private, domain, progress=progress_line(), **choices)
    try:
        release.write(output)
    except (OSError, ValueError) as error:
        raise PublishError(
            f"{output} was not written: {str(error).rstrip('.')}. The noise had been drawn: count this as spent."
        ) from None
    if as_json:
        assert release.statement is not None
        print_json({"output": output, "fit_distance": release.fit_distance, "statement": release.statement.to_dict()})
        return
    click.echo(f"wrote {output}", err=True)
    for label, text in release.summary().items():
        click.echo(f"{label:<10} {text}")
    click.echo("Publishing again spends again: releases of one table add up.", err=True)
