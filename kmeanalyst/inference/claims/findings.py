"""Claims from a TOML file.

    rate = 0.05                                  # optional
    claims = ["mean(age) > 38", "corr(age, hours) > 0"]

or, where they have names, a table for each:

    [[claim]]
    name = "graduates work longer"
    text = "mean(hours, where=degree == 'BA') > mean(hours, where=degree == 'HS')"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EXAMPLE = 'claims = ["mean(age) > 38"]'


@dataclass(frozen=True)
class Findings:
    """Texts and names of claims, and the rate of false ones among those that are kept; None where the file has none."""

    texts: tuple[str, ...]
    names: tuple[str, ...]
    rate: float | None


def read_findings(path: str | Path) -> Findings:
    """The claims of a file; ValueError, which names the file, where it has none or has anything else."""
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path} could not be read ({error.strerror}), so there are no claims. Check the path."
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not TOML: {error}. Write, for example, {_EXAMPLE}.") from None
    if unknown := sorted(set(content) - {"rate", "claims", "claim"}):
        raise _refused(path, f"it has {', '.join(map(repr, unknown))}")
    rate = content.get("rate")
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1):
        raise ValueError(f"{path}: rate must be a number between 0 and 1, got {rate!r:.60}. Write rate = 0.05.")
    found = [*_listed(path, content.get("claims", [])), *_tables(path, content.get("claim", []))]
    if not found:
        raise _refused(path, "it has no claim")
    return Findings(tuple(text for text, _ in found), tuple(name for _, name in found), rate)


def _listed(path: str | Path, claims: Any) -> list[tuple[str, str]]:
    if not isinstance(claims, list) or not all(isinstance(text, str) for text in claims):
        raise _refused(path, "its claims are no list of texts")
    return [(text, "") for text in claims]


def _tables(path: str | Path, claims: Any) -> list[tuple[str, str]]:
    if not isinstance(claims, list) or not all(
        isinstance(one, dict)
        and isinstance(one.get("text"), str)
        and isinstance(one.get("name", ""), str)
        and set(one) <= {"name", "text"}
        for one in claims
    ):
        raise _refused(path, "a [[claim]] has other entries than a text, and perhaps a name")
    return [(one["text"], one.get("name", "")) for one in claims]


def _refused(path: str | Path, what: str) -> ValueError:
    return ValueError(
        f"{path} is no list of claims: {what}. A file has claims = [texts], or [[claim]] tables with a text and perhaps a "
        f"name, and perhaps a rate. Write, for example, {_EXAMPLE}."
    )
