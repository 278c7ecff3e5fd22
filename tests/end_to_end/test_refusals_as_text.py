"""The checker of refusals fails where it should."""

from __future__ import annotations

from pathlib import Path

import pytest
import refusals


def test_a_wrong_file_of_refusals_fails(tmp_path: Path) -> None:
    path = tmp_path / "refusals.txt"
    for text in (
        "int('1')\n    ValueError: literal\n",  # not refused
        "int('x')\n    TypeError: literal\n",  # another error
        "int('x')\n    ValueError: literal\n    base 16\n",  # the message lacks a part
        "# nothing but a remark\n",
    ):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(AssertionError, match=r"refusals\.txt"):
            refusals.check(path, eval)


def test_a_true_file_of_refusals_passes(tmp_path: Path) -> None:
    path = tmp_path / "refusals.txt"
    path.write_text("int('x')\n    ValueError: invalid literal\n    base 10\n\n[][1]\n    LookupError: range\n", encoding="utf-8")
    refusals.check(path, eval)
