"""The measurement of a file: npy arrays, the feature map they make on the domain, and the guarantee of both.

An array is built only once its npy header says what the file's header says. The guarantee stands only if its own
arithmetic holds and its sensitivity, noise and number of rows are those of the measurement. The constructors of feature
maps refuse what would break their bound (a projection that is too long, a stride beyond its cells); here it is checked
that the arrays exist and belong to this domain and kernel.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel, Margins
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.dot_product import Polynomial
from kmeanalyst.kernels.features import composed
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.certified import MOST_CERTIFIED_POINTS, CertifiedNystroem
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.margins import ChosenMargins, MarginFeatures
from kmeanalyst.releases.declared_statement import DeclaredStatement, Statement
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Cyclic, Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.domain.tree_column import Tree
from kmeanalyst.releases.file.archive import NOISY_SUM, RELATIVE_NOISE, Members, scores_name
from kmeanalyst.releases.file.kernel import check_kernel, diameter_over, kernel_of, kernel_work
from kmeanalyst.releases.file.limits import MOST_KERNEL_WORK, limits, refusal, refusing, too_large
from kmeanalyst.releases.measurement import Choice, DrawnSets, Measurement, Scores, mean_unit
from kmeanalyst.releases.statement import PrivacyStatement, is_pure

_MOST_SCORED = 1000  # columns whose pairs are scored
CLOSE = 1e-6  # relative tolerance where a recorded number is recomputed
_DO_NOT_RELY = "Do not rely on it; ask its maker for a correct file"


def measurement_of(header: dict[str, Any], kernel: Kernel, domain: Domain, members: Members) -> Measurement | None:
    """The measurement, its vector read from the noisy sum."""
    fields = header["measurement"]
    if fields is None:
        return None
    described = fields["feature_map"]
    arrays = {
        name: array_of(f"measurement/{name}.npy", members[f"measurement/{name}.npy"].data, "<f8", shape)
        for name, shape in described["arrays"].items()
    }
    feature_map = FEATURE_MAPS[described["name"]](kernel, domain, arrays)
    if feature_map.name != described["name"]:
        raise refusal("feature_map, field name", f"the kernel makes it {feature_map.name}")
    if feature_map.dimension != described["dimension"]:
        raise refusal("feature_map, field dimension", f"the arrays make {feature_map.dimension} features")
    noisy_sum = array_of(NOISY_SUM, members[NOISY_SUM].data, "<i8", [described["dimension"]])
    unit = mean_unit(n_rows=fields["n_rows"], feature_map=feature_map)
    if not math.isclose(fields["grid_noise_scale"] * unit, fields["noise_scale"], rel_tol=CLOSE):
        raise refusal("grid_noise_scale", "it is not the noise scale in steps of the grid: one of the two is wrong")
    found = Measurement(
        vector=noisy_sum * unit, noise_scale=float(fields["noise_scale"]), noise_law=fields["noise_law"],
        n_rows=fields["n_rows"], feature_map=feature_map, noisy_sum=noisy_sum, **_choosing_of(fields, feature_map, members),
    )  # fmt: skip
    if "relative_noise" not in fields:
        return found
    with refusing(RELATIVE_NOISE):
        if not isinstance(feature_map, MarginFeatures) or "declared_by" not in (header["statement"] or {}):
            raise ValueError("noise by cell is of tables that others measured")
        own = array_of(RELATIVE_NOISE, members[RELATIVE_NOISE].data, "<f8", [described["dimension"]])
        return replace(found, relative_noise=own)


def _choosing_of(fields: dict[str, Any], feature_map: FeatureMap, members: Members) -> dict[str, Any]:
    """How rows chose the tables: scores, choices, pairs measured beforehand and sets drawn, which `Measurement` checks too."""
    named = [name for name in ("scores", "choices", "beforehand", "drawn") if name in fields]
    if not named:
        return {}
    kernel = feature_map.kernel
    if not isinstance(kernel, ChosenMargins) or is_pure(fields["noise_law"]):
        raise refusal(f"measurement, field {named[0]}", "it goes with margins of chosen sets, under Gaussian noise")
    if (columns := len(kernel.edges)) > _MOST_SCORED:
        raise too_large(f"its tables were chosen from the pairs of {columns} columns", f"those of at most {_MOST_SCORED} are read")
    steps, drawn = fields.get("scores", []), fields.get("drawn")
    sizes = [math.comb(columns, 2)] * len(steps) + ([len(drawn["sets"])] if drawn else [])
    names = [scores_name(number) for number in range(1, 1 + len(sizes))]
    noisy = [array_of(name, members[name].data, "<i8", [size]) for name, size in zip(names, sizes, strict=True)]
    beforehand = tuple(map(tuple, fields.get("beforehand", [])))
    if not set(beforehand) <= set(kernel.chosen) or len(set(beforehand)) < len(beforehand) or named == ["beforehand"]:
        raise refusal(
            "measurement, field beforehand",
            "it goes with scores or choices, and names different pairs of those that the kernel has",
        )
    choices = tuple(map(_choice, fields.get("choices", [])))
    if sum(own.count for own in choices) > len(kernel.chosen) - len(beforehand):
        raise refusal("measurement, field choices", "more pairs were drawn than there are in the kernel's field chosen")
    found: dict[str, Any] = {"choices": choices, "beforehand": beforehand}
    found["scores"] = tuple(Scores(own, step) for own, step in zip(noisy, steps, strict=False))
    if drawn:
        sets, scores = tuple(map(tuple, drawn["sets"])), Scores(noisy[-1], drawn["score_step"])
        found["drawn"] = DrawnSets(sets, drawn["largest"], _choice(drawn), scores)
    return found


def _choice(fields: dict[str, Any]) -> Choice:
    return Choice(fields["count"], fields["step"], float(fields["scale"]))


def statement_of(header: dict[str, Any], measurement: Measurement | None, kernel: Kernel, domain: Domain) -> Statement | None:
    """The statement, if its arithmetic holds and it is about this measurement, or else about this kernel and domain."""
    if header["statement"] is None:
        return None
    if "declared_by" in header["statement"]:
        return _declared_statement(header)
    if measurement is None:
        return _selection_statement(header, kernel, domain)
    return noise_statement(header, measurement.sensitivity, measurement.grid_sensitivity)


def _declared_statement(header: dict[str, Any]) -> DeclaredStatement:
    """What others say of the measurement: nothing of a guarantee can be checked, but it is about the header's numbers."""
    with refusing("the declared statement"):
        statement = DeclaredStatement.from_dict(header["statement"])
    measured, rounds = header["measurement"] or {}, {"scores", "choices", "beforehand", "drawn"}
    own = (statement.n_rows, statement.mechanism, statement.noise_scale)
    if own != tuple(measured.get(name) for name in ("n_rows", "noise_law", "noise_scale")) or rounds & {*measured}:
        raise refusal(
            "the declared statement is of another measurement",
            f"it says N, law and scale are {own}, and tables that others measured were chosen by no scores of ours",
            _DO_NOT_RELY,
        )
    return statement


def noise_statement(header: dict[str, Any], sensitivity: float, grid_steps: float) -> PrivacyStatement:
    """The statement of a header, if its arithmetic holds and it is about the header's own measurement.

    sensitivity   of what was measured, as it follows from public facts; grid_steps: the same in steps of the grid.
    """
    measured, statement = header["measurement"], _consistent_statement(header)
    agree = {
        "n_rows": statement.n_rows == measured["n_rows"],
        "mechanism": statement.mechanism == measured["noise_law"],
        "noise_scale": math.isclose(statement.noise_scale or 0.0, measured["noise_scale"], rel_tol=CLOSE),
        "sensitivity": math.isclose(statement.sensitivity, sensitivity, rel_tol=CLOSE),
    }
    for name, holds in agree.items():
        if not holds:
            raise refusal(
                f"the privacy statement claims {name} {getattr(statement, name)!r}, the measurement has another",
                "the guarantee is not about these numbers, and nothing follows from it",
                _DO_NOT_RELY,
            )
    with refusing("the privacy statement"):  # again, from the measurement itself: rounding errors do not add up
        statement.check_arithmetic(measured["grid_noise_scale"] / grid_steps)
    return statement


def _selection_statement(header: dict[str, Any], kernel: Kernel, domain: Domain) -> PrivacyStatement:
    """The statement of a draw: the exponential mechanism's sensitivity follows from kernel, domain and N alone."""
    statement = _consistent_statement(header)
    with refusing("the privacy statement"):
        sensitivity = diameter_over(kernel, domain) / statement.n_rows
    if not math.isclose(statement.sensitivity, sensitivity, rel_tol=CLOSE):
        raise refusal(
            f"the privacy statement claims sensitivity {statement.sensitivity!r}",
            f"the kernel and the domain give {sensitivity:.9g}, and the guarantee rests on it",
            _DO_NOT_RELY,
        )
    return statement


def _consistent_statement(header: dict[str, Any]) -> PrivacyStatement:
    with refusing("the privacy statement"):
        statement = PrivacyStatement.from_dict(header["statement"])
        statement.check_arithmetic()
        return statement


# ---------------------------------------------------------------------- arrays


_NPY_MAGIC = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': ?'(<f8|<i8)', ?'fortran_order': ?False, ?"
    rb"'shape': ?\(([1-9]\d{0,11}(?:,|, ?[1-9]\d{0,11}))\),? ?\} *\n"
)
_MOST_NPY_HEADER_BYTES = 1024


def array_of(name: str, data: memoryview, dtype: str, shape: list[int]) -> Array:
    """An array of an npy member, once its header has been found to say dtype and shape, and its size to fit."""
    start = len(_NPY_MAGIC) + 2
    length = int.from_bytes(data[start - 2 : start], "little")
    match = _NPY_HEADER.fullmatch(bytes(data[start : start + length]))
    if bytes(data[: len(_NPY_MAGIC)]) != _NPY_MAGIC or match is None or length > _MOST_NPY_HEADER_BYTES:
        raise refusal(name, "it is not an npy 1.0 array of little-endian numbers in C order")
    found_shape = [int(size) for size in match[2].replace(b",", b" ").split()]
    if match[1].decode() != dtype or found_shape != shape or start + length + 8 * math.prod(shape) != len(data):
        got = f"{match[1].decode()} of shape {found_shape} in {len(data)} bytes"
        raise refusal(name, f"it should hold {dtype} of shape {shape} and nothing else, got {got}")
    return np.frombuffer(data, dtype=dtype, offset=start + length).reshape(shape).copy()


def basis_points(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> Array:
    """The points of a basis; FileRefused unless they are encoded rows of the domain, few enough for the kernel."""
    points = arrays.get("points")
    if len(arrays) != 1 or points is None or points.ndim != 2 or points.shape[1] != domain.width:
        raise refusal("feature_map, field arrays", f"a subspace has points of {domain.width} columns, and nothing else")
    if len(points) > limits().basis_points:
        raise too_large(f"measurement/points.npy has {len(points)} rows", f"a subspace of at most {limits().basis_points} is read")
    work = len(points) ** 2 * kernel_work(kernel, domain.width)
    if work > limits().basis_work:
        raise too_large(
            f"measurement/points.npy has {len(points)} rows",
            f"the kernel takes {work} steps on them to make the subspace, and at most {limits().basis_work} are taken",
        )
    for column, indices in zip(domain.columns, domain.coordinates, strict=True):
        if isinstance(column, Text):
            _check_strings(column, points[:, indices])
            continue
        values = points[:, indices[0]]
        present = values[~np.isnan(values)]
        low, high = column.bounds
        room = 1e-12 * (1 + max(abs(low), abs(high)))  # logarithms differ in the last digit between machines
        inside = (present >= low - room) & (present <= high + room)
        whole = not isinstance(column, Categorical) or (present == np.rint(present)).all()
        if isinstance(column, Cyclic):
            inside &= present < high  # where the cycle begins again
        if not (inside.all() and whole) or (len(present) < len(values) and not column.missing):
            raise refusal(f"measurement/points.npy, column {column.name}", "it has values or codes outside the domain")
    return points


def _check_strings(column: Text, numbers: Array) -> None:
    """Packed strings are those that the column's own cells become, to the last bit."""
    if not np.array_equal(column.encode(column.decode(numbers))[0], numbers, equal_nan=True):
        raise refusal(f"measurement/points.npy, column {column.name}", "it has numbers that are no strings of the domain")


# ---------------------------------------------------------------------- feature maps


def _check_no_texts(family: str, domain: Domain) -> None:
    if texts := [column.name for column in domain.columns if isinstance(column, Text)]:
        raise refusal("feature_map, field name", f"strings have no {family} features, as in column {texts[0]!r:.80}")


def _check_names(family: str, arrays: dict[str, Array], names: tuple[str, ...], domain: Domain, by_column: str) -> None:
    """The arrays have these names and no others, and the one named last has a row for each column."""
    d = len(domain)
    if set(arrays) != set(names) or arrays[by_column].ndim != 2 or len(arrays[by_column]) != d:
        raise refusal("feature_map, field arrays", f"{family} features have {', '.join(names)} of {d} columns, and nothing else")


def binning(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    family, names = RandomBinning.name, ("widths", "shifts", "missing", "strides", "cells")
    _check_no_texts(family, domain)
    _check_names(family, arrays, names, domain, "widths")
    if levels := [column.name for column in domain.columns if isinstance(column, Categorical)]:
        raise refusal("feature_map, field name", f"{family} features are of numbers, and {levels!r:.80} have levels")
    with refusing("feature_map"):
        feature_map = RandomBinning(kernel, *(arrays[name] for name in names))
        if feature_map.dimension > limits().features:
            raise too_large(f"its grids have {feature_map.dimension} cells", f"at most {limits().features} are read")
    return feature_map


def maclaurin(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    names = ("degrees", "projections", "signs")
    _check_no_texts(RandomMaclaurin.name, domain)
    _check_names(RandomMaclaurin.name, arrays, names, domain, "signs")
    if not isinstance(kernel, Polynomial):
        raise refusal("feature_map, field name", f"the kernel {kernel.name} is not polynomial, and has no such features")
    with refusing("feature_map"):
        return RandomMaclaurin(kernel, *(arrays[name] for name in names))


def _random_fourier(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Frequencies and phase tables that fit the domain: no code of a level can fall outside its table."""
    _check_no_texts("random Fourier", domain)
    column_of = {f"table_{j}": j for j in range(len(domain))}
    if set(arrays) - set(column_of) != {"linear"} or any(array.ndim != 2 for array in arrays.values()):
        raise refusal("feature_map, field arrays", "random Fourier features have linear and table_j, j a column")
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise refusal(f"measurement/{name}.npy", "a number that is infinite or not a number means nothing")
    linear = arrays["linear"]
    if len(linear) != len(domain):
        raise refusal("measurement/linear.npy", f"it has {len(linear)} rows, and there are {len(domain)} columns")
    farthest = np.array([np.abs(column.bounds).max() for column in domain.columns])
    with np.errstate(over="ignore"):
        if not np.isfinite(farthest @ np.abs(linear)).all():
            raise refusal("measurement/linear.npy", "a frequency is so large that phases are infinite")
    tables = {column_of[name]: table for name, table in arrays.items() if name in column_of}
    for j, table in tables.items():
        column = domain.columns[j]
        allowed = (len(column.levels) + 1, 1) if isinstance(column, Categorical) else (1,)
        if table.shape[1] != linear.shape[1] or len(table) not in allowed:
            raise refusal(
                f"measurement/table_{j}.npy has shape {table.shape}",
                f"column {column.name} needs {' or '.join(map(str, allowed))} rows of {linear.shape[1]} phases",
            )
    return RandomFourier(kernel, linear, tables)


def _certified(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """Basis points and a jitter whose certificate holds: it is computed again here."""
    what = "feature_map, field arrays"
    jitter = arrays.get("jitter")
    if set(arrays) != {"points", "jitter"} or jitter is None or jitter.shape != (1,):
        raise refusal(what, "a certified subspace has points and one number jitter, and nothing else")
    if len(arrays["points"]) > MOST_CERTIFIED_POINTS:
        raise refusal("measurement/points.npy", f"a certified subspace has at most {MOST_CERTIFIED_POINTS} points")
    points = basis_points(kernel, domain, {"points": arrays["points"]})
    with refusing("the certificate of the subspace"):
        return CertifiedNystroem(kernel, points, float(jitter[0]))


def _margins(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    """The margins kernel determines them; finer ranges are ranges of numbers, or of codes of a tree, within their bounds."""
    tables = (*enumerate(kernel.fine), *kernel.deeper) if isinstance(kernel, Margins) else ()
    for j, fine in tables:
        column = domain.columns[min(j, len(domain) - 1)]
        low, high = column.ends if isinstance(column, Number | Tree) else (math.inf, -math.inf)
        if fine and not low < fine[0] <= fine[-1] < high:
            raise refusal("the kernel", f"it has finer ranges of column {column.name} that are no ranges of numbers or codes in it")
    if arrays or not isinstance(kernel, Margins):
        raise refusal("feature_map, field arrays", "margins are features of the margins kernel, which have no arrays")
    return MarginFeatures(kernel)


def _composed(kernel: Kernel, domain: Domain, arrays: dict[str, Array]) -> FeatureMap:
    unused = set(arrays)

    def leaf(part: Kernel, columns: tuple[int, ...], prefix: str) -> FeatureMap:
        own = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        unused.difference_update(prefix + name for name in own)
        return _random_fourier(part, Domain(tuple(domain.columns[j] for j in columns)), own)

    with refusing("feature_map"):
        leaves = sum(name.endswith("linear") for name in arrays)
        if leaves * len(domain) > MOST_KERNEL_WORK:
            raise ValueError(f"its kernel has {leaves} parts with features of their own, and columns for each")
        tables = composed.tables_of(kernel)
        if tables > limits().tables:
            raise too_large(f"its kernel has margins of {tables} tables", f"at most {limits().tables} are read")
        feature_map = composed.composed_features(kernel, tuple(range(len(domain))), leaf)
        if unused:
            raise ValueError(f"no part of its kernel has the arrays {sorted(unused)!r:.200}")
    return feature_map


FEATURE_MAPS: dict[str, Callable[[Kernel, Domain, dict[str, Array]], FeatureMap]] = {
    RandomFourier.name: _random_fourier,
    Nystroem.name: lambda kernel, domain, arrays: Nystroem(kernel, basis_points(kernel, domain, arrays)),
    CertifiedNystroem.name: _certified,
    MarginFeatures.name: _margins,
    composed.Concatenation.name: _composed,
    composed.TensorProduct.name: _composed,
    composed.ScaledFeatures.name: _composed,
    composed.ColumnFeatures.name: _composed,
    RandomBinning.name: binning,
    RandomMaclaurin.name: maclaurin,
}


def check_readable_map(feature_map: FeatureMap, domain: Domain) -> None:
    """FileRefused unless a reader would make this map again from its kernel, its arrays and the domain."""
    kernel = kernel_of(json.loads(json.dumps(feature_map.kernel.to_dict())), domain.width)
    check_kernel(kernel, domain, domain.decode(domain.draw(8, 0)))
    if not isinstance(feature_map, Nystroem):  # whose points are of the domain, and whose Gram matrix costs much
        FEATURE_MAPS[feature_map.name](kernel, domain, feature_map.arrays())
