"""A page of HTML as tests read it."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "br", "link", "col"}
FETCHING = {
    "src", "srcset", "data", "action", "formaction", "background", "poster", "xlink:href", "ping", "manifest", "style",
}  # fmt: skip


class Page(HTMLParser):
    """The tags and texts of a page; unbalanced tags fail."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "elements that are never closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.setdefault(self.open[-1] if self.open else "", []).append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment: nothing here writes one")

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self) -> str:
        return " ".join(text for tag, texts in self.texts.items() if tag not in ("script", "style") for text in texts)


def browser() -> str | None:
    """A Chromium or Chrome on the path; None without."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


def in_browser(path: Path) -> tuple[Page, str]:
    """The page as its script leaves it, and what the browser says on standard error."""
    program = browser()
    assert program is not None
    done = subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path.parent / 'profile'}", "--dump-dom",
         path.as_uri()], capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return Page(re.sub(r"<!DOCTYPE[^>]*>", "", done.stdout)), done.stderr
