"""The release of functions on one page: a private table and public choices in, a noisy function out.

As in `publishing`, everything chosen before the door (kernel, pivots, λ) follows from the domain, N and public files.
Source: Hall, Rinaldo & Wasserman 2013.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, OnColumns, Product
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain, read_domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.domain.text_column import Text
from kmeanalyst.releases.file.function import write_function
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.function import KINDS, FunctionForm, ReleasedFunction, function_of
from kmeanalyst.releases.population_size import PopulationSize
from kmeanalyst.releases.statement import PrivacyStatement, software_versions, zcdp_rho
from kmeanalyst.representation.progress import Progress
from release_side.budget.spending import Counting
from release_side.choices.options import check_workers, kernel_as_read, processors, public_generator, public_rows
from release_side.door.kernel_machines import plan_machine
from release_side.door.mechanism import Noise, RehearsalNoise, noise_for
from release_side.door.private_function import NoisyCoordinates, private_function
from release_side.door.private_mean import private_mean
from release_side.errors import PublishError
from release_side.private_rows.rows import PrivateTable, Table, open_private

_PIVOTS = 400  # candidates, where the curator names neither points nor a grid


def publish_function(
    private: Table,
    domain: Domain | str | Path,
    *,
    kind: str,
    epsilon: float,
    delta: float,
    target: str | None = None,
    regularisation: float | None = None,
    kernel: Kernel | str | None = None,
    pivots: Table | None = None,
    grid: int | None = None,
    calibration: str | None = None,
    ledger: str | Path | None = None,
    table: str | None = None,
    uncounted: bool = False,
    weak: bool = False,
    rehearsal: int | None = None,
    workers: int | None = None,
    output: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> ReleasedFunction:
    """Release a function of a private table, once, with (epsilon, delta)-differential privacy.

    private         as in `publish`.
    kind            "density": the kernel density estimate, or the mean of another kernel. "ridge", "logistic", "svm":
                    the function of the other columns that predicts the target, the least of mean loss + λ‖f‖².
    target          the column that ridge (a number), logistic and svm (two levels) predict.
    regularisation  λ of these; by default N^(−1/2), or N^(−1/3) for ridge.
    kernel          Kernel or its text, on all columns but the target. By default of a density a product of normal
                    densities, as wide as N lets them be; of a machine Gaussians of a fifth of each number's range, or the
                    table kernel where there are levels.
    pivots, grid    public points at which the function is measured, or how many values of each number to cross (levels:
                    all). By default a grid of about 400 points, or as many drawn from the domain.
    Others          as in `publish`; noise is Gaussian.
    Returns         ReleasedFunction; its statement lists everything that was taken as public.
    Errors          PublishError or DomainError, by public facts alone.

    >>> ages = ka.Domain((ka.Integer(name="age", lower=17, upper=90),))
    >>> density = release_side.publish_function(
    ...     "private.csv", ages, kind="density", epsilon=1, delta=1e-6, output="age.kme", uncounted=True
    ... )
    >>> density.evaluate({"age": [30, 60]}).columns.tolist()
    ['value', 'standard_error', 'unseen']
    """
    domain_path, domain = domain, domain if isinstance(domain, Domain) else read_domain(domain)
    _check_delta(delta)
    mechanism = noise_for("gaussian", epsilon, delta, calibration=calibration, rehearsal=rehearsal)
    check_workers(workers)
    inputs, column = _inputs_and_target(domain, kind, target)
    counting = Counting(
        ledger=ledger, table=table, uncounted=uncounted, weak=weak, rehearsal=rehearsal, output=output, force=force
    )
    counting.check_before_opening(private, pivots, inputs, domain, (domain_path, pivots))
    rows = open_private(private)
    rows.check_columns(domain)
    size = PopulationSize(rows.count())
    if size.count < 1:
        raise PublishError("the table has no rows: nothing can be released. Name a table with at least one row.")
    form = _form(kind, column, regularisation, size.count)
    basis = _basis(kernel_of_function(kind, kernel, inputs, size.count), inputs, pivots, grid)
    if kind != "density":
        plan_machine(form, basis, size.count)  # what cannot be solved is refused before anything is counted
    spending = counting.spending(mechanism, size, f"function: {kind}")
    with spending.note_budget_spent():
        noisy = _measured(
            rows, domain, form, basis, mechanism, n_rows=size.count, workers=workers or processors(), progress=progress,
            record_spend=spending.record,
        )  # fmt: skip
        function = _function(form, inputs, basis, noisy, mechanism, size, given=pivots is not None, head=spending.head)
        spending.write(lambda path: write_function(function, path))
    spending.published()
    return function


def _check_delta(delta: object) -> None:
    """PublishError for δ = 0: the law of Gaussian noise is the same in every basis, and that of Laplace noise is not.

    Values between pivots are answered from the joint law of a process; coordinates with Laplace noise
    are those of no process.
    """
    if isinstance(delta, int | float) and delta == 0:
        raise PublishError(
            "delta = 0 asks for pure differential privacy, and a function is released with a Gaussian process, which "
            "cannot give it. Pass a small delta, such as 1e-6 (well below 1/N), or publish the table with Laplace noise."
        )


def _inputs_and_target(domain: Domain, kind: str, target: str | None) -> tuple[Domain, Column | None]:
    """The columns that the function looks at, and the one that it predicts."""
    if kind not in KINDS:
        raise PublishError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}. Name one of these.")
    if texts := [column.name for column in domain.columns if isinstance(column, Text)]:
        raise PublishError(
            f"{', '.join(texts)} is a column of texts, and functions are released of numbers and levels. Leave it out of the "
            'domain, or publish the table with method "subspace".'
        )
    if kind == "density":
        if target is not None:
            raise PublishError("a density predicts no target. Leave it out, or choose ridge, logistic or svm.")
        return domain, None
    if target is None:
        raise PublishError(
            f"{kind} predicts a column, and no target is named: it is one of {', '.join(domain.names)}. Name it (--target)."
        )
    if target not in domain.names:
        raise PublishError(
            f"{kind} predicts a column, and {target!r} is none of {', '.join(domain.names)}. Name one of these."
        )
    if len(domain) < 2:
        raise PublishError(f"{target} is the only column, and {kind} predicts it from others. Add a column.")
    return Domain(tuple(each for each in domain.columns if each.name != target)), domain[target]


def _form(kind: str, target: Column | None, regularisation: float | None, n_rows: int) -> FunctionForm:
    if kind != "density" and regularisation is None:
        regularisation = n_rows ** (-1 / 3 if kind == "ridge" else -1 / 2)  # of ridge the noise grows as λ^(−3/2)
    try:
        return FunctionForm(kind=kind, target=target, regularisation=regularisation)
    except ValueError as error:
        raise PublishError(str(error)) from None


def kernel_of_function(kind: str, kernel: Kernel | str | None, inputs: Domain, n_rows: int) -> Kernel:
    """The kernel asked for or the kind's own, from public facts alone; PublishError or DomainError if there is none."""
    if kernel is not None:
        chosen = kernel_from_spec(kernel, inputs)
        return normalised(chosen, inputs) if kind == "density" and isinstance(chosen, Gaussian) else chosen
    if kind != "density" and any(isinstance(column, Categorical) for column in inputs.columns):
        return table_kernel(inputs)
    if kind == "density":
        _check_numbers(inputs)
        # their §4.1 prints the bandwidth N^(−1/(1+4d)); the rate they cite needs N^(−1/(4+d)) (Scott 1992)
        share = 0.25 * n_rows ** (-1 / (4 + len(inputs)))
        scales = [share * (high - low) for low, high in _ranges(inputs)]
        return normalised(_product_of_gaussians(scales), inputs)
    return _product_of_gaussians([0.2 * (high - low) for low, high in _ranges(inputs)])


def _ranges(inputs: Domain) -> list[tuple[float, float]]:
    """Lowest and highest encoded value of each column of numbers."""
    return [column.bounds for column in inputs.columns if isinstance(column, Number)]


def _check_numbers(inputs: Domain) -> None:
    unfit = [column.name for column in inputs.columns if not isinstance(column, Number) or column.missing]
    if unfit:
        raise PublishError(
            f"a density is one of numbers, and {', '.join(unfit)} have levels or missing cells. Leave these columns out of "
            'the domain, or name a kernel such as "table": its mean is released then.'
        )


def _product_of_gaussians(lengthscales: list[float]) -> Kernel:
    if len(set(lengthscales)) == 1:
        return Gaussian(lengthscales[0])
    return Product(factors=tuple(OnColumns(Gaussian(scale), (j,)) for j, scale in enumerate(lengthscales)))


def normalised(kernel: Kernel, inputs: Domain) -> Kernel:
    """A Gaussian kernel, or a product of one for each column, times what makes it a density in encoded units."""
    _check_numbers(inputs)
    if isinstance(kernel, Gaussian):
        scales = [kernel.lengthscale] * len(inputs)
    else:
        assert isinstance(kernel, Product)
        scales = [factor.kernel.lengthscale for factor in kernel.factors]  # type: ignore[attr-defined]
    return math.prod(1 / (math.sqrt(2 * math.pi) * scale) for scale in scales) * kernel


def _basis(kernel: Kernel, inputs: Domain, pivots: Table | None, grid: int | None) -> Pivots:
    """The pivots that are kept; PublishError if there are too many, or none will do."""
    if pivots is not None and grid is not None:
        raise PublishError("pivots and grid both say where the function is measured. Pass one of them.")
    points = public_rows(pivots, inputs) if pivots is not None else _candidate_points(kernel, inputs, grid)
    assert points is not None
    _check_pivots(len(points), kernel, inputs)
    try:
        return Pivots.fit(kernel_as_read(kernel, inputs), points)
    except PublishError:
        raise
    except (ValueError, IndexError, ArithmeticError) as error:
        raise PublishError(f"the function cannot be measured at these points: {error}") from None


def _check_pivots(count: int, kernel: Kernel, inputs: Domain) -> None:
    """PublishError, before anything is spent, if so many points are more than a reader takes."""
    if count > USUAL.pivots or count**2 * kernel_work(kernel, len(inputs)) > USUAL.pivot_work:
        raise PublishError(
            f"{count} points are too many: readers allow {USUAL.pivots}, and fewer of a kernel of many parts. Name fewer."
        )


def _candidate_points(kernel: Kernel, inputs: Domain, grid: int | None) -> Array:
    """A grid over the domain: `grid` values of each number, every level; by default about 400 points in all, or draws."""
    if grid is not None and (isinstance(grid, bool) or not isinstance(grid, int) or grid < 2):
        raise PublishError(
            f"grid must be a whole number of at least 2, got {grid!r}: values of each column. Pass e.g. 20."
        )
    numbers = sum(isinstance(column, Number) for column in inputs.columns)
    levels = math.prod(len(column.levels) for column in inputs.columns if isinstance(column, Categorical))
    size = grid or int((_PIVOTS / levels) ** (1 / max(1, numbers)))
    if size < 5 and grid is None and numbers:
        return inputs.draw(_PIVOTS, public_generator("pivots", kernel, inputs, _PIVOTS))
    if levels * size**numbers > USUAL.pivots:
        raise PublishError(
            f"a grid of {size} values has {levels * size**numbers:,} points, and readers allow {USUAL.pivots}. Pass fewer."
        )
    values = [_values(column, size) for column in inputs.columns]
    return np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(inputs))


def _values(column: Column, size: int) -> Array:
    if isinstance(column, Number):
        return np.unique(column.rounded(np.linspace(*column.bounds, size)))
    assert isinstance(column, Categorical)
    return np.arange(len(column.levels), dtype=float)


def _measured(
    rows: PrivateTable, domain: Domain, form: FunctionForm, basis: Pivots, mechanism: Noise | RehearsalNoise,
    *, n_rows: int, workers: int, **door: Any,
) -> NoisyCoordinates:  # fmt: skip
    """Through the one door or the other: a density is a mean, a machine is not."""
    if form.target is not None:
        place = domain.position(form.target.name)
        return private_function(rows.encoded(domain), form, basis, mechanism, target=place, n_rows=n_rows, **door)
    measurement = private_mean(rows.encoded(domain), basis, mechanism, n_rows=n_rows, workers=workers, **door)
    return NoisyCoordinates(measurement.noisy_sum, measurement.noise_scale / form.unit(basis, n_rows))


def _function(
    form: FunctionForm, inputs: Domain, basis: Pivots, noisy: NoisyCoordinates, mechanism: Noise | RehearsalNoise,
    size: PopulationSize, *, given: bool, head: str | None,
) -> ReleasedFunction:  # fmt: skip
    """The released function with its guarantee; post-processing."""
    unit, steps = form.unit(basis, size.count), form.grid_sensitivity(basis)
    statement = PrivacyStatement(
        epsilon=mechanism.epsilon, delta=mechanism.delta, neighbouring=size.neighbouring, mechanism=mechanism.name,
        sensitivity=steps * unit, noise_scale=noisy.grid_scale * unit, calibration=mechanism.calibration,
        rho=zcdp_rho(mechanism.name, noise_multiplier=noisy.grid_scale / steps), n_rows=size.count,
        public_points=basis.dimension if given else 0, taken_as_public=_taken_as_public(form, given=given),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
        ledger_head=head,
    )  # fmt: skip
    return function_of(form=form, domain=inputs, basis=basis, noisy_sum=noisy.noisy_sum, statement=statement)


def _taken_as_public(form: FunctionForm, *, given: bool) -> tuple[str, ...]:
    """What a function takes as public, in words; given: whether points were given as public rows."""
    machine = "" if form.target is None else f", the target {form.target.name} and the regularisation"
    pivots = (
        "given as public; a person whose row is one of them gets no protection for it" if given else "of the domain"
    )
    return (
        "the number of rows N and the names of the columns",
        "the domain: kinds, bounds, levels, scales, defaults, edges and atoms",
        f"the kernel and its lengthscales{machine}",
        f"the points at which the function is measured, {pivots}",
    )


__all__ = ["kernel_of_function", "normalised", "publish_function"]
