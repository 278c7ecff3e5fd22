"""Files for test_limits.py: each is small, valid, and at a limit of the reader (`Limits` in limits.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from simulated_releases import statement_of

from kmeanalyst import kernels
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.composed import ColumnFeatures, TensorProduct
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.derived import Derived
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import margin_kernel
from kmeanalyst.releases.domain.levels import Boolean, Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.archive import HEADER, POINTS, zipped
from kmeanalyst.releases.file.function import write_function
from kmeanalyst.releases.file.header import FORMAT, declaration, plain
from kmeanalyst.releases.file.kernel import _MOST_WORK, MOST_ROWS, diameter_over, kernel_work, n_databases
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.file.points import arrow_type, cells_of_a_row, is_text
from kmeanalyst.releases.file.writing import _measurement_header, canonical, npy_of, points_csv
from kmeanalyst.releases.function import FunctionForm, function_of
from kmeanalyst.releases.measurement import Measurement, grid_sensitivity
from kmeanalyst.releases.rules.rule import Rule
from kmeanalyst.releases.statement import PrivacyStatement
from release_side.door.mechanism import GaussianNoise

G, NOISE = kernels.Gaussian(1.0), GaussianNoise(1.0, 1e-6)
FEW = USUAL.cells // USUAL.points  # cells of a row where there are as many points as may be


def written(
    path: Path, columns: Sequence[Column], n_points: int, kernel: kernels.Kernel, *, cells: Sequence[Any] | None = None,
    feature_map: FeatureMap | None = None, statement: PrivacyStatement | None = None, derived: Sequence[Derived] = (),
    derived_cells: Sequence[Any] = (), method: str = "foreign", rules: Sequence[Rule] = (),
) -> None:  # fmt: skip
    """A file of these points: the same cell in every row, unless `cells` has an array for each column."""
    domain = Domain(tuple(columns))
    of_each = [*(cells or [_cell(column) for column in columns]), *derived_cells]
    every = [*columns, *(one.column for one in derived)]
    arrays = [
        cell if isinstance(cell, np.ndarray | pa.Array) else pa.repeat(pa.scalar(cell, arrow_type(column)), n_points)
        for cell, column in zip(of_each, every, strict=True)
    ]
    weights = pa.array(np.full(n_points, 1 / n_points))
    members = {POINTS: points_csv(every, [*map(pa.array, arrays), weights])}
    measurement = None if feature_map is None else _measurement(feature_map)
    if feature_map is not None and measurement is not None:
        statement = statement_of(measurement, NOISE)
        members["measurement/noisy_sum.npy"] = npy_of(measurement.noisy_sum, "<i8")
        members |= {f"measurement/{name}.npy": npy_of(array, "<f8") for name, array in feature_map.arrays().items()}
    header = {
        "format": FORMAT, "schema_major": 1, "schema_minor": 2 if rules else int(bool(derived)), "columns": domain.to_dict(),
        "kernel": kernel.to_dict(), "method": method, "weight_view": "given", "n_points": n_points,
        "fit_distance": None, "statement": None if statement is None else statement.to_dict(),
        "measurement": None if measurement is None else _measurement_header(measurement), "versions": {},
        "members": declaration(members),
    } | ({"derived": [one.to_dict() for one in derived]} if derived else {})  # fmt: skip
    header |= {"rules": [rule.to_dict() for rule in rules]} if rules else {}
    path.write_bytes(zipped({HEADER: canonical(plain(header)), **members}))


def _cell(column: Column) -> Any:
    if isinstance(column, Text):
        return (column.symbols * column.length)[: column.length]
    return column.levels[0] if is_text(column) else False if isinstance(column, Boolean) else 0  # type: ignore[attr-defined]


def _measurement(feature_map: FeatureMap) -> Measurement:
    scale = NOISE.deviation(grid_sensitivity(feature_map, NOISE.name))
    return Measurement.from_sum(
        np.zeros(feature_map.dimension, dtype=np.int64), grid_scale=scale, n_rows=1000, feature_map=feature_map,
        noise_law=NOISE.name,
    )  # fmt: skip


def reals(d: int) -> list[Column]:
    return [Real(name=f"x{j}", lower=0, upper=1) for j in range(d)]


def spread(columns: Sequence[Column], n: int) -> list[Any]:
    """Different cells in every row."""
    frame = Domain(tuple(columns)).decode(Domain(tuple(columns)).draw(n, 0))
    return [
        pa.array(frame[column.name].astype(object) if is_text(column) else frame[column.name], arrow_type(column))
        for column in columns
    ]


def full(path: Path, columns: Sequence[Column], **more: Any) -> None:
    """As many rows of these columns as may be."""
    written(path, columns, USUAL.cells // cells_of_a_row(Domain(tuple(columns))), G, **more)


def long_texts_that_differ(path: Path) -> None:
    column = Text(name="t", length=1000, alphabet="ab")
    n = USUAL.cells // cells_of_a_row(Domain((column,)))
    full(path, [column], cells=[pa.array([bin(i)[2:].translate({48: "a", 49: "b"}) for i in range(n)])])


def long_numbers(path: Path) -> None:
    """Numbers of as many digits as there are, all different."""
    columns = [Real(name=f"x{j}", lower=-1, upper=1) for j in range(20)]
    n = USUAL.cells // 21
    cells = np.random.default_rng(0).normal(size=(20, n)) * 1e-300
    written(path, columns, n, G, cells=list(np.clip(cells, -1, 1)))


def many_points(kind: Any, count: int, **options: Any) -> Callable[[Path], None]:
    """As many points as there may be, of so many columns of a kind."""
    return lambda path: written(path, [kind(name=f"c{j}", **options) for j in range(count)], USUAL.points, G)


OF_POINTS: dict[str, Callable[[Path], None]] = {
    "long_texts": lambda path: full(path, [Text(name="t", length=1000, alphabet="a")]),  # the file holds one of them
    "long_texts_that_differ": long_texts_that_differ,
    "short_texts": many_points(Text, (FEW - 1) // 4, length=8),
    "levels_of_points": many_points(Categorical, FEW - 1, levels=("a", "b")),
    "numbers": many_points(Integer, FEW - 1, lower=0, upper=1, missing=True),
    "logarithms": many_points(Real, FEW - 1, lower=0, upper=1, scale="log1p"),
    "wide": lambda path: written(
        path, [Real(name=f"{j:0200}", lower=0, upper=1) for j in range(USUAL.columns)],
        USUAL.cells // (USUAL.columns + 1), G,
    ),
    "long_numbers": long_numbers,
    # quotation marks, each of which is written twice
    "long_levels": lambda path: full(path, [Categorical(name=f"c{j}", levels=('"' * 200, "b")) for j in range(10)]),
}  # fmt: skip


def levels(path: Path) -> None:
    """As many levels as the header's bytes and marks allow."""
    n = min(USUAL.header_marks, USUAL.header_bytes // 12) - 200
    written(path, [Categorical(name="c", levels=tuple(f"{j:09}" for j in range(n)))], 100, G)


def long_names(path: Path) -> None:
    written(path, [Categorical(name=f"{j:0200}", levels=(f"{j:0200}", "b")) for j in range(USUAL.columns)], 100, G)


def many_kernels(path: Path) -> None:
    """The kernel's own limit."""
    written(path, reals(1), 100, kernels.Sum((kernels.MultiScale((1.0,) * 1000),) * 99))


def atoms(path: Path) -> None:
    n = USUAL.header_bytes // 22 - 1000
    values = tuple(float(x) for x in np.linspace(0.001, 0.999, min(n, USUAL.header_marks - 100)))
    written(path, [Real(name="x", lower=0, upper=1, atoms=values)], 100, G)


def draw(path: Path) -> None:
    """Every row of the domain, compared by as many passes of a kernel as are taken."""
    columns = [Integer(name="x", lower=0, upper=MOST_ROWS - 1)]
    kernel = kernels.MultiScale((1.0,) * (_MOST_WORK // MOST_ROWS**2 - 1))
    delta = diameter_over(kernel, Domain(tuple(columns))) / 1000
    statement = PrivacyStatement(
        epsilon=1.0, delta=0.0, neighbouring="replace-one", mechanism="exponential over multisets", sensitivity=delta,
        score_scale=2 * delta, calibration="pure", rho=0.125, n_rows=1000, n_databases=n_databases(MOST_ROWS, 1),
    )  # fmt: skip
    written(path, columns, 1, kernel, statement=statement)


def derived_work(path: Path) -> None:
    """Long divisions."""
    columns, n = [Real(name="x", lower=1, upper=1e300)], 10_000
    length = USUAL.derived_work // (n + 5000 + 200)
    text = "x" + "%3" * (length // 52)
    one = Derived(column=Real(name="y", lower=0.0, upper=3.0), expression=text[:9999])
    cell = np.float64(1e300) % 3
    written(path, columns, n, G, cells=[np.full(n, 1e300)], derived=[one], derived_cells=[np.full(n, cell)])


def derived_columns(path: Path) -> None:
    """A hundred expressions over the last of thousands of columns."""
    columns, n = [Boolean(name=f"b{j}") for j in range(1000)], 100
    room = USUAL.derived_work // (n + 5000 + 100 * 1100) // 100
    text = " or ".join(["b999"] * max(1, room // 8))
    derived = [Derived(column=Boolean(name=f"d{j}"), expression=text) for j in range(100)]
    written(path, columns, n, G, derived=derived, derived_cells=[np.zeros(n, dtype=bool)] * 100)


def rules_tried(path: Path) -> None:
    """Short rules of two columns of many levels whose table is measured: each is tried at every pair of levels."""
    columns = [Categorical(name=name, levels=tuple(f"l{k}" for k in range(900))) for name in ("a", "b")]
    kernel = margin_kernel(Domain(tuple(columns)))
    rules = [Rule("never", "a == b")] * (USUAL.rule_work // (46 * (900**2 + 200)))
    written(path, columns, 200, kernel, feature_map=MarginFeatures(kernel), rules=rules)


def rules_of_many_parts(path: Path) -> None:
    """Long rules over the last of thousands of columns."""
    columns = [Boolean(name=f"b{j}") for j in range(1000)]
    text = " or ".join(["b999"] * 240)
    room = USUAL.derived_work // (len(text) * (5000 + 100 * 1000 + 100))
    written(path, columns, 100, G, rules=[Rule("never", text)] * min(room, 200))


def combinations(path: Path) -> None:
    """As many rows of combinations as a header has room for."""
    columns = [Categorical(name=name, levels=tuple(f"l{k}" for k in range(100))) for name in ("a", "b")]
    rows = tuple((f"l{i}", f"l{j}") for i in range(100) for j in range(100))
    rule = Rule("combinations", columns=("a", "b"), rows=rows)
    written(path, columns, 1000, G, rules=[rule] * (USUAL.header_marks // (3 * len(rows)) - 1))


def subspace(path: Path) -> None:
    n = USUAL.basis_points
    columns = reals(1)
    kernel = kernels.MultiScale((1e-6,) * (USUAL.basis_work // n**2 - 1))
    points = np.linspace(0, 1, n)
    written(path, columns, n, kernel, cells=[points], feature_map=Nystroem(kernel, points[:, None]), method="subspace")


def subspace_of_strings(path: Path) -> None:
    columns = [Text(name="t", length=100)]
    kernel = kernels.StringSpectrum(length=3, symbols=len(columns[0].symbols), numbers=columns[0].width, blended=True)
    n = min(USUAL.basis_points, int((USUAL.basis_work / kernel_work(kernel, columns[0].width)) ** 0.5))
    rows = np.unique(Domain(tuple(columns)).draw(2 * n, 0), axis=0)[:n]
    written(path, columns, n, kernel, cells=spread(columns, n), feature_map=Nystroem(kernel, rows))


def _rows_for(per_row: float) -> int:
    return int(min(USUAL.feature_work / per_row, USUAL.points))


def random_features(path: Path) -> None:
    features = RandomFourier(G, np.ones((4, 4000)))
    written(path, reals(4), _rows_for(4000 * 14), G, feature_map=features)


def margins(path: Path, d: int, n: int | None, cuts: int = 1) -> None:
    """All pairs of so many columns of two ranges, or one."""
    kernel = kernels.Margins(((0.5,) * cuts,) * d, ((),) * d, (False,) * d, (0.0, 1.0, 0.0))
    features = MarginFeatures(kernel)
    usual = min(_rows_for(6 * features.width + 10 * d), USUAL.cells // (d + 1))
    written(path, reals(d), usual if n is None else n, kernel, feature_map=features)


def maclaurin(path: Path) -> None:
    columns, kernel = reals(2), kernels.Polynomial(20, 1.0, (0.0, 0.0), (1.0, 1.0))
    projections = np.zeros((50_000, 2))
    features = RandomMaclaurin(kernel, np.full(50, 1000.0), projections, np.ones((2, 50)))
    written(path, columns, _rows_for(2 * 100_000 + 50), kernel, feature_map=features)


def binning(path: Path) -> None:
    kernel, ones = kernels.Laplacian(1.0), np.ones((2, 1000))
    features = RandomBinning(kernel, ones, -ones, ones * 3, ones, np.full(1000, 4.0))
    written(path, reals(2), _rows_for(15 * 2 * 1000), kernel, feature_map=features)


def crossed_features(path: Path) -> None:
    """A product of random features and margins: written out for every point."""
    margins = kernels.OnColumns(kernels.Margins(((0.25, 0.5, 0.75),), ((),), (False,), (1.0, 0.0, 0.0)), (0,))
    rest = kernels.OnColumns(kernels.Scaled(0.5, G), (1,))
    product = kernels.Product((margins, rest))
    frequencies = RandomFourier(rest, np.vstack([np.zeros(1000), np.ones(1000)]))
    features = TensorProduct(product, (ColumnFeatures(margins, MarginFeatures(margins.kernel)), frequencies))
    written(path, reals(2), _rows_for(9000 + 12_000), product, feature_map=features)


def function(path: Path) -> None:
    n = USUAL.pivots
    kernel = kernels.MultiScale((1e-6,) * (USUAL.pivot_work // n**2 - 1))
    domain, basis = Domain(tuple(reals(1))), Pivots(kernel, np.linspace(0, 1, n)[:, None])
    form = FunctionForm("density")
    steps, unit = form.grid_sensitivity(basis), form.unit(basis, 1000)
    noisy: Any = SimpleNamespace(sensitivity=steps * unit, noise_scale=NOISE.deviation(steps) * unit, n_rows=1000)
    statement = statement_of(noisy, NOISE)
    sums = np.zeros(n, dtype=np.int64)
    write_function(function_of(form=form, domain=domain, basis=basis, noisy_sum=sums, statement=statement), path)


FILES: dict[str, Callable[[Path], None]] = OF_POINTS | {
    one.__name__: one
    for one in (
        levels, long_names, many_kernels, atoms, draw, derived_work, derived_columns, rules_tried, rules_of_many_parts,
        combinations, subspace, subspace_of_strings, random_features, maclaurin, binning, crossed_features, function,
    )
} | {
    "margins_of_columns": lambda path: margins(path, 300, None),
    # so many tables that their counts are not recomputed
    "margins_of_many_columns": lambda path: margins(path, int((2 * USUAL.tables) ** 0.5), 1000, cuts=0),
    "margins_of_points": lambda path: margins(path, 19, USUAL.points),
}  # fmt: skip
