"""What both command lines share: clear errors, JSON, progress on a terminal. Nothing about data."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from kmeanalyst.releases.texts import escaped, flaw_of, one_line

_DELETE = {0x7F: "\\u007f"}  # which JSON would let pass
Tell = Callable[[str, float | None], None]  # what is being done, and the share of it that is; None: not known

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


class ClearErrors(click.Group):
    """A group whose commands turn the errors meant for people into one line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough (`| head`): click ends quietly
            raise
        except (ValueError, KeyError, OSError, ImportError) as error:
            text = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise click.ClickException(escaped(str(text))) from None


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text, the only way in which commands do: a character that a terminal would obey or hide is written as its escape."""
    click.echo(escaped(text), err=err, nl=nl)


def print_json(value: Any) -> None:
    """One JSON object on standard output; NaN and infinities become null.

    Letters of every script are written as they are; control, bidirectional and other invisible characters as \\u escapes.
    """
    text = json.dumps(_plain(value), ensure_ascii=False)
    click.echo(text.translate({ord(c): json.dumps(c)[1:-1] for c in set(text) if flaw_of(c)} | _DELETE))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def completion_help(program: str) -> str:
    """For the end of a program's help: how a shell learns to complete its commands, options and files."""
    name = f"_{program.upper().replace('-', '_')}_COMPLETE"
    return f"""\b
    Tab completes commands, options and files; run once, then open a new shell:
      bash  echo 'eval "$({name}=bash_source {program})"' >> ~/.bashrc
      zsh   echo 'eval "$({name}=zsh_source {program})"' >> ~/.zshrc
      fish  {name}=fish_source {program} > ~/.config/fish/completions/{program}.fish
    """


_PATIENCE = 2.0  # seconds: what is over sooner needs no line
_EVERY = 0.25  # seconds between two looks of the line
_BAR = 30


def on_terminal() -> bool:
    """Whether a person may be watching standard error."""
    return sys.stderr.isatty()


_shown: list[_Line] = []  # the line that is there, if one is


@contextmanager
def working(what: str) -> Iterator[Tell]:
    """Show on a terminal that something is going on: from two seconds on, one line that is wiped out at the end.

    what     what is being done, until the callback says something else.
    Yields   tell(what, share): the share of it that is done, 0 to 1, for a bar; None, not known, for a block that wanders.
    Where standard error is no terminal nothing is shown, ever.
    """
    if not on_terminal():
        yield lambda what, share: None
        return
    line = _Line(what)
    line.start()
    _shown.append(line)
    try:
        yield line.on_progress
    finally:
        _shown.remove(line)
        line.stop()


def note(text: str) -> None:
    """A note on standard error, on a line of its own whatever is shown there."""
    for line in _shown:
        line.wipe()
    say(f"note: {text}", err=True)


class _Line:
    """One line of standard error, rewritten by a thread of its own and wiped out at the end."""

    def __init__(self, what: str) -> None:
        self._said: tuple[str, float | None] = (what, None)
        self._began, self._width = time.monotonic(), 0
        self._over, self._writing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return when the line is gone."""
        self._over.set()
        self._thread.join()

    def on_progress(self, what: str, share: float | None) -> None:
        self._said = (what, share)

    def _show(self) -> None:
        if self._over.wait(_PATIENCE):
            return
        with suppress(OSError):  # the terminal has gone; the work goes on
            while not self._over.is_set():
                self._write(_line_text(*self._said, time.monotonic() - self._began))
                self._over.wait(_EVERY)
            self.wipe()

    def wipe(self) -> None:
        """Leave an empty line, with the cursor at its beginning."""
        if self._width:
            self._write("")
            click.echo("\r", err=True, nl=False)

    def _write(self, text: str) -> None:
        """Over what stood there."""
        text = one_line(text)
        with self._writing:
            click.echo(f"\r{text:<{self._width}}", err=True, nl=False)
            self._width = len(text)


def _line_text(what: str, share: float | None, seconds: float) -> str:
    """What is done, a bar, and the seconds it has taken; it fits on a line of 80 unless `what` is long."""
    if share is None:
        place = abs(int(seconds / _EVERY) % (2 * _BAR - 6) - (_BAR - 3))  # there and back
        return f"{what} {'░' * place}███{'░' * (_BAR - 3 - place)} {seconds:.0f} s"
    share = min(1.0, max(0.0, share))
    done = round(_BAR * share)
    return f"{what} {'█' * done}{'░' * (_BAR - done)} {share:4.0%} {seconds:.0f} s"
