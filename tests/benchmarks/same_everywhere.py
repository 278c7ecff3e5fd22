"""One file on several machines: answers with 1, 2 and 4 threads, with other kernels of BLAS, and in another order.

    python tests/benchmarks/same_everywhere.py [--tables acs adult fair randhie] [--epsilon 10 1 0.1] [--keep FOLDER]

The questions and releases (seed 0) of strangers.py. Each setting is a process of its own. A line says how far its answers are from
those of one thread with this processor's own kernel: the largest difference of values, in standard errors, the largest share by
which errors differ, and how many of both are the same to the last bit. Where a processor lacks a kernel, BLAS takes its own.

    alone   every twentieth question is the first one that a release is asked
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from harness import command_line, show
from strangers import Questions, _domain, population, released

SETTINGS = {
    "1 thread": {"OPENBLAS_NUM_THREADS": "1"},
    "2 threads": {"OPENBLAS_NUM_THREADS": "2"},
    "4 threads": {"OPENBLAS_NUM_THREADS": "4"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "Sandybridge": {"OPENBLAS_CORETYPE": "Sandybridge"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "reversed": {},
    "alone": {},
}


def answers(name: str, epsilon: float, keep: str, setting: str) -> np.ndarray:
    """Values and errors (q, 2), NaN where a question is refused or not asked."""
    table = population(name)
    release, questions = released(table, name, epsilon, 0, keep, None), list(Questions(table, _domain(table)).all())
    found = np.full((len(questions), 2), np.nan)
    order = range(len(questions))
    for i in {"reversed": order[::-1], "alone": order[::20]}.get(setting, order):
        if setting == "alone":
            release = released(table, name, epsilon, 0, keep, None)
        try:
            one = questions[i].of_release(release)
        except ValueError:
            continue
        found[i] = one.value, one.standard_error
    return found


def main() -> None:
    options = command_line(__doc__, tables=("acs", "adult", "fair", "randhie"), epsilon=(10.0, 1.0, 0.1), keep=None)
    keep = options.keep or tempfile.mkdtemp()
    lines = []
    for name in options.tables:
        for epsilon in options.epsilon:
            found = {}
            for setting, variables in SETTINGS.items():
                to = Path(keep) / "answers.npy"
                command = [sys.executable, __file__, "one", name, str(epsilon), keep, setting, str(to)]
                subprocess.run(command, check=True, env=os.environ | variables)
                found[setting] = np.load(to)
            first = found.pop("1 thread")
            for setting, own in found.items():
                both = np.isfinite(first[:, 1]) & np.isfinite(own[:, 1]) & (first[:, 1] > 0)
                (value, error), (value_of, error_of) = first[both].T, own[both].T
                far = {"values": np.abs(value - value_of) / error, "errors": np.abs(error_of / error - 1)}
                same = {f"same {what}": float((each == 0).mean()) for what, each in far.items()}
                at = {"table": name, "epsilon": epsilon, "setting": setting, "answers": int(both.sum())}
                lines.append(at | {what: float(each.max()) for what, each in far.items()} | same)
    show(lines, digits=2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        warnings.simplefilter("ignore")
        np.save(sys.argv[6], answers(sys.argv[2], float(sys.argv[3]), sys.argv[4], sys.argv[5]))
    else:
        main()
