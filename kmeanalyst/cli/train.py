"""`kmeanalyst train`: a scikit-learn estimator by its name, trained on a release, written, and scored on a sample."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kmeanalyst.cli.arguments import Answer, column_names, on_release, output_option, own_options, seed_option
from kmeanalyst.cli.terminal import option, say

if TYPE_CHECKING:
    import pandas as pd

    from kmeanalyst.inference.estimate.estimate import Estimate
    from kmeanalyst.learning.training.pipeline import TrainedPipeline
    from kmeanalyst.release import Release
    from kmeanalyst.releases.release import View

_DEFAULT = {"classification": "LogisticRegression", "regression": "Ridge"}
_METRICS = {"classification": ("accuracy", "roc_auc", "log_loss"), "regression": ("r2", "root_mean_squared_error")}
_PATIENT = {"LogisticRegression": {"max_iter": 1000}}  # scikit-learn's default of 100 steps is too few for indicators


def _check(metrics: Sequence[str], sample_path: str | None, **_: Any) -> None:
    if metrics and sample_path is None:
        raise ValueError("--metric is a score on rows to test with, and none are named. Add --test SAMPLE.")


@on_release(
    "train", "Train a scikit-learn model.",
    option("--target", "The column to predict.", required=True, metavar="COLUMN"),
    option(
        "--estimator", "A classifier or regressor of scikit-learn.  [default: LogisticRegression, or Ridge for numbers]",
        metavar="NAME",
    ),
    option("--set settings", "A parameter of it; repeat for more.", multiple=True, metavar="NAME=VALUE"),
    option("--columns", "What to predict from, separated by commas; by default all other columns.", metavar="NAMES"),
    option(
        "--view", "Weights to learn from; by default those that the estimator handles correctly.",
        ("probability", "resampled", "fitted"),
    ),
    output_option("MODEL.skops"),
    option("--test sample_path", "Real rows to score the model on: a table, as of mmd-test.", "path", metavar="SAMPLE"),
    *own_options,
    option("--metric metrics", "Score of --test, as scikit-learn names it; repeat for more.", metavar="NAME", multiple=True),
    seed_option, work="training", check=_check,
)  # fmt: skip
def train_command(
    release: Release, output: str, target: str, source: Any, own: dict[str, Any], metrics: Sequence[str], **asked: Any
) -> Answer:
    """Train a scikit-learn model on a release, with the weights that the estimator handles correctly.

    The file holds no code; kmeanalyst.read_model loads it, and the model predicts on tables in natural units.

    \b
    Examples:
      kmeanalyst train adult.kme --target income --output model.skops --test my_sample.csv
      kmeanalyst train adult.kme --target age --estimator RandomForestRegressor --set n_estimators=300 --output age.skops
    """
    from kmeanalyst.learning.training.pipeline import check_name, untrusted_types, write_model
    from kmeanalyst.sources.tables import read_table, translated

    check_name(output)
    sample = None if source is None else translated(read_table(source, release.domain), **own)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = _fitted(release, target, **asked)
    notes = list(dict.fromkeys(str(one.message) for one in caught))
    scores = {} if sample is None else _scores(model, sample, metrics)
    write_model(model, output)
    unknown = untrusted_types(output)  # read_model trusts no types but the commonest
    arguments = repr(output) + (f", trusted={unknown!r}" if unknown else "")
    say(f"wrote {output}; it is read by kmeanalyst.read_model({arguments})", err=True)
    report, classes = model.report, model.levels_
    assert report is not None
    text = "\n".join(map(str, [report, *(f"note: {note}" for note in notes), *scores.values()]))
    return text, lambda: vars(report) | {
        "columns": list(report.columns), "notes": [*report.notes, *notes],
        "classes": None if classes is None else classes.tolist(),
        "test": {name: score.to_dict() for name, score in scores.items()} or None, "output": output,
    }  # fmt: skip


def _fitted(
    release: Release, target: str, *, estimator: str | None, settings: Sequence[str], columns: str | None,
    view: View | None, seed: int,
) -> TrainedPipeline:  # fmt: skip
    from kmeanalyst.learning.rows.training_rows import target_of
    from kmeanalyst.learning.training.training import fit

    chosen = _estimator(estimator, target_of(release, target).task, settings, seed)
    return fit(chosen, release, target, columns=column_names(columns), view=view, rng=seed)


def _estimator(name: str | None, task: str, settings: Sequence[str], seed: int) -> Any:
    """A classifier or regressor by its name, by default that of the task, with parameters "name=value"."""
    from sklearn.utils import all_estimators

    name = name or _DEFAULT[task]
    known = dict(all_estimators(type_filter=["classifier", "regressor"]))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        raise ValueError(
            f"scikit-learn has no classifier or regressor {name!r}. "
            + (f"Did you mean {' or '.join(near)}?" if near else "Write its class's name, such as LogisticRegression.")
        )
    parameters = _PATIENT.get(name, {}) | dict(_setting(text) for text in settings)
    try:
        estimator = known[name](**parameters)
    except TypeError as error:
        raise ValueError(f"{name} could not be made: {error}. Correct --set; parameters that are estimators need Python.") from None
    if "random_state" in estimator.get_params() and "random_state" not in parameters:
        estimator.set_params(random_state=seed)
    return estimator


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--set takes name=value, got {text!r}. Write for example C=0.1.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _scores(model: TrainedPipeline, sample: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Estimate]:
    from kmeanalyst.learning.scoring.evaluation import score

    names = list(metrics) or list(_METRICS["regression" if model.levels_ is None else "classification"])
    if not metrics and model.levels_ is not None and not hasattr(model, "predict_proba"):
        names = ["accuracy"]
    scores: Any = score(model, sample, names)
    return dict(zip(names, scores, strict=True))
