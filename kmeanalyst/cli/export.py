"""`kmeanalyst export`: points and weights in a file, or a folder of draws, of replicate weights, or for NIST's report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import Answer, column_names, on_release
from kmeanalyst.cli.terminal import argument, note, option, say
from kmeanalyst.releases.texts import one_line

if TYPE_CHECKING:
    from kmeanalyst.release import Release


@dataclass(frozen=True, kw_only=True)
class _Choices:
    """The arguments and options, as they are named below; contradictions of theirs are refused before a file is opened."""

    output: str | None
    view: Any
    rows: int | None
    seed: int | None
    n_draws: int | None
    n_replicates: int | None
    columns: str | None
    keep_formulas: bool
    sdnist: str | None

    def __post_init__(self) -> None:
        if (self.output is None) == (self.sdnist is None):
            raise click.UsageError("Name either OUT.{csv,parquet,nc} or --sdnist DIR.")
        if self.sdnist is not None:
            if self.view not in ("signed", "resampled"):
                raise click.UsageError("--sdnist writes rows of equal weight: leave --view out.")
        elif self.n_draws is not None or self.n_replicates is not None:
            if None not in (self.n_draws, self.n_replicates) or self.view != "signed":
                raise click.UsageError("--draws, --replicates and --view are for different rules: name one of them.")
            if self.n_replicates is not None and self.rows is not None:
                raise click.UsageError("--rows is for draws: replicate weights go with the rows that the release has.")
        elif self.columns is not None:
            raise click.UsageError("--columns goes with --draws or --replicates: other files have all columns.")
        elif Path(self.output or "").is_dir():
            raise click.BadParameter(f"{self.output} is a directory. Name a file.", param_hint="OUT")


@on_release(
    "export", "Write points and weights for other tools.", argument("output", "OUT.{csv,parquet,nc}", required=False),
    option(
        "--view",
        "Weights as released, the nearest probability weights, rows of equal weight, or what answers are sums over.",
        ("signed", "probability", "resampled", "fitted"), "signed",
    ),
    option(
        "--rows",
        "How many rows, with --view resampled (by default all points) or --draws (by default those of the private table).",
        click.IntRange(min=1), metavar="N",
    ),
    option("--seed", "Seed of the resampling, or of draws; by default fresh each time.", int),
    option(
        "--draws n_draws",
        "OUT is a new folder: M tables that the private one may have been, for Rubin's rule (mice::pool in R, mi in Stata).",
        click.IntRange(min=2), metavar="M",
    ),
    option(
        "--replicates n_replicates",
        "OUT is a new folder: rows with a weight and R replicate weights (svrepdesign in R, svyset in Stata); 100 or more.",
        click.IntRange(min=2), metavar="R",
    ),
    option(
        "--columns",
        "With --draws or --replicates: the columns that a regression is about, separated by commas; all by default.",
        metavar="NAMES",
    ),
    option(
        "--keep-formulas", "Of .csv: no apostrophe before text cells that a spreadsheet would run.", default=False
    ),
    option(
        "--sdnist",
        "Instead of OUT: rows of equal weight and labels, in folder DIR, for the report of NIST's SDNist. It knows nothing but "
        "its own excerpts of the American Community Survey: other releases are refused.",
        "folder", metavar="DIR",
    ),
    work="writing", check=_Choices,
)  # fmt: skip
def export_command(release: Release, path: str, **options: Any) -> Answer:
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
    asked = _Choices(**options)
    if asked.sdnist is not None:
        return _sdnist(release, Path(path).stem, asked.sdnist, asked)
    assert asked.output is not None
    if asked.n_draws is not None or asked.n_replicates is not None:
        return _drawn(release, asked.output, asked)
    return _points(release, asked.output, asked)


def _points(release: Release, output: str, asked: _Choices) -> Answer:
    from kmeanalyst.releases.file.export import export

    frame = release.to_frame(asked.view, rows=asked.rows, rng=asked.seed)
    defused = export(release, output, frame=frame, keep_formulas=asked.keep_formulas)
    _note_defused(defused)
    if (asked.view == "signed" and not release.is_probability) or frame["weight"].min() < 0:
        note("signed weights; most tools misread negative ones. --view probability or resampled has none.")
    say(f"wrote {output}", err=True)
    return None, lambda: {"output": output, "view": asked.view, "rows": len(frame), "defused_cells": defused}


def _note_defused(defused: int) -> None:
    if defused:
        note(
            f"{defused} text cells begin like a formula, which a spreadsheet would run, and got an apostrophe in front. "
            "--keep-formulas leaves them as they are."
        )


def _drawn(release: Release, folder: str, asked: _Choices) -> Answer:
    from kmeanalyst.inference.draws.draws import FEWEST_REPLICATES, too_few
    from kmeanalyst.inference.draws.folder import write_draws, write_replicates

    columns, R = column_names(asked.columns), asked.n_replicates
    if R is None:
        assert asked.n_draws is not None
        tables = release.draws(asked.n_draws, columns=columns, rows=asked.rows, rng=asked.seed)
        defused = write_draws(release, folder, tables, keep_formulas=asked.keep_formulas)
        facts: dict[str, Any] = {"draws": asked.n_draws, "rows": len(tables[0]), "rule": "Rubin"}
    else:
        if R < FEWEST_REPLICATES:
            note(too_few(R))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it was said
            frame = release.replicates(R, columns=columns, rng=asked.seed)
        defused = write_replicates(release, folder, frame, keep_formulas=asked.keep_formulas)
        facts = {"replicates": R, "rows": len(frame), "rule": "replicate weights"}
    _note_defused(defused)
    say(f"wrote {folder}: README.txt says by which rule standard errors are computed", err=True)
    return None, lambda: {"output": folder, **facts, "defused_cells": defused}


def _sdnist(release: Release, name: str, folder: str, asked: _Choices) -> Answer:
    from kmeanalyst.releases.file.export import SDNIST_COLUMNS, export_sdnist

    frame = release.to_frame("resampled", rows=asked.rows, rng=asked.seed)
    labels = export_sdnist(release, folder, name=name, frame=frame)
    if left := [column for column in release.domain.names if column not in SDNIST_COLUMNS]:
        note(f"SDNist does not know these columns and leaves them out: {one_line(', '.join(left))}")
    files = [str(Path(folder) / f"{name}{ending}") for ending in (".csv", ".json")]
    say(f"wrote {files[0]} and {files[1]}", err=True)
    target = labels.get("target dataset", "TARGET").removesuffix("2019").upper()
    command = f"python -m sdnist.report {files[0]} {target} --labels {files[1]}"
    return command, lambda: {"output": files, "rows": len(frame), "labels": labels}
