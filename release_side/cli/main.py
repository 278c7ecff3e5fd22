"""The curator's command line: parses, calls, prints. Messages name public facts only."""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from kmeanalyst.cli.terminal import argument, command, error_of, flag, json_option, option, program, say, show, working
from kmeanalyst.releases.texts import aligned, one_line
from release_side.choices.internal_files import BESIDE
from release_side.cli import publication
from release_side.cli.ledger import ledger
from release_side.cli.quality import check_source_command, quality_command
from release_side.errors import KEPT, SPENT, PublishError


class PublicErrors(click.Group):
    """Shows errors whose texts name public facts only; for any other error, only that it happened.

    The text of an unforeseen exception may hold a private value.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _short_ledger_warnings():
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise
        except Exception as error:
            from kmeanalyst.releases.domain.column import DomainError  # late: it imports pandas

            text = str(error) if isinstance(error, DomainError | PublishError | OSError) else _WITHHELD
            raise error_of(ctx, " ".join([text, *_spent_note(error)])) from None
        except KeyboardInterrupt as interrupt:
            for note in _spent_note(interrupt):
                say(note, err=True)
            raise


@contextmanager
def _short_ledger_warnings() -> Iterator[None]:
    """Show each warning of the ledger as one line on standard error, without a line of source code."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__name__ == "LedgerWarning":
            say(f"warning: {message}", err=True)
        else:
            shown(message, category, *where, **more)

    with warnings.catch_warnings():
        for begins in ("with this release table ", f"{BESIDE} "):
            warnings.filterwarnings("always", message=begins, category=UserWarning)
        warnings.showwarning = show
        yield


def _spent_note(error: BaseException) -> list[str]:
    """The only notes that may be shown: that the noise had been drawn, and where what was drawn is."""
    return [note for note in getattr(error, "__notes__", []) if note == SPENT or note.startswith(KEPT)]


_WITHHELD = (
    "an unexpected error happened, and its details are withheld because they may hold private values. No release "
    "was written. Try the same on a public sample from Python, which shows the details, and report those."
)


@program("release-side", PublicErrors)
def main() -> None:
    """Publish a private table as a differentially private release (.kme).

    \b
    Examples:
      release-side draft-domain public_sample.csv --this-sample-is-public --output domain.toml
      release-side plan --rows 100000 --domain domain.toml --epsilon 0.1 1 10 --delta 1e-6
      release-side ledger init budget.ledger --table patients --epsilon 2 --delta 1e-6
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme \\
          --ledger budget.ledger --table patients
    """


@command(
    "draft-domain", "Draft a domain file from a PUBLIC sample.", argument("public_sample", "PUBLIC_SAMPLE"),
    flag("--this-sample-is-public", "Required: you declare that everybody may see every row of PUBLIC_SAMPLE."),
    option("--output", "Where to write the domain; standard output by default.", "file"),
    flag("--collapse-rare", "Draft levels seen fewer than ten times as one level, the default of its column."),
    option(
        "--missing-code missing_code", "A code that stands for a missing cell in a column, such as bmi=-9; may be repeated.",
        multiple=True, metavar="COLUMN=CODE",
    ),
    option("--without", "A column to leave out, such as an identifier; may be repeated.", multiple=True, metavar="COLUMN"),
    option("--unit", "The column that publish --unit will protect: it is left out too.", metavar="COLUMN"),
    json_option,
)  # fmt: skip
def draft_domain_command(
    public_sample: str, this_sample_is_public: bool, output: str | None, collapse_rare: bool, without: tuple[str, ...],
    unit: str | None, missing_code: tuple[str, ...], as_json: bool,
) -> None:  # fmt: skip
    """Draft a domain file (columns, bounds, levels) from a PUBLIC sample, never from the private table.

    Bounds are drafted wider than the sample; read each line marked CHECK. The file keeps the sample's SHA-256, and
    publish refuses a private table with the same content.

    Example: release-side draft-domain public_sample.csv --this-sample-is-public --output domain.toml
    """
    from kmeanalyst.releases.domain.domain import domain_toml
    from release_side.choices.drafting import NOT_DECLARED, check_not_the_sample, draft_domain

    if not this_sample_is_public:
        raise click.UsageError(f"{NOT_DECLARED}--this-sample-is-public.")
    check_not_the_sample(output, public_sample)
    codes: dict[str, list[str]] = {}
    for word in missing_code:
        name, equals, code = word.rpartition("=")
        if not (name and equals and code):
            raise click.UsageError(f"--missing-code is COLUMN=CODE, got {word!r:.80}.")
        codes.setdefault(name, []).append(code)
    with working("drafting"):
        draft = draft_domain(
            public_sample, this_sample_is_public=True, collapse_rare=collapse_rare, without=without, unit=unit,
            missing_codes=codes,
        )  # fmt: skip
    head = "# Drafted from a public sample. Everything in this file becomes public with the release: see each CHECK.\n\n"
    text = head + domain_toml(draft.domain, draft.notes)
    checks = sum(note.startswith("CHECK") for notes in draft.notes.values() for note in notes)
    _write_domain(text, output, f"{len(draft.domain)} columns, {checks} lines marked CHECK", as_json, {
        "columns": draft.domain.to_dict(), "notes": draft.notes, "checks": checks,
        "samples": [sample.to_dict() for sample in draft.domain.samples],
    })  # fmt: skip


def _write_domain(text: str, output: str | None, holds: str, as_json: bool, facts: dict[str, Any]) -> None:
    """Write a drafted domain to a file and say what it holds, or print it where none is named."""
    from kmeanalyst.releases.file.archive import atomic_write

    if output is not None:
        with atomic_write(Path(output)) as temporary:
            temporary.write_text(text, encoding="utf-8")
        say(f"wrote {output}: {holds}", err=True)
    show(as_json, None if output is not None else text.removesuffix("\n"), {"output": output} | facts)


class _ManyValues(click.Command):
    """A command of which one option takes several values (--epsilon 0.1 1 10), which options of click do not."""

    many = ("--epsilon", "--from-columns")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        values, option = 0, ""  # values seen plus 1, if the last option named takes many; else 0
        for word in args:
            if word.startswith("-") and not (values and re.match(r"-(\d|\.\d|inf|nan)", word)):
                option = word.partition("=")[0]
                values = (1 + ("=" in word)) * (option in self.many)
            elif values:
                words += [option] * (values > 1)
                values += 1
            words.append(word)
        return super().parse_args(ctx, words)


@command(
    "new-domain", "Write a domain file to fill in, without a public sample.",
    option(
        "--from-columns", "NAME, NAME:KIND, age:integer:0..120 or sex:categorical:F,M, for each column; or a table, whose header "
        "and declared types are taken.", multiple=True, required=True, metavar="COLUMN... | TABLE",
    ),
    flag("--this-header-is-public", "Required with a table: you declare that its columns' names and types are public."),
    option("--output", "Where to write the domain; standard output by default.", "file"), json_option, cls=_ManyValues,
)  # fmt: skip
def new_domain_command(from_columns: tuple[str, ...], this_header_is_public: bool, output: str | None, as_json: bool) -> None:
    """Write a domain file (columns, bounds, levels) to fill in, for a curator who has no public sample.

    What is not said on the command line stands in the file as a comment with an example; publish and plan name what is left to fill
    in. Take it from a code book or a law, never from the private rows. Of a table the header and the types are read, and no row.

    \b
    Examples:
      release-side new-domain --from-columns age:integer:0..120 sex:categorical:F,M left:date --output new.toml
      release-side new-domain --from-columns private.csv --this-header-is-public --output new.toml
    """
    from kmeanalyst.sources.files import is_table
    from release_side.choices.drafting import columns_of, new_domain
    from release_side.choices.output_file import Output
    from release_side.private_rows.rows import open_private

    if output is not None and os.path.lexists(output):
        raise PublishError(f"{output} exists, and a domain file that was filled in would be lost. Name another file.")
    columns: list[str | tuple[str, str]] = list(from_columns)
    if len(from_columns) == 1 and (is_table(from_columns[0]) or Path(from_columns[0]).exists()):
        if not this_header_is_public:
            raise click.UsageError(
                "a domain file shows the names and types of a table's columns to everybody. If they are public, say "
                "--this-header-is-public; if not, name the columns that may be."
            )
        table = open_private(from_columns[0])
        Output(output, what="domain").check(table, None)
        columns = [*columns_of(table)]
    text = new_domain(columns)
    _write_domain(text, output, f"{len(columns)} columns to fill in", as_json, {"domain": text})


@command(
    "plan", "Predict the accuracy of releases; opens no private file.",
    option(
        "--rows", "Number of rows of the private table, now or later; number of units, for a release with --unit.", int,
        required=True, metavar="N",
    ),
    publication.DOMAIN, option("--epsilon", "One ε or several; 0.1 0.3 1 3 by default.", float, multiple=True, metavar="E..."),
    option("--delta", "δ of each release, as in publish; 0 for Laplace.", float, required=True),
    option("--unit", "The column that will identify units; --rows is then their number.", metavar="COLUMN"),
    *publication.METHOD_CHOICES, json_option, cls=_ManyValues,
)  # fmt: skip
def plan_command(domain_path: str, as_json: bool, rows: int, epsilon: tuple[float, ...], **choices: Any) -> None:
    """Predict noise, errors, time and file size of a release at each ε. Opens no private file.

    Releases of a synthetic table of the same domain and size are simulated; nothing is spent. A real table's errors
    may be a third of these, or two and a half times as large. The other options are those of publish.

    \b
    Columns:
      noise           its standard deviation on each measured coordinate
      ± mean          standard error of a column's mean, as a fraction of its range
      ± share         standard error of a probability near one half
      1, 2, 3 columns such errors of events of so many columns, in units of what sampling alone gives
      pairs, sets     how many pairs of columns, and larger sets, are counted in a table each

    With --workload a second table has each question's standard error at each ε, and its parts: privacy noise, sampling (at
    the shares of the synthetic table), and resolution, what the measured tables do not show of it.

    \b
    Examples:
      release-side plan --rows 100000 --domain domain.toml --epsilon 0.1 1 10 --delta 1e-6
      release-side plan --rows 100000 --domain domain.toml --delta 1e-6 --workload questions.txt
    """
    from kmeanalyst.releases.domain.domain import read_domain
    from release_side.publishing.plan import EPSILONS, NOTE, plan

    domain = read_domain(domain_path)
    with working("simulating releases") as progress:
        plans = plan(domain, rows=rows, epsilon=epsilon or EPSILONS, progress=progress, **choices)
    records = plans.to_dict("records")
    say(f"note: {NOTE}", err=True)
    text = _plan_table(rows, records) + ("\n" + _question_table(records) if "questions" in plans else "")
    show(as_json, text, {"rows": rows, "columns": domain.to_dict(), "plans": records})


def _plan_table(rows: int, plans: list[dict[str, Any]]) -> str:
    """Aligned columns, a line for each ε, and below them the facts that all share."""
    heads = ("epsilon", "noise", "± mean", "± share", "1, 2, 3 columns", "pairs", "sets", "seconds", "file")
    lines: list[tuple[str, ...]] = [heads]
    for p in plans:
        errors = ("-" if math.isnan(p[name]) else f"{p[name]:.2g}" for name in ("se_mean", "se_probability"))
        widths = ", ".join("-" if math.isnan(p[f"width_{k}"]) else f"{p[f'width_{k}']:.2g}" for k in (1, 2, 3))
        lines.append((
            f"{p['epsilon']:g}", f"{p['noise_scale']:.3g}", *errors, widths, f"{p['pairs']}", f"{p['sets']}",
            f"{p['seconds']:.0f}", f"{p['file_bytes'] / 1000:,.0f} kB",
        ))  # fmt: skip
    same = plans[0]
    facts = f"{rows:,} rows, delta {same['delta']:g}, {same['method']}, {same['points']:,} points"
    return "\n".join([*aligned(lines, left=()), f"({facts}, {same['features']:,} features)"])


def _question_table(plans: list[dict[str, Any]]) -> str:
    lines: list[tuple[str, ...]] = [("question", "epsilon", "± error", "privacy", "sampling", "resolution", "measured")]
    for each in zip(*(plan["questions"] for plan in plans), strict=True):
        for plan, asked in zip(plans, each, strict=True):
            errors = (asked[name] for name in ("standard_error", "privacy", "sampling", "resolution"))
            numbers = ("unknown" if math.isnan(error) else f"{error:.2g}" for error in errors)
            lines.append((one_line(asked["question"]), f"{plan['epsilon']:g}", *numbers, asked["measured"]))
    without = (one for plan in plans for one in plan["questions"] if one["refused"])
    refused = {one_line(one["question"]): one["refused"] for one in without}
    return "\n".join(["", *aligned(lines, left=(0, 6)), *(f"{question}: {why}" for question, why in refused.items())])


for _command in (
    draft_domain_command, new_domain_command, plan_command, publication.publish_command, publication.finish_command,
    publication.publish_function_command, check_source_command, quality_command, ledger,
):  # fmt: skip
    main.add_command(_command)
