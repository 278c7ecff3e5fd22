"""The file of a released function: the container of a release, with pivots and noisy coordinates instead of points.

Its header has another value of `format`, so that a reader of releases refuses it: its numbers are not an embedding of a
table's rows, and cannot answer questions about the table. FORMAT.md §7 specifies it.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from kmeanalyst.kernels import Kernel
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.domain.domain import Domain, column_from_dict
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.archive import HEADER, NOISY_SUM, PIVOTS, Members
from kmeanalyst.releases.file.header import (
    FUNCTION_FORMAT,
    FUNCTION_MINOR,
    check_function_header,
    check_members,
    outline,
    parsed,
    plain,
)
from kmeanalyst.releases.file.kernel import check_kernel, kernel_of, kernel_work
from kmeanalyst.releases.file.limits import limits, refusal, refusing, too_large
from kmeanalyst.releases.file.measurement import CLOSE, array_of, basis_points, noise_statement
from kmeanalyst.releases.file.reading import columns_in, read_container
from kmeanalyst.releases.file.writing import canonical, npy_of, write_checked
from kmeanalyst.releases.function import FunctionForm, ReleasedFunction, function_of


def read_function(path: str | Path, *, allow_rehearsal: bool = False, large: bool = False) -> ReleasedFunction:
    """Read the .kme file of a released function; FileRefused says what is wrong with an unsound file.

    Nothing is returned unless checksums, shapes, values, the bound of the pivots' coordinates and the arithmetic of the
    privacy statement agree.

    allow_rehearsal   also read a file that is stamped NOT PRIVATE: a rehearsal, whose noise a seed gives back.
    large             lift the usual limits on size and work, for a file whose maker you trust: it may take minutes and
                      gigabytes (FORMAT.md §8).

    >>> ka.read_function("density.kme").kind
    'density'
    """
    return read_container(path, function_in, "function", allow_rehearsal=allow_rehearsal, large=large)


def function_in(members: Members) -> ReleasedFunction:
    header = parsed(members[HEADER].data)
    check_function_header(header)
    check_members(header, members)
    with refusing("the columns"):
        domain = columns_in(header)
        if any(isinstance(column, Text) for column in domain.columns):
            raise ValueError("a function uses no texts")
    form = _form_of(header["function"])
    kernel = kernel_of(header["kernel"], len(domain))
    check_kernel(kernel, domain, domain.decode(domain.draw(8, 0)))
    basis = _basis_of(header["measurement"]["n_pivots"], kernel, domain, members)
    noisy_sum = array_of(NOISY_SUM, members[NOISY_SUM].data, "<i8", [basis.dimension])
    with refusing("the function"):
        measured, steps = header["measurement"], form.grid_sensitivity(basis)
        unit = form.unit(basis, measured["n_rows"])
        if not math.isclose(measured["grid_noise_scale"] * unit, measured["noise_scale"], rel_tol=CLOSE):
            raise refusal("grid_noise_scale", "it is not the noise scale in steps of the grid: one of the two is wrong")
        statement = noise_statement(header, steps * unit, steps)
        return function_of(form=form, domain=domain, basis=basis, noisy_sum=noisy_sum, statement=statement)


def _form_of(fields: dict[str, Any]) -> FunctionForm:
    with refusing("the function"):
        target = None if fields["target"] is None else column_from_dict(fields["target"])
        form = FunctionForm(kind=fields["kind"], target=target, regularisation=fields["regularisation"])
        if plain(form.to_dict()) != fields:
            raise ValueError("its target is not written as a column is")
    return form


def _basis_of(n_pivots: int, kernel: Kernel, domain: Domain, members: Members) -> Pivots:
    if n_pivots > limits().pivots:
        raise too_large(f"the function has {n_pivots} pivots", f"at most {limits().pivots} are read")
    work = n_pivots**2 * kernel_work(kernel, len(domain))
    if work > limits().pivot_work:
        raise too_large(
            f"the function has {n_pivots} pivots",
            f"the kernel takes {work} steps on them to prove its bound, and at most {limits().pivot_work} are taken",
        )
    points = array_of(PIVOTS, members[PIVOTS].data, "<f8", [n_pivots, len(domain)])
    with refusing("the pivots"):
        return Pivots(kernel, basis_points(kernel, domain, {"points": points}))


def write_function(function: ReleasedFunction, path: str | Path) -> None:
    """Write the function as a .kme file, which appears whole or not at all.

    The same function gives the same bytes. The file is read back first: ValueError, and no file, if the reader would
    refuse it.

    >>> ka.write_function(function, "copy.kme")
    """
    write_checked(_members_of(function), function_in, "function", path)


def _members_of(function: ReleasedFunction) -> dict[str, bytes]:
    members = {NOISY_SUM: npy_of(function.noisy_sum, "<i8"), PIVOTS: npy_of(function.basis.points, "<f8")}
    statement, unit = function.statement, function.form.unit(function.basis, function.statement.n_rows)
    header = outline(FUNCTION_FORMAT, FUNCTION_MINOR, function.domain, function.basis.kernel, members) | {
        "function": function.form.to_dict(),
        "statement": statement.to_dict(),
        "measurement": {
            "noise_law": statement.mechanism,
            "noise_scale": function.noise_scale,
            "grid_noise_scale": function.noise_scale / unit,
            "n_rows": statement.n_rows,
            "n_pivots": function.basis.dimension,
        },
    }
    return {HEADER: canonical(plain(header)), **members}
