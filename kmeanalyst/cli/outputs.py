"""Commands that write files for others: `export` (rows, draws, replicates, for NIST), `plot` and `report`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli import arguments
from kmeanalyst.cli.terminal import OnProgress, argument, flag, note, option, say
from kmeanalyst.releases.texts import one_line

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from kmeanalyst.release import Release


def _check_export(
    output: str | None, view: str, rows: int | None, n_draws: int | None, n_replicates: int | None, columns: str | None,
    sdnist: str | None, mbi: str | None, **_: Any,
) -> None:  # fmt: skip
    if [output, sdnist, mbi].count(None) != 2:
        raise click.UsageError("Name either OUT.{csv,parquet,nc,xlsx,dta,sav}, --sdnist DIR or --mbi OUT.{json,npz}.")
    if mbi is not None:
        if (view, rows, n_draws, n_replicates, columns) != ("signed", None, None, None, None):
            raise click.UsageError("--mbi writes what was measured, and no rows: leave options of rows out.")
    elif sdnist is not None:
        if view not in ("signed", "resampled"):
            raise click.UsageError("--sdnist writes rows of equal weight: leave --view out.")
    elif n_draws is not None or n_replicates is not None:
        if None not in (n_draws, n_replicates) or view != "signed":
            raise click.UsageError("--draws, --replicates and --view are for different rules: name one of them.")
        if n_replicates is not None and rows is not None:
            raise click.UsageError("--rows is for draws: replicate weights go with the rows that the release has.")
    elif columns is not None:
        raise click.UsageError("--columns goes with --draws or --replicates: other files have all columns.")
    elif Path(output or "").is_dir():
        raise click.BadParameter(f"{output} is a directory. Name a file.", param_hint="OUT")


@arguments.on_release(
    "export", "Write points and weights for other tools.", argument("output", "OUT.{csv,parquet,nc,xlsx,dta,sav}", required=False),
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
    flag("--keep-formulas", "Of .csv and .xlsx: no apostrophe before text cells that a spreadsheet would run."),
    option(
        "--sdnist",
        "Instead of OUT: rows of equal weight and labels, in folder DIR, for the report of NIST's SDNist. It knows nothing but "
        "its own excerpts of the American Community Survey: other releases are refused.",
        "folder", metavar="DIR",
    ),
    option("--mbi", "Instead of OUT: the noisy tables as the package mbi takes them.", metavar="OUT.{json,npz}"),
    work="writing", check=_check_export,
)  # fmt: skip
def export_command(
    release: Release, path: str, output: Any, keep_formulas: bool, sdnist: str | None, mbi: str | None, **asked: Any
) -> arguments.Answer:
    """Write the points and weights for other tools.

    In a .csv file a text cell that begins like a formula (=, +, -, @) gets an apostrophe in front, unless it is a number:
    a spreadsheet would run it. The file of a rehearsal has a column NOT_PRIVATE.

    Points and weights by themselves have no valid error. With --draws or --replicates other programs get standard errors that
    include the noise, each by one rule, which README.txt (with code for R and Stata) and rule.json in the folder name.

    With --sdnist DIR: FILE's name with .csv, as many rows as points unless --rows says otherwise, "N" where a cell is missing; the
    same with .json, labels (ε, δ, method, columns); and the command that makes NIST's report is printed.

    With --mbi OUT: each table's clique, noisy counts and stddev, for mbi's LinearMeasurement.

    \b
    Examples:
      kmeanalyst export adult.kme rows.csv --view resampled --rows 10000
      kmeanalyst export adult.kme draws --draws 20
      kmeanalyst export adult.kme model --draws 20 --columns income,age,sex
      kmeanalyst export adult.kme weighted --replicates 100
      kmeanalyst export north.kme --mbi north.json
    """
    if mbi is not None:
        from kmeanalyst.releases.file.export import export_mbi

        header = export_mbi(release, mbi)
        say(f"wrote {len(header['measurements'])} tables to {mbi}", err=True)
        return None, lambda: {"output": mbi} | header
    if sdnist is not None:
        frame = release.to_frame("resampled", rows=asked["rows"], rng=asked["seed"])
        return _sdnist(release, Path(path).stem, sdnist, frame)
    several = asked["n_draws"] is not None or asked["n_replicates"] is not None
    defused, facts = (_folder if several else _file)(release, output, keep_formulas, **asked)
    if defused:
        note(
            f"{defused} text cells begin like a formula, which a spreadsheet would run, and got an apostrophe in front. "
            "--keep-formulas leaves them as they are."
        )
    rule = "README.txt says by which rule standard errors are computed"
    say(f"wrote {output}: {rule if several else 'a row has the weight of its last column, and no error'}", err=True)
    return None, lambda: {"output": output, **facts, "defused_cells": defused}


def _file(
    release: Release, output: str, keep_formulas: bool, *, view: Any, rows: int | None, seed: int | None, **_: Any
) -> tuple[int, dict[str, Any]]:
    """Write one table of points and weights; how many cells were defused, and the fields of --json."""
    from kmeanalyst.releases.file.export import export

    frame = release.to_frame(view, rows=rows, rng=seed)
    if (view == "signed" and not release.is_probability) or frame["weight"].min() < 0:
        note("signed weights; most tools misread negative ones. --view probability or resampled has none.")
    return export(release, output, frame=frame, keep_formulas=keep_formulas), {"view": view, "rows": len(frame)}


def _folder(
    release: Release, output: str, keep_formulas: bool, *, n_draws: int | None, n_replicates: Any, columns: str | None,
    **asked: Any,
) -> tuple[int, dict[str, Any]]:  # fmt: skip
    """Write draws, or replicate weights; how many cells were defused, and the fields of --json."""
    from kmeanalyst.inference.draws.folder import write_draws, write_replicates

    names, seed = arguments.column_names(columns), asked["seed"]
    if n_draws is not None:
        tables = release.draws(n_draws, columns=names, rows=asked["rows"], rng=seed)
        defused = write_draws(release, output, tables, keep_formulas=keep_formulas)
        return defused, {"draws": n_draws, "rows": len(tables[0]), "rule": "Rubin"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        frame = release.replicates(n_replicates, columns=names, rng=seed)
    for one in caught:
        note(str(one.message))
    defused = write_replicates(release, output, frame, keep_formulas=keep_formulas)
    return defused, {"replicates": n_replicates, "rows": len(frame), "rule": "replicate weights"}


def _sdnist(release: Release, name: str, folder: str, frame: pd.DataFrame) -> arguments.Answer:
    from kmeanalyst.releases.file.export import SDNIST_COLUMNS, export_sdnist

    labels = export_sdnist(release, folder, name=name, frame=frame)
    if left := [column for column in release.domain.names if column not in SDNIST_COLUMNS]:
        note(f"SDNist does not know these columns and leaves them out: {one_line(', '.join(left))}")
    files = [str(Path(folder) / f"{name}{ending}") for ending in (".csv", ".json")]
    say(f"wrote {files[0]} and {files[1]}", err=True)
    target = labels.get("target dataset", "TARGET").removesuffix("2019").upper()
    command = f"python -m sdnist.report {files[0]} {target} --labels {files[1]}"
    return command, lambda: {"output": files, "rows": len(frame), "labels": labels}


def _check_drawing(columns: tuple[str, ...], output: str | None, bins: int | None, sample_path: str | None, **_: Any) -> None:
    given = [name for name, value in {"--bins": bins, "--sample": sample_path}.items() if value is not None]
    if len(columns) not in (1, 2):
        raise click.UsageError(
            f"a drawing is of one column or two, got {len(columns)}. Name one or two, or make the report, which shows all columns: "
            "kmeanalyst report FILE.kme"
        )
    if len(columns) == 2 and given:
        raise click.UsageError(f"{given[0]} is for the drawing of one column, got 2 columns. Name one, or leave it out.")
    from kmeanalyst.plots.style import format_of

    if output is not None:
        format_of(output)


@arguments.on_release(
    "plot", "Draw one column or two, with errors.", argument("columns", "COLUMN [COLUMN]", None, nargs=-1),
    arguments.output_option("FIG.png", "File to write: .png, .pdf, .svg. By default FILE-COLUMN.png here.", required=False),
    option("--bins", "Number of equal ranges of a histogram of numbers.", click.IntRange(min=1)),
    option("--where", "Only rows for which this condition holds."),
    option("--sample sample_path", "Your own rows, a table as of mmd-test, to draw over one column.", metavar="SAMPLE"),
    arguments.from_option, arguments.view_option, arguments.coverage_option, work="drawing", check=_check_drawing,
)  # fmt: skip
def plot_command(
    release: Release, path: str, columns: tuple[str, ...], output: str | None, bins: int | None, source: Any, **asked: Any
) -> arguments.Answer:  # fmt: skip
    """Draw a column's histogram or the table of two columns, with the errors of all numbers.

    Whiskers and hatching are intervals at --level; the caption says N, ε, δ and the weights. Series differ in form as
    well as in colour.

    \b
    Examples:
      kmeanalyst plot adult.kme age --output age.png
      kmeanalyst plot adult.kme age --sample my_sample.csv --output age.pdf
      kmeanalyst plot adult.kme income --where "sex == 'Female'" --output income.png
      kmeanalyst plot adult.kme age income --output table.png
    """
    from kmeanalyst.inference.combination import as_release
    from kmeanalyst.inference.estimate.population import default_view
    from kmeanalyst.plots.style import save
    from kmeanalyst.sources.tables import read_table

    output = output or re.sub(r"[^\w.-]+", "_", "-".join([Path(path).stem, *columns])) + ".png"
    sample = None if source is None else read_table(source, release.domain)
    notes = [] if sample is None else as_release(release, sample)[1]
    kind = "histogram" if len(columns) == 1 else "table"
    given = {name: value for name, value in {"bins": bins, "sample": sample}.items() if value is not None}
    save(_draw(release, kind, columns, asked | given), output)
    for text in notes:
        note(text)
    say(f"wrote {output}", err=True)
    statement = release.statement
    return None, lambda: {
        "output": output, "kind": kind, "columns": columns, "where": asked["where"], "level": asked["level"],
        "view": asked["view"] or default_view(release),
        "n_rows": statement.n_rows if statement else None, "epsilon": statement.epsilon if statement else None,
        "delta": statement.delta if statement else None, "n_sample_rows": None if sample is None else len(sample),
        "notes": notes,
    }  # fmt: skip


def _draw(release: Release, kind: str, columns: tuple[str, ...], asked: dict[str, Any]) -> Figure:
    """The figure, made without pyplot: figures that the process has open stay as they are."""
    from kmeanalyst import plots
    from kmeanalyst.plots.distributions import size_of_histogram
    from kmeanalyst.plots.joint import SIZE_OF_TABLE
    from kmeanalyst.plots.style import new_figure

    figure = new_figure(size_of_histogram(release.columns[columns[0]]) if kind == "histogram" else SIZE_OF_TABLE)
    getattr(plots, kind)(release, *columns, **asked, ax=figure.add_subplot())
    return figure


@arguments.on_release(
    "report", "Write one page for a colleague.",
    arguments.output_option("REPORT.html", "File to write. By default FILE.html in this folder.", required=False),
    option("--columns", "Columns to show, separated by commas; the first 60 by default."), arguments.view_option,
    work="writing the report",
)  # fmt: skip
def report_command(
    release: Release, path: str, output: str | None, columns: str | None, view: Any, on_progress: OnProgress
) -> arguments.Answer:
    """Write one page for a colleague: what a release guarantees, shows and cannot show.

    The page needs no network: distributions with noise bands, pairs of columns, warnings, and how to cite, in one
    HTML file that also prints.

    \b
    Examples:
      kmeanalyst report adult.kme
      kmeanalyst report adult.kme --columns age,income,hours-per-week --output short.html
    """
    from kmeanalyst.report import write_report
    from kmeanalyst.report.caveats import warnings_of

    output = output or f"{Path(path).stem}.html"
    facts = write_report(release, output, source=path, columns=arguments.column_names(columns), view=view, progress=on_progress)
    size = Path(output).stat().st_size
    say(f"wrote {output}: {len(facts.columns)} columns, {len(facts.pairs)} pairs, {size / 1000:,.0f} kB", err=True)
    return None, lambda: {
        "output": output, "bytes": size, "source": facts.source, "sha256": facts.sha256,
        "view": facts.view,
        "columns": [one.to_dict() for one in facts.columns], "pairs": [pair.to_dict() for pair in facts.pairs],
        "warnings": [vars(one) for one in warnings_of(facts)],
    }  # fmt: skip


@arguments.on_release("methods", "A paragraph for papers.", work="writing")
def methods_command(release: Release, path: str) -> arguments.Answer:
    """Print a paragraph for papers: what was measured, the guarantee, the file, how errors are read, what cannot be answered.

    Example: kmeanalyst methods adult.kme
    """
    from kmeanalyst.report import methods

    found = methods(release, path)
    return "\n".join([found["text"], "", *found["papers"]]), lambda: found
