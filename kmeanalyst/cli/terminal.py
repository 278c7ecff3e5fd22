"""What both command lines share: clear errors, JSON output, a progress bar. Nothing here knows about data."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import PurePath
from typing import Any

import click

from kmeanalyst.releases.texts import escaped, flaw_of, one_line, shown

_BREAKABLE = re.compile(r"note: |\s*\S+( \S+)*\s{2,}|(?![ $]|.* --|.{160})")  # a note, a label, a sentence
_DELETE = {0x7F: "\\u007f"}  # the delete character, which JSON leaves as it is
OnProgress = Callable[[str, float | None], None]  # the work, and the share of it that is done; None: not known

Command = Callable[..., Any]
Part = Callable[[Command], Command]  # an argument or an option, added to a command
_SECRETS = "kmeanalyst.secrets"


class _Path(click.Path):
    """A path; what is no file and looks like an address with a password is in no error message."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if ctx is not None and (instead := shown(value)) != str(value):
            forms = map(str, (value, path := PurePath(value), *path.parents))
            ctx.meta.setdefault(_SECRETS, {}).update({form: instead for form in forms if shown(form) != form})
        return super().convert(value, param, ctx)


def error_of(ctx: click.Context, text: str) -> click.ClickException:
    """An error of a command, as one may show it: without characters that a terminal obeys, and passwords among its arguments."""
    for secret, instead in ctx.meta.get(_SECRETS, {}).items():
        text = text.replace(secret, instead)
    return click.ClickException(escaped(text))


_PATHS = {"path": _Path(), "file": _Path(dir_okay=False), "folder": _Path(file_okay=False)}


def argument(name: str, metavar: str, kind: Any = "path", **facts: Any) -> Part:
    """A positional argument, by default a path."""
    return click.argument(name, metavar=metavar, type=_PATHS.get(kind, kind), **facts)


def option(names: str, text: str, kind: Any = None, default: Any = None, **facts: Any) -> Part:
    """An option with its help.

    names     the option, and after a space the name of the value if it is another.
    kind      "path", "file" or "folder", a tuple of choices, or a type of click; by default a text.
    default   False for a flag; any other is shown in the help.
    """
    kind = click.Choice(kind) if isinstance(kind, tuple) else _PATHS.get(kind, kind)
    if default is False:
        facts["is_flag"] = True
    elif default is not None:
        facts |= {"default": default, "show_default": True}
    return click.option(*names.split(), type=kind, help=text, **facts)


def command(name: str, short: str, *parts: Part, **facts: Any) -> Callable[[Command], click.Command]:
    """A command with a line in the list of commands, and these arguments and options in this order."""

    def make(function: Command) -> click.Command:
        for part in reversed(parts):
            function = part(function)
        return click.command(name, short_help=short, **facts)(function)

    return make


flag = partial(option, default=False)
json_option = flag("--json as_json", "Print one JSON object and nothing else.")


_ALSO = dict.fromkeys(("inspect", "describe", "show", "summary"), "info")  # what other programs call it


class ClearErrors(click.Group):
    """A group whose commands print an error meant for users as one line and end with exit code 1."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, _ALSO.get(cmd_name, cmd_name))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has closed the pipe (`| head`): click ends without a message
            raise
        except (ValueError, KeyError, OSError, ImportError) as error:
            text = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise error_of(ctx, str(text)) from None


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print text: all that commands print goes through here. A character that a terminal would obey or hide is escaped."""
    lines = escaped(text).split("\n")
    is_screen = (sys.stderr if err else sys.stdout).isatty()
    click.echo("\n".join(map(_broken, lines) if is_screen else lines), err=err, nl=nl)


def _broken(line: str) -> str:
    """A line broken between words for a terminal, what follows below its text; commands and paragraphs are left, to be copied."""
    width, start = shutil.get_terminal_size().columns, _BREAKABLE.match(line)
    if start is None or len(line) <= width:
        return line
    indent = " " * min(start.end(), width // 4)
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def show(as_json: bool, text: str | None, fields: dict[str, Any]) -> None:
    """An answer: with --json one object with these fields, else the text if there is one."""
    if as_json:
        click.echo(json_text(fields))
    elif text is not None:
        say(text)


def json_text(value: Any) -> str:
    """One JSON object; NaN and infinities become null.

    Letters of every script are written as they are; control, bidirectional and other invisible characters as \\u escapes.
    """
    text = json.dumps(_plain(value), ensure_ascii=False)
    return text.translate({ord(c): json.dumps(c)[1:-1] for c in set(text) if flaw_of(c)} | _DELETE)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def program(name: str, kind: type[click.Group] = ClearErrors) -> Callable[[Command], click.Group]:
    """The whole program of this name; its help ends with how to make a shell complete commands, options and files."""
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    epilog = f"""\b
    Tab completes commands, options and files; run once, then open a new shell:
      bash  echo 'eval "$({variable}=bash_source {name})"' >> ~/.bashrc
      zsh   echo 'eval "$({variable}=zsh_source {name})"' >> ~/.zshrc
      fish  {variable}=fish_source {name} > ~/.config/fish/completions/{name}.fish
    """

    def make(function: Command) -> click.Group:
        function = click.version_option(package_name="kmeanalyst", prog_name=name)(function)
        return click.group(cls=kind, context_settings={"help_option_names": ["-h", "--help"]}, epilog=epilog)(function)

    return make


_PATIENCE = 2.0  # seconds: shorter work needs no bar
_EVERY = 0.25  # seconds between two drawings of the bar
_KNOWN, _UNKNOWN = "{desc} {bar} {percentage:3.0f}% {elapsed_s:.0f} s", "{desc} {elapsed_s:.0f} s"


def on_terminal() -> bool:
    """Whether a person may be watching standard error: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


_shown: list[Any] = []  # the progress bar on the screen, if there is one


@contextmanager
def working(what: str) -> Iterator[OnProgress]:
    """Show that work is going on: after two seconds, a progress bar on standard error, which is removed at the end.

    what     the work, until the callback names another.
    Yields   on_progress(what, share): the share that is done, from 0 to 1; None if it is not known.
    Where standard error is neither a terminal nor a notebook's nothing is shown.
    """
    if not on_terminal():
        yield lambda what, share: None
        return
    progress: list[tuple[str, float | None]] = [(what, None)]
    done = threading.Event()
    thread = threading.Thread(target=_show, args=(progress, done), daemon=True)
    thread.start()
    try:
        yield lambda what, share: progress.__setitem__(0, (what, share))
    finally:
        done.set()
        thread.join()


def note(text: str) -> None:
    """Print a note on standard error, on a line of its own even while a progress bar is shown."""
    with _shown[0].external_write_mode(file=sys.stderr) if _shown else nullcontext():
        say(f"note: {text}", err=True)


def _show(progress: list[tuple[str, float | None]], done: threading.Event) -> None:
    """Draw the bar until the work is done: in a thread, so that it moves while nothing is reported."""
    began = time.time()
    if done.wait(_PATIENCE):
        return
    from tqdm.auto import tqdm  # late: it takes a while to import, and most commands are over before

    columns, rows = shutil.get_terminal_size()  # 80 × 24 where a terminal says 0 × 0, for which tqdm shows nothing
    with suppress(OSError), tqdm(total=1.0, leave=False, ncols=columns, nrows=rows, file=sys.stderr, delay=1e-9) as bar:
        bar.start_t = began
        _shown.append(bar)
        try:
            while not done.is_set():
                what, share = progress[0]
                bar.set_description_str(one_line(what), refresh=False)
                bar.bar_format = _UNKNOWN if share is None else _KNOWN
                bar.n = min(1.0, max(0.0, share or 0.0))
                bar.refresh()
                done.wait(_EVERY)
        finally:
            _shown.remove(bar)
