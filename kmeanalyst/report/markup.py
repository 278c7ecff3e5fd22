"""HTML and SVG as values: whatever is not an element is text, and is escaped when it enters one.

`document` is a whole page, with the style sheet and the script that a browser may use (by their hashes), and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from kmeanalyst.releases.texts import replaced, shortened

STYLE, SCRIPT = (files("kmeanalyst.report").joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
_VOID = frozenset(("meta", "br", "link", "col"))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9:-]*")


class Markup(str):
    """Text that is markup already; made by `element` and `joined` alone."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """An element; children that are not Markup are escaped, and so are all attributes.

    attributes   a trailing underscore is dropped (class_), others become hyphens; None omits an attribute, True has no value.

    >>> element("p", "a < b", element("b", "c"), class_='x"')
    '<p class="x&quot;">a &lt; b<b>c</b></p>'
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r:.40} is not a name of an element: it could become other markup. Write letters.")
    head = name + "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{head}>") if name in _VOID else Markup(f"<{head}>{joined(children)}</{name}>")


def joined(children: object) -> Markup:
    """Children one after the other: nested lists, elements, and texts, which are escaped."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return Markup(escape(replaced(children)))
    if isinstance(children, Iterable):
        return Markup("".join(joined(child) for child in children))
    return Markup(escape(str(children)))


def short(text: str, most: int) -> str:
    return shortened(replaced(text), most)


def name_of(text: str, most: int | None = None) -> Markup:
    """A name from the file within a sentence: isolated in its direction of writing, cut to a length, whole on hover."""
    whole = replaced(text)
    cut = whole if most is None else short(text, most)
    return element("bdi", cut, title=whole if cut != whole else None)


def table(heads: Sequence[tuple[str, str]], rows: Sequence[object], caption: object, kind: str) -> Markup:
    """A table that scrolls on its own where it is too wide; heads are (text, class)."""
    tops = [element("th", text, scope="col", class_=class_ or None) for text, class_ in heads]
    inner = element(
        "table", element("caption", caption), element("thead", element("tr", tops)), element("tbody", rows), class_=kind
    )
    return scrolling(inner, caption)


def scrolling(inner: Markup, caption: object) -> Markup:
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label=caption)


def sections(*parts: tuple[str, str, object]) -> list[Markup]:
    """Links to the parts of a page, (id, heading, content), and the parts, which a click folds."""
    links = [element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in parts]
    folding = [
        element("details", element("summary", element("h2", heading)), part, class_="section", id=name, open=True)
        for name, heading, part in parts
    ]
    return [element("nav", element("ul", links), aria_label="Sections"), *folding]


def key(number: float) -> str:
    """A number as scripts and tests read it; nothing where there is none."""
    return repr(float(number)) if math.isfinite(number) else ""


def _attribute(key: str, value: object) -> str:
    key = key.rstrip("_").replace("_", "-")
    if not _NAME.fullmatch(key):
        raise ValueError(f"{key!r:.40} is not a name of an attribute: it could become other markup. Write letters.")
    if value is None or value is False:
        return ""
    return f" {key}" if value is True else f' {key}="{escape(replaced(str(value)))}"'


def document(title: str, *content: object, description: str | None = None, more_style: str = "", kind: str | None = None) -> str:
    """A whole page: it holds no address, and its policy allows a browser only its own script and style.

    content      elements of its body, which the script follows.
    description  what it is, in its first bytes.
    more_style   rules after those of every page.
    kind         class of the body.
    """
    style = STYLE + more_style
    policy = f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    head = element(
        "head", element("meta", charset="utf-8"),
        None if description is None else element("meta", name_="description", content=description),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"), element("title", title), element("style", Markup(style)),
    )  # fmt: skip
    body = element("body", content, element("script", Markup(SCRIPT)), class_=kind)
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en", dir="ltr") + "\n"


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
