"""A page of HTML as tests read it."""

from __future__ import annotations

from html.parser import HTMLParser

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
