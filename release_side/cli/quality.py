"""`release-side quality`: parses, calls, and prints the names of files, and no number."""

from __future__ import annotations

from typing import Any

from kmeanalyst.cli.terminal import argument, command, flag, option, say, working
from release_side.cli.publication import FROM, PRIVATE
from release_side.errors import PublishError


@command(
    "quality", "Compare a release with its table, for your eyes only.", argument("release_path", "FILE.kme"), PRIVATE, FROM,
    option(
        "--output", "The page to write, with .internal in its name: it is of the curator alone (mode 0600).", "file",
        required=True, metavar="X.internal.html",
    ),
    option("--json json_output", "Write the page's numbers to this file as well.", "file", metavar="X.internal.json"),
    option("--group", "A column to divide the table by: scores for each of its groups.", metavar="COLUMN"),
    option(
        "--target", "The column that models predict; by default the last one of few levels.",
        metavar="COLUMN",
    ),
    option(
        "--workload",
        "The questions to compare, one on each line, as in publish; by default 50 that are drawn from the domain.", "file",
        metavar="FILE",
    ),
    flag("--allow-rehearsal", "Read a FILE.kme stamped NOT PRIVATE too (a rehearsal)."),
)  # fmt: skip
def quality_command(
    release_path: str, private: str, from_table: str | None, output: str, json_output: str | None, allow_rehearsal: bool,
    **choices: Any,
) -> None:  # fmt: skip
    """Compare the release FILE.kme with the PRIVATE table that it was made of, on one internal page.

    The page and its JSON hold exact numbers of private rows: they are not for publication, and what is decided from them
    (publish or not, which of several draws, which options next) is covered by no ε. To choose, use release-side plan or the
    release itself. Nothing but the names of the files is printed.

    \b
    Examples:
      release-side quality table.kme private.csv --output table.internal.html
      release-side quality table.kme private.csv --output table.internal.html --json table.internal.json \\
          --group ill --target ill
    """
    from kmeanalyst.release import read_release
    from release_side.choices.internal_files import check_internal_outputs
    from release_side.private_rows.rows import open_private, table_or_path
    from release_side.quality.page import write_quality
    from release_side.quality.quality import quality

    table = open_private(table_or_path(private, from_table))
    check_internal_outputs((output, json_output), private=table, others=(release_path, choices["workload"]))
    try:
        release = read_release(release_path, allow_rehearsal=allow_rehearsal)
    except ValueError as error:  # of the file alone, which is to be published
        raise PublishError(str(error)) from None
    with working("comparing") as progress:
        page = quality(release, table, source=release_path, progress=progress, **choices)
    write_quality(page, output, json_output)
    say("\n".join(f"wrote {path}" for path in (output, json_output) if path is not None))
