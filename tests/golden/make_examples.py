"""Made the releases in examples/ on 2026-11-22, which examples in docstrings ask. Kept to show how.

    python tests/golden/make_examples.py

They are of the table that ships with the package as the demo's private one, with noise of the operating system's
entropy: run again, this makes releases with other noise, and the examples' answers change with them. On 2026-11-23
their sums were put on the grid of 2^28, which left the answers as they were. `counted`, on 2026-11-26, is a release
of tables of all pairs and of three columns.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pandas as pd

import release_side
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from release_side.publishing.methods.adaptive.shares_of_rounds import with_sets

FOLDER = Path(__file__).parent / "examples"


def main() -> None:
    with (files("kmeanalyst") / "data" / "demo_public_sample.csv.gz").open("rb") as public:
        sample = pd.read_csv(public, compression="gzip", dtype=str)
        domain = release_side.draft_domain(sample, this_sample_is_public=True).domain
    with (files("kmeanalyst") / "data" / "demo_private.csv.gz").open("rb") as private:
        table = pd.read_csv(private, compression="gzip", dtype=str, keep_default_na=False)
    FOLDER.mkdir(exist_ok=True)
    three = tuple(sorted(map(domain.names.index, ("sex", "marital-status", "income"))))
    for name, choices in {
        "adult": {"features": 1000, "points": 300},
        "survey": {"method": "subspace", "points": 60},
        "counted": {"kernel": with_sets(margin_kernel(domain), [three]), "points": 300},
    }.items():
        if (FOLDER / f"{name}.kme").exists():
            print(f"{name}.kme is there and stays. To make it again remove it first, and correct the examples' answers after.")
            continue
        release_side.publish(table, domain, epsilon=1.0, delta=1e-6, output=FOLDER / f"{name}.kme", force=True, **choices)


if __name__ == "__main__":
    main()
