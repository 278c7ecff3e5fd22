"""What both command lines share: clear errors, JSON, progress on a terminal. Nothing about data."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


class ClearErrors(click.Group):
    """A group whose commands turn the errors meant for people into one line and exit code 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader has seen enough (`| head`): click ends quietly
            raise
        except (ValueError, KeyError, OSError) as error:
            text = error.args[0] if isinstance(error, KeyError) and error.args else error
            raise click.ClickException(str(text)) from None


def print_json(value: Any) -> None:
    """One JSON object on standard output; NaN and infinities become null."""
    click.echo(json.dumps(_plain(value), ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def progress_line() -> Callable[[str, float], None] | None:
    """A progress callback that rewrites one line of standard error; None where that is no terminal."""
    if not sys.stderr.isatty():
        return None

    def show(what: str, share: float) -> None:
        end = "\n" if share >= 1 else ""
        click.echo(f"\r{what} {'█' * round(30 * share):<30} {share:4.0%}{end}", err=True, nl=False)

    return show
