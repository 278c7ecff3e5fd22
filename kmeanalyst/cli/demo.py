"""`kmeanalyst demo`: every step, from a private table to answers, on data that ships with the package.

The curator's steps run as separate processes, `python -m release_side`: this package never sees private rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmeanalyst.cli.terminal import say

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class _Stage:
    """The demo's folder, and for --json the answers so far; its explanations then go to standard error."""

    folder: Path
    as_json: bool
    steps: list[dict[str, Any]] = field(default_factory=list)

    def say(self, *lines: str) -> None:
        say("\n" + textwrap.fill(" ".join(map(str.strip, lines)), 79, subsequent_indent="   "), err=self.as_json)

    def run(self, module: str, *arguments: str) -> None:
        """Show a command as a user would type it, run it in its own process, and stop if it fails."""
        command = " ".join([module.replace("_", "-"), *map(_quoted, arguments)])
        say(f"$ {command}", err=self.as_json)
        sys.stdout.flush()
        flags, pipe = (["--json"], subprocess.PIPE) if self.as_json else ([], None)
        done = subprocess.run([sys.executable, "-m", module, *arguments, *flags], cwd=self.folder, stdout=pipe)
        if done.returncode:
            raise click.ClickException(
                f"the step above failed with exit code {done.returncode}. Please report it, with its output."
            )
        if self.as_json:
            self.steps.append({"command": command, "answer": json.loads(done.stdout)})


_MADE = (
    "private.csv", "public_sample.csv", "my_sample.csv", "my_older_sample.csv", "domain.toml", "census.kme", "census.ledger",
)  # fmt: skip


def run_demo(keep: str | None = None, *, as_json: bool = False) -> dict[str, Any]:
    """Publish, inspect, ask and test in a temporary folder, or in `keep`, which is not removed.

    Returns   the seconds it took, and for as_json what each step printed.
    """
    started = time.monotonic()
    with tempfile.TemporaryDirectory() if keep is None else nullcontext(keep) as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        if there := [made for made in _MADE if (folder / made).exists()]:
            raise click.ClickException(
                f"{folder} has a file {there[0]} already, and the demo would replace it. Name a new folder with --keep."
            )
        steps = _walk(_Stage(folder, as_json))
    kept = f" The files are in {keep}." if keep else " Its files were removed; --keep FOLDER keeps them."
    seconds = time.monotonic() - started
    say(f"\nThat was every step, in {seconds:.0f} seconds.{kept}", err=as_json)
    return {"seconds": seconds, "folder": keep, "steps": steps}


def _walk(stage: _Stage) -> list[dict[str, Any]]:
    folder, private, sample = stage.folder, _shipped("private"), _shipped("others").sample(1500)
    for name, rows in (("private", private), ("public_sample", _shipped("public_sample")), ("my_sample", sample)):
        rows.to_csv(folder / f"{name}.csv", index=False)
    say("6,000 rows of the 1994 US census (Adult, UCI, CC BY 4.0) serve as the private table.", err=stage.as_json)

    stage.say("1. The curator drafts a domain: columns, bounds and levels, from a PUBLIC sample only.")
    stage.run("release_side", "draft-domain", "public_sample.csv", "--this-sample-is-public", "--output", "domain.toml")

    stage.say(
        "2. The curator sets a budget for all releases of the table, and publishes: one noisy mean is computed (ε = 1,",
        "   δ = 1e-6) and weighted points are fitted to it.",
        "   The noise is drawn anew in every run, so your numbers below will differ a little from anyone else's.",
    )
    counted = ("--ledger", "census.ledger", "--table", "census")
    stage.run("release_side", "ledger", "init", *counted[1:], "--epsilon", "2", "--delta", "1e-6")
    choices = ("--domain", "domain.toml", "--epsilon", "1", "--delta", "1e-6", "--output", "census.kme")
    stage.run("release_side", "publish", "private.csv", *choices, *counted)
    stage.say("   The budgets of a table's releases add up. The ledger counts them, and the file holds the digest of its entry.")
    stage.run("release_side", "ledger", "show", "census.ledger")
    stage.run("release_side", "ledger", "verify", "census.ledger", "--head", "census.kme")

    stage.say("3. From here on an analyst has only census.kme. Does every claim in the file hold?")
    stage.run("kmeanalyst", "validate", "census.kme")

    truth = f"{private['age'].mean():.1f}, P(age > 50) {(private['age'] > 50).mean():.3f}"
    stage.say(
        "4. Questions, with error bars. Privacy: the noise that was added. Sampling: the table is itself a sample.",
        f"   Resolution: what the release does not determine of a question. (The private table says: mean age {truth}.)",
    )
    stage.run("kmeanalyst", "expect", "census.kme", "age", "age > 50", "sex == 'Female' and income == '>50K'")
    stage.run("kmeanalyst", "expect", "census.kme", "`hours-per-week`", "--by", "sex")

    stage.say(
        "5. Is my own sample of 1,500 people from the same population? The test accounts for the privacy noise: a small",
        "   p-value means no. They are drawn from other people of the same census, anew in each run, so the right answer is",
        '   yes. A test at 5 % still rejects a true hypothesis once in twenty runs: if this run says "differ", it is one of those.',
    )
    stage.run("kmeanalyst", "mmd-test", "census.kme", "my_sample.csv")

    stage.say("6. The same people, five years older. Now the p-value should be tiny.")
    sample.assign(age=sample["age"] + 5).to_csv(folder / "my_older_sample.csv", index=False)
    stage.run("kmeanalyst", "mmd-test", "census.kme", "my_older_sample.csv")
    return stage.steps


def _shipped(name: str) -> pd.DataFrame:
    import pandas as pd

    with (files("kmeanalyst") / "data" / f"demo_{name}.csv.gz").open("rb") as source:
        return pd.read_csv(source, compression="gzip")


def _quoted(argument: str) -> str:
    """An argument quoted as for a shell: backticks need single quotes."""
    if not set(argument) & set(" `'<>"):
        return argument
    return f"'{argument}'" if "`" in argument else f'"{argument}"'
