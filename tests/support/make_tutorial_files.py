"""Make the releases that the tutorials read: `python tests/support/make_tutorial_files.py [NAME...]`. Their noise is new each time.

The outputs in the tutorials are those of the files in tutorials/files: after making these, write the outputs again
(`python tests/support/tutorials.py --write`).
"""

from __future__ import annotations

import sys
from importlib.resources import files

import numpy as np
import pandas as pd
import paths

import release_side

FOLDER = paths.ROOT / "tutorials" / "files"


def demo_rows(name: str) -> pd.DataFrame:
    """A table that ships with the package; "sample": the first 1,500 of the others."""
    if name == "sample":
        return demo_rows("others").head(1500)
    with (files("kmeanalyst") / "data" / f"demo_{name}.csv.gz").open("rb") as source:
        return pd.read_csv(source, compression="gzip")


def older_town() -> pd.DataFrame:
    """1,000 of 2,500 other rows, drawn with probabilities that grow with age: a second population without common rows."""
    others = pd.concat([demo_rows("public_sample"), demo_rows("sample")], ignore_index=True)
    probabilities = others["age"] ** 2 / (others["age"] ** 2).sum()
    return others.iloc[np.random.default_rng(1).choice(len(others), 1000, replace=False, p=probabilities)]


def main() -> None:
    """Make the releases of these names, or all."""
    domain = release_side.read_domain(FOLDER / "domain.toml")
    tables = {
        "census": (demo_rows("private"), {"epsilon": 1.0, "features": 2000}),
        "small_budget": (demo_rows("private"), {"epsilon": 0.1, "features": 1000, "points": 500}),
        "riverside": (older_town(), {"epsilon": 3.0, "features": 1000, "points": 500}),
    }
    demo_rows("sample").to_csv(FOLDER / "my_sample.csv", index=False)
    for name in sys.argv[1:] or tables:
        rows, choices = tables[name]
        release_side.publish(rows, domain, delta=1e-6, output=FOLDER / f"{name}.kme", force=True, **choices)


if __name__ == "__main__":
    main()
