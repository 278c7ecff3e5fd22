"""What the site needs beyond tutorials/: files from elsewhere in the tree, and the text of every name and command."""

from __future__ import annotations

import posixpath
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

import kmeanalyst

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = {  # path in the tree → path in the site
    path: f"outside/{Path(path).name}"
    for path in (
        "release_side/PROMISE.md", "release_side/PROOF.md", "kmeanalyst/releases/FORMAT.md", "kmeanalyst/releases/schema_v1.json",
        "kmeanalyst/sources/SOURCES.md", "SECURITY.md", "CHANGELOG.md",
    )
}  # fmt: skip
IN_TREE = {site: path for path, site in OUTSIDE.items()}
NAME = re.compile(r"^\| `(ka|release_side|release)\.(\w+)` \|", flags=re.MULTILINE)
MODULES = {"ka": "kmeanalyst", "release_side": "release_side"}
COMMANDS = {"kmeanalyst": "kmeanalyst", "release-side": "release_side"}
PROGRAMS = {name: import_module(f"{package}.cli.main").main for name, package in COMMANDS.items()}


def on_files(files: Files, config: Any) -> Files:
    """Add the files from outside tutorials/, the style sheet, and a page of docstrings for each topic of names.md."""
    for path, site in (*OUTSIDE.items(), (".docs/site.css", "site.css")):
        files.append(File.generated(config, site, abs_src_path=str(ROOT / path)))
    for topic in (ROOT / "tutorials" / "names.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, table = topic.partition("\n")
        text = f"# {title}\n" + "".join(_docstring(*found) for found in NAME.findall(table))
        files.append(File.generated(config, f"names/{'-'.join(re.findall('[a-z]+', title.lower()))}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links at the site's own paths, and let the pages of names and commands hold the whole reference."""
    here = page.file.src_uri
    page.meta["search"] = {"exclude": here.endswith("CHANGELOG.md"), "boost": 1 + here.startswith("names/")}
    folder = posixpath.dirname(IN_TREE.get(here, f"tutorials/{here}"))

    def moved(match: re.Match[str]) -> str:
        target, mark, anchor = match[1].partition("#")
        path = posixpath.normpath(posixpath.join(folder, target))
        site = OUTSIDE.get(path) or (path.removeprefix("tutorials/") + "/README.md" * target.endswith("/"))
        return f"]({posixpath.relpath(site, posixpath.dirname(here) or '.')}{mark}{anchor})"

    markdown = re.sub(r"\]\((?!\w+:|#)([^)\s]+)\)", moved, markdown)
    # without the mode of tests/support/tutorials.py
    markdown = re.sub(r"^```(python|sh) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    if here == "names.md":
        return NAME.sub(lambda found: f"| [`{found[1]}.{found[2]}`][{_home(found[1], found[2])}] |", markdown)
    if here == "commands.md":
        return markdown + "".join(_help_of(main, program) for program, main in PROGRAMS.items())
    return markdown


def _home(of: str, name: str) -> str:
    """The path of a name where its docstring is: a method of a release may be a function of another module."""
    if of != "release":
        return f"{MODULES[of]}.{name}"
    method = getattr(kmeanalyst.Release, name)
    method = method.fget if isinstance(method, property) else method
    return f"{method.__module__}.{method.__qualname__}"


def _docstring(of: str, name: str) -> str:
    return f"\n::: {_home(of, name)}\n    options:\n      heading: {of}.{name}\n      toc_label: {name}\n"


def _help_of(command: click.Command, name: str, depth: int = 2, parent: click.Context | None = None) -> str:
    """A command's help, and that of all commands below it, as a terminal shows it."""
    settings = {**command.context_settings, "terminal_width": 96}
    context = click.Context(command, info_name=name.split()[-1], parent=parent, **settings)
    below = sorted(command.commands.items()) if isinstance(command, click.Group) else []
    text = f"\n\n{'#' * min(depth, 3)} {name}\n\n```text\n{command.get_help(context)}\n```\n"
    return text + "".join(_help_of(each, f"{name} {word}", depth + 1, context) for word, each in below)
