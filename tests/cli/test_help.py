"""Help: every command has examples that run as printed, every option has a text, and shells can complete both.

The examples run in the folder of `public_names.ready_folder`, split into words by a shell, in the order of the help, so
that one may use what another wrote.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pandas as pd
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from command_line import MAINS
from paths import TESTS
from public_names import ready_folder

from kmeanalyst.cli import terminal
from release_side import Ledger, publish, publish_function
from release_side.choices import options
from release_side.publishing import simulated

QUICK = {"info", "init", "show", "verify", "check-source", "new-domain"}  # over at once, whatever the table's size
PARSED_ONLY = {"demo", "finish", "import"}  # ten seconds or more, and of files that other tests make and try


def commands(program: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group of a program, the program itself first."""
    waiting: list[tuple[tuple[str, ...], click.Command]] = [((), MAINS[program])]
    while waiting:
        path, command = waiting.pop(0)
        yield path, command
        if isinstance(command, click.Group):
            waiting += [((*path, name), command.commands[name]) for name in sorted(command.commands)]


ALL = [(program, path, command) for program in MAINS for path, command in commands(program)]


def examples_of(program: str, command: click.Command) -> list[str]:
    """The lines after "Example:" in a command's help, those that end in a backslash joined to the next."""
    shown = re.sub(r"\\\n\s*", "", command.help or "").partition("Example")[2]
    return re.findall(rf"(?:^|:)\s*({program} .*)$", shown, re.MULTILINE)


EXAMPLES = list(dict.fromkeys((program, line) for program, _, command in ALL for line in examples_of(program, command)))


def words(line: str) -> list[str]:
    """The words of a command line, split by a shell; what a shell would run or expand is lost."""
    shown = subprocess.run(["sh", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    return shown.stdout.split("\0")[:-1]


def test_every_command_has_an_example_of_itself_and_every_option_has_help_and_shows_its_default():
    for program, path, command in ALL:
        examples, mine = examples_of(program, command), " ".join((program, *path))
        assert examples and all(line.startswith(mine) for line in examples), command.help
        for option in (one for one in command.params if isinstance(one, click.Option)):
            named = f"{mine}: {option.opts}"
            assert option.help, f"{named} has no help"
            fixed = option.is_flag or option.multiple or option.required or option.default in (None, click.core.UNSET)
            assert fixed or option.show_default, f"{named} does not show its default {option.default!r}"
            chosen = isinstance(option.type, click.Choice) and not option.required
            assert not chosen or option.show_default or "default" in option.help, f"{named} shows no default"
        if path and not isinstance(command, click.Group):
            assert "--json" in [word for option in command.params for word in option.opts], mine


def test_the_list_of_commands_is_whole_sentences():
    for program, main in MAINS.items():
        shown = CliRunner().invoke(main, ["--help"], prog_name=program).stdout
        listed = shown.partition("Commands:")[2].partition("\n\n")[0].strip().splitlines()
        assert len(listed) == len(main.commands)
        assert all(line[-1] in ".?" and not line.endswith("...") for line in listed), listed


_AGE = '[[column]]\nname = "age"\nkind = "integer"\nlower = 17\nupper = 90\n'
_ILL = '[[column]]\nname = "ill"\nkind = "boolean"\n'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples name: releases, samples, a small domain, a ledger with a function, points to evaluate at."""
    folder = tmp_path_factory.mktemp("examples")
    ready_folder(folder)
    shutil.copy(TESTS / "golden" / "examples" / "survey.kme", folder / "adult.kme")  # the smaller one
    for copied, example in (("north", "counted"), ("south", "adult")):
        shutil.copy(TESTS / "golden" / "examples" / f"{example}.kme", folder / f"{copied}.kme")
    (folder / "age.toml").write_text(_AGE, encoding="utf-8")
    (folder / "domain.toml").write_text(_AGE + _ILL, encoding="utf-8")
    (folder / "questions.txt").write_text("age > 50 and ill\nage\n", encoding="utf-8")
    whole = pd.read_csv(folder / "private.csv")
    whole.assign(ill=whole["hours-per-week"] > 40)[["age", "ill"]].to_csv(folder / "private.csv", index=False)
    shutil.copy(folder / "private.csv", folder / "last_year.csv")  # these rows are public
    publish(
        folder / "private.csv", folder / "domain.toml", epsilon=1, delta=1e-6, points=20, features=60, uncounted=True,
        output=folder / "table.kme",
    )  # fmt: skip
    Ledger(folder / "budget.ledger").init("people", 5.0, 1e-4)
    publish_function(
        folder / "private.csv", folder / "age.toml", kind="density", epsilon=0.1, delta=1e-7, grid=5,
        ledger=folder / "budget.ledger", table="people", output=folder / "age.kme",
    )  # fmt: skip
    (folder / "logistic.kme").rename(folder / "ill.kme")
    pd.DataFrame({"x": [-1.0, 1.0], "z": [0.2, 0.8]}).to_csv(folder / "points.csv", index=False)
    return folder


@pytest.fixture
def here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder as the current one, and smaller releases by default: calls are as printed."""
    shutil.copytree(folder, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(options, "FEATURES", 60)
    monkeypatch.setattr(options, "DEFAULT_POINTS", 20)
    monkeypatch.setattr(options, "MOST_DEFAULT_POINTS", 20)
    monkeypatch.setattr(simulated, "_SYNTHETIC_ROWS", (200, 400))
    return tmp_path / "here"


def test_every_example_can_be_parsed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for program, line in EXAMPLES:
        command, arguments = MAINS[program], words(line)[1:]
        while isinstance(command, click.Group):
            command = command.commands[arguments.pop(0)]
        command.make_context(command.name, arguments)


@pytest.mark.parametrize(("program", "line"), EXAMPLES, ids=[line[:70] for _, line in EXAMPLES])
@pytest.mark.slow
def test_an_example_runs_as_printed_and_shows_no_progress_without_a_terminal(program, line, here, monkeypatch):
    watched: list[bool] = []
    monkeypatch.setattr(terminal, "on_terminal", lambda: watched.append(False))
    arguments = words(line)[1:]
    name = next(word for word in reversed(arguments) if word in NAMES)
    if name in PARSED_ONLY or any(word.startswith(ELSEWHERE) for word in arguments):
        return
    if "--output" in arguments:  # the folder has what other examples read, and publish replaces nothing
        (here / arguments[arguments.index("--output") + 1]).unlink(missing_ok=True)
    if "patients" in arguments and name != "init":  # the line before it on the page makes this table
        Ledger("budget.ledger").init("patients", epsilon=2, delta=1e-6)
    result = CliRunner().invoke(MAINS[program], arguments, prog_name=program)
    assert result.exit_code == 0, result.output
    assert result.stdout or "wrote" in result.stderr
    assert not set("█\r") & set(result.stderr)
    assert watched or name in QUICK, "a command that may take seconds says nothing while it works"


ELSEWHERE = ("postgresql:", "s3://")  # servers: their tests are with the sources
NAMES = {path[-1] for _, path, command in ALL if path and not isinstance(command, click.Group)}


def test_a_shell_would_lose_what_an_example_does_not_quote():
    """The power of the test above: the shell is asked."""
    assert words("""kmeanalyst expect adult.kme '`hours-per-week` > 40'""")[-1] == "`hours-per-week` > 40"
    with pytest.raises((AssertionError, subprocess.CalledProcessError)):
        words('kmeanalyst expect adult.kme "`hours-per-week` > 40"')


@pytest.mark.parametrize("program", MAINS)
def test_shells_complete_commands_options_and_files(program):
    variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
    shown = CliRunner().invoke(MAINS[program], ["--help"], prog_name=program).stdout
    for shell in ("bash", "zsh", "fish"):
        assert f"{variable}={shell}_source {program}" in shown
        kind = get_completion_class(shell)
        assert kind is not None
        completion = kind(MAINS[program], {}, program, variable)
        source = completion.source_template % completion.source_vars()
        assert f"{variable}={shell}_complete" in source and program in source
        command = "expect" if program == "kmeanalyst" else "publish"
        assert command in [item.value for item in completion.get_completions([], command[:2])]
        assert "--json" in [item.value for item in completion.get_completions([command], "--j")]
        assert [item.type for item in completion.get_completions([command], "adu")] == ["file"]
    # as the installed script is called: its name decides which variable it listens to
    code = f"import sys; sys.argv = [{program!r}]; from {program.replace('-', '_')}.cli.main import main; main()"
    environment = {**os.environ, variable: "zsh_source"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and f"#compdef {program}" in done.stdout


def test_a_progress_bar_appears_after_a_while_on_a_terminal_and_is_removed(monkeypatch, capsys):
    import tqdm.auto  # noqa: F401  # which takes longer than this test

    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    monkeypatch.setattr(terminal, "_PATIENCE", 0.01)
    monkeypatch.setattr(terminal, "_EVERY", 0.01)
    with terminal.working("testing") as on_progress:
        time.sleep(0.1)
        on_progress("testing 20,000 rows", 0.5)
        time.sleep(0.1)
        terminal.note("something")
        time.sleep(0.1)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\rtesting 0 s" in captured.err
    bar = re.search(r"\rtesting 20,000 rows (\S+)( +)  50% 0 s", captured.err)
    assert bar and abs(len(bar[1]) - len(bar[2])) <= 1 and len(bar[0]) <= 81  # and the \r
    assert "\rnote: something\n" in captured.err
    assert captured.err.endswith(" \r")  # nothing is left to see


def test_short_work_shows_no_progress_bar(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    with terminal.working("testing") as on_progress:
        on_progress("testing", 0.5)
    assert capsys.readouterr().err == ""


def test_an_error_is_printed_on_its_own_line(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "on_terminal", lambda: True)
    monkeypatch.setattr(terminal, "_PATIENCE", 0.0)
    with pytest.raises(ValueError), terminal.working("testing"):
        time.sleep(0.1)
        raise ValueError
    assert capsys.readouterr().err.endswith(" \r")


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of Unix")
@pytest.mark.parametrize(
    "line",
    [
        "kmeanalyst mmd-test adult.kme my_sample.csv",
        "release-side publish private.csv --domain domain.toml --epsilon 1 --delta 1e-6 --method subspace --points 20 "
        "--output out.kme --uncounted --force",
    ],
)
@pytest.mark.slow(but="kmeanalyst mmd-test adult.kme my_sample.csv")
def test_a_pseudo_terminal_shows_the_line_and_a_pipe_does_not(line, folder):
    shown = re.compile(r"\r(testing|publishing)\b.* \d s")
    assert shown.search(_standard_error(line, folder, pipe=False))
    assert "\r" not in _standard_error(line, folder, pipe=True)


def _standard_error(line: str, folder: Path, *, pipe: bool) -> str:
    """What a process that reports its progress from the start writes to a pipe, or to a terminal."""
    import pty

    program, *arguments = words(line)
    code = (
        "import sys, tqdm.auto, kmeanalyst.cli.terminal as t; t._PATIENCE = 0.0; "
        f"from {program.replace('-', '_')}.cli.main import main; main(sys.argv[1:])"
    )
    ours, theirs = os.pipe() if pipe else pty.openpty()
    done = subprocess.Popen([sys.executable, "-c", code, *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    read = b""
    with suppress(OSError):  # so Linux reports that the other end of a terminal is closed
        while piece := os.read(ours, 4096):
            read += piece
    os.close(ours)
    assert done.wait() == 0, read
    return read.decode()
