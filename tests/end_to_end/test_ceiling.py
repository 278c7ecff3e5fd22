"""What comes in says what goes out: the lines of each folder have a ceiling.

Raise one in the commit that needs it, and say there why, and what leaves instead. Lower one when lines leave.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import paths

CEILINGS = {  # lines of Python files
    "kmeanalyst": 194,
    "kmeanalyst/cli": 1_553,
    "kmeanalyst/inference": 14_450,
    "kmeanalyst/kernels": 3_235,
    "kmeanalyst/learning": 2_860,
    "kmeanalyst/plots": 710,
    "kmeanalyst/release": 436,
    "kmeanalyst/releases": 11_021,
    "kmeanalyst/report": 1_273,
    "kmeanalyst/representation": 4_734,
    "kmeanalyst/sources": 1_344,
    "release_side": 108,
    "release_side/budget": 1_225,
    "release_side/choices": 1_426,
    "release_side/cli": 817,
    "release_side/door": 1_847,
    "release_side/executors": 363,
    "release_side/private_rows": 1_149,
    "release_side/publishing": 3_142,
    "release_side/quality": 1_442,
    "tests": 49_039,
}


def lines(root: Path) -> dict[str, int]:
    """Lines of Python by folder: of the two packages those at their first level, of the tests all together."""
    counted: Counter[str] = Counter()
    tops = ("kmeanalyst", "release_side", "tests")
    for path in sorted(path for top in tops for path in (root / top).glob("**/*.py")):
        parts = path.relative_to(root).parts
        folder = parts[0] if parts[0] == "tests" or len(parts) == 2 else f"{parts[0]}/{parts[1]}"
        counted[folder] += path.read_bytes().count(b"\n")
    return dict(counted)


def above(counted: dict[str, int]) -> list[str]:
    return [
        f"{folder}: {n:,} lines, ceiling {CEILINGS.get(folder, 0):,}"
        for folder, n in counted.items()
        if n > CEILINGS.get(folder, 0)
    ]


def test_no_folder_has_more_lines_than_its_ceiling() -> None:
    counted = lines(paths.ROOT)
    assert not above(counted), "\n".join(above(counted))
    assert set(CEILINGS) == set(counted), "a folder that left keeps no ceiling"


def test_a_line_too_many_and_a_new_folder_are_found(tmp_path: Path) -> None:
    for folder, n in CEILINGS.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "room.py").write_text("\n" * n)
    assert above(lines(tmp_path)) == []
    (tmp_path / "kmeanalyst" / "cli" / "more.py").write_text("\n")
    (tmp_path / "kmeanalyst" / "new").mkdir()
    (tmp_path / "kmeanalyst" / "new" / "room.py").write_text("\n")
    assert [text.partition(":")[0] for text in above(lines(tmp_path))] == ["kmeanalyst/cli", "kmeanalyst/new"]
