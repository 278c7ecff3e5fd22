"""Adds a release file to v1/. A file that is there is neither changed nor replaced.

    python tests/golden/add_v1.py new-kind.kme

A reader of format 1 must read these files for ever, with the values in v1/expected*.json. The file's name is its name there; how
the files were made is in the history of this folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from kmeanalyst.release import Release, read_release
from kmeanalyst.releases.measurement import feature_mean

FOLDER = Path(__file__).parent / "v1"


def values(release: Release) -> dict[str, object]:
    """What a reader must find, in numbers that do not depend on how it is written."""
    points = release.encoded_points
    found: dict[str, object] = {
        "columns": release.domain.to_dict(), "encoded_points": np.where(np.isnan(points), None, points).tolist(),
        "weights": release.weights.tolist(), "gram_of_first_points": release.kernel.gram(points[:3], points[:3]).tolist(),
    }  # fmt: skip
    if release.statement is not None:
        found["statement"] = release.statement.to_dict()
    if release.derived:
        found["derived"] = [one.to_dict() for one in release.derived]
        frame = release.to_frame()[[one.column.name for one in release.derived]].astype(float)
        found["derived_cells"] = np.where(np.isnan(frame), None, frame).tolist()
    if release.measurement is not None:
        feature_map = release.measurement.feature_map
        found |= {
            "vector": release.measurement.vector.tolist(),
            "feature_mean": feature_mean(feature_map, points, release.weights).tolist(),
        }
        if (relative := release.measurement.relative_noise) is not None:
            found["relative_noise"] = relative.tolist()
    return found


def main() -> None:
    source = Path(sys.argv[1])
    path = FOLDER / source.name
    if path.exists():
        raise SystemExit(f"{path.name} is there and is kept for ever. Give a new file a name of its own.")
    expected = {"sha256": hashlib.sha256(source.read_bytes()).hexdigest()}
    expected |= values(read_release(source, allow_rehearsal=True))
    shutil.copy(source, path)
    (FOLDER / f"expected_{path.stem}.json").write_text(
        json.dumps({path.stem: expected}, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
