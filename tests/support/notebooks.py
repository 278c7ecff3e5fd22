"""The tutorials as notebooks that were run, for reading with Jupyter: `python tests/support/notebooks.py FOLDER [PAGE...]`.

Needs jupytext, nbclient and ipykernel (the extra `notebooks`). Blocks of a terminal become cells of `%%sh`; the outputs that a page
shows are left out, as each cell has its own.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import tutorials

_PYTHON = """---
jupyter:
  kernelspec: {name: python3, display_name: Python 3, language: python}
---
"""  # else the language is that of most blocks, and of some pages these are a terminal's
_SHOWN = re.compile(r"^```text\n.*?^```\n", flags=re.MULTILINE | re.DOTALL)
_MODE = re.compile(r"^```(python|sh) \w+$", flags=re.MULTILINE)
_OTHERS = re.compile(r"^```(?!python|sh)(\w+\n.*?)^```$", flags=re.MULTILINE | re.DOTALL)  # of R and Julia: to be read
_FAILS = re.compile(r"^```sh fails\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def notebook_of(page: Path) -> str:
    """A page as the text of a notebook, every cell run in a copy of the tutorials' files; CellExecutionError where one fails."""
    import jupytext
    from nbclient import NotebookClient

    text = _FAILS.sub(r"```sh\n\1true\n```", _SHOWN.sub("", page.read_text(encoding="utf-8")))
    text = _OTHERS.sub(r"~~~\1~~~", _MODE.sub(r"```\1", text))
    notebook = jupytext.reads(_PYTHON + text, fmt="md")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "tutorial"
        shutil.copytree(tutorials.FOLDER / "files", folder)
        (folder / "figures").mkdir(exist_ok=True)
        os.environ |= tutorials._with_commands(Path(temporary) / "bin")
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    return str(jupytext.writes(notebook, fmt="ipynb"))


def main() -> None:
    folder, *names = sys.argv[1:]
    Path(folder).mkdir(parents=True, exist_ok=True)
    for page in tutorials.TUTORIALS:
        if not names or page.name.startswith(tuple(names)):
            (Path(folder) / f"{page.stem}.ipynb").write_text(notebook_of(page), encoding="utf-8")
            print(f"{page.stem}.ipynb")


if __name__ == "__main__":
    main()
