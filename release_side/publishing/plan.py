"""Predict what a release would be worth, from public facts alone, by simulating one.

No formula gives the distance of weighted points from a table: it depends on the optimiser, the kernel and the weights. So
a synthetic population, made from the domain, takes the table's place, and everything after the door is done as `publish`
does it: the same features, noise of the same scale, the same points and weights. The measured population is known, so the
error can be computed in the kernel's own distance. No private row is read and nothing is spent. What is simulated is
stamped as a rehearsal and is not kept.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from kmeanalyst.inference.estimate.estimate import Estimates
from kmeanalyst.inference.questions.statistics import ask
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import CellFeatures, FeatureMap
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.release import Release
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.expressions import words
from kmeanalyst.releases.measurement import grid_sensitivity
from kmeanalyst.releases.release import made_by
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.tables.estimates import Observed
from release_side.budget.spending import weakness
from release_side.choices.options import chosen_domain, processors
from release_side.choices.workload import WorkloadQuestion
from release_side.door.mechanism import RehearsalNoise
from release_side.door.private_mean import private_mean
from release_side.door.private_tables import count_tables
from release_side.errors import PublishError
from release_side.publishing.methods import ReleaseMethod, chosen_method, method_class
from release_side.publishing.publish import begun_with
from release_side.publishing.simulated import SimulatedDoor, SyntheticPopulation

_log = logging.getLogger("release_side")
EPSILONS = (0.1, 0.3, 1.0, 3.0)
NOTE = (
    "predicted on a synthetic table of the same domain and size, one of many possible: a real table's errors may be a "
    "third of these, or two and a half times as large. Nothing private was read and nothing is spent."
)
_SEED = 0  # seed of the simulated noise: the same draw for each ε, so that they can be compared
_TIMED_ROWS = 2000
_MOST_EVENTS = 20  # of so many columns each


def plan(
    domain: Domain | str | Path, *, rows: int, delta: float, epsilon: float | Sequence[float] = EPSILONS,
    method: str = "random-features", unit: str | None = None, progress: Progress | None = None, **options: Any,
) -> pd.DataFrame:  # fmt: skip
    """Predict the accuracy of releases of a table of `rows` rows at each epsilon; opens no private file.

    domain      Domain, or the path of its TOML file.
    rows        N; with `unit`, the column that identifies units, their number.
    epsilon     one ε or several.
    options     points, kernel, target and the other choices of the method, as `publish` has them, refused in the same words.
    Returns     DataFrame, a row for each ε, with the columns
                epsilon, delta, rho; method, points, features    the guarantee (ρ of zCDP), M and F.
                noise_scale      standard deviation of the noise on each of the F coordinates of the mean; exact.
                rkhs_error       distance of the release from its table, in the space of the kernel, not of the features.
                                 (Margins have higher one-way tables where the noise is large: not quite one space.)
                sampling_error   root mean square distance, there too, of a table of N rows from its own population:
                                 √((E k(x, x) − ‖μ‖²)/N). A release with a smaller error costs less than sampling does.
                se_mean          standard error that the analyst sees for the mean of a column of numbers, as a fraction
                                 of the column's range; the median over those columns, NaN if there is none.
                se_probability   standard error of a probability near one half; the median over one question per column.
                width_1, _2, _3  standard errors of probabilities of events of so many columns over their sampling part: the
                                 median over some events, NaN with fewer columns. What the noise costs, kind by kind.
                pairs, sets      how many pairs of columns, and larger sets, the simulated release counted in a table each
                                 (which ones depends on the rows); 0 where no tables are measured.
                seconds          the time that publishing takes on this machine, once the table is read.
                file_bytes       size of the file.
                questions        with a workload only: for each of its questions a dictionary of the standard error that the
                                 analyst sees and its parts, privacy, sampling (at the shares of the synthetic table) and
                                 resolution (NaN where there is none, and the median over the cells of a table); and under
                                 `measured` which tables hold the answer.
    Limits      The table is synthetic, drawn from a public seed: clusters spread over the domain or, where public points
                are given, a population of which they could be a sample. It is one of many possible tables: the real
                rkhs_errors of seven very different ones (ε = 0.1 and 1) were 0.3 (one small cluster) to 2.5 times the
                predicted (uniform rows, which no mixture of few clusters describes).
                One draw of the noise is simulated, the same for each ε; another may give a tenth more or less.

    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> plan = release_side.plan(ages, rows=6000, epsilon=1, delta=1e-6, features=50, points=20)
    >>> plan[["epsilon", "noise_scale", "sampling_error"]]
       epsilon  noise_scale  sampling_error
    0      1.0     0.001408        0.008998
    """
    domain = chosen_domain(domain)
    kind = method_class(method)
    if kind.no_plan:
        raise PublishError(kind.no_plan)
    choices = kind.options(**options)
    mechanisms = [kind(choices).mechanism(e, delta, _SEED) for e in _as_list(epsilon)]
    size, on_progress = PopulationSize(_as_whole(rows), unit), progress or silent
    chosen = chosen_method(method, choices, domain)
    return _simulate(chosen, domain, mechanisms, size, on_progress)


def _simulate(
    method: ReleaseMethod, domain: Domain, mechanisms: list[RehearsalNoise], size: PopulationSize, on_progress: Progress
) -> pd.DataFrame:
    """A row for each mechanism. For each kernel there is one population, and its features are drawn once."""
    started = time.perf_counter()
    maps = [method.prepare(domain, size, mechanism) for mechanism in mechanisms]
    names = [json.dumps(feature_map.kernel.to_dict(), sort_keys=True) for feature_map in maps]
    drawing = (time.perf_counter() - started) / len(set(names))
    for mechanism, feature_map in zip(mechanisms, maps, strict=True):  # all refusals come before simulating
        mechanism.deviation(grid_sensitivity(feature_map, mechanism.name))
        if reason := weakness(mechanism.noise, size):
            _log.warning("%s. publish refuses it without --weak. Choose less.", reason)
    on_progress("making a synthetic population", 0.0)
    truths = {
        name: SyntheticPopulation.of(domain, feature_map.kernel, size, public=method.public)
        for name, feature_map in dict(zip(names, maps, strict=True)).items()
    }
    on_progress("making a synthetic population", 1.0)
    per_row = _seconds_per_row(truths[names[0]].rows, maps[0], mechanisms[0])

    def simulated(mechanism: RehearsalNoise, name: str, done: int) -> dict[str, Any]:
        started = time.perf_counter()
        measured = method.measure(SimulatedDoor(truths[name], mechanism, size), domain, size)
        begun = begun_with(method, measured, mechanism, domain, size)
        assert begun is not None  # what is drawn as a whole has no plan
        release = begun.release(lambda _, share: on_progress("simulating releases", (done + 0.8 * share) / len(mechanisms)))
        if lost := _lost_levels(release):
            _log.warning("ε = %g: %s", mechanism.epsilon, lost)
        file_bytes = _file_bytes(release)
        seconds = drawing + per_row * size.count + time.perf_counter() - started
        errors = _errors(release, truths[name], size)
        found = _facts(release) | errors | {"seconds": seconds, "file_bytes": file_bytes}
        workload = method.choices.workload
        return found | ({"questions": [_predicted(release, asked) for asked in workload.questions]} if workload else {})

    pairs = zip(mechanisms, names, strict=True)
    table = pd.DataFrame([simulated(mechanism, name, done) for done, (mechanism, name) in enumerate(pairs)])
    on_progress("simulating releases", 1.0)
    return table


def _lost_levels(release: Release) -> str | None:
    """Which columns have levels that noise hides, where these share the rows evenly, and what to do; None if none has.

    From public facts: the noise on a share in the tables of single columns, and the number of levels.
    """
    if release.measurement is None or not isinstance(release.measurement.feature_map, MarginFeatures):
        return None
    observed = Observed.of(release.measurement)
    lost = []
    for column, (_, variance) in zip(release.domain.columns, observed.ones, strict=True):
        noise = math.sqrt(variance)
        if isinstance(column, Categorical) and not isinstance(column, Tree) and noise > 1 / len(column.levels):
            lost.append(f"{column.name} ({len(column.levels)} levels, noise of {noise:.2g} on a share)")
    if not lost:
        return None
    return (
        f"noise hides levels of {', '.join(lost)}: if all were equally frequent, each would be rarer than its noise is large. "
        'Where their groups are what matters, make such a column a tree (kind = "tree"), whose pairs are measured by groups; or '
        "name fewer levels."
    )


def _as_list(epsilon: float | Sequence[float]) -> list[float]:
    several = list(epsilon) if isinstance(epsilon, Sequence | np.ndarray) and not isinstance(epsilon, str) else [epsilon]
    if not several:
        raise PublishError("epsilon must name at least one budget, got none. Pass e.g. 1.0, or [0.1, 1.0].")
    return several


def _as_whole(rows: int) -> int:
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer):
        raise PublishError(f"rows must be a whole number, got {rows!r}: it is the table's size N. Pass e.g. 100000.")
    return int(rows)


# ---------------------------------------------------------------------- one simulated release


def _seconds_per_row(rows: Array, feature_map: FeatureMap, mechanism: RehearsalNoise) -> float:
    """Seconds that the door needs for a row, with all the threads that publish would use; tables are counted."""
    timed = rows[:_TIMED_ROWS]
    started = time.perf_counter()
    if isinstance(feature_map, CellFeatures):
        count_tables([timed], feature_map, n_rows=len(timed), workers=processors())
    else:
        private_mean([timed], feature_map, mechanism, n_rows=len(timed), workers=processors())
    return (time.perf_counter() - started) / len(timed)


def _file_bytes(release: Release) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "simulated.kme"
        try:
            release.write(path)
        except ValueError as error:  # publish would find this only after the noise was spent
            raise PublishError(str(error)) from None
        return path.stat().st_size


def _facts(release: Release) -> dict[str, Any]:
    statement, measurement = release.statement, release.measurement
    assert isinstance(statement, PrivacyStatement) and measurement is not None
    return {
        "epsilon": statement.epsilon, "delta": statement.delta, "rho": statement.rho, "method": made_by(release),
        "points": len(release), "features": measurement.feature_map.dimension, "noise_scale": measurement.noise_scale,
    } | _counted(measurement.feature_map)  # fmt: skip


def _counted(feature_map: FeatureMap) -> dict[str, int]:
    orders = [len(columns) for columns in feature_map.sets] if isinstance(feature_map, MarginFeatures) else []
    return {"pairs": orders.count(2), "sets": len(orders) - orders.count(2)}


def _errors(release: Release, truth: SyntheticPopulation, size: PopulationSize) -> dict[str, float]:
    columns = release.domain.columns
    numbers = [column for column in columns if isinstance(column, Real | Integer)]
    asked = [(column, truth.rows[:, j]) for j, column in enumerate(columns) if not column.is_text]
    questions = [_near_half(column, cells) for column, cells in asked]
    means = [_mean_error(release, column) for column in numbers]
    alone = release.expectations(questions) if questions else []
    return {
        "rkhs_error": truth.distance(release), "sampling_error": truth.sampling_error(size),
        "se_mean": float(np.median(means)) if means else math.nan,
        "se_probability": float(np.median([one.standard_error for one in alone] or [math.nan])),
        **{f"width_{k}": _width(release, questions, k) for k in (1, 2, 3)},
    }  # fmt: skip


def _width(release: Release, conditions: list[Callable[[pd.DataFrame], Array]], k: int) -> float:
    """The median of error over sampling error for events of k of the columns, at most `_MOST_EVENTS`; NaN if there is none."""
    rng, n = np.random.default_rng(_SEED), len(conditions)
    if n < k:
        return math.nan
    chosen = {tuple(sorted(rng.choice(n, k, replace=False))) for _ in range(_MOST_EVENTS)}
    answers = release.expectations([_all_of([conditions[j] for j in columns]) for columns in sorted(chosen)])
    sampling = [one.parts["sampling"] or math.nan for one in answers]
    ratios = [one.standard_error / error for one, error in zip(answers, sampling, strict=True)]
    return float(np.nanmedian(ratios)) if np.isfinite(ratios).any() else math.nan


def _all_of(conditions: list[Callable[[pd.DataFrame], Array]]) -> Callable[[pd.DataFrame], Array]:
    return lambda frame: np.all([holds(frame) for holds in conditions], axis=0)


def _mean_error(release: Release, column: Real | Integer) -> float:
    name = words.column(column.name)
    answer = release.mean(name, where=f"not missing({name})" if column.missing else None)
    return answer.standard_error / (column.upper - column.lower)


def _predicted(release: Release, asked: WorkloadQuestion) -> dict[str, Any]:
    """The errors of a question, asked of the simulated release; NaN where that gives no answer."""
    names, why = ["standard_error", "privacy", "sampling", "resolution"], ""
    try:
        answer = ask(release, asked.statistic, asked.arguments, where=asked.where)
    except ValueError as refused:  # no simulated row meets the condition, say
        errors, why = dict.fromkeys(names, math.nan), str(refused)
    else:
        cells = answer if isinstance(answer, pd.DataFrame) else Estimates([answer]).to_frame()
        errors = dict(cells[names].median())  # of a table's cells
    return {"question": asked.text, **errors, "measured": _measured(release, asked), "refused": why}


def _measured(release: Release, asked: WorkloadQuestion) -> str:
    """Which tables hold the answer, in words: whatever the private rows are, or in the simulated release."""
    columns, measurement = asked.columns, release.measurement
    names = " × ".join(words.written(release.domain.names[j]) for j in columns)
    if len(columns) == 1:
        return f"one-way tables of {names}"
    counted = any({*columns} <= {*own} for own in getattr(release.kernel, "counted", ()))
    if len(columns) == 2 and counted:
        return f"table of {names}, in any case"
    found = f"table of {names}" if counted else "not measured jointly"
    return found + ": depends on the choice made from scores" * bool(measurement and measurement.scores)


def _near_half(column: Column, cells: Array) -> Callable[[pd.DataFrame], Array]:
    """A condition on a column whose probability in the population is as near one half as possible."""
    if isinstance(column, Categorical):
        shares = [np.mean(cells == code) for code in range(len(column.levels))]
        level = int(np.argmin(np.abs(np.array(shares) - 0.5)))
        return lambda frame: column.encode(frame[column.name])[0] == level
    middle = float(np.nanmedian(cells))
    return lambda frame: column.encode(frame[column.name])[0] > middle
