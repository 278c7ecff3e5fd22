"""Calls of the curator's command line."""

from __future__ import annotations

from click.testing import CliRunner, Result

from release_side.cli.main import main


def call(*words: object) -> Result:
    """`release-side` with these words; an exception that the command line should have caught is raised."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
