"""`kmeanalyst mmd-test`, `compare` and `independence`: does a sample come from a release's population, are columns independent?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.arguments import (
    Answer,
    RowsWithProgress,
    from_option,
    level_option,
    on_release,
    open_release,
    sample_argument,
    sample_named,
)
from kmeanalyst.cli.terminal import OnProgress, argument, option, say

if TYPE_CHECKING:
    from kmeanalyst.inference.two_sample.result import TestResult
    from kmeanalyst.release import Release

_false_alarm_option = level_option(0.05, "Probability of a false alarm: a smaller p-value means that they differ.")


@on_release(
    "mmd-test", "Is a sample from the release's population?",
    sample_argument, _false_alarm_option, from_option, work="testing",
)  # fmt: skip
def mmd_test_command(
    release: Release, sample_path: str, level: float, from_table: str | None, on_progress: OnProgress
) -> Answer:
    """Test whether SAMPLE (a table, or another .kme) comes from the population of the release.

    A table is a file (.csv, .parquet, .feather, …), a folder, glob or URL of them, or a table of a database.

    \b
    Examples:
      kmeanalyst mmd-test adult.kme my_sample.csv --level 0.01
      kmeanalyst mmd-test adult.kme "s3://bucket/sample/*.parquet"
      kmeanalyst mmd-test adult.kme postgresql: --from survey.people
    """
    from kmeanalyst.inference.two_sample.mmd_test import mmd_test

    source = sample_named(sample_path, from_table)
    other = open_release(sample_path) if sample_path.endswith(".kme") else None
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
    return text, lambda: result.to_dict() | {"level": level, "reject": reject, "rehearsal": rehearsal}


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


def _refuse_release(sample_path: str, **_: Any) -> None:
    if sample_path.endswith(".kme"):
        raise ValueError(
            "compare needs rows to compare with, and this is another release: its rows are not known. "
            "Use mmd-test for two releases, or name a table, such as a .csv or .parquet file."
        )


@on_release(
    "compare", "Test a sample, and show where it differs.", sample_argument, _false_alarm_option,
    option("--top", "At most this many lines for each table.", click.IntRange(min=1), 10),
    option("--plot", "Draw the witness of the columns.", "file", metavar="OUT.png"),
    from_option, work="comparing", check=_refuse_release,
)  # fmt: skip
def compare(
    release: Release, sample_path: str, level: float, top: int, plot: str | None, from_table: str | None,
    on_progress: OnProgress,
) -> Answer:  # fmt: skip
    """Test whether SAMPLE (a table, as of mmd-test) is from the population of the release, and show where they differ.

    \b
    Examples:
      kmeanalyst compare adult.kme my_sample.csv
      kmeanalyst compare adult.kme my_sample.csv --top 5 --plot witness.png
    """
    from kmeanalyst.inference.compare.comparison import compare as compare_rows
    from kmeanalyst.sources.tables import read_table

    sample = read_table(sample_named(sample_path, from_table), release.domain)
    comparison = compare_rows(release, sample, level=level)
    if plot is not None:
        from kmeanalyst.plots.witness import save_witness

        on_progress("drawing", None)
        save_witness(comparison, plot, most=top)
        say(f"wrote {plot}", err=True)
    return lambda: comparison.to_text(top), lambda: comparison.to_dict() | {"plot": plot}


@on_release(
    "independence", "Are two columns independent?", argument("first", "A", None), argument("second", "B", None),
    option("--given", "Test independence within each cell of this column.", metavar="COLUMN"),
    level_option(0.05, "Probability of a false alarm: a smaller p-value means that they are dependent."),
    work="testing",
)  # fmt: skip
def independence(release: Release, first: str, second: str, given: str | None, level: float) -> Answer:
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
    return "\n".join(lines), lambda: result.to_dict() | about
