"""Time and memory of the two-sample test on rows, compared with a bare one.

    OPENBLAS_NUM_THREADS=1 python tests/benchmarks/speed_of_mmd_test.py [--sizes 1000 5000 20000] [--rounds 3]

The bare test is what a competent reader would write in ten lines: float32, whole blocks of the Gram matrix by matrix products
and exp, one product with all labels. Both run in a process of their own, in turn, round after round; the times are the fastest
of the rounds, memory is the largest resident set less that before the test. On a machine that is shared, give both one thread:
the threads of one matrix product wait for each other, and the bare test then takes five times as long, which says nothing of
it. Last, a release (1,000 points, 4,000 features) against a sample of 5,000 rows. Cited by tutorials/measured.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
from harness import command_line, peak

D, PERMUTATIONS = 10, 200
LENGTHSCALE = float(np.sqrt(2 * D))  # about the median distance


def samples(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, D)), rng.normal(size=(n, D)) + 0.02


def bare(x: np.ndarray, y: np.ndarray, block: int = 1024) -> float:
    """Unbiased MMD², B relabellings, float32: the p-value."""
    n, m = len(x), len(y)
    rows = np.vstack([x, y]).astype(np.float32) / np.float32(LENGTHSCALE)
    rng = np.random.default_rng(0)
    labels = np.zeros((n + m, PERMUTATIONS + 1), dtype=np.float32)
    labels[:n, 0] = 1
    for b in range(PERMUTATIONS):
        labels[rng.permutation(n + m)[:n], b + 1] = 1
    squares = (rows**2).sum(axis=1)
    inside, sums, memory = np.zeros(PERMUTATIONS + 1), np.zeros(n + m), np.empty(block * block, dtype=np.float32)
    for i in range(0, n + m, block):
        I = slice(i, min(i + block, n + m))  # noqa: E741
        towards = np.zeros((I.stop - i, PERMUTATIONS + 1), dtype=np.float32)
        for j in range(0, n + m, block):
            J = slice(j, min(j + block, n + m))
            shape = (I.stop - i, J.stop - j)
            K = np.matmul(rows[I], rows[J].T, out=memory[: shape[0] * shape[1]].reshape(shape))
            K -= squares[I, None] / 2
            K -= squares[None, J] / 2
            np.exp(K, out=K)
            if i == j:
                np.fill_diagonal(K, 0)
            sums[I] += K.sum(axis=1)
            towards += K @ labels[J]
        inside += (labels[I] * towards).sum(axis=0, dtype=np.float64)
    along, total = sums @ labels, sums.sum()
    across = along - inside
    statistics = inside / (n * (n - 1)) + (total - inside - 2 * across) / (m * (m - 1)) - 2 * across / (n * m)
    return float((1 + (statistics[1:] >= statistics[0]).sum()) / (PERMUTATIONS + 1))


def ours(x: np.ndarray, y: np.ndarray) -> float:
    import kmeanalyst as ka

    return ka.mmd_test(x, y, kernel=ka.kernels.Gaussian(LENGTHSCALE), permutations=PERMUTATIONS, rng=0).pvalue


RUN = {"bare": bare, "ours": ours}


def measured(method: str, n: int) -> dict[str, float]:
    """One test in this process, after a small one that imports what is needed and starts the threads."""
    small = samples(64)
    RUN[method](*small)
    x, y = samples(n)
    before, start, busy = peak(), time.perf_counter(), time.process_time()
    answer = RUN[method](x, y)
    spent = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy}
    return spent | {"memory": peak() - before, "answer": answer}


def compare(n: int, rounds: int) -> None:
    """Print one line per method."""
    found: dict[str, list[dict[str, float]]] = {method: [] for method in RUN}
    print(f"\nn = m = {n:,}, d = {D}, B = {PERMUTATIONS}")
    for _ in range(rounds):
        for method, runs in found.items():
            command = [sys.executable, __file__, "--measure", method, str(n)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    best = {method: {key: min(run[key] for run in runs) for key in runs[0]} for method, runs in found.items()}
    for method, run in best.items():
        print(
            f"  {method:8} {run['seconds']:8.2f} s  {run['seconds'] / best['bare']['seconds']:5.2f} × bare  "
            f"CPU {run['cpu']:8.2f} s  {run['memory']:7.0f} MB  answer {run['answer']:.3f}"
        )


def release_against_sample() -> None:
    """Print the seconds of the first test, and of one more."""
    import pandas as pd

    import kmeanalyst as ka
    import release_side
    from kmeanalyst.releases.domain.domain import Domain
    from kmeanalyst.releases.domain.numbers import Real

    domain = Domain(tuple(Real(name=f"x{j}", lower=-4, upper=4) for j in range(D)))
    rng = np.random.default_rng(0)
    table, sample = (pd.DataFrame(rng.normal(size=(n, D)).clip(-4, 4), columns=domain.names) for n in (10_000, 5000))
    release = release_side.publish(
        table, domain, epsilon=1, delta=1e-6, points=1000, features=4000, rehearsal=1,
        kernel=ka.kernels.Gaussian(LENGTHSCALE),
    )  # fmt: skip
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        pvalue = ka.mmd_test(release, sample).pvalue
        seconds.append(time.perf_counter() - start)
    print(
        f"\nrelease of 1,000 points and 4,000 features against 5,000 rows: {seconds[0]:.2f} s, once more {seconds[1]:.2f} s "
        f"(p = {pvalue:.3f})"
    )


def main() -> None:
    """Print the comparisons."""
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measured(sys.argv[2], int(sys.argv[3]))))
        return
    asked = command_line(__doc__, sizes=(1000, 5000, 20_000), rounds=3)
    threads = os.environ.get("OPENBLAS_NUM_THREADS", "as many")
    print(f"{len(os.sched_getaffinity(0))} cores, threads for matrix products: {threads}")
    for n in asked.sizes:
        compare(n, asked.rounds)
    release_against_sample()


if __name__ == "__main__":
    main()
