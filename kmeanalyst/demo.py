"""`kmeanalyst demo`: the whole road on data that ships with the package, each step explained.

The curator's steps run as separate processes, `python -m release_side`: this package never sees private rows.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import click


def run_demo(keep: str | None = None) -> None:
    """Publish, inspect, ask and test in a temporary folder, or in `keep`, which is left behind."""
    started = time.monotonic()
    if keep is not None:
        folder = Path(keep)
        folder.mkdir(parents=True, exist_ok=True)
        _walk(folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            _walk(Path(temporary))
    kept = f" The files are in {keep}." if keep else " Its files are gone; --keep FOLDER keeps them."
    click.echo(f"\nThat was the whole road, in {time.monotonic() - started:.0f} seconds.{kept}")


def _walk(folder: Path) -> None:
    for name in ("demo_private", "demo_public_sample", "demo_sample"):
        with (files("kmeanalyst") / "data" / f"{name}.csv.gz").open("rb") as source:
            (folder / f"{name}.csv.gz").write_bytes(source.read())
    click.echo("6,000 rows of the 1994 US census (Adult, UCI, CC BY 4.0) play the private table.")

    _say("1. The curator drafts a domain: columns, bounds and levels, from a PUBLIC sample only.")
    _run(folder, "release_side", "draft-domain", "demo_public_sample.csv.gz", "--output", "domain.toml")

    _say(
        "2. The curator publishes. One noisy mean is taken (ε = 1, δ = 1e-6) and weighted points are fitted to it.",
        "   The noise is drawn afresh every time, so your numbers below will differ a little from anyone else's.",
    )
    choices = ("--domain", "domain.toml", "--epsilon", "1", "--delta", "1e-6", "--output", "census.kme")
    _run(folder, "release_side", "publish", "demo_private.csv.gz", *choices)

    _say("3. From here on an analyst has census.kme alone. Does every claim in the file hold?")
    _run(folder, "kmeanalyst", "validate", "census.kme")

    _say(
        "4. Questions, with error bars. Privacy: the noise that was added. Sampling: the table is itself a sample.",
        "   Resolution: what the release cannot see of a question. (The private table says: mean age "
        f"{_truth(folder)}.)",
    )
    _run(folder, "kmeanalyst", "expect", "census.kme", "age", "age > 50", "sex == 'Female' and income == '>50K'")
    _run(folder, "kmeanalyst", "expect", "census.kme", "`hours-per-week`", "--by", "sex")

    _say(
        "5. Is my own sample of 1,500 people from the same population? The test knows the privacy noise: a small",
        "   p-value would mean no. These rows come from the same census, so it should seldom be below 0.05.",
    )
    _run(folder, "kmeanalyst", "mmd-test", "census.kme", "demo_sample.csv.gz")

    _say("6. The same people, five years older. Now the p-value should be tiny.")
    _age_by_five_years(folder)
    _run(folder, "kmeanalyst", "mmd-test", "census.kme", "demo_sample_older.csv")


def _truth(folder: Path) -> str:
    """What only a demo can show: the answer on the rows that play the private table."""
    import pandas as pd

    table = pd.read_csv(folder / "demo_private.csv.gz")
    return f"{table['age'].mean():.1f}, P(age > 50) {(table['age'] > 50).mean():.3f}"


def _age_by_five_years(folder: Path) -> None:
    import pandas as pd

    sample = pd.read_csv(folder / "demo_sample.csv.gz")
    sample.assign(age=sample["age"] + 5).to_csv(folder / "demo_sample_older.csv", index=False)


def _say(*lines: str) -> None:
    click.echo("\n" + "\n".join(lines))


def _quoted(argument: str) -> str:
    """An argument as a person would quote it in a shell: backticks want single quotes."""
    if not set(argument) & set(" `'<>"):
        return argument
    return f"'{argument}'" if "`" in argument else f'"{argument}"'


def _run(folder: Path, module: str, *arguments: str) -> None:
    """Show a command as a user would type it, run it in its own process, and stop if it fails."""
    shown = "release-side" if module == "release_side" else "kmeanalyst"
    click.echo(f"$ {shown} {' '.join(_quoted(a) for a in arguments)}")
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder)
    if done.returncode:
        raise click.ClickException(
            f"the step above failed with exit code {done.returncode}. Please report it, with its output."
        )
