"""Trained models as files that hold no code (skops), where pickle would run whatever its file says."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from kmeanalyst.learning.training.model_contents import (
    OURS,
    bytes_referred_to,
    check_made,
    check_schema,
    check_skops,
    check_texts,
)
from kmeanalyst.learning.training.pipeline import TrainedPipeline, TrainingReport
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.texts import one_line

MOST_BYTES = 2**30  # of a model file's members, unpacked, and again for each part that reads one
MOST_SCHEMA_BYTES = 2**25  # of the member that says what the file makes
_SCHEMA = "schema.json"


def write_model(model: TrainedPipeline, path: str | Path) -> None:
    """Write a trained model as a .skops file; it appears whole or not at all.

    Errors  ValueError where the path has another ending, or the estimator has parts that skops cannot hold.

    >>> ka.write_model(model, "model.skops")
    """
    import skops.io as skops

    check_name(path)
    with atomic_write(path) as temporary:
        skops.dump(model, temporary)


def read_model(path: str | Path, *, trusted: tuple[str, ...] = ()) -> TrainedPipeline:
    """Read a model that `write_model` wrote, or `kmeanalyst train`.

    trusted  names of further types that the file may make, of libraries other than scikit-learn: look at them first.
    Errors   ValueError for a file that is no model, or would make types that are not trusted: nothing of it is run. Also for
             one that calls or holds functions, or has attributes in the place of methods, whatever skops says of it.
             ImportError for a version of skops with known holes.

    >>> model.write("model.skops")
    >>> ka.read_model("model.skops").predict(sample.head(2))
    array(['<=50K', '<=50K'], dtype='<U5')
    """
    unknown = tuple(name for name in untrusted_types(path) if name not in trusted)
    if unknown:
        raise ValueError(
            f"{path} would make {', '.join(unknown)}, which are not known to be harmless. If you know where the file comes "
            f"from, pass trusted={(*trusted, *unknown)!r}."
        )
    model = _loaded(path, trusted)
    if not isinstance(model, TrainedPipeline):
        raise ValueError(
            f"{path} holds a {type(model).__name__}, not a model trained on a release. Load it with skops itself."
        )
    if not isinstance(vars(model).get("report"), TrainingReport):
        raise ValueError(
            f"{path} holds a model without the report of its training: nothing says what it learned from. Ask for the file "
            "that write_model wrote."
        )
    return model


def _loaded(path: str | Path, trusted: tuple[str, ...]) -> Any:
    """What the file makes, checked before and after; ValueError for whatever a stranger's file makes the reader stumble over."""
    import skops.io as skops

    try:
        check_schema(_schema_of(path), trusted)
        model: Any = skops.load(path, trusted=[*OURS, *trusted])
        check_made(model, trusted)
        if isinstance(vars(model).get("report"), TrainingReport):
            check_texts(model.report)
    except Exception as error:
        raise ValueError(
            f"{one_line(path)} is not a sound model file: {one_line(f'{error!s:.300}')}. Ask for the file that write_model wrote; "
            "functions that belong to a model must be named in trusted=(...)."
        ) from None
    return model


def untrusted_types(path: str | Path) -> tuple[str, ...]:
    """Names of the types that the file would make, but for ours and those that skops knows to be harmless."""
    import skops
    import skops.io

    check_skops(skops.__version__)
    try:
        _check_size(path)
        return tuple(sorted(set(skops.io.get_untrusted_types(file=path)) - set(OURS)))
    except (FileNotFoundError, _TooLarge):
        raise
    except Exception as error:  # whatever a stranger's file makes the reader stumble over
        raise ValueError(
            f"{one_line(path)} is not a model file: {one_line(f'{error!s:.200}')}. Name a .skops file."
        ) from None


class _TooLarge(ValueError):
    """A file that would fill the memory."""


def _check_size(path: str | Path) -> None:
    """_TooLarge for a file that unpacks to more than a model may have; whatever zipfile says of one that is no zip file."""
    with zipfile.ZipFile(path) as parts:
        sizes = {part.filename: part.file_size for part in parts.infolist()}
        unpacked = sum(part.file_size for part in parts.infolist())  # zipfile unpacks no more than this
    if sizes.get(_SCHEMA, 0) > MOST_SCHEMA_BYTES:
        raise _too_large(path, sizes[_SCHEMA], MOST_SCHEMA_BYTES, f"{_SCHEMA} of a model")
    if unpacked <= MOST_BYTES:
        unpacked = max(unpacked, bytes_referred_to(_schema_of(path), sizes))
    if unpacked > MOST_BYTES:
        raise _too_large(path, unpacked, MOST_BYTES, "a model")


def _too_large(path: str | Path, size: int, most: int, what: str) -> _TooLarge:
    return _TooLarge(
        f"{one_line(path)} unpacks to {size:,} bytes, more than the {most:,} that {what} may have: it could fill the memory. "
        "If you know where it comes from, read it with skops itself."
    )


def _schema_of(path: str | Path) -> Any:
    with zipfile.ZipFile(path) as parts:
        return json.loads(parts.read(_SCHEMA))


def check_name(path: str | Path) -> None:
    """ValueError unless the name's ending is .skops."""
    if Path(path).suffix.lower() != ".skops":
        raise ValueError(f"a model is written as a .skops file, got {path}: other formats hold code. Name model.skops.")


__all__ = ["check_name", "read_model", "untrusted_types", "write_model"]
