"""The page's style sheet and script, and the content security policy: a browser may use these two (by hash) and nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

from kmeanalyst.report.markup import Markup, element

STYLE, SCRIPT = (
    files("kmeanalyst.report").joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
)


def document(
    title: str, *content: object, description: str | None = None, more_style: str = "", kind: str | None = None
) -> str:
    """A whole page: it holds no address, and its policy allows a browser only its own script and style.

    content      elements of its body, which the script follows.
    description  what it is, in its first bytes.
    more_style   rules after those of every page.
    kind         class of the body.
    """
    style = STYLE + more_style
    policy = (
        f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        None if description is None else element("meta", name_="description", content=description),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    body = element("body", content, element("script", Markup(SCRIPT)), class_=kind)
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en", dir="ltr") + "\n"


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
