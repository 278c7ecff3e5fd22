"""Run the tutorials as a reader would, block after block, and write or compare the outputs they show.

    python tests/support/tutorials.py    run all, report the seconds and what differs
    python tests/support/tutorials.py --write    run all, and write their outputs and pictures into tutorials/
    python tests/support/tutorials.py --write 01 domain-file

A tutorial is a Markdown file. Its ```python and ```sh blocks are run in order in a temporary folder that begins as a copy of
tutorials/files; blocks of other languages are shown and not run. Python blocks share their names, and show what they
print and the value of a last expression, as a notebook does. The ```text block right below a block is its output. After
the language a block may say how its output is compared:

    (nothing)  exactly
    approx     words exactly; numbers to 2 %, or two units of a fraction's last digit (platforms round differently)
    fresh      words exactly, numbers not at all: of noise that is drawn afresh, and of seconds
    fails      as approx, and the command must end with an exit code other than 0
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import paths
from matplotlib import pyplot
from matplotlib.image import imread

ROOT = paths.ROOT
FOLDER = ROOT / "tutorials"
README = ROOT / "README.md"
TUTORIALS = sorted(FOLDER.glob("[0-9][0-9]-*.md"))
MODES = ("", "approx", "fresh", "fails")
LARGEST_PICTURE = 60_000  # bytes
_BLOCK = re.compile(
    r"^```(?P<language>python|sh)(?P<mode>[^\n]*)\n(?P<source>.*?)^```\n(?:\n*^```text\n(?P<output>.*?)^```\n)?",
    flags=re.MULTILINE | re.DOTALL,
)
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])|(?<![\w.])[-−]?\.\d+")


class TutorialError(AssertionError):
    """A block that failed, or showed something else than the page says."""


@dataclass(frozen=True)
class Block:
    """Code of a page: its language, how its output is compared, and the output that the page shows, "" for none."""

    language: str
    mode: str
    source: str
    output: str

    @property
    def name(self) -> str:
        """Its first line, to find it by."""
        return self.source.strip().splitlines()[0]


@dataclass
class Run:
    """What a run of a page gave: its blocks with the outputs they had, the pictures they made, the time it took."""

    page: str
    shown: list[tuple[Block, str]] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    seconds: float = 0.0


def blocks_of(page: str) -> list[Block]:
    """The blocks of a page that are run, in order."""
    found = []
    for match in _BLOCK.finditer(page):
        mode = match["mode"].strip()
        if mode not in MODES:
            raise TutorialError(f"a block is compared in one of the ways {MODES}, got {mode!r}. Write one of these.")
        found.append(Block(match["language"], mode, match["source"], match["output"] or ""))
    return found


def pages() -> list[Path]:
    """The tutorials, and the other pages of the folder that have a block to run."""
    return [*TUTORIALS, *(path for path in sorted(FOLDER.glob("[a-z]*.md")) if _BLOCK.search(path.read_text("utf-8")))]


def run(page: str, files: Path = FOLDER / "files") -> Run:
    """Run the blocks of a page in a copy of the folder `files`; TutorialError at the first that fails."""
    result, started = Run(page), time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tutorial"
        shutil.copytree(files, folder)
        (folder / "figures").mkdir(exist_ok=True)
        environment = _with_commands(Path(temporary) / "bin")
        names: dict[str, Any] = {"__name__": "__tutorial__"}
        with contextlib.chdir(folder), _of_one_look():
            for block in blocks_of(page):
                output = _python(block, names) if block.language == "python" else _shell(block, environment)
                result.shown.append((block, _tidy(output)))
        result.pictures = {path.name: path.read_bytes() for path in sorted((folder / "figures").glob("*.png"))}
    result.seconds = time.perf_counter() - started
    return result


def differences(result: Run) -> list[str]:
    """Where a run is not what its page shows: outputs and pictures; none if all is as shown."""
    found = [
        f"{block.name}\n--- the page shows\n{block.output}--- the run gave\n{output}"
        for block, output in result.shown
        if not alike(block.output, output, block.mode)
    ]
    for name in sorted(set(re.findall(r"\]\(figures/([^)]+)\)", result.page)) | set(result.pictures)):
        found += _picture_differences(name, result)
    return found


def alike(shown: str, given: str, mode: str) -> bool:
    """Whether two outputs agree in a mode; spaces between words do not count where numbers may change their width."""
    if not mode:
        return shown == given
    if _words(shown) != _words(given):
        return False
    if mode == "fresh":
        return True
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(given), strict=True)
    return all(_near(a, b) for a, b in pairs)


def _words(text: str) -> str:
    """A text without its digests and numbers, and with single spaces and dashes."""
    return re.sub(r"-+", "-", " ".join(_NUMBER.sub("#", _DIGEST.sub("#", text)).split()))


def _near(a: str, b: str) -> bool:
    first, second = (float(text.replace(",", "").replace("−", "-")) for text in (a, b))
    digits, _, exponent = a.partition("e")
    decimals = len(digits.partition(".")[2])
    last_digit = 10.0 ** (int(exponent or 0) - decimals) if decimals else 0.0  # 0.01 for 3.14, 0 for a whole number
    return abs(first - second) <= max(0.02 * abs(first), 2.001 * last_digit)


def _python(block: Block, names: dict[str, Any]) -> str:
    """What a block prints, and the value of its last expression."""
    code = ast.parse(block.source)
    last = code.body.pop() if code.body and isinstance(code.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, block.name, "exec"), names)
            value = eval(compile(ast.Expression(last.value), block.name, "eval"), names) if last else None
        except Exception as error:
            raise TutorialError(f"this block failed with {error!r}:\n{block.source}") from error
        if value is not None:
            print(repr(value))
    return printed.getvalue()


def _shell(block: Block, environment: dict[str, str]) -> str:
    """What a block's commands write to both outputs, as on a terminal."""
    done = subprocess.run(
        ["sh", "-e", "-c", block.source], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if (done.returncode != 0) != (block.mode == "fails"):
        raise TutorialError(f"this block ended with exit code {done.returncode}:\n{block.source}{done.stdout}")
    return done.stdout


def _with_commands(folder: Path) -> dict[str, str]:
    """An environment in which the two commands are those of this tree."""
    folder.mkdir()
    for command, module in (("kmeanalyst", "kmeanalyst"), ("release-side", "release_side")):
        (folder / command).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        (folder / command).chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}


@contextlib.contextmanager
def _of_one_look() -> Iterator[None]:
    """Pictures without a screen, whatever the reader's settings, closed afterwards; tables of pandas as wide as in a notebook."""
    backend = matplotlib.get_backend()
    pyplot.switch_backend("agg")
    with matplotlib.rc_context(), pd.option_context("display.max_columns", 20, "display.width", 110):
        matplotlib.rcdefaults()
        matplotlib.rcParams.update({"figure.figsize": (6.4, 3.2), "figure.dpi": 100, "savefig.dpi": 100})
        matplotlib.rcParams.update({"figure.constrained_layout.use": True, "font.size": 9})
        yield
    pyplot.close("all")
    pyplot.switch_backend(backend)


def _tidy(output: str) -> str:
    """Without spaces at ends of lines, which editors remove, and with one line end at the last."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    return "".join(f"{line}\n" for line in lines)


def _picture_differences(name: str, result: Run) -> list[str]:
    path = FOLDER / "figures" / name
    if name not in result.pictures:
        return [f"figures/{name} is on the page, and no block made it"]
    if f"](figures/{name})" not in result.page:
        return [f"figures/{name} was made, and the page does not show it"]
    if not path.exists():
        return [f"tutorials/figures/{name} is not there: run with --write"]
    if len(result.pictures[name]) > LARGEST_PICTURE:
        return [f"figures/{name} has {len(result.pictures[name])} bytes, of at most {LARGEST_PICTURE}"]
    share = share_of_other_pixels(path.read_bytes(), result.pictures[name])
    return [f"figures/{name} looks different in {share:.1%} of its pixels"] if share > 0.02 else []


def share_of_other_pixels(first: bytes, second: bytes) -> float:
    """The share of pixels that differ by more than a fifth of full brightness; 1 for pictures of different sizes."""
    a, b = (imread(io.BytesIO(picture), format="png") for picture in (first, second))
    return float((abs(a - b).max(axis=2) > 0.2).mean()) if a.shape == b.shape else 1.0


def written(result: Run) -> str:
    """The page with the outputs of the run; an output that agrees with the page's, in its mode, stays as it is."""
    outputs = iter(result.shown)

    def with_output(match: re.Match[str]) -> str:
        block, output = next(outputs)
        kept = block.output if alike(block.output, output, block.mode) else output
        code = f"```{match['language']}{match['mode']}\n{block.source}```\n"
        return f"{code}\n```text\n{kept}```\n" if kept else code

    return _BLOCK.sub(with_output, result.page)


def main() -> None:
    """Run the pages of these names, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", help="what their names begin with; all by default")
    parser.add_argument("--write", action="store_true", help="write outputs and pictures into tutorials/")
    arguments = parser.parse_args()
    warnings.simplefilter("error")  # as in the suite
    failed = False
    for path in pages():
        if arguments.pages and not path.name.startswith(tuple(arguments.pages)):
            continue
        result = run(path.read_text(encoding="utf-8"))
        print(f"{path.name}: {result.seconds:.1f} s")
        if arguments.write:
            result.page = written(result)
            path.write_text(result.page, encoding="utf-8")
            for name, picture in result.pictures.items():
                (FOLDER / "figures" / name).write_bytes(picture)
            result.shown = list(zip(blocks_of(result.page), [output for _, output in result.shown], strict=True))
        for difference in differences(result):
            failed = True
            print(f"differs: {difference}")
    sys.exit(failed)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
