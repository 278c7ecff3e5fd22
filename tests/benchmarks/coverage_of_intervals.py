"""Coverage of the intervals of `expectation` against the population truth, question by question.

    python tests/benchmarks/coverage_of_intervals.py [--releases 20] [--tables skewed heavy-tailed multi-modal mixed]
                        [--rows 5000 20000 100000] [--epsilon 0.1 1 5] [--kernel KERNEL] [--workers 2] [--view signed]

Four populations, 31 questions each, smooth and sharp-edged, of up to three columns; 500 features, 300 points, δ = 1e-6. For
each setting: how often 95 % intervals hold the truth, on average, for smooth and for sharp-edged questions, and for the worst;
their full width in standard deviations of the question, the median for smooth questions, median and 90 % quantile for
sharp-edged ones; for smooth ones how much wider that is than an interval which knows noise and sampling exactly for the answer
and nothing else is in doubt; root mean square errors of the released weights and of the fitted population. --view: of the
weights of a view, not of the default answers. Cited by tutorials/measured.md, "Error bars".
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from harness import command_line, show

import release_side
from kmeanalyst.inference.estimate.error_model import MeasuredErrors, error_model
from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.release import View

_POPULATION = 1_000_000


def skewed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Gamma, lognormal and exponential, dependent."""
    a = rng.gamma(2, 8, n)
    return pd.DataFrame({"a": a, "b": np.exp(rng.normal(0, 0.8, n) + a / 60), "c": 0.5 * a + rng.exponential(8, n)})


def heavy_tailed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Student's t and Pareto: some rows lie beyond the bounds."""
    a = 2 * rng.standard_t(2.5, n)
    return pd.DataFrame({"a": a, "b": 3 * rng.pareto(1.8, n), "c": 0.6 * a + rng.standard_t(3, n)})


def multi_modal(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Five clusters of unlike widths."""
    centres = np.array([[-6.0, -5, 0], [0, 0, 6], [5, -4, -3], [3, 6, 2], [-3, 5, -7]])
    widths = np.array([0.8, 0.5, 1.2, 0.3, 1.0])
    cluster = rng.choice(5, n, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    return pd.DataFrame(centres[cluster] + rng.normal(size=(n, 3)) * widths[cluster][:, None], columns=list("abc"))


def mixed(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Levels down to 1 %, a spike at zero, missing cells, a log scale."""
    age = np.clip(rng.gamma(6, 6.5, n) + 8, 17, 90).astype(int)
    job = rng.choice(list("abcde"), n, p=[0.5, 0.3, 0.15, 0.04, 0.01])
    wage = np.exp(rng.normal(7.5, 0.8, n) + age / 90 + 0.4 * (job == "c"))
    wage[rng.random(n) < 0.1] = np.nan
    return pd.DataFrame({
        "age": age, "wage": wage, "gain": np.where(rng.random(n) < 0.88, 0, rng.gamma(1.5, 1500, n)), "job": job,
        "sex": np.where(rng.random(n) < 0.4 + 0.2 * (job == "b"), "F", "M"),
    })  # fmt: skip


def _numbers(*bounds: tuple[float, float]) -> Domain:
    return Domain(tuple(Real(name=n, lower=lo, upper=hi) for n, (lo, hi) in zip("abc", bounds, strict=True)))


TABLES = {
    "skewed": (_numbers((0, 100), (0, 30), (0, 100)), skewed),
    "heavy-tailed": (_numbers((-30, 30), (0, 100), (-30, 30)), heavy_tailed),
    "multi-modal": (_numbers((-10, 10), (-10, 10), (-10, 10)), multi_modal),
    "mixed": (
        Domain((
            Integer(name="age", lower=17, upper=90), Real(name="wage", lower=100, upper=1e5, scale="log", missing=True),
            Real(name="gain", lower=0, upper=10_000, atoms=(0,)),
            Categorical(name="job", levels=("a", "b", "c", "d", "e")), Categorical(name="sex", levels=("F", "M")),
        )),
        mixed,
    ),
}  # fmt: skip
OF_MIXED = (
    "age", "gain", "age * age", "age * gain", "age * (sex == 'F')", "gain * (sex == 'M')", "age * (job == 'b')",
    "exp(-(age - 40) ** 2 / 400)", "sex == 'F'", "job == 'a'", "job == 'd'", "job == 'e'", "missing(wage)", "gain == 0",
    "gain > 0", "gain > 3000", "age > 50", "age > 65", "age < 25", "age > 30 and age < 45", "wage > 3000",
    "wage > 10000", "sex == 'F' and job == 'b'", "sex == 'F' and age > 50", "job == 'e' and sex == 'M'",
    "gain > 0 and age > 50", "age > 40 and sex == 'F' and job == 'a'", "wage > 3000 and sex == 'M' and age < 40",
    "gain > 0 and sex == 'F' and job == 'b'", "missing(wage) and age > 50", "wage < 1000 and job == 'c' and age < 60",
)  # fmt: skip
SMOOTH_OF_MIXED = 13  # the first ones


def of_numbers(table: pd.DataFrame) -> tuple[str, ...]:
    """31 questions, edges at the 10, 50 and 90 % quantiles; the first nine are smooth."""
    (a1, a5, a9), (b1, b5, b9), (c1, c5, c9) = ([f"{x:.4g}" for x in table[c].quantile([0.1, 0.5, 0.9])] for c in "abc")
    bump = "exp(-({0} - {1}) ** 2 / {2:.4g})"
    wide = {c: (table[c].quantile(0.9) - table[c].quantile(0.1)) ** 2 / 2 for c in "ab"}
    return (
        "a", "b", "c", "a * a", "a * b", "b * c", "a * c", bump.format("a", a5, wide["a"]), bump.format("b", b5, wide["b"]),
        f"a > {a5}", f"a > {a9}", f"a < {a1}", f"b > {b5}", f"b > {b9}", f"b < {b1}", f"c > {c5}", f"c > {c9}", f"c < {c1}",
        f"a > {a1} and a < {a5}", f"b > {b5} and b < {b9}", f"c > {c1} and c < {c5}", f"a > {a5} and b > {b5}",
        f"a > {a9} and c > {c5}", f"a < {a1} or b < {b1}", f"b < {b5} and c > {c9}",
        f"a > {a5} and b > {b5} and c > {c5}", f"a < {a5} and b > {b5} and c < {c9}",
        f"a > {a1} and b < {b9} and c < {c5}", f"a * (b > {b5})", f"c * (a < {a5})", f"c * (b < {b9} and a > {a5})",
    )  # fmt: skip


@cache
def asked(name: str) -> tuple[tuple[str, ...], Array, Array, Array]:
    """Questions; their truths and standard deviations; whether they are smooth."""
    domain, draw = TABLES[name]
    population = domain.decode(domain.encode(draw(_POPULATION, np.random.default_rng(99))))
    questions = OF_MIXED if name == "mixed" else of_numbers(population)
    values = np.column_stack([_values(question, population, domain) for question in questions])
    smooth = np.arange(len(questions)) < (SMOOTH_OF_MIXED if name == "mixed" else 9)
    return questions, values.mean(axis=0), values.std(axis=0), smooth


def _values(question: str, frame: pd.DataFrame, domain: Domain) -> Array:
    return np.asarray(parse(question).evaluate(frame, domain), dtype=float)


def answers(name: str, epsilon: float, rows: int, number: int, kernel: str, view: View | None) -> Array:
    """(5, questions) put to the release of a fresh table: answers, their standard errors, those of privacy and sampling alone,
    and what the weights and the fitted population say."""
    (domain, draw), questions = TABLES[name], asked(name)[0]
    rng = np.random.default_rng([number, rows])
    sizes = {"features": 500, "points": 300} if kernel == "table" else {"kernel": kernel}
    release = release_side.publish(
        draw(rows, rng), domain, epsilon=epsilon, delta=1e-6, rehearsal=int(rng.integers(2**62)), workers=1, **sizes
    )
    estimates = release.expectations(questions, view=view)
    model = error_model(release, release.weights)
    assert isinstance(model, MeasuredErrors)
    h = np.column_stack([_values(question, model.frame, domain) for question in questions])
    at_points, at_rows = (h, h) if model.posterior.on_points else (h[: len(release)], h[len(release) :])
    covariance = model.posterior.covariance(at_rows)
    value, error = np.array([(estimate.value, estimate.standard_error) for estimate in estimates]).T
    known = np.sqrt((covariance["privacy"] + covariance["sampling"]).diagonal())
    return np.array([value, error, known, model.weights @ at_points, model.posterior.weights @ at_rows])


def main() -> None:
    choice = command_line(
        __doc__, releases=20, tables=TABLES, rows=(5000, 20_000, 100_000), epsilon=(0.1, 1.0, 5.0), kernel="table", workers=2,
        view=None,
    )  # fmt: skip
    print(f"{choice.releases} releases a setting; rms errors and widths in standard deviations of the question, medians")
    with ProcessPoolExecutor(choice.workers) as pool:
        for name, rows, epsilon in product(choice.tables, choice.rows, choice.epsilon):
            settings = [(name, epsilon, rows, i, choice.kernel, choice.view) for i in range(choice.releases)]
            found = np.array(list(pool.map(answers, *zip(*settings, strict=True))))
            _tell({"table": name, "N": rows, "ε": epsilon}, name, found)


def _tell(setting: dict[str, Any], name: str, found: Array) -> None:
    """Print a line of this setting, and of each question that was held in fewer than .85 of its releases."""
    questions, truth, sd, smooth = asked(name)
    value, error, known, weights, fitted = found.transpose(1, 0, 2)
    held = (np.abs(value - truth) <= 1.959964 * error).mean(axis=0)
    width = 3.92 * error / sd
    show([setting | {
        "held": held.mean(), "smooth": held[smooth].mean(), "sharp": held[~smooth].mean(), "worst": held.min(),
        "width, smooth": np.median(width[:, smooth]), "width, sharp": np.median(width[:, ~smooth]),
        "sharp, 90 %": np.quantile(width[:, ~smooth], 0.9), "/ known": np.median((error / known)[:, smooth]),
    } | {
        f"rms, {label}": np.median(np.sqrt((((answer - truth) / sd) ** 2).mean(axis=0)))
        for label, answer in (("weights", weights), ("fitted", fitted))
    }])  # fmt: skip
    for j in np.flatnonzero(held < 0.85):
        off = (value[:, j].mean() - truth[j]) / sd[j]
        print(f"      {questions[j]:48} held {held[j]:.2f}, off by {off:.3f}, ± {error[:, j].mean() / sd[j]:.3f}")


if __name__ == "__main__":
    main()
