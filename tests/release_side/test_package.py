"""What a curator sees of the package: its names, and the lines that help opens with."""

from __future__ import annotations

import pydoc

import pytest

import release_side

FIVE_LINES = (
    "import release_side",
    'domain = release_side.read_domain("domain.toml")',
    'release_side.Ledger("budget.ledger").init("census", epsilon=2.0, delta=1e-6)',
    'release = release_side.publish("private.csv", domain, epsilon=1.0, delta=1e-6, ledger="budget.ledger", table="census")',
    'release.write("table.kme")',
)


def test_the_directory_lists_the_public_names_and_no_others():
    found = sorted(name for names in release_side._HOMES.values() for name in names)
    assert dir(release_side) == sorted(release_side.__all__) == found
    for name in dir(release_side):
        assert getattr(release_side, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        release_side.magic  # noqa: B018


def test_help_opens_with_the_five_lines_that_a_curator_types():
    described = pydoc.plain(pydoc.render_doc(release_side)).split("DESCRIPTION")[1]
    typed = [line.strip() for line in described.split("PACKAGE CONTENTS")[0].splitlines() if line.strip()]
    assert tuple(typed[:5]) == FIVE_LINES
