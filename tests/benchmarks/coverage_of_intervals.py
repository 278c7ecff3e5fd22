"""Coverage of the 95 % intervals of `expectation` against the population truth, question by question.

    python tests/benchmarks/coverage_of_intervals.py [--releases 40] [--tables margins]

N = 5,000 private rows, 1,000 features, 300 points (margins: by default), ε = 1 and 0.1; smooth and sharp-edged questions.
"""

from __future__ import annotations

import argparse

import numpy as np
from populations import POPULATIONS

import release_side
from kmeanalyst.inference.expressions import parse

N = 5000
QUESTIONS = {
    "mixed": (
        "age", "age > 50", "age > 30 and age < 45", "sex == 'F'", "job in ['b', 'c']", "job == 'a' and age > 40",
        "age * (sex == 'M')", "missing(wage)",
    ),
    "numeric": ("x0", "x0 > 1", "x1 * x2", "x0 > 0 and x1 < 1", "x3 ** 2", "exp(-x0 ** 2 / 8)"),
}  # fmt: skip


def coverage(table: str, epsilon: float, n_releases: int) -> list[tuple[str, float, float, float, float]]:
    """For each question: the truth, the share of intervals that hold it, their mean width, and the RMS error."""
    domain, draw, options = POPULATIONS[table]
    population = domain.decode(domain.encode(draw(400_000, np.random.default_rng(99))))
    questions = QUESTIONS["numeric" if table == "numeric" else "mixed"]
    sizes = {} if table == "margins" else {"points": 300, "features": 1000}
    truth = np.array([parse(q).evaluate(population, domain).astype(float).mean() for q in questions])
    low, high, value = (np.zeros((n_releases, len(questions))) for _ in range(3))
    for i in range(n_releases):
        release = release_side.publish(
            draw(N, np.random.default_rng([i, 5])),
            domain,
            epsilon=epsilon,
            delta=1e-6,
            **options,
            **sizes,
        )
        for j, question in enumerate(questions):
            estimate = release.expectation(question)
            value[i, j], (low[i, j], high[i, j]) = estimate.value, estimate.interval()
    held = ((low <= truth) & (truth <= high)).mean(axis=0)
    error = np.sqrt(((value - truth) ** 2).mean(axis=0))
    return list(zip(questions, truth, held, (high - low).mean(axis=0), error, strict=True))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=40)
    parser.add_argument("--tables", nargs="+", choices=list(POPULATIONS), default=list(POPULATIONS))
    asked = parser.parse_args()
    n_releases = asked.releases
    print(f"N = {N}, {n_releases} releases a setting; 95 % intervals")
    for table in asked.tables:
        for epsilon in (1.0, 0.1):
            rows = coverage(table, epsilon, n_releases)
            held = [row[2] for row in rows]
            print(f"\n{table}, ε = {epsilon:g}: held on average {np.mean(held):.3f}, worst question {min(held):.3f}")
            for question, truth, share, width, error in rows:
                print(
                    f"  {question:26} truth {truth:8.3f}  held {share:.3f}  width {width:7.3f}  rms error {error:7.3f}"
                )


if __name__ == "__main__":
    main()
