"""The curator's command line: parses, calls, prints. Messages name public facts only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.terminal import completion_help, json_option, print_json, working
from release_side.function_command import extend_function_command, publish_function_command

if TYPE_CHECKING:
    from release_side.ledger import TableAccount


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
            text = str(error) if isinstance(error, _public_errors()) else _WITHHELD
            raise click.ClickException(" ".join([text, *_spent_note(error)])) from None
        except KeyboardInterrupt as interrupt:
            for note in _spent_note(interrupt):
                click.echo(note, err=True)
            raise


def _spent_note(error: BaseException) -> list[str]:
    """The one note that may be shown: that the noise had been drawn."""
    from release_side.mechanism import SPENT

    return [note for note in getattr(error, "__notes__", []) if note == SPENT]


_WITHHELD = (
    "something failed that should not, and its details are withheld because they may hold private values. Nothing was "
    "written. Try the same on a public sample from Python, which shows the details, and report those."
)


def _public_errors() -> tuple[type[Exception], ...]:
    """Errors whose texts name public facts only."""
    from kmeanalyst.releases.columns import DomainError
    from release_side.mechanism import PublishError

    return DomainError, PublishError, OSError


@click.group(
    cls=PublicErrors,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=completion_help("release-side"),
)
@click.version_option(package_name="kmeanalyst", prog_name="release-side")
def main() -> None:
    """Publish a private table as a differentially private release (.kme).

    \b
    Examples:
      release-side draft-domain public_sample.csv --output domain.toml
      release-side plan --rows 100000 --domain domain.toml --epsilon 0.1 1 10 --delta 1e-6
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme
    """


@main.command("draft-domain", short_help="Draft a domain file from a PUBLIC sample.")
@click.argument("public_sample", metavar="PUBLIC_SAMPLE", type=click.Path())
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

    with working("drafting"):
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


_CHOICES = (
    click.option(
        "--method",
        default="random-features",
        show_default=True,
        type=click.Choice(["random-features", "subspace", "generator", "exponential"]),
        help="How points are made: by a fit to noisy features; given points, weighted; a trained network; or, for few "
        "levels, a small database drawn as a whole (--delta 0).",
    ),
    click.option(
        "--public-points", type=click.Path(), help="Rows that are already public: points to use or start from."
    ),
    click.option(
        "--points",
        type=int,
        metavar="M",
        help="How many points the release has; by default what the method thinks enough.",
    ),
    click.option(
        "--features",
        type=int,
        metavar="F",
        help="How many feature coordinates are measured (even), 4000 by default; of a generator's kernel in its random part.",
    ),
    click.option(
        "--family",
        type=click.Choice(["fourier", "orthogonal", "quasi-random", "binning", "maclaurin", "hermite"]),
        help="Of random features: fourier (default), orthogonal or quasi-random frequencies; binning (laplacian kernel), "
        "maclaurin (polynomial, exponential-dot) or hermite (gaussian, few columns).",
    ),
    click.option(
        "--kernel",
        metavar="SPEC",
        help='"table" (default), "margins" (default with a target), "gaussian:lengthscale=158.1", '
        '"laplacian:lengthscale=2", "matern:nu=1.5,lengthscale=2", "rational-quadratic:alpha=1,lengthscale=2", '
        '"polynomial:degree=2,offset=1", "exponential-dot:rate=1".',
    ),
    click.option(
        "--target",
        metavar="COLUMN",
        help="A column that models will predict: everything else is measured beside it, and for each of its classes.",
    ),
    click.option(
        "--weights",
        default="probability",
        show_default=True,
        type=click.Choice(["probability", "bounded", "signed", "uniform", "published"]),
        help="Weights of the points: probabilities; signed with Σ|w| at most --bound; the best signed ones; 1/M each; "
        "or Algorithm 1's as printed.",
    ),
    click.option(
        "--bound", type=float, metavar="C", help="Largest Σ|w| for bounded (default 1) and signed (default 2) weights."
    ),
    click.option("--float32", is_flag=True, help="Round real columns of the points to single precision."),
    click.option(
        "--noise",
        default="gaussian",
        show_default=True,
        type=click.Choice(["gaussian", "laplace"]),
        help="The noise's law; laplace goes with --delta 0.",
    ),
    click.option(
        "--calibration",
        type=click.Choice(["analytic", "zcdp"]),
        help="Of Gaussian noise; analytic, the least, by default.",
    ),
)


def _choices(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that publish and plan share: what is chosen from public facts, and changes what a release is worth."""
    for option in reversed(_CHOICES):
        command = option(command)
    return command


class _ManyEpsilons(click.Command):
    """A command whose --epsilon takes several values (--epsilon 0.1 1 10), which options of click do not."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _repeated("--epsilon", args))


def _repeated(option: str, args: list[str]) -> list[str]:
    """Arguments in which the option is named again before each further value that follows one of its values."""
    spread: list[str] = []
    values = 0  # of the option that was named last, if it is this one: 1 for the one to come
    for word in args:
        if word.startswith("-") and not (values and _is_number(word)):
            values = 1 if word == option else 2 if word.startswith(f"{option}=") else 0
        elif values:
            spread += [option] * (values > 1)
            values += 1
        spread.append(word)
    return spread


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


@main.command("plan", cls=_ManyEpsilons, short_help="What a budget would buy; opens no private file.")
@click.option(
    "--rows",
    required=True,
    type=int,
    metavar="N",
    help="How many rows the private table has, or will have; how many persons, for a release with --unit.",
)
@click.option(
    "--domain", "domain_path", required=True, type=click.Path(), help="TOML file of public columns and bounds."
)
@click.option(
    "--epsilon", type=float, multiple=True, metavar="E...", help="One ε or several; 0.1 0.3 1 3 when left out."
)
@click.option("--delta", required=True, type=float, help="δ of each release, as in publish; 0 for Laplace.")
@_choices
@json_option
def plan_command(domain_path: str, as_json: bool, rows: int, epsilon: tuple[float, ...], **choices: Any) -> None:
    """Predict what a budget would buy: noise, errors, time and file size at each ε. Opens no private file.

    Releases of a made-up table of the same domain and size are simulated; nothing is spent. A real table's errors
    may be a third of these, or two and a half times as large. The other options are those of publish.

    \b
    Columns:
      noise scale     standard deviation of the noise on each coordinate that is measured
      RKHS error      distance of the release from its table, in the kernel's space
      sampling error  distance of the table from the population it was drawn from
      ± mean          standard error an analyst will read of a column's mean, in parts of its range
      ± probability   the same of a probability near one half

    \b
    Example:
      release-side plan --rows 100000 --domain domain.toml --epsilon 0.1 1 10 --delta 1e-6
    """
    from kmeanalyst.releases.domain import read_domain
    from release_side.planning import EPSILONS, NOTE, plan

    domain = read_domain(domain_path)
    with working("simulating releases") as progress:
        plans = plan(domain, rows=rows, epsilon=epsilon or EPSILONS, progress=progress, **choices)
    records = plans.to_dict("records")
    click.echo(f"note: {NOTE}", err=True)
    if as_json:
        print_json({"rows": rows, "columns": domain.to_dict(), "plans": records})
        return
    click.echo(_plan_table(rows, records))


def _plan_table(rows: int, plans: list[dict[str, Any]]) -> str:
    """Aligned columns, a line for each ε, and below what is the same for all."""
    heads = ("epsilon", "noise scale", "RKHS error", "sampling error", "± mean", "± probability", "seconds", "file")
    lines: list[tuple[str, ...]] = [heads]
    for p in plans:
        errors = (f"{p[name]:.2g}" for name in ("rkhs_error", "sampling_error", "se_mean", "se_probability"))
        lines.append((
            f"{p['epsilon']:g}", f"{p['noise_scale']:.3g}", *errors, f"{p['seconds']:.0f}",
            f"{p['file_bytes'] / 1000:,.0f} kB",
        ))  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines]
    same = plans[0]
    facts = f"{rows:,} rows, delta {same['delta']:g}, {same['method']}, {same['points']:,} points"
    return "\n".join([*table, f"({facts}, {same['features']:,} features)"])


@main.command(short_help="Publish a private table as a release.")
@click.argument("private", metavar="PRIVATE", type=click.Path())
@click.option(
    "--domain", "domain_path", required=True, type=click.Path(), help="TOML file of public columns and bounds."
)
@click.option("--epsilon", required=True, type=float, help="ε > 0: the bound on the privacy loss.")
@click.option(
    "--delta", required=True, type=float, help="δ: the chance that the bound fails, e.g. 1e-6; 0 for Laplace."
)
@click.option("--output", required=True, type=click.Path(dir_okay=False), metavar="FILE.kme", help="File to write.")
@_choices
@click.option(
    "--ledger", type=click.Path(dir_okay=False), metavar="LEDGER", help="Count the spend here; refused over budget."
)
@click.option("--table", metavar="NAME", help="What the ledger calls the private table.")
@click.option(
    "--unit",
    metavar="COLUMN",
    help="Protect persons, each with all rows that have the same identifier in COLUMN, rather than rows.",
)
@click.option(
    "--rehearsal", type=int, metavar="SEED", help="Noise that can be drawn again: the file is stamped NOT PRIVATE."
)
@click.option("--workers", type=int, metavar="N", help="Threads; as many as processors by default. Changes no bit.")
@json_option
def publish(private: str, domain_path: str, as_json: bool, **choices: Any) -> None:
    """Publish PRIVATE (.csv, .csv.gz, .parquet, a directory or a glob) once, with (ε, δ)-differential privacy.

    \b
    Example:
      release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --output table.kme
    """
    from kmeanalyst.releases.domain import read_domain
    from release_side.mechanism import PublishError
    from release_side.publishing import publish as publish_table
    from release_side.rows import open_private

    domain = read_domain(domain_path)
    extra = [name for name in open_private(private).check_columns(domain) if name != choices["unit"]]
    if extra:
        click.echo(f"note: columns not in the domain are ignored: {', '.join(extra)}", err=True)
    with working("publishing") as progress:
        release = publish_table(private, domain_path, progress=progress, **choices)
    assert release.statement is not None
    if as_json:
        print_json({
            "output": choices["output"], "fit_distance": release.fit_distance,
            "statement": release.statement.to_dict(),
        })  # fmt: skip
        return
    click.echo(f"wrote {choices['output']}", err=True)
    if choices["ledger"]:
        with suppress(PublishError):  # written and counted all the same
            click.echo(counted(choices["ledger"], choices["table"]), err=True)
    for label, text in release.summary().items():
        click.echo(f"{label:<11} {text}")


def counted(ledger_path: str, table: str) -> str:
    """What the table has spent, now that the release is counted; a name without a budget may be a slip of the pen."""
    from release_side.composition import rounded
    from release_side.ledger import Ledger

    account = Ledger(ledger_path).account(table)
    spent = (
        f"has spent epsilon {rounded(account.total_epsilon, up=True)} of {account.epsilon:g}"
        if account.epsilon
        else "has no budget"
    )
    return f"counted in {ledger_path} as a release of table {account.name}, which {spent}"


main.add_command(publish_function_command)
main.add_command(extend_function_command)


@main.group(short_help="Budgets, and what is spent of them.")
def ledger() -> None:
    """Keep count of what is spent on each private table, and hold a budget.

    \b
    Examples:
      release-side ledger init budget.ledger --table adult --epsilon 2 --delta 1e-6
      release-side ledger show budget.ledger
    """


@ledger.command("init", short_help="Give a table its budget, once.")
@click.argument("ledger_path", metavar="LEDGER", type=click.Path(dir_okay=False))
@click.option("--table", required=True, metavar="NAME", help="What you call the private table, as in publish --table.")
@click.option("--epsilon", required=True, type=float, help="ε that all releases of the table may spend together.")
@click.option("--delta", required=True, type=float, help="δ that they may spend together; 0 for Laplace noise alone.")
@json_option
def ledger_init(ledger_path: str, table: str, epsilon: float, delta: float, as_json: bool) -> None:
    """Give a table its budget, once; LEDGER is made if it is not there. What was recorded before counts.

    Example: release-side ledger init budget.ledger --table adult --epsilon 2 --delta 1e-6
    """
    from release_side.ledger import Ledger

    account = Ledger(ledger_path).init(table, epsilon, delta)
    if as_json:
        print_json({"ledger": ledger_path, **account.to_dict()})
        return
    click.echo(f"wrote {ledger_path}", err=True)
    click.echo(_account_text(account))


@ledger.command("show", short_help="Budgets, releases, and what is left.")
@click.argument("ledger_path", metavar="LEDGER", type=click.Path(dir_okay=False))
@json_option
def ledger_show(ledger_path: str, as_json: bool) -> None:
    """Show each table's budget, what its releases have spent together, what is left, and every release.

    Example: release-side ledger show budget.ledger
    """
    from release_side.ledger import Ledger

    accounts = Ledger(ledger_path).accounts()
    if as_json:
        print_json({"ledger": ledger_path, "tables": [account.to_dict() for account in accounts]})
        return
    click.echo("\n\n".join(map(_account_text, accounts)) or "no table yet")


def _account_text(account: TableAccount) -> str:
    """A table's budget, what is spent and left, and a line for each release."""
    from kmeanalyst.releases.statement import REPLACE_UNIT
    from release_side.composition import rounded

    budget, left = "none: releases are recorded and not limited", "no limit"
    if account.epsilon is not None and account.epsilon_left is not None:
        law = account.mechanism_left.removeprefix("discrete ").capitalize()
        budget = f"epsilon {account.epsilon:g}, delta {account.delta:g}"
        left = f"epsilon {rounded(account.epsilon_left, up=False)}, delta {account.delta:g}, in one {law} release"
    spent = f"epsilon {rounded(account.total_epsilon, up=True)}, delta {account.total_delta:g}"
    rows = [("time (UTC)", "epsilon", "delta", "noise", "rows", "method", "file")]
    for release in account.releases:
        spend = release.spend
        time = release.time.removesuffix("+00:00").replace("T", " ")
        noise = f"{spend.mechanism}, {spend.calibration}"
        counted = f"{spend.n_rows} persons" if spend.neighbouring == REPLACE_UNIT else f"{spend.n_rows}"
        file = "not published" if release.output is None else _printable(release.output)
        rows.append((time, f"{spend.epsilon:g}", f"{spend.delta:g}", noise, counted, spend.method, file))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [
        f"extended to {each.pivots} pivots: release {each.release}, {each.time}, no spend"
        for each in account.extensions
    ]
    head = [f"table   {account.name}", f"budget  {budget}", f"spent   {spent}", f"left    {left}"]
    return "\n".join([*head, *(f"  {line}" for line in lines)] if account.releases else head)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in text)
