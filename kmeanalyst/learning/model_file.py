"""Room 5: trained models as files that hold no code (skops), where pickle would run whatever its file says."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from kmeanalyst.learning.pipeline import TrainedPipeline, TrainingReport
from kmeanalyst.releases.atomic import written_whole

_OURS = (
    "kmeanalyst.learning.encoder.DomainEncoder",
    "kmeanalyst.learning.pipeline.TrainedPipeline",
    "kmeanalyst.learning.pipeline.TrainingReport",
)
MOST_BYTES = 2**30  # of a model file's members, unpacked


def write_model(model: TrainedPipeline, path: str | Path) -> None:
    """Write a trained model as a .skops file; it appears whole or not at all.

    Errors  ValueError where the path has another ending, or the estimator has parts that skops cannot hold.

    >>> ka.write_model(model, "model.skops")
    """
    import skops.io as skops

    check_name(path)
    with written_whole(path) as temporary:
        skops.dump(model, temporary)


def read_model(path: str | Path, *, trusted: tuple[str, ...] = ()) -> TrainedPipeline:
    """Read a model that `write_model` wrote, or `kmeanalyst train`.

    trusted  names of further types that the file may make, of libraries other than scikit-learn: look at them first.
    Errors   ValueError for a file that is no model, or would make types that are not trusted: nothing of it is run.

    >>> model.write("model.skops")
    >>> ka.read_model("model.skops").predict(sample.head(2))
    array(['<=50K', '<=50K'], dtype='<U5')
    """
    import skops.io as skops

    unknown = tuple(name for name in untrusted_types(path) if name not in trusted)
    if unknown:
        raise ValueError(
            f"{path} would make {', '.join(unknown)}, which are not known to be harmless. If you know where the file comes "
            f"from, pass trusted={(*trusted, *unknown)!r}."
        )
    model: Any = skops.load(path, trusted=[*_OURS, *trusted])
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


def untrusted_types(path: str | Path) -> tuple[str, ...]:
    """Names of the types that the file would make, but for ours and those that skops knows to be harmless."""
    import skops.io as skops

    try:
        _check_size(path)
        return tuple(sorted(set(skops.get_untrusted_types(file=path)) - set(_OURS)))
    except (FileNotFoundError, _TooLarge):
        raise
    except Exception as error:  # whatever a stranger's file makes the reader stumble over
        raise ValueError(f"{path} is not a model file: {error!s:.200}. Name a .skops file.") from None


class _TooLarge(ValueError):
    """A file that would fill the memory."""


def _check_size(path: str | Path) -> None:
    """_TooLarge for a file that unpacks to more than MOST_BYTES; whatever zipfile says of one that is no zip file."""
    with zipfile.ZipFile(path) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())  # zipfile unpacks no more than this
    if unpacked > MOST_BYTES:
        raise _TooLarge(
            f"{path} unpacks to {unpacked:,} bytes, more than the {MOST_BYTES:,} that a model may have: it could fill the "
            "memory. If you know where it comes from, read it with skops itself."
        )


def check_name(path: str | Path) -> None:
    """ValueError unless the name's ending is .skops."""
    if Path(path).suffix.lower() != ".skops":
        raise ValueError(f"a model is written as a .skops file, got {path}: other formats hold code. Name model.skops.")


__all__ = ["check_name", "read_model", "untrusted_types", "write_model"]
