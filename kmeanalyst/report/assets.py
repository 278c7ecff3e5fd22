"""The page's style sheet and script, and the content security policy: a browser may use these two (by hash) and nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files

STYLE, SCRIPT = (
    files("kmeanalyst.report").joinpath(f"report.{kind}").read_text(encoding="utf-8") for kind in ("css", "js")
)


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; script-src {_hash(SCRIPT)}; style-src {_hash(STYLE)}; base-uri 'none'; form-action 'none'"
)
