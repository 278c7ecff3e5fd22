"""Trained models: they predict on frames in natural units, record how they were trained, and are written and read.

The files (skops) hold no code, while reading a pickle runs code; `model_contents` checks what they may hold.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if

from kmeanalyst.kernels.base import Array
from kmeanalyst.learning.training import model_contents
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.release import ReleaseData
from kmeanalyst.releases.texts import one_line, shown

MOST_BYTES = 2**30  # bytes of a model file's members, unpacked, and again for each part that reads one
MOST_SCHEMA_BYTES = 2**25  # bytes of the member that describes the objects of the file
_SCHEMA = "schema.json"
_SMOOTHED = "labels: smoothed, labels that a row can have, as models of the rows give them that follow single labels little"


def digest(release: ReleaseData) -> str:
    """SHA-256 (hexadecimal) of the weights, the encoded points and the measured vector, with their shapes.

    Trained models store it, so that scoring on the training release can be flagged. A release read back from its file, or with
    more derived columns, has the same digest; a thinned one has another.
    """
    fingerprint = hashlib.sha256()
    measured = np.empty(0) if release.measurement is None else release.measurement.vector
    for numbers in (release.weights, release.encoded_points, measured):
        fingerprint.update(f"{numbers.shape};".encode())
        plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one kind of zero and of NaN
        fingerprint.update(plain.astype("<f8").tobytes())
    return fingerprint.hexdigest()


@dataclass(frozen=True)
class TrainingReport:
    """How a model was trained, and why; plain values, so that a file of the model can hold it.

    estimator       its class.
    target, task    the column it predicts, and how.
    columns         the columns it predicts from.
    view            the weights it learned from: "probability", "resampled" or "fitted".
    why             why that view.
    rows            the number of rows it learned from.
    effective_rows  the sum of their weights.
    encoding        how columns were encoded: see `DomainEncoder`.
    labels          where labels came from: "released", the rows' own; or "smoothed", all that a row can have.
    notes           what else a reader should know.
    release_digest  SHA-256 of the release, so that a score on the training release can say so.
    epsilon, delta  the release's guarantee, which the model inherits (post-processing); None where there is none.

    >>> report = model.report
    >>> report.estimator, report.view, report.epsilon, len(report.columns)
    ('LogisticRegression', 'probability', 1.0, 6)
    """

    estimator: str
    target: str | None
    task: str
    columns: tuple[str, ...]
    view: str
    why: str
    rows: int
    effective_rows: float
    encoding: str
    labels: str
    notes: tuple[str, ...]
    release_digest: str
    epsilon: float | None
    delta: float | None
    rehearsal: bool
    scikit_learn: str = sklearn.__version__

    def __str__(self) -> str:
        guarantee = "none" if self.epsilon is None else f"ε = {self.epsilon:g}, δ = {self.delta:g}"
        lines = [
            f"{self.estimator} for {self.target or 'no target'} ({self.task}) from {len(self.columns)} columns ({self.encoding})",
            f"weights: {self.view}, {self.why}",
            *([_SMOOTHED] if self.labels == "smoothed" else []),
            f"rows: {self.rows:,} with weights that sum to {self.effective_rows:,.0f}",
            f"guarantee: {guarantee}"
            + (", NOT PRIVATE (a rehearsal)" if self.rehearsal else "")
            + (", inherited from the release" if self.epsilon is not None else ""),
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _if_estimator_has(method: str) -> Any:
    return available_if(lambda self: hasattr(self._final_estimator, method))


class TrainedPipeline(Pipeline):
    """A scikit-learn pipeline that was trained on a release: it predicts on DataFrames in natural units and levels.

    `pipeline["columns"]` encodes a frame by the domain, `pipeline["model"]` is the fitted estimator.

    report    TrainingReport: the choices and the reasons; print it.
    classes_  of a classifier, all the domain's levels, sorted; predicted probabilities have a column for each, 0 for those
              that the release does not have.

    >>> model.predict(sample.head(3))
    array(['<=50K', '<=50K', '<=50K'], dtype=object)
    >>> model.classes_, model.target, model.domain.names[:2]
    (array(['<=50K', '>50K'], dtype=object), 'income', ('age', 'education-num'))
    >>> print(model.report)
    LogisticRegression for income (classification) from 6 columns (onehot)
    weights: probability, as released: they are probabilities, up to their sum
    rows: 288 with weights that sum to 154
    guarantee: ε = 1, δ = 1e-06, inherited from the release
    """

    report: TrainingReport | None = None
    levels_: Array | None = None
    target_table: dict[str, Any] | None = None

    @property
    def target(self) -> str | None:
        return None if self.target_table is None else self.target_table["name"]

    @property
    def domain(self) -> Domain:
        """The columns it predicts from, the base columns of derived ones among them, and the target."""
        tables = [*self["columns"].columns, *self["columns"].base, *([self.target_table] if self.target_table else [])]
        return Domain.from_dict(list({table["name"]: table for table in tables}.values()))

    def __sklearn_is_fitted__(self) -> bool:
        return self.report is not None or super().__sklearn_is_fitted__()

    def __getitem__(self, step: Any) -> Any:
        """A step; a slice is a plain pipeline, without a training report."""
        return Pipeline(self.steps[step]) if isinstance(step, slice) else super().__getitem__(step)

    @property
    def classes_(self) -> Array:
        if self.levels_ is None and self.report is None:  # fitted by scikit-learn, as cross-validation does to copies
            return super().classes_
        if self.levels_ is None:
            raise AttributeError("this model predicts numbers, and has no classes_")
        return self.levels_

    @_if_estimator_has("predict_proba")
    def predict_proba(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n, classes) probabilities, in the order of classes_.

        >>> model.predict_proba(sample.head(2)).shape
        (2, 2)
        """
        return self._for_all_levels(super().predict_proba(X, **params), absent=0.0)

    @_if_estimator_has("predict_log_proba")
    def predict_log_proba(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n, classes) logarithms of probabilities.

        >>> model.predict_log_proba(sample.head(2)).shape
        (2, 2)
        """
        return self._for_all_levels(super().predict_log_proba(X, **params), absent=-np.inf)

    @_if_estimator_has("decision_function")
    def decision_function(self, X: pd.DataFrame, **params: Any) -> Array:
        """(n,) for two classes, the second's, or (n, classes); -inf for levels that the release does not have.

        >>> model.decision_function(sample.head(2)).shape
        (2,)
        """
        scores = super().decision_function(X, **params)
        if self.levels_ is not None and scores.ndim == 1 and len(self.levels_) > 2:
            scores = np.column_stack([-scores, scores])
        return self._for_all_levels(scores, absent=-np.inf)

    def _for_all_levels(self, found: Array, absent: float) -> Array:
        if self.levels_ is None or found.ndim == 1 or found.shape[1] != len(self._final_estimator.classes_):
            return found  # the scores are not of single classes but of pairs
        out = np.full((len(found), len(self.levels_)), absent)
        out[:, np.searchsorted(self.levels_, self._final_estimator.classes_)] = found
        return out

    def write(self, path: Any) -> None:
        """Write the model as a .skops file, which holds no code: see `kmeanalyst.write_model`.

        >>> model.write("model.skops")
        """
        write_model(self, path)


# ---------------------------------------------------------------- files


def write_model(model: TrainedPipeline, path: str | Path) -> None:
    """Write a trained model as a .skops file; the write is atomic.

    Errors  ValueError where the path has another ending, or the estimator has parts that skops cannot hold.

    >>> ka.write_model(model, "model.skops")
    """
    import skops.io as skops

    check_name(path)
    with atomic_write(path) as temporary:
        skops.dump(model, temporary)


def read_model(path: str | Path, *, trusted: tuple[str, ...] = ()) -> TrainedPipeline:
    """Read a model that `write_model` wrote, or `kmeanalyst train`.

    trusted  names of further types that the file may make, of libraries other than scikit-learn: check them first.
    Errors   ValueError for a file that is not a model, or would make types that are not trusted: nothing in it is run. Also for
             one that calls or holds functions, or has attributes that replace methods, even if skops accepts it.
             ImportError for a version of skops with known vulnerabilities.

    >>> model.write("model.skops")
    >>> ka.read_model("model.skops").predict(sample.head(2))
    array(['<=50K', '<=50K'], dtype=object)
    """
    unknown = tuple(name for name in untrusted_types(path) if name not in trusted)
    if unknown:
        raise ValueError(
            f"{path} would make {', '.join(unknown)}, which are not known to be harmless. If you trust the source of the file, "
            f"pass trusted={(*trusted, *unknown)!r}."
        )
    model = _loaded(path, trusted)
    if not isinstance(model, TrainedPipeline):
        raise ValueError(f"{path} holds a {type(model).__name__}, not a model trained on a release. Load it with skops itself.")
    if not isinstance(vars(model).get("report"), TrainingReport):
        raise ValueError(
            f"{path} holds a model without the report of its training, so its training data are unknown. Ask for the file "
            "that write_model wrote."
        )
    return model


def _loaded(path: str | Path, trusted: tuple[str, ...]) -> Any:
    """The model in the file, checked before and after loading; ValueError for any error that an external file causes."""
    import skops.io as skops

    try:
        model_contents.check_schema(_schema_of(path), trusted)
        model: Any = skops.load(path, trusted=[*model_contents.OURS, *trusted])
        model_contents.check_made(model, trusted)
        if isinstance(vars(model).get("report"), TrainingReport):
            model_contents.check_texts(model.report)
    except Exception as error:
        raise ValueError(
            f"{one_line(path)} is not a sound model file: {one_line(f'{error!s:.300}')}. Ask for the file that write_model wrote; "
            "functions that belong to a model must be named in trusted=(...)."
        ) from None
    return model


def untrusted_types(path: str | Path) -> tuple[str, ...]:
    """Names of the types that the file would make, except ours and those that skops knows to be harmless."""
    import skops
    import skops.io

    model_contents.check_skops(skops.__version__)
    if not os.path.exists(path):
        raise FileNotFoundError(f"no model file at {shown(path)}. Check the path.")
    try:
        _check_size(path)
        return tuple(sorted(set(skops.io.get_untrusted_types(file=path)) - set(model_contents.OURS)))
    except _TooLarge:
        raise
    except Exception as error:  # any error that an external file causes
        raise ValueError(f"{one_line(path)} is not a model file: {one_line(f'{error!s:.200}')}. Name a .skops file.") from None


class _TooLarge(ValueError):
    """A file that would fill the memory."""


def _check_size(path: str | Path) -> None:
    """_TooLarge for a file that unpacks to more than a model may have; zipfile's own errors for one that is not a zip file."""
    with zipfile.ZipFile(path) as parts:
        sizes = {part.filename: part.file_size for part in parts.infolist()}
        unpacked = sum(part.file_size for part in parts.infolist())  # zipfile unpacks no more than this
    if sizes.get(_SCHEMA, 0) > MOST_SCHEMA_BYTES:
        raise _too_large(path, sizes[_SCHEMA], MOST_SCHEMA_BYTES, f"{_SCHEMA} of a model")
    if unpacked <= MOST_BYTES:
        unpacked = max(unpacked, model_contents.bytes_referred_to(_schema_of(path), sizes))
    if unpacked > MOST_BYTES:
        raise _too_large(path, unpacked, MOST_BYTES, "a model")


def _too_large(path: str | Path, size: int, most: int, what: str) -> _TooLarge:
    return _TooLarge(
        f"{one_line(path)} unpacks to {size:,} bytes, more than the {most:,} that {what} may have: it could fill the memory. "
        "If you trust its source, read it with skops itself."
    )


def _schema_of(path: str | Path) -> Any:
    with zipfile.ZipFile(path) as parts:
        return json.loads(parts.read(_SCHEMA))


def check_name(path: str | Path) -> None:
    if Path(path).suffix.lower() != ".skops":
        raise ValueError(f"a model is written as a .skops file, got {path}: other formats hold code. Name model.skops.")
