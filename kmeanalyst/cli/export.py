"""`kmeanalyst export`: points and weights in a file, or a folder of draws, of replicate weights, or for NIST's report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kmeanalyst.cli.arguments import check_not_read, column_names, open_release, reading_options, release_argument
from kmeanalyst.cli.terminal import note, print_json, say, working
from kmeanalyst.releases.texts import one_line


@click.command("export", short_help="Write points and weights for other tools.")
@release_argument
@click.argument("output", type=click.Path(), metavar="OUT.{csv,parquet,nc}", required=False)
@click.option(
    "--view",
    default="signed",
    show_default=True,
    type=click.Choice(["signed", "probability", "resampled", "fitted"]),
    help="Weights as released, the nearest probability weights, rows of equal weight, or what answers are sums over.",
)
@click.option(
    "--rows",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many rows, with --view resampled (by default all points) or --draws (by default those of the private table).",
)
@click.option("--seed", type=int, help="Seed of the resampling, or of draws; by default fresh each time.")
@click.option(
    "--draws",
    "n_draws",
    metavar="M",
    type=click.IntRange(min=2),
    help="OUT is a new folder: M tables that the private one may have been, for Rubin's rule (mice::pool in R, mi in Stata).",
)
@click.option(
    "--replicates",
    "n_replicates",
    metavar="R",
    type=click.IntRange(min=2),
    help="OUT is a new folder: rows with a weight and R replicate weights (svrepdesign in R, svyset in Stata); 100 or more.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    help="With --draws or --replicates: the columns that a regression is about, separated by commas; all by default.",
)
@click.option(
    "--keep-formulas", is_flag=True, help="Of .csv: no apostrophe before text cells that a spreadsheet would run."
)
@click.option(
    "--sdnist",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Instead of OUT: rows of equal weight and labels, in folder DIR, for the report of NIST's SDNist. It knows nothing but "
    "its own excerpts of the American Community Survey: other releases are refused.",
)
@reading_options
def export_command(release_path: str, as_json: bool, **options: Any) -> None:
    """Write the points and weights for other tools.

    In a .csv file a text cell that begins like a formula (=, +, -, @) gets an apostrophe in front, unless it is a number:
    a spreadsheet would run it. The file of a rehearsal has a column NOT_PRIVATE.

    With --sdnist DIR: FILE's name with .csv, as many rows as points unless --rows says otherwise, "N" where a cell is missing; the
    same with .json, labels (ε, δ, method, columns); and the command that makes NIST's report is printed.

    Points and weights by themselves have no valid error. With --draws or --replicates other programs get standard errors that
    include the noise, each by one rule, which README.txt (with code for R and Stata) and rule.json in the folder name.

    \b
    Examples:
      kmeanalyst export adult.kme rows.csv --view resampled --rows 10000
      kmeanalyst export adult.kme draws --draws 20
      kmeanalyst export adult.kme model --draws 20 --columns income,age,sex
      kmeanalyst export adult.kme weighted --replicates 100
    """
    asked = _Asked(**options)
    if (asked.output is None) == (asked.sdnist is None):
        raise click.UsageError("Name either OUT.{csv,parquet,nc} or --sdnist DIR.")
    drawn = asked.n_draws is not None or asked.n_replicates is not None
    write = _sdnist if asked.sdnist is not None else _drawn if drawn else _points
    facts, rehearsal = write(release_path, asked)
    if as_json:
        print_json(facts | {"rehearsal": rehearsal})
    elif asked.sdnist is not None:
        table, labels = facts["output"]
        target = facts["labels"].get("target dataset", "TARGET").removesuffix("2019").upper()
        say(f"python -m sdnist.report {table} {target} --labels {labels}")


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """The options, as they are named above."""

    output: str | None
    view: Any
    rows: int | None
    seed: int | None
    n_draws: int | None
    n_replicates: int | None
    columns: str | None
    keep_formulas: bool
    sdnist: str | None


_Facts = tuple[dict[str, Any], bool]  # what --json prints, and whether the release is a rehearsal


def _points(release_path: str, asked: _Asked) -> _Facts:
    from kmeanalyst.releases.file.export import export

    output, view = asked.output or "", asked.view
    if asked.columns is not None:
        raise click.UsageError("--columns goes with --draws or --replicates: other files have all columns.")
    if Path(output).is_dir():
        raise click.BadParameter(f"{output} is a directory. Name a file.", param_hint="OUT")
    check_not_read(output, release_path)
    release = open_release(release_path)
    with working("writing"):
        frame = release.to_frame(view, rows=asked.rows, rng=asked.seed)
        defused = export(release, output, frame=frame, keep_formulas=asked.keep_formulas)
    _note_defused(defused)
    if (view == "signed" and not release.is_probability) or frame["weight"].min() < 0:
        note("signed weights; most tools misread negative ones. --view probability or resampled has none.")
    say(f"wrote {output}", err=True)
    return {"output": output, "view": view, "rows": len(frame), "defused_cells": defused}, release.is_rehearsal


def _note_defused(defused: int) -> None:
    if defused:
        note(
            f"{defused} text cells begin like a formula, which a spreadsheet would run, and got an apostrophe in front. "
            "--keep-formulas leaves them as they are."
        )


def _drawn(release_path: str, asked: _Asked) -> _Facts:
    from kmeanalyst.inference.draws.draws import FEWEST_REPLICATES, too_few
    from kmeanalyst.inference.draws.folder import write_draws, write_replicates

    folder, m, R = asked.output or "", asked.n_draws, asked.n_replicates
    if (m is not None and R is not None) or asked.view != "signed":
        raise click.UsageError("--draws, --replicates and --view are for different rules: name one of them.")
    if R is not None and asked.rows is not None:
        raise click.UsageError("--rows is for draws: replicate weights go with the rows that the release has.")
    release, columns = open_release(release_path), column_names(asked.columns)
    if R is not None and R < FEWEST_REPLICATES:
        note(too_few(R))
    with working("drawing"):
        if m is not None:
            tables = release.draws(m, columns=columns, rows=asked.rows, rng=asked.seed)
            defused = write_draws(release, folder, tables, keep_formulas=asked.keep_formulas)
            facts = {"draws": m, "rows": len(tables[0]), "rule": "Rubin"}
        else:
            assert R is not None
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it was said
                frame = release.replicates(R, columns=columns, rng=asked.seed)
            defused = write_replicates(release, folder, frame, keep_formulas=asked.keep_formulas)
            facts = {"replicates": R, "rows": len(frame), "rule": "replicate weights"}
    _note_defused(defused)
    say(f"wrote {folder}: README.txt says by which rule standard errors are computed", err=True)
    return {"output": folder, **facts, "defused_cells": defused}, release.is_rehearsal


def _sdnist(release_path: str, asked: _Asked) -> _Facts:
    from kmeanalyst.releases.file.export import SDNIST_COLUMNS, export_sdnist

    if asked.view not in ("signed", "resampled"):
        raise click.UsageError("--sdnist writes rows of equal weight: leave --view out.")
    folder, release, name = asked.sdnist or "", open_release(release_path), Path(release_path).stem
    with working("writing"):
        frame = release.to_frame("resampled", rows=asked.rows, rng=asked.seed)
        labels = export_sdnist(release, folder, name=name, frame=frame)
    left = [column for column in release.domain.names if column not in SDNIST_COLUMNS]
    if left:
        note(f"SDNist does not know these columns and leaves them out: {one_line(', '.join(left))}")
    files = [str(Path(folder) / f"{name}{ending}") for ending in (".csv", ".json")]
    say(f"wrote {files[0]} and {files[1]}", err=True)
    return {"output": files, "rows": len(frame), "labels": labels}, release.is_rehearsal
