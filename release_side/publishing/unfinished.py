"""What was drawn, kept beside the output until the release is written: a fit that fails or is killed costs no budget.

The noisy sums are public once they are drawn. OUT.partial is a zip of two stored members: a release file with the measurement and
its statement, whose points are not fitted yet, and the public choices that the fit needs.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from kmeanalyst.release.release import Release, read_release, release_of_points
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.archive import atomic_write
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.releases.rules.kept_rows import kept_row
from kmeanalyst.releases.statement import PrivacyStatement
from kmeanalyst.representation.progress import Progress
from kmeanalyst.representation.represent import KEEPS_POINTS, REPRESENT, VIEWS
from kmeanalyst.representation.wanted import Points, Wanted
from release_side.budget.ledger import Ledger
from release_side.choices.output_file import Output, mark, marker_of, partial_of, under_way
from release_side.errors import KEPT, PublishError

_RELEASE, _CHOICES = "release.kme", "choices.json"
_MOST_CHOICES = 4096  # bytes
_NUMBERS = ("n_points", "view", "bound", "n_public", "float32")  # of Wanted


@dataclass(frozen=True, kw_only=True, eq=False)
class Begun:
    """A measurement with all that its release needs, from public facts: see `release`.

    method   its name.
    """

    measurement: Measurement
    domain: Domain
    statement: PrivacyStatement
    wanted: Wanted
    method: str

    def release(self, progress: Progress | None = None) -> Release:
        """The release: points are fitted to the measurement."""
        return self.of_points(REPRESENT[self.method](self.measurement, self.domain, self.wanted, progress))

    def of_points(self, points: Points) -> Release:
        """The release with these points and weights."""
        return release_of_points(
            points, self.measurement, self.domain, self.statement, method=self.method, view=self.wanted.view,
            float32=self.wanted.float32,
        )  # fmt: skip


@contextmanager
def kept_until_written(output: str | Path | None, begun: Begun | None) -> Iterator[None]:
    """Keep what was drawn in OUT.partial while its release is made and written; where that fails, errors say how to finish it."""
    if output is None or begun is None:
        yield
        return
    path = partial_of(output)
    with suppress(Exception):  # a folder that is full now may have room for the release
        _write(path, begun)
    try:
        yield
    except BaseException as error:
        if path.exists():
            error.add_note(f"{KEPT}{path}: release-side finish {path} makes the release of it.")
        raise
    path.unlink(missing_ok=True)


def _write(path: Path, begun: Begun) -> None:
    wanted, domain = begun.wanted, begun.domain
    starts = wanted.given if wanted.given is not None else wanted.public
    if starts is None:
        row = kept_row(domain)
        assert row is not None  # found before the spend
        starts = row[None]
    release = begun.of_points((starts, np.full(len(starts), 1 / len(starts))))
    choices: dict[str, Any] = {name: getattr(wanted, name) for name in _NUMBERS}
    choices["points"] = "given" if wanted.given is not None else None if wanted.public is None else "public"
    with TemporaryDirectory() as folder, atomic_write(path, mode=0o600) as temporary:
        release.write(Path(folder) / _RELEASE)
        with zipfile.ZipFile(temporary, "w") as archive:
            archive.write(Path(folder) / _RELEASE, _RELEASE)
            archive.writestr(_CHOICES, json.dumps(choices))


def finish(
    partial: str | Path, output: str | Path | None = None, *, ledger: str | Path | None = None, force: bool = False,
    progress: Progress | None = None,
) -> Release:  # fmt: skip
    """Make the release from what a publication drew before it failed or was stopped. Spends nothing: the draw was counted.

    partial   OUT.kme.partial, which is removed once the release is written.
    output    file to write; by default the one that the publication named.
    ledger    where the draw was counted, to note the file's name there.
    Errors    PublishError where there is no such file, or the output exists and `force` is not given.

    >>> release_side.finish("no.kme.partial")
    Traceback (most recent call last):
    release_side.errors.PublishError: no.kme.partial is not what a publication drew: ...
    """
    path = Path(partial)
    written = Output(output or str(path).removesuffix(".partial"), force)
    written.check_finished(path, ledger)
    marker = marker_of(str(path).removesuffix(".partial"))
    if process := under_way(marker):
        raise PublishError(f"{path} is still under way, drawn or finished by process {process}. Wait for it, or end it.")
    try:
        begun, wanted = _read(path)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise PublishError(
            f"{path} is not what a publication drew: {str(error).rstrip('.')}. Name the .partial file that one left."
        ) from None
    measurement, statement = begun.measurement, begun.statement
    if measurement is None or not isinstance(statement, PrivacyStatement):
        raise PublishError(f"{path} holds no measurement of a publication. Name the .partial file that one left.")
    again = Begun(measurement=measurement, domain=begun.domain, statement=statement, wanted=wanted, method=begun.method)
    marker.unlink(missing_ok=True)  # of a publication that was killed
    mark(marker)
    try:
        release = again.release(progress)
        release.write(str(written.path))
        path.unlink(missing_ok=True)
    finally:
        marker.unlink(missing_ok=True)
    if ledger is not None:
        book = Ledger(ledger)
        releases = (one for account in book.accounts() for one in account.releases)
        counted = [one for one in releases if one.digest == statement.ledger_head]
        for one in counted:
            book.published(one.id, str(written.path))
    return release


def _read(path: Path) -> tuple[Release, Wanted]:
    """The release whose points are not fitted, and what is wanted of them; an error of any kind for another file."""
    with zipfile.ZipFile(path) as archive, TemporaryDirectory() as folder:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        stored = all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        if sizes.keys() != {_RELEASE, _CHOICES} or not stored or sizes[_CHOICES] > _MOST_CHOICES:
            raise ValueError("its members are others")
        begun = read_release(archive.extract(_RELEASE, folder), allow_rehearsal=True)
        choices = json.loads(archive.read(_CHOICES))
    known: dict[str, Any] = {name: choices[name] for name in _NUMBERS}
    points, bound, whole = choices["points"], known["bound"], [known["n_points"], known["n_public"]]
    if points not in (None, "given", "public") or (begun.method in KEEPS_POINTS) != (points == "given"):
        raise ValueError("its points are of no method")
    if any(type(number) is not int or not 0 <= number <= USUAL.points for number in whole) or not whole[0]:
        raise ValueError("its numbers of points are none")
    if known["view"] not in (*VIEWS, "published") or type(known["float32"]) is not bool:
        raise ValueError("its weights are none")
    if begun.method not in REPRESENT or (bound is not None and not bound > 0):
        raise ValueError("its method or bound is unknown")
    if points is not None:
        known[points] = begun.encoded_points
    return begun, Wanted(**known)
