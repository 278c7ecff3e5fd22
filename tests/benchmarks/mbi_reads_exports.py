"""Does mbi (2.0 or later, where it is installed) read what `kmeanalyst export --mbi` writes, and estimate the same tables?

    python tests/benchmarks/mbi_reads_exports.py [--rows 4000]

Two overlapping noisy tables of three columns, with noise alike in all cells and with noise by cell, are written as JSON and npz,
read as LinearMeasurements, and estimated by mbi's mirror descent. The largest difference of a measured cell's probability from the
release's answer is in standard errors of the release: both weigh the same noise, but mbi's tables are at least 0 and of one total.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from harness import command_line, show

import kmeanalyst as ka
from kmeanalyst.releases.file.export import export_mbi

DOMAIN = ka.Domain(tuple(ka.Categorical(name=name, levels=tuple("pqrs")) for name in "abc"))


def measurements(path: Path, mbi: Any) -> tuple[Any, list[Any], float]:
    """mbi's domain, its measurements, and the total."""
    if path.suffix == ".json":
        header = json.loads(path.read_text(encoding="utf-8"))
    else:
        with np.load(path) as file:
            header, arrays = json.loads(str(file["header"])), dict(file)
        for i, one in enumerate(header["measurements"]):
            start = f"measurements_{i}_"
            one |= {name.removeprefix(start): own for name, own in arrays.items() if name.startswith(start)}
    read = []
    for one in header["measurements"]:
        query = {"query": mbi.WeightedQuery(np.array(one["weights"]))} if "weights" in one else {}
        noisy = np.array(one["noisy_measurement"])
        read.append(mbi.LinearMeasurement(noisy, one["clique"], stddev=one["stddev"], **query))
    return mbi.Domain(*(header["domain"][name] for name in ("attributes", "shape", "labels"))), read, header["total"]


def main() -> None:
    args = command_line(__doc__, rows=4000)
    try:
        import mbi
        from mbi import estimation
    except ImportError:
        sys.exit("mbi is not installed: nothing to read with. Skipped.")
    rng, found = np.random.default_rng(0), []
    shares = rng.dirichlet(np.full(64, 2.0)).reshape(4, 4, 4)
    rows = rng.multinomial(args.rows, shares.ravel()).reshape(4, 4, 4)
    for noise in (np.full((4, 4), 5.0), np.geomspace(2, 30, 16).reshape(4, 4)):
        tables = {
            pair: ka.NoisyTable(rows.sum(axis=other) + rng.normal(0, noise), scale=noise)
            for pair, other in ((("a", "b"), 2), (("b", "c"), 0))
        }
        release = ka.from_measurements(DOMAIN, tables, n_rows=args.rows)
        cells = [(pair, levels) for pair in tables for levels in product("pqrs", repeat=2)]
        texts = [" and ".join(f"{name} == '{one}'" for name, one in zip(*cell, strict=True)) for cell in cells]
        answers = release.expectations(texts)
        for ending in ("json", "npz"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"out.{ending}"
                export_mbi(release, path)
                domain, read, total = measurements(path, mbi)
            model = estimation.MirrorDescent().estimate(domain, read, known_total=total, iters=3000)
            theirs = np.concatenate([np.asarray(model.project(pair).datavector()) for pair in tables]) / total
            apart = [abs(e.value - p) / e.standard_error for e, p in zip(answers, theirs, strict=True)]
            found.append({"noise by cell": bool(np.ptp(noise)), "file": ending, "tables": len(read), "apart": max(apart)})
    show(found)


if __name__ == "__main__":
    main()
