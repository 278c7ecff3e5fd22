"""`kmeanalyst mmd-test`, `compare` and `independence`: does a sample come from a release's population, are columns independent?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmeanalyst.cli.arguments import (
    RowsWithProgress,
    from_option,
    level_option,
    open_release,
    reading_options,
    release_argument,
    sample_argument,
    sample_named,
)
from kmeanalyst.cli.terminal import say, show, working

if TYPE_CHECKING:
    from kmeanalyst.inference.two_sample.result import TestResult

_false_alarm_option = level_option(0.05, "Probability of a false alarm: a smaller p-value means that they differ.")


@click.command("mmd-test", short_help="Is a sample from the release's population?")
@release_argument
@sample_argument
@_false_alarm_option
@from_option
@reading_options
def mmd_test_command(release_path: str, sample_path: str, level: float, from_table: str | None, as_json: bool) -> None:
    """Test whether SAMPLE (a table, or another .kme) comes from the population of the release.

    A table is a file (.csv, .parquet, .feather, …), a folder, glob or URL of them, or a table of a database.

    \b
    Examples:
      kmeanalyst mmd-test adult.kme my_sample.csv --level 0.01
      kmeanalyst mmd-test adult.kme "s3://bucket/sample/*.parquet"
      kmeanalyst mmd-test adult.kme postgresql: --from survey.people
    """
    from kmeanalyst.inference.two_sample.mmd_test import mmd_test

    release, source = open_release(release_path), sample_named(sample_path, from_table)
    other = open_release(sample_path) if sample_path.endswith(".kme") else None
    with working("testing") as on_progress:
        result = mmd_test(release, RowsWithProgress(source, on_progress) if other is None else other)
    reject = bool(result.pvalue < level)
    verdict = "differ" if reject else "no difference that this release can show"
    lines = [
        *(("note", text) for text in result.notes),  # of the sample's cells, first: they may be the whole difference
        ("p-value", f"{result.pvalue:.4g}   at level {level:g}: {verdict}"),
        *_mmd_lines(result),
        ("method", f"{result.method}; privacy noise {'included' if result.noise_aware else 'not known'}"),
    ]
    text = "\n".join(f"{label:<12} {text}" for label, text in lines)
    rehearsal = release.is_rehearsal or (other is not None and other.is_rehearsal)
    show(as_json, text, **result.to_dict() | {"level": level, "reject": reject, "rehearsal": rehearsal})


def _mmd_lines(result: TestResult) -> list[tuple[str, str]]:
    sign = "; negative values happen when both sides agree" if result.estimator == "unbiased" else ""
    lines = [("MMD²", f"{result.mmd_squared:.4g} ({result.estimator}{sign})")]
    if result.mmd_interval is not None:
        low, high = result.mmd_interval
        lines.append(("MMD", f"{max(result.mmd_squared, 0.0) ** 0.5:.3g} (95 %: {low:.3g} to {high:.3g})"))
    if result.noise_floor is not None:
        lines.append(("noise floor", f"{result.noise_floor:.3g} (what two sides of one population would show)"))
    if result.detectable_mmd is not None:
        lines.append(("detectable", f"{result.detectable_mmd:.3g} (smallest MMD found at 5 % with 80 % power)"))
    return lines


@click.command(short_help="Test a sample, and show where it differs.")
@release_argument
@sample_argument
@_false_alarm_option
@click.option(
    "--top", default=10, show_default=True, type=click.IntRange(min=1), help="At most this many lines for each table."
)
@click.option("--plot", type=click.Path(dir_okay=False), metavar="OUT.png", help="Draw the witness of the columns.")
@from_option
@reading_options
def compare(
    release_path: str, sample_path: str, level: float, top: int, plot: str | None, from_table: str | None, as_json: bool
) -> None:
    """Test whether SAMPLE (a table, as of mmd-test) is from the population of the release, and show where they differ.

    \b
    Examples:
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv --top 5 --plot witness.png
    """
    from kmeanalyst.inference.compare.comparison import compare as compare_rows
    from kmeanalyst.sources.tables import read_table

    if sample_path.endswith(".kme"):
        raise ValueError(
            "compare needs rows to compare with, and this is another release: its rows are not known. "
            "Use mmd-test for two releases, or name a table, such as a .csv or .parquet file."
        )
    release = open_release(release_path)
    sample = read_table(sample_named(sample_path, from_table), release.domain)
    with working("comparing") as on_progress:
        comparison = compare_rows(release, sample, level=level)
        if plot is not None:
            from kmeanalyst.plots.witness import save_witness

            on_progress("drawing", None)
            save_witness(comparison, plot, most=top)
    if plot is not None:
        say(f"wrote {plot}", err=True)
    facts = comparison.to_dict() if as_json else {}
    show(as_json, comparison.to_text(top), **facts, plot=plot, rehearsal=release.is_rehearsal)


@click.command(short_help="Are two columns independent?")
@release_argument
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--given", metavar="COLUMN", help="Test independence within each cell of this column.")
@level_option(0.05, "Probability of a false alarm: a smaller p-value means that they are dependent.")
@reading_options
def independence(release_path: str, first: str, second: str, given: str | None, level: float, as_json: bool) -> None:
    """Test whether columns A and B are independent, and show their measured table.

    A release of tables answers by the table of the pair, whose noise is known; with --given by that of the three columns, which
    is there where one of them was the --target. Of smooth features the answer is a test along leading functions (HSIC).

    \b
    Examples:
      kmeanalyst independence counted.kme sex income
      kmeanalyst independence counted.kme sex marital-status --given income
    """
    from kmeanalyst.inference.compare.independence import independence_test
    from kmeanalyst.inference.contingency.contingency_test import contingency_test
    from kmeanalyst.inference.contingency.strata import strata_of

    release = open_release(release_path)
    with working("testing"):
        result = independence_test(release, first, second, given=given)
        counted = strata_of(release, first, second, given) is not None
        table = contingency_test(release, first, second, given=given) if counted else None
    reject = bool(result.pvalue < level)
    verdict = "dependent" if reject else "no dependence that this release can show"
    notes = [note for note in result.notes if table is None or note not in table.notes]
    lines = [
        f"{'p-value':<12} {result.pvalue:.4g}   at level {level:g}: {verdict}",
        f"{'method':<12} {result.method}",
        *([] if table is None else [repr(table)]),
        *(f"note: {note}" for note in notes),
    ]
    about = {"table": None if table is None else table.to_dict(), "level": level, "reject": reject}
    show(as_json, "\n".join(lines), **result.to_dict() | about | {"rehearsal": release.is_rehearsal})
