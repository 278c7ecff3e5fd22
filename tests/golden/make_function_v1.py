"""Made the files in function_v1/ once, on 2026-11-22. Kept to show how; run again, it refuses to change a file that is there.

    python tests/golden/make_function_v1.py

A reader of functions of format 1 must read these files for ever, with the values in function_v1/expected.json.
(On 2026-11-23, before the first version, their sums were put on the grid of 2^28.)
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import release_side
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Boolean
from kmeanalyst.releases.domain.numbers import Real
from kmeanalyst.releases.file import write_function

FOLDER = Path(__file__).parent / "function_v1"
X = Real(name="x", lower=-3.0, upper=3.0)
PLANE = Domain((X, Real(name="z", lower=0.0, upper=1.0, missing=True), Boolean(name="y")))
KINDS = {"density": None, "ridge": "x", "logistic": "y", "svm": "y"}


def main() -> None:
    expected: dict[str, object] = {}
    frame, table = PLANE.decode(PLANE.draw(60, 3)), PLANE.decode(PLANE.draw(12, 5)).astype(object)
    FOLDER.mkdir(exist_ok=True)
    for kind, target in KINDS.items():
        path = FOLDER / f"{kind}.kme"
        if path.exists():
            raise SystemExit(f"{path.name} is there and is kept for ever. Give a new file a name of its own.")
        domain = Domain((X,)) if kind == "density" else PLANE
        function = release_side.publish_function(frame, domain, kind=kind, target=target, epsilon=1.0, delta=1e-6)
        write_function(function, path)
        expected[kind] = {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "statement": function.statement.to_dict(),
            "table": {name: cells.where(cells.notna(), None).tolist() for name, cells in table.items()},
            "answer": function.evaluate(table).to_dict("list"),
        }
    (FOLDER / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
