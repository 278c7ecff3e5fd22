"""What the site needs beyond tutorials/: files from elsewhere in the tree, and the text of every name and command."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {  # path in the tree → path in the site
    path: f"outside/{Path(path).name}"
    for path in (
        "release_side/PROMISE.md", "release_side/PROOF.md", "kmeanalyst/releases/FORMAT.md", "kmeanalyst/releases/schema_v1.json",
        "kmeanalyst/sources/SOURCES.md", "SECURITY.md", "CHANGELOG.md",
    )
}  # fmt: skip
IN_TREE = {site: path for path, site in OUTSIDE.items()}
PROGRAMS = {"kmeanalyst": "kmeanalyst.cli.main", "release-side": "release_side.cli.main"}


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside tutorials/, and the style sheet."""
    for path, site in (*OUTSIDE.items(), (".docs/site.css", "site.css")):
        files.append(File.generated(config, site, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the site's own paths, and let the pages of names and commands hold the whole reference."""
    here = page.file.src_uri
    folder = posixpath.dirname(IN_TREE.get(here, f"tutorials/{here}"))

    def moved(match: re.Match[str]) -> str:
        target, mark, anchor = match[1].partition("#")
        path = posixpath.normpath(posixpath.join(folder, target))
        site = OUTSIDE.get(path) or (path.removeprefix("tutorials/") + "/README.md" * target.endswith("/"))
        return f"]({posixpath.relpath(site, posixpath.dirname(here) or '.')}{mark}{anchor})"

    markdown = re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", moved, markdown)
    markdown = re.sub(
        r"^```(python|sh) \w+$", r"```\1", markdown, flags=re.MULTILINE
    )  # a mode of tests/support/tutorials.py
    if here == "names.md":
        return re.sub(r"(?:^\|.*\n?)+", _with_docstrings, markdown, flags=re.MULTILINE)
    if here == "commands.md":
        return markdown + "".join(_help_of(program, module) for program, module in PROGRAMS.items())
    return markdown


def _with_docstrings(table: re.Match[str]) -> str:
    names = re.findall(r"^\| `(ka|release_side|release)\.(\w+)`", table[0], flags=re.MULTILINE)
    homes = {"ka": "kmeanalyst.", "release_side": "release_side.", "release": "kmeanalyst.Release."}
    return table[0] + "".join(f"\n::: {homes[of]}{name}\n" for of, name in names if of != "release")


def _help_of(program: str, module: str) -> str:
    options = {"module": module, "command": "main", "prog_name": program, "depth": 1, "style": "table"}
    return "\n\n::: mkdocs-click\n" + "".join(f"    :{name}: {value}\n" for name, value in options.items())
