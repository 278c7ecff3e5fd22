"""The tutorials say what happens: every block runs as printed, and gives the output and the pictures that are shown."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from command_line import MAINS

import kmeanalyst
import release_side
import tutorials
from kmeanalyst.cli.demo import run_demo
from kmeanalyst.releases.domain.domain import KINDS, Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec
from kmeanalyst.releases.domain.numbers import Real

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


@pytest.mark.parametrize("path", tutorials.pages(), ids=lambda path: path.stem)
@pytest.mark.tutorials(but="08-any-language")
def test_a_tutorial_does_what_it_shows(path: Path) -> None:
    result = tutorials.run(path.read_text(encoding="utf-8"))
    found = tutorials.differences(result)
    assert not found, "\n\n".join([*found, f"If that is as it should be: python tests/support/tutorials.py --write {path.stem}"])


@pytest.mark.parametrize("files", ["tutorials", "demo"])
@pytest.mark.tutorials(but="tutorials")
def test_the_readme_runs_in_the_order_it_is_written(files: str, tmp_path: Path) -> None:
    """Its Python on the tutorials' files; all of it, as a reader who has run the demo would type it."""
    page, folder = tutorials.README.read_text(encoding="utf-8"), tutorials.FOLDER / "files"
    if files == "demo":
        folder = tmp_path / "demo_files"
        run_demo(str(folder))
        page = re.sub(r"^```console\n(.*?)^```", _typed, page, flags=re.MULTILINE | re.DOTALL)
    else:
        page = re.sub(r"^```sh\n.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    languages = [block.language for block, _ in tutorials.run(page, folder).shown]
    assert languages == (["sh", "sh", "python", "python"] if files == "demo" else ["python", "python"])


def _typed(console: re.Match[str]) -> str:
    return "```sh\n" + "".join(re.findall(r"^\$ (.*\n)", console[1], flags=re.MULTILINE)) + "```"


def test_the_readme_is_short() -> None:
    assert len(tutorials.README.read_bytes()) <= 10_000


def test_every_public_name_and_command_has_a_line_in_the_reference() -> None:
    names, commands = ((tutorials.FOLDER / page).read_text(encoding="utf-8") for page in ("names.md", "commands.md"))
    public = {*kmeanalyst.__all__, *release_side.__all__}
    assert {name for name in public if f".{name}` |" not in names} == set(), "add a line to tutorials/names.md"
    programs = {f"{program} {command}" for program, main in MAINS.items() for command in main.commands}
    assert {command for command in programs if f"`{command}` |" not in commands} == set(), "add a line to commands.md"


def test_every_key_of_a_column_is_in_the_page_of_domain_files() -> None:
    page = (tutorials.FOLDER / "domain-file.md").read_text(encoding="utf-8")
    keys = {field.name for kind in KINDS.values() for field in fields(kind)} | {"kind", "prefixes"}
    first_cells = " ".join(re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE))
    assert (keys | set(KINDS)) - set(re.findall(r"`(\w+)`", first_cells)) == set()


def test_every_kernel_of_the_page_of_methods_is_one_of_numbers() -> None:
    (row,) = re.findall(r"^\| `--kernel` \|.*", (tutorials.FOLDER / "methods.md").read_text(encoding="utf-8"), re.MULTILINE)
    domain = Domain((Real(name="x", lower=0, upper=1),))
    assert [kernel_from_spec(spec, domain).name for spec in re.findall(r"`(\w[\w-]*:.*?)`", row)] == [
        "gaussian", "laplacian", "matern", "rational-quadratic", "polynomial"
    ]  # fmt: skip


def test_there_are_tutorials_and_each_runs_something() -> None:
    assert [int(path.name[:2]) for path in tutorials.TUTORIALS] == [*range(1, 11)]
    assert all(len(tutorials.blocks_of(path.read_text(encoding="utf-8"))) >= 3 for path in tutorials.TUTORIALS)


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in (*tutorials.FOLDER.glob("*.md"), tutorials.README):
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
