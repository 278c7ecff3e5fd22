"""Added `unit` and `ledger_head` to the statements of all files of releases in the tree on 2026-11-22, once.

    python tests/golden/add_statement_fields.py

Both became fields of format 1 before it was released. Noise, points and answers stay as they were; only the header of a
file and its digest in the expectations change. Files that have the fields are left alone.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

from kmeanalyst.releases.file.archive import HEADER, zipped
from kmeanalyst.releases.file.writing import canonical

FOLDER = Path(__file__).parent
FILES = [*FOLDER.glob("*/*.kme"), *(FOLDER.parents[1] / "tutorials" / "files").glob("*.kme")]
_UNITS = {"persons.kme": "owner"}


def main() -> None:
    digests = {}
    for path in sorted(FILES):
        before = path.read_bytes()
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        header = json.loads(members[HEADER])
        if header["statement"] is None or "ledger_head" in header["statement"]:
            continue
        header["statement"] |= {"unit": _UNITS.get(path.name), "ledger_head": None}
        path.write_bytes(zipped({HEADER: canonical(header)} | {n: d for n, d in members.items() if n != HEADER}))
        digests[hashlib.sha256(before).hexdigest()] = hashlib.sha256(path.read_bytes()).hexdigest()
    for path in sorted(FOLDER.glob("*/expected*.json")):
        expected = json.loads(path.read_text(encoding="utf-8"))
        for name, told in expected.items():
            if told["sha256"] in digests:
                told["sha256"] = digests[told["sha256"]]
                told["statement"] |= {"unit": _UNITS.get(f"{name}.kme"), "ledger_head": None}
        path.write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
