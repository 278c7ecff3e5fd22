"""Refusals kept as text beside the tests of a room: an input on a line, and indented below it what its message must say.

    Real(name="x", lower=3, upper=1)
        ValueError: lower 3 .* upper 1
        Pass

The first word is the error's type; it and every further line hold a pattern that the message must match (what, why, how to fix it).
A line that starts with `#` is a remark. One test checks a whole file and names every case that fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Refusal:
    """An input that must be refused, and what the message must say."""

    input: str
    error: str
    patterns: tuple[str, ...]

    def failure(self, run: Callable[[str], object]) -> str | None:
        """What is wrong with the refusal of this input; None if it is as written."""
        try:
            answer = run(self.input)
        except Exception as error:
            if self.error not in {kind.__name__ for kind in type(error).__mro__}:
                return f"{self.input}\n    raised {type(error).__name__}, not {self.error}: {error}"
            lacking = [pattern for pattern in self.patterns if not re.search(pattern, str(error))]
            return f"{self.input}\n    lacks {lacking} in: {error}" if lacking else None
        return f"{self.input}\n    was not refused: {answer!r}"


def read(path: Path) -> list[Refusal]:
    """The refusals of a file."""
    found: list[tuple[str, list[str]]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0] != " ":
            found.append((line, []))
        else:
            found[-1][1].append(line.strip())
    refusals = []
    for text, said in found:
        error, _, first = said[0].partition(":")
        refusals.append(Refusal(text, error, tuple(pattern for pattern in (first.strip(), *said[1:]) if pattern)))
    return refusals


def check(path: Path, run: Callable[[str], object]) -> None:
    """Every input of the file is refused as the file says; `run` evaluates one, as `lambda text: eval(text, globals())` does."""
    refusals = read(path)
    assert refusals, f"{path} holds no refusal"
    failures = [failure for refusal in refusals if (failure := refusal.failure(run)) is not None]
    assert not failures, f"{len(failures)} of {len(refusals)} refusals of {path.name}:\n" + "\n".join(failures)
