"""The release of functions on one page: a private table and public choices in, a noisy function out.

As in `publish`, everything before the door (kernel, pivots, λ) follows from the domain, N and public files.
Source: Hall, Rinaldo & Wasserman 2013.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import numpy as np

from kmeanalyst.kernels import Gaussian, Kernel, OnColumns, Product
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.pivots import Pivots
from kmeanalyst.lazy import refuse_unknown, spelled_out
from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import kernel_from_spec, table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Number
from kmeanalyst.releases.file.function import write_function
from kmeanalyst.releases.file.kernel import kernel_work
from kmeanalyst.releases.file.limits import USUAL
from kmeanalyst.releases.function import KINDS, FunctionForm, ReleasedFunction, function_of
from kmeanalyst.releases.statement import PopulationSize, PrivacyStatement, software_versions, zcdp_rho
from kmeanalyst.representation.progress import Progress
from release_side.budget.spending import spending_of
from release_side.choices.choices import Account, FunctionChoices, Reading, check_one_of, chosen
from release_side.choices.options import (
    NO_PROTECTION,
    chosen_domain,
    fitting,
    kernel_as_read,
    processors,
    public_generator,
    public_rows,
    taken_as_public,
)
from release_side.choices.output_file import Output
from release_side.door.kernel_machines import plan_machine
from release_side.door.mechanism import Noise, RehearsalNoise, noise_for
from release_side.door.private_function import NoisyCoordinates, private_function
from release_side.door.private_mean import private_mean
from release_side.errors import PublishError
from release_side.private_rows.rows import PrivateSource, Table
from release_side.publishing.opening import open_checked

_PIVOTS = 400  # pivots, if the curator names neither points nor a grid


class FunctionOptions(TypedDict, total=False):
    """The options of `publish_function`: the fields of FunctionChoices, and those of every publication."""

    target: str | None
    regularisation: float | None
    kernel: Kernel | str | None
    pivots: Table | None
    grid: int | None
    calibration: str | None
    ledger: str | Path | None
    table: str | None
    uncounted: bool
    weak: bool
    n_rows: int | None
    rehearsal: int | None
    workers: int | None
    output: str | Path | None
    force: bool
    progress: Progress | None


@spelled_out(FunctionOptions, uncounted=False, weak=False, force=False)
def publish_function(
    private: PrivateSource, domain: Domain | str | Path | None = None, *, kind: str, epsilon: float, delta: float,
    **options: Unpack[FunctionOptions],
) -> ReleasedFunction:  # fmt: skip
    """Release a function of a private table, once, with (epsilon, delta)-differential privacy.

    private, n_rows as in `publish`.
    kind            "density": the kernel density estimate, or the mean of another kernel. "ridge", "logistic", "svm":
                    the function of the other columns that predicts the target, the minimiser of mean loss + λ‖f‖².
    target          the column that ridge (a number), logistic and svm (two levels) predict.
    regularisation  λ of these three; by default N^(−1/2), or N^(−1/3) for ridge.
    kernel          Kernel or its text, on all columns but the target. The default of a density is a product of normal
                    densities, whose width follows from N. That of the other kinds is a Gaussian with a fifth of each
                    number's range as lengthscale, or the table kernel where there are levels.
    pivots, grid    public points at which the function is measured, or the number of values of each number in a grid (of
                    levels all). By default a grid of about 400 points, or 400 points drawn from the domain.
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
    refuse_unknown(publish_function, options)
    domain_path, domain = domain, chosen_domain(domain)
    choices = chosen(FunctionChoices, options | {"kind": kind})
    account, reading = chosen(Account, options), chosen(Reading, options)
    file = Output(options.get("output"), options.get("force", False))
    mechanism = _noise(choices, epsilon, delta, account.rehearsal)
    inputs = _inputs(choices, domain)
    values = account, reading, file
    rows = open_checked(private, domain, values, points=choices.pivots, columns=inputs, others=(domain_path,))
    size = PopulationSize(rows.count())
    if size.count < 1:
        raise PublishError("the table has no rows: nothing can be released. Name a table with at least one row.")
    form = _form(choices, domain, size)
    basis = _basis(choices, kernel_of_function(choices, inputs, size), inputs)
    if form.target is not None:
        plan_machine(form, basis, size.count)  # a machine that cannot be solved is refused before anything is counted
    spending = spending_of(account, mechanism, size, f"function: {kind}", file.path)
    door: dict[str, Any] = {"n_rows": size.count, "record_spend": spending.record, "progress": options.get("progress")}
    with file.reserved(), spending.note_budget_spent():
        if form.target is None:
            measurement = private_mean(rows.encoded(domain), basis, mechanism, workers=reading.workers or processors(), **door)
            noisy = NoisyCoordinates(measurement.noisy_sum, measurement.noise_scale / form.unit(basis, size.count))
        else:
            index = domain.position(form.target.name)
            noisy = private_function(rows.encoded(domain), form, basis, mechanism, target=index, **door)
        statement = _statement(choices, form, basis, noisy, mechanism, size, spending.head)
        function = function_of(form=form, domain=inputs, basis=basis, noisy_sum=noisy.noisy_sum, statement=statement)
        spending.write(lambda path: write_function(function, path))
    spending.published()
    return function


def _noise(choices: FunctionChoices, epsilon: float, delta: float, rehearsal: int | None) -> Noise | RehearsalNoise:
    """Gaussian noise; PublishError for δ = 0, which only Laplace noise gives.

    Values between pivots are answered from the joint distribution of a Gaussian process. Laplace noise has no such
    process: its joint distribution depends on the basis.
    """
    if isinstance(delta, int | float) and delta == 0:
        raise PublishError(
            "delta = 0 asks for pure differential privacy, and a function is released with a Gaussian process, which "
            "cannot give it. Pass a small delta, such as 1e-6 (well below 1/N), or publish the table with Laplace noise."
        )
    return noise_for("gaussian", epsilon, delta, calibration=choices.calibration, rehearsal=rehearsal)


def _inputs(choices: FunctionChoices, domain: Domain) -> Domain:
    kind, target = choices.kind, choices.target
    check_one_of("kind", kind, KINDS)
    if texts := [column.name for column in domain.columns if column.is_text]:
        raise PublishError(
            f"{', '.join(texts)} is a column of texts, and functions are released of numbers and levels. Leave it out of the "
            'domain, or publish the table with method "subspace".'
        )
    if kind == "density":
        if target is not None:
            raise PublishError("a density predicts no target. Leave it out, or choose ridge, logistic or svm.")
        return replace(domain, rules=())
    if target not in domain.names:
        problem = "no target is named" if target is None else f"{target!r} is not a column"
        raise PublishError(
            f"{kind} predicts a column, and {problem}: the columns are {', '.join(domain.names)}. Name it (--target)."
        )
    if len(domain) < 2:
        raise PublishError(f"{target} is the only column, and {kind} predicts it from others. Add a column.")
    return Domain(tuple(column for column in domain.columns if column.name != target))


def _form(choices: FunctionChoices, domain: Domain, size: PopulationSize) -> FunctionForm:
    kind, regularisation = choices.kind, choices.regularisation
    if kind != "density" and regularisation is None:
        regularisation = size.count ** (-1 / 3 if kind == "ridge" else -1 / 2)  # of ridge the noise grows as λ^(−3/2)
    target = None if choices.target is None else domain[choices.target]
    try:
        return FunctionForm(kind=kind, target=target, regularisation=regularisation)
    except ValueError as error:
        raise PublishError(str(error)) from None


def kernel_of_function(choices: FunctionChoices, inputs: Domain, size: PopulationSize) -> Kernel:
    """The kernel asked for or the kind's own, from public facts alone; PublishError or DomainError if there is none."""
    is_density = choices.kind == "density"
    if choices.kernel is not None:
        kernel = kernel_as_read(kernel_from_spec(choices.kernel, inputs), inputs)
        return _normalised(kernel, inputs) if is_density and isinstance(kernel, Gaussian) else kernel
    if is_density:
        _check_numbers(inputs)
        # their §4.1 prints the bandwidth N^(−1/(1+4d)); the rate they cite needs N^(−1/(4+d)) (Scott 1992)
        share = 0.25 * size.count ** (-1 / (4 + len(inputs)))
        return _normalised(_product_of_gaussians(share, inputs), inputs)
    if any(column.has_levels for column in inputs.columns):
        return table_kernel(inputs)
    return _product_of_gaussians(0.2, inputs)


def _check_numbers(inputs: Domain) -> None:
    unfit = [column.name for column in inputs.columns if not column.is_number or column.missing]
    if unfit:
        raise PublishError(
            f"a density needs numbers, and {', '.join(unfit)} have levels or missing cells. Leave these columns out of "
            'the domain, or name a kernel such as "table": its mean is released then.'
        )


def _product_of_gaussians(share: float, inputs: Domain) -> Kernel:
    """A Gaussian for each column, whose lengthscale is this share of the column's range; one for all if they agree."""
    bounds = [column.bounds for column in inputs.columns if isinstance(column, Number)]
    lengthscales = [share * (high - low) for low, high in bounds]
    if len(set(lengthscales)) == 1:
        return Gaussian(lengthscales[0])
    return Product(factors=tuple(OnColumns(Gaussian(scale), (j,)) for j, scale in enumerate(lengthscales)))


def _normalised(kernel: Kernel, inputs: Domain) -> Kernel:
    """A Gaussian kernel, or a product of one for each column, times the factor that makes it a density in encoded units."""
    _check_numbers(inputs)
    if isinstance(kernel, Gaussian):
        scales = [kernel.lengthscale] * len(inputs)
    else:
        assert isinstance(kernel, Product)
        scales = [factor.kernel.lengthscale for factor in kernel.factors]  # type: ignore[attr-defined]
    return math.prod(1 / (math.sqrt(2 * math.pi) * scale) for scale in scales) * kernel


def _basis(choices: FunctionChoices, kernel: Kernel, inputs: Domain) -> Pivots:
    """The pivots that are kept; PublishError, before anything is spent, if none can be or readers allow fewer."""
    points = public_rows(choices.pivots, inputs)
    if points is None:
        points = _candidate_points(kernel, inputs, choices.grid)
    count = len(points)
    if count > USUAL.pivots or count**2 * kernel_work(kernel, len(inputs)) > USUAL.pivot_work:
        raise PublishError(
            f"{count} points are too many: readers allow {USUAL.pivots}, and fewer of a kernel of many parts. Name fewer."
        )
    with fitting("the function cannot be measured at these points"):
        return Pivots.fit(kernel_as_read(kernel, inputs), points)


def _candidate_points(kernel: Kernel, inputs: Domain, grid: int | None) -> Array:
    """A grid over the domain: `grid` values of each number, every level; by default about 400 points in all, or draws."""
    numbers = sum(column.is_number for column in inputs.columns)
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


def _statement(
    choices: FunctionChoices, form: FunctionForm, basis: Pivots, noisy: NoisyCoordinates,
    mechanism: Noise | RehearsalNoise, size: PopulationSize, ledger_head: str | None,
) -> PrivacyStatement:  # fmt: skip
    unit, steps = form.unit(basis, size.count), form.grid_sensitivity(basis)
    machine = "" if form.target is None else f", the target {form.target.name} and the regularisation"
    origin = "of the domain" if choices.pivots is None else f"given as public; {NO_PROTECTION}"
    return PrivacyStatement(
        epsilon=mechanism.epsilon, delta=mechanism.delta, neighbouring=size.neighbouring, mechanism=mechanism.name,
        sensitivity=steps * unit, noise_scale=noisy.grid_scale * unit, calibration=mechanism.calibration,
        rho=zcdp_rho(mechanism.name, noise_multiplier=noisy.grid_scale / steps), n_rows=size.count,
        public_points=0 if choices.pivots is None else basis.dimension,
        taken_as_public=taken_as_public(
            size, f"the kernel and its lengthscales{machine}", f"the points at which the function is measured, {origin}"
        ),
        versions=software_versions("kmeanalyst", "numpy", "scipy", "pandas", "opendp", "dp-accounting"),
        ledger_head=ledger_head,
    )  # fmt: skip
