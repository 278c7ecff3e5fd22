"""From a measurement to rows, by a generator trained on it (DP-MERF; Harder, Adamczewski & Park 2021).

A network turns noise and a class into soft rows (`soft_rows`): chances of levels, numbers within their bounds. It is
trained by Adam to make ‖E φ − y‖² small, y the noisy mean: no private row is seen and no privacy spent. Where the
kernel crosses everything with a label, the shares of the classes are read off the measurement of the label itself, so
that they need no second budget, and rare classes are as many rows as they should be.

PyTorch (the extra `generator`) is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmeanalyst.kernels import Kernel, Margins, OnColumns, Product, Scaled, Sum
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.composed import ColumnFeatures, Concatenation, ScaledFeatures, margins_in
from kmeanalyst.kernels.margins import MarginFeatures
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.measurement import Measurement
from kmeanalyst.representation.generator.soft_rows import (
    Choices,
    ExpectedFeatures,
    SoftRows,
    Tensor,
    choices_of,
    expected_features,
)
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.weights.convex_fit import project_to_simplex

_STEPS = 1500
_BATCH = 400  # soft rows of one step
_NOISE = 16  # inputs of the generator that are drawn
_WIDTH = 256  # of its two hidden layers
_RATE = 0.005  # of Adam, falling to nothing along half a cosine
_EVEN = 0.5  # of a batch: shared out evenly among classes, the rest by their shares
_KINDS = 40  # of rows in a class: standard normal priors on the logits of so many keep a generator from fitting noise
_SEED = 0


def check_torch() -> None:
    """ImportError with the mend, if PyTorch is not there."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError(
            "the method generator trains a network with PyTorch, which is not installed. "
            "Install it with pip install 'kmeanalyst[generator]', or name another method."
        ) from None


def check_kernel(kernel: Kernel, n_columns: int) -> None:
    """ValueError unless features of drawn rows have expectations in closed form: factors look at different columns."""
    if isinstance(kernel, Margins) and kernel.shares[4]:
        raise ValueError(
            "a generator's rows are chances of cells, and finer tables of margins look within them. Leave them out of the "
            "kernel (share 0), or let the domain make it."
        )
    if isinstance(kernel, Scaled | OnColumns):
        check_kernel(kernel.kernel, n_columns)
    elif isinstance(kernel, Sum):
        for part in kernel.parts:
            check_kernel(part, n_columns)
    elif isinstance(kernel, Product) and next(margins_in(kernel), None) is not None:
        looked_at = [range(n_columns) if part.columns is None else part.columns for part in kernel.parts]
        if len(set().union(*looked_at)) < sum(map(len, looked_at)):
            raise ValueError(
                "factors of a generator's kernel must look at different columns: the expected product would not be that "
                "of the expectations. Place each on columns of its own."
            )
        for part in kernel.parts:
            check_kernel(part, n_columns)


def generated_rows(
    measurement: Measurement, domain: Domain, *, n_points: int, progress: Progress | None = None
) -> Array:
    """n_points encoded rows (n, d), of equal weight, whose mean feature is near the measured one.

    The same measurement gives the same rows on one machine with one number of threads: the seed is fixed.
    """
    check_torch()
    import torch

    report = progress or silent
    kernel = measurement.feature_map.kernel
    choices = choices_of(kernel, domain)
    label = label_of(kernel)
    shares = np.ones(1) if label is None else class_shares(measurement, label, len(choices[label]))
    with _seeded(torch):
        task = _Task(choices, label, shares, expected_features(measurement.feature_map, choices))
        network = _trained(task, measurement, report)
        return _drawn(task, network, n_points)


@contextmanager
def _seeded(torch: Any) -> Iterator[None]:
    """Torch's random numbers from a fixed seed, and afterwards as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        yield


# ---------------------------------------------------------------------- the label


def label_of(kernel: Kernel, columns: tuple[int, ...] | None = None) -> int | None:
    """The column whose cells a kernel crosses all else with: one column's margins as a factor, or the margins' target."""
    if isinstance(kernel, Margins):
        found = kernel.target if kernel.target >= 0 else None
        return found if found is None or columns is None else columns[found]
    if isinstance(kernel, OnColumns):
        return label_of(kernel.kernel, tuple(int(j) if columns is None else columns[int(j)] for j in kernel.on))
    if isinstance(kernel, Scaled):
        return label_of(kernel.kernel, columns)
    if isinstance(kernel, Product) and next(margins_in(kernel), None) is not None:
        for factor in kernel.factors:
            if isinstance(factor, OnColumns) and isinstance(factor.kernel, Margins) and len(factor.on) == 1:
                return int(factor.on[0]) if columns is None else columns[int(factor.on[0])]
    for part in kernel.parts if isinstance(kernel, Sum | Product) else ():
        if (found := label_of(part, columns)) is not None:
            return found
    return None


def class_shares(measurement: Measurement, label: int, n_classes: int) -> Array:
    """Shares of the classes (n_classes,), of sum 1: nearest to the label's best measured one-way table; else even."""
    found = [table for table in _one_way_tables(measurement.feature_map, label) if table[2] == n_classes]
    if not found:
        return np.full(n_classes, 1 / n_classes)
    start, height, own = max(found, key=lambda table: table[1])
    return project_to_simplex(measurement.vector[start : start + own] / height)


def _one_way_tables(features: FeatureMap, column: int, start: int = 0) -> Iterator[tuple[int, float, int]]:
    """(first feature, height, cells) of each one-way table of a column that is measured."""
    if isinstance(features, MarginFeatures):
        for group in features.groups:
            if group.kind in ("one-way", "target") and (column,) in group.tables:
                first = int(group.starts[group.tables.index((column,))])
                yield start + first, group.height, group.sizes[column]
    elif isinstance(features, ColumnFeatures):
        on = [int(j) for j in features.kernel.on]
        if column in on:
            yield from _one_way_tables(features.map, on.index(column), start)
    elif isinstance(features, ScaledFeatures):
        root = float(np.sqrt(features.kernel.factor))
        for first, height, cells in _one_way_tables(features.map, column, start):
            yield first, root * height, cells
    elif isinstance(features, Concatenation):
        for each in features.maps:
            yield from _one_way_tables(each, column, start)
            start += each.dimension


# ---------------------------------------------------------------------- training


@dataclass(frozen=True, eq=False)
class _Task:
    """What a generator is to make, and what it is judged by.

    label    the column that is given, not made; None for none.
    shares   (Y,) of its classes; one class if there is no label.
    """

    choices: tuple[Choices, ...]
    label: int | None
    shares: Array
    expected: ExpectedFeatures

    @property
    def made(self) -> list[int]:
        """The columns that the network makes."""
        return [j for j in range(len(self.choices)) if j != self.label]

    @property
    def n_logits(self) -> int:
        """Outputs of the network that are logits: of choices, where there are several."""
        return sum(len(self.choices[j]) for j in self.made if len(self.choices[j]) > 1)

    @property
    def width(self) -> int:
        """Outputs of the network: logits, and free numbers after them."""
        return self.n_logits + sum(self.choices[j].free for j in self.made)

    def batch(self, size: int) -> tuple[Array, Array]:
        """Classes (B,) of the rows of a batch, and their weights (B,), which give each class its share."""
        Y = len(self.shares)
        present = self.shares > 0
        wanted = size * (_EVEN * present / present.sum() + (1 - _EVEN) * self.shares)
        counts = np.where(present, np.maximum(np.rint(wanted), 2), 0).astype(int)  # batch norm needs two rows
        classes = np.repeat(np.arange(Y), counts)
        return classes, (self.shares / np.maximum(counts, 1))[classes]

    def soft(self, outputs: Tensor, classes: Tensor) -> SoftRows:
        """Soft rows from the network's outputs (B, width)."""
        import torch

        chances: list[Tensor] = [None] * len(self.choices)
        numbers = outputs.new_zeros((len(outputs), len(self.choices)))
        free, at = [], 0
        for j in self.made:
            size = len(self.choices[j])
            if size > 1:
                chances[j] = torch.softmax(outputs[:, at : at + size], dim=1)
                at += size
            else:
                chances[j] = outputs.new_ones((len(outputs), 1))
            if self.choices[j].free:
                free.append(j)
        if free:
            numbers[:, free] = torch.tanh(outputs[:, at:])
        if self.label is not None:
            chances[self.label] = torch.nn.functional.one_hot(classes, len(self.shares)).to(outputs.dtype)
        return SoftRows(chances, numbers)


def _network(task: _Task) -> Any:
    from torch import nn

    inputs = _NOISE + len(task.shares)
    return nn.Sequential(
        nn.Linear(inputs, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH),
        nn.ReLU(), nn.Linear(_WIDTH, max(1, task.width)),
    )  # fmt: skip


def _outputs(task: _Task, network: Any, classes: Tensor) -> Tensor:
    """The network's outputs (B, width) for these classes, from fresh noise."""
    import torch

    label = torch.nn.functional.one_hot(classes, len(task.shares)).to(torch.float32)
    return network(torch.cat([torch.randn(len(classes), _NOISE), label], dim=1))


def _trained(task: _Task, measurement: Measurement, report: Progress) -> Any:
    """The network after Adam has made ‖mean E φ − y‖² + τ² · doubt small, on fresh noise in each step."""
    import torch

    network = _network(task)
    adam = torch.optim.Adam(network.parameters(), lr=_RATE)
    target = torch.tensor(measurement.vector, dtype=torch.float32)
    classes, weights = map(torch.tensor, task.batch(_BATCH))
    weights = weights.to(torch.float32)
    for step in range(_STEPS):
        for group in adam.param_groups:
            group["lr"] = _RATE * 0.5 * (1 + np.cos(np.pi * step / _STEPS))
        outputs = _outputs(task, network, classes)
        misfit = task.expected.mean(task.soft(outputs, classes), weights) - target
        loss = (misfit**2).sum() + measurement.noise_scale**2 * _doubt(task, outputs, classes, weights)
        adam.zero_grad()
        loss.backward()
        adam.step()
        report("training a generator", (step + 1) / _STEPS)
    return network


def _doubt(task: _Task, outputs: Tensor, classes: Tensor, weights: Tensor) -> Tensor:
    """-2 log prior: standard normal logits of _KINDS rows about their class's, and of classes about the whole's.

    With the misfit in units of the noise it makes -2 log posterior: the more noise, the plainer the rows.
    """
    import torch

    logits = outputs[:, : task.n_logits]
    label = torch.nn.functional.one_hot(classes, len(task.shares)).to(logits.dtype)
    counts = label.sum(dim=0)
    means = (label / counts.clamp(min=1)).T @ logits
    within = weights @ ((logits - means[classes]) ** 2)
    between = counts.clamp(max=1) @ ((means - weights @ logits) ** 2)
    return _KINDS * within.sum() + between.sum()


# ---------------------------------------------------------------------- rows


def _drawn(task: _Task, network: Any, n: int) -> Array:
    """n encoded rows: classes by their shares, cells by their chances, from batches as the network was trained on."""
    import torch

    rng = np.random.default_rng(_SEED)
    wanted = _counts(task.shares, n)
    classes_of, _ = task.batch(_BATCH)
    classes = torch.tensor(classes_of)
    pieces: list[list[Array]] = [[] for _ in wanted]
    with torch.no_grad():
        while any(sum(map(len, found)) < count for found, count in zip(pieces, wanted, strict=True)):
            rows = _hard(task, task.soft(_outputs(task, network, classes), classes), rng)
            for y in np.unique(classes_of):
                pieces[y].append(rows[classes_of == y])
    rows = np.vstack([np.vstack(found)[:count] for found, count in zip(pieces, wanted, strict=True) if count])
    return rng.permutation(rows)


def _counts(shares: Array, n: int) -> Array:
    """Whole numbers of sum n, as near to the shares as they can be: the largest remainders are rounded up."""
    exact = shares * n
    counts = np.floor(exact).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: n - counts.sum()]] += 1
    return counts


def _hard(task: _Task, soft: SoftRows, rng: np.random.Generator) -> Array:
    """Encoded rows (B, d) drawn from soft ones."""
    numbers = soft.numbers.numpy().astype(np.float64)
    columns = []
    for j, each in enumerate(task.choices):
        chances = np.cumsum(soft.chances[j].numpy().astype(np.float64), axis=1)
        drawn = rng.random((len(numbers), 1)) * chances[:, -1:]
        chosen = np.minimum((drawn >= chances).sum(axis=1), len(each) - 1)
        columns.append(each.drawn(chosen, numbers[:, j], rng))
    return np.column_stack(columns)
