"""Draft a domain for the curator from a sample that the curator declares public; the draft keeps the sample's digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from kmeanalyst.releases.domain.column import DomainError
from kmeanalyst.releases.domain.draft import Draft
from kmeanalyst.releases.domain.draft import draft_domain as drafted_from
from release_side.choices.output_file import is_same_file
from release_side.choices.public_inputs import open_public, public_files, samples_of
from release_side.private_rows.rows import Table

NOT_DECLARED = (
    "a domain is drafted from a public sample only: its levels, and bounds near the sample's extremes, are published with "
    "every release, without noise. If everybody may see every row of this sample, say "
)


def draft_domain(
    sample: Table, *, this_sample_is_public: bool = False, collapse_rare: bool = False, strings: bool = False,
    without: Sequence[str] = (),
) -> Draft:  # fmt: skip
    """Guess a domain from a public sample; DomainError if it is not declared public, or a column suggests nothing.

    sample                  path of a table, or a DataFrame; never the private table.
    this_sample_is_public   must be True: the curator declares that everybody may see every row.
    collapse_rare           whether levels seen fewer than ten times become one level, "other", the column's default.
    strings                 whether a column of many different texts becomes a column of strings instead of an error.
    without                 columns that are left out, such as identifiers, and the unit that `publish` will protect.
    Returns                 Draft; its domain keeps the sample's digest, so that `publish` refuses this file as private table.

    >>> draft = release_side.draft_domain("public_sample.csv", this_sample_is_public=True)
    >>> draft.domain["age"].edges
    (20, 25, 30, 35, 38, 40, 45, 50, 55, 60, 70)
    """
    if this_sample_is_public is not True:
        raise DomainError(f"{NOT_DECLARED}this_sample_is_public=True.")
    frame = sample if isinstance(sample, pd.DataFrame) else open_public(sample).frame()
    if unknown := [name for name in without if name not in frame.columns]:
        raise DomainError(f"the sample has no column {unknown[0]!r} to leave out. Name one that is in its header.")
    frame = frame.drop(columns=list(without))
    draft = drafted_from(frame, strings=strings, collapse_rare=collapse_rare)
    return replace(draft, domain=replace(draft.domain, samples=samples_of(sample)))


def check_not_the_sample(output: str | Path | None, sample: str | Path) -> None:
    """DomainError if the drafted file would replace a file of its sample."""
    if output is None:
        return
    path = Path(output)
    for file in public_files(sample):
        if isinstance(file, Path) and is_same_file(path, file):
            raise DomainError(
                f"{output} is a file of the sample, which the domain would replace: the sample would be lost. "
                "Name another file, such as domain.toml."
            )
