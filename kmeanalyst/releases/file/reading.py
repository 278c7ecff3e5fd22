"""From a path to a release: the layers of a file in order, each of which may trust only those before it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.file.archive import HEADER, POINTS, Members
from kmeanalyst.releases.file.derived import check_cells, derived_of
from kmeanalyst.releases.file.header import check_header, check_members, parsed
from kmeanalyst.releases.file.kernel import check_kernel, kernel_of
from kmeanalyst.releases.file.limits import refusing
from kmeanalyst.releases.file.measurement import measurement_of, statement_of
from kmeanalyst.releases.file.opening import columns_in, read_container
from kmeanalyst.releases.file.points import points_and_weights
from kmeanalyst.releases.release import ReleaseData

R = TypeVar("R", bound=ReleaseData)


def read_release(path: str | Path, kind: type[R], *, allow_rehearsal: bool = False, large: bool = False) -> R:
    """As `kmeanalyst.release.read_release`, which reads a `Release`: the same for any class of this value."""
    return read_container(
        path, lambda members: release_of(members, kind), "release", allow_rehearsal=allow_rehearsal, large=large
    )


def release_of(members: Members, kind: type[R]) -> R:
    """The release of a class that the members hold, or FileRefused."""
    header = parsed(members[HEADER])
    check_header(header)
    check_members(header, members)
    with refusing("the columns"):
        domain = columns_in(header)
    kernel = kernel_of(header["kernel"], domain.width)
    derived = derived_of(header, domain)
    columns = Domain((*domain.columns, *(one.column for one in derived)))
    points, weights = points_and_weights(members[POINTS], columns, header["n_points"])
    check_kernel(kernel, domain, points)
    with refusing("the release"):
        measurement = measurement_of(header, kernel, domain, members)
        release = kind(
            points=points, weights=weights, measurement=measurement, kernel=kernel, domain=domain,
            statement=statement_of(header, measurement, kernel, domain), method=header["method"],
            weight_view=header["weight_view"],
            fit_distance=None if header["fit_distance"] is None else float(header["fit_distance"]), derived=derived,
        )  # fmt: skip
    check_cells(release, points)
    return release
