"""The tutorials say what happens: every block runs as printed, and gives the output and the pictures that are shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tutorials

PAGE = """# A page

```python
x = 6
x * 7
```

```text
42
```

```sh approx
echo "mean: 38.31"
```

```text
mean: 38.30
```
"""


@pytest.mark.parametrize("path", tutorials.TUTORIALS, ids=lambda path: path.stem)
@pytest.mark.tutorials(but="08-any-language")
def test_a_tutorial_does_what_it_shows(path: Path) -> None:
    result = tutorials.run(path.read_text(encoding="utf-8"))
    found = tutorials.differences(result)
    assert not found, "\n\n".join(
        [*found, f"If that is as it should be: python tests/support/tutorials.py --write {path.name[:2]}"]
    )


def test_there_are_tutorials_and_each_runs_something() -> None:
    assert [int(path.name[:2]) for path in tutorials.TUTORIALS] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert all(len(tutorials.blocks_of(path.read_text(encoding="utf-8"))) >= 3 for path in tutorials.TUTORIALS)


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in tutorials.FOLDER.glob("*.md"):
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        targets = [target.partition("#")[0] for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text)]
        assert [target for target in targets if target and not (page.parent / target).exists()] == [], page.name


def test_every_picture_is_on_a_page() -> None:
    readme = tutorials.FOLDER.parent / "README.md"
    pages = "".join(path.read_text(encoding="utf-8") for path in (*tutorials.FOLDER.glob("*.md"), readme))
    unused = [path.name for path in (tutorials.FOLDER / "figures").iterdir() if f"figures/{path.name})" not in pages]
    assert unused == []


def test_a_page_that_shows_what_happens_has_no_differences() -> None:
    assert tutorials.differences(tutorials.run(PAGE)) == []


def test_a_page_that_shows_something_else_is_found_out() -> None:
    for shown, instead in (
        ("x * 7", "x * 8"), ("mean: 38.31", "mean: 39.31"), ("mean: 38.31", "median: 38.31"),
        ("mean: 38.31", "mean: 38.31 to 39"), ("x * 7", "print(x * 7); x"),
    ):  # fmt: skip
        assert len(tutorials.differences(tutorials.run(PAGE.replace(shown, instead)))) == 1, instead


def test_an_output_that_the_page_leaves_out_is_a_difference() -> None:
    silent = PAGE.replace("```text\n42\n```\n", "")
    result = tutorials.run(silent)
    assert len(tutorials.differences(result)) == 1
    assert tutorials.blocks_of(tutorials.written(result)) == tutorials.blocks_of(PAGE)


def test_a_picture_that_is_not_on_the_page_is_a_difference() -> None:
    drawing = "```python\nfrom pathlib import Path\n\nwrote = Path('figures/x.png').write_bytes(b'')\n```\n"
    assert tutorials.differences(tutorials.run(drawing)) == ["figures/x.png was made, and the page does not show it"]
    assert tutorials.differences(tutorials.run("![a picture](figures/x.png)\n")) == [
        "figures/x.png is on the page, and no block made it"
    ]


def test_a_block_that_ends_otherwise_than_it_says_stops_the_page() -> None:
    for source in ("```python\n1 / 0\n```\n", "```sh\nfalse\n```\n", "```sh fails\ntrue\n```\n"):
        with pytest.raises(tutorials.TutorialError, match="this block"):
            tutorials.run(source)


def test_approx_allows_two_per_cent_or_two_units_of_the_last_digit() -> None:
    for shown, given, near in (
        ("38.30", "38.31", True), ("38.30", "38.32", True), ("0.050", "0.052", True), ("0.050", "0.053", False),
        ("1,500 rows", "1,501 rows", True), ("1,500 rows", "1,600 rows", False), ("4", "5", False), ("4", "4", True),
        ("2.50e-27", "2.54e-27", True), ("2.50e-27", "2.50e-26", False), ("a 1", "a  1", True), ("a 1", "b 1", False),
        ("-0.3", "0.3", False), ("1 of 7", "1 of", False), ("7 columns", "6 columns", False),
    ):  # fmt: skip
        assert tutorials.alike(shown, given, "approx") is near, (shown, given)


def test_fresh_looks_at_words_alone() -> None:
    assert tutorials.alike("12 s, ε = 1", "9 s, ε = 1", "fresh")
    assert not tutorials.alike("12 s, ε = 1", "12 s, ρ = 1", "fresh")


def test_a_line_that_moves_is_seen_in_a_picture() -> None:
    import io

    import numpy as np
    from matplotlib.image import imsave

    def picture(row: int) -> bytes:
        pixels, buffer = np.ones((50, 80, 3)), io.BytesIO()
        pixels[row : row + 2] = 0
        imsave(buffer, pixels, format="png")
        return buffer.getvalue()

    assert tutorials.share_of_other_pixels(picture(10), picture(10)) == 0
    assert tutorials.share_of_other_pixels(picture(10), picture(20)) == pytest.approx(4 / 50)
