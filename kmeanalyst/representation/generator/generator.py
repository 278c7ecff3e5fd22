"""From a measurement to rows, by a generator trained on it (DP-MERF; Harder, Adamczewski & Park 2021).

A network turns noise and a class into soft rows (`soft_rows`); Adam trains it to minimise ‖E φ − y‖², y the noisy mean. Class
shares are read off the measurement of the label itself. PyTorch (the extra `generator`) is imported only when needed.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from kmeanalyst.representation.generator import soft_rows
from kmeanalyst.representation.progress import Progress, silent
from kmeanalyst.representation.wanted import FULL, Effort
from kmeanalyst.representation.weights.convex_fit import project_to_simplex

_STEPS = 1500
_BATCH = 400  # soft rows of one step
_NOISE = 16  # random inputs of the network
_WIDTH = 256  # width of the two hidden layers
_RATE = 0.005  # first learning rate of Adam; it falls to zero along half a cosine
_EVEN = 0.5  # share of a batch divided evenly among classes; the rest by their shares
_PRIOR_ROWS = 40  # weight of the normal prior on the logits, in rows: keeps the network from fitting noise
_SEED = 0


def check_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ImportError(
            "the method generator trains a network with PyTorch, which is not installed. "
            "Install it with pip install 'kmeanalyst[generator]', or name another method."
        ) from None


def check_kernel(kernel: Kernel, n_columns: int) -> None:
    """ValueError unless expected features are in closed form: factors must depend on different columns."""
    if isinstance(kernel, Margins) and kernel.shares[2]:
        raise ValueError(
            "a generator makes probabilities of cells, and finer tables of margins look within them. Leave them out of the "
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
                "factors of a generator's kernel must look at different columns: otherwise the expected product is not the "
                "product of the expectations. Place each on columns of its own."
            )
        for part in kernel.parts:
            check_kernel(part, n_columns)


def generated_rows(
    measurement: Measurement, domain: Domain, *, n_points: int, effort: Effort = FULL, progress: Progress = silent
) -> Array:
    """n_points encoded rows (n, d), of equal weight, whose mean feature is near the measured one.

    The same measurement gives the same rows on one machine with one number of threads: the seed is fixed.
    """
    check_torch()
    import torch

    kernel = measurement.feature_map.kernel
    choices = soft_rows.choices_of(kernel, domain)
    label = label_of(kernel)
    shares = np.ones(1) if label is None else class_shares(measurement, label, len(choices[label]))
    task = _Task(choices, label, shares, soft_rows.expected_features(measurement.feature_map, choices))
    with torch.random.fork_rng(devices=[]):  # leaves the user's random state as it was
        torch.manual_seed(_SEED)
        network = _train(task, measurement, effort.of(_STEPS), progress)
        return _draw(task, network, n_points)


def label_of(kernel: Kernel, columns: tuple[int, ...] | None = None) -> int | None:
    """The column that a kernel crosses with everything else: one column's margins as a factor."""

    def column(j: Any) -> int:
        return int(j) if columns is None else columns[int(j)]

    if isinstance(kernel, OnColumns):
        return label_of(kernel.kernel, tuple(map(column, kernel.on)))
    if isinstance(kernel, Scaled):
        return label_of(kernel.kernel, columns)
    if isinstance(kernel, Product) and next(margins_in(kernel), None) is not None:
        for factor in kernel.factors:
            if isinstance(factor, OnColumns) and isinstance(factor.kernel, Margins) and len(factor.on) == 1:
                return column(factor.on[0])
    parts = kernel.parts if isinstance(kernel, Sum | Product) else ()
    return next((label for part in parts if (label := label_of(part, columns)) is not None), None)


def class_shares(measurement: Measurement, label: int, n_classes: int) -> Array:
    """Shares of the classes (n_classes,), of sum 1: nearest to the label's most precise one-way table; even without one."""
    found = [table for table in _one_way_tables(measurement.feature_map, label) if table[2] == n_classes]
    if not found:
        return np.full(n_classes, 1 / n_classes)
    start, height, own = max(found, key=lambda table: table[1])
    return project_to_simplex(measurement.vector[start : start + own] / height)


def _one_way_tables(features: FeatureMap, column: int, start: int = 0) -> Iterator[tuple[int, float, int]]:
    """(first feature, height, cells) of each measured one-way table of a column."""
    if isinstance(features, MarginFeatures):
        for group in features.groups:
            if group.kind == "one-way" and (column,) in group.tables:
                first = int(group.starts[group.tables.index((column,))])
                yield start + first, group.height, group.sizes[column]
    elif isinstance(features, ColumnFeatures):
        on = [int(j) for j in features.kernel.on]
        if column in on:
            yield from _one_way_tables(features.map, on.index(column), start)
    elif isinstance(features, ScaledFeatures):
        for first, height, cells in _one_way_tables(features.map, column, start):
            yield first, features.root * height, cells
    elif isinstance(features, Concatenation):
        for each in features.maps:
            yield from _one_way_tables(each, column, start)
            start += each.dimension


@dataclass(frozen=True, eq=False)
class _Task:
    """The columns that a network makes, and the expected features that it is trained on.

    label    the column that is given to the network; None for none.
    shares   (Y,) of its classes; one class if there is no label.
    """

    choices: tuple[soft_rows.Choices, ...]
    label: int | None
    shares: Array
    expected: soft_rows.ExpectedFeatures

    @property
    def made(self) -> list[int]:
        return [j for j in range(len(self.choices)) if j != self.label]

    @property
    def n_logits(self) -> int:
        return sum(len(self.choices[j]) for j in self.made if len(self.choices[j]) > 1)

    @property
    def width(self) -> int:
        return self.n_logits + sum(self.choices[j].free for j in self.made)

    def batch(self, size: int) -> tuple[Array, Array]:
        """Classes (B,) of the rows of a batch, and row weights (B,) that give each class its share."""
        present = self.shares > 0
        wanted = size * (_EVEN * present / present.sum() + (1 - _EVEN) * self.shares)
        counts = np.where(present, np.maximum(np.rint(wanted), 2), 0).astype(int)  # batch norm needs two rows
        classes = np.repeat(np.arange(len(self.shares)), counts)
        return classes, (self.shares / np.maximum(counts, 1))[classes]

    def soft(self, outputs: soft_rows.Tensor, classes: soft_rows.Tensor) -> soft_rows.SoftRows:
        import torch

        probabilities: list[soft_rows.Tensor] = [None] * len(self.choices)
        numbers = outputs.new_zeros((len(outputs), len(self.choices)))
        free, start = [], 0
        for j in self.made:
            size = len(self.choices[j])
            if size > 1:
                probabilities[j] = torch.softmax(outputs[:, start : start + size], dim=1)
                start += size
            else:
                probabilities[j] = outputs.new_ones((len(outputs), 1))
            if self.choices[j].free:
                free.append(j)
        if free:
            numbers[:, free] = torch.tanh(outputs[:, start:])
        if self.label is not None:
            probabilities[self.label] = self.one_hot(classes).to(outputs.dtype)
        return soft_rows.SoftRows(probabilities, numbers)

    def one_hot(self, classes: soft_rows.Tensor) -> soft_rows.Tensor:
        """(B, Y) indicators of the classes (B,), as float32."""
        import torch

        return torch.nn.functional.one_hot(classes, len(self.shares)).to(torch.float32)


def _network(task: _Task) -> Any:
    from torch import nn

    inputs = _NOISE + len(task.shares)
    return nn.Sequential(
        nn.Linear(inputs, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH),
        nn.ReLU(), nn.Linear(_WIDTH, max(1, task.width)),
    )  # fmt: skip


def _outputs(task: _Task, network: Any, classes: soft_rows.Tensor) -> soft_rows.Tensor:
    import torch

    return network(torch.cat([torch.randn(len(classes), _NOISE), task.one_hot(classes)], dim=1))


def _train(task: _Task, measurement: Measurement, steps: int, report: Progress) -> Any:
    import torch

    network = _network(task)
    adam = torch.optim.Adam(network.parameters(), lr=_RATE)
    target = torch.tensor(measurement.vector, dtype=torch.float32)
    classes, weights = map(torch.tensor, task.batch(_BATCH))
    weights = weights.to(torch.float32)
    for step in range(steps):
        for group in adam.param_groups:
            group["lr"] = _RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        outputs = _outputs(task, network, classes)
        misfit = task.expected.mean(task.soft(outputs, classes), weights) - target
        loss = (misfit**2).sum() + measurement.noise_scale**2 * _penalty(task, outputs, classes, weights)
        adam.zero_grad()
        loss.backward()
        adam.step()
        report("training a generator", (step + 1) / steps)
    return network


def _penalty(task: _Task, outputs: soft_rows.Tensor, classes: soft_rows.Tensor, weights: soft_rows.Tensor) -> soft_rows.Tensor:
    """-2 log prior: logits of rows are standard normal about their class mean, class means about the overall mean.

    Added to the misfit in units of the noise it gives -2 log posterior: more noise makes the rows more alike.
    """
    logits = outputs[:, : task.n_logits]
    label = task.one_hot(classes)
    counts = label.sum(dim=0)
    means = (label / counts.clamp(min=1)).T @ logits
    within = weights @ ((logits - means[classes]) ** 2)
    between = counts.clamp(max=1) @ ((means - weights @ logits) ** 2)
    return _PRIOR_ROWS * within.sum() + between.sum()


def _draw(task: _Task, network: Any, n: int) -> Array:
    """n encoded rows: classes by their shares, cells by their probabilities, in batches like those of the training."""
    import torch

    rng = np.random.default_rng(_SEED)
    exact = task.shares * n
    wanted = np.floor(exact).astype(int)
    wanted[np.argsort(wanted - exact, kind="stable")[: n - wanted.sum()]] += 1
    classes_of, _ = task.batch(_BATCH)
    classes = torch.tensor(classes_of)
    pieces: list[list[Array]] = [[] for _ in wanted]
    with torch.no_grad():
        while any(sum(map(len, found)) < count for found, count in zip(pieces, wanted, strict=True)):
            rows = _draw_cells(task, task.soft(_outputs(task, network, classes), classes), rng)
            for y in np.unique(classes_of):
                pieces[y].append(rows[classes_of == y])
    rows = np.vstack([np.vstack(found)[:count] for found, count in zip(pieces, wanted, strict=True) if count])
    return rng.permutation(rows)


def _draw_cells(task: _Task, soft: soft_rows.SoftRows, rng: np.random.Generator) -> Array:
    numbers = soft.numbers.numpy().astype(np.float64)
    columns = []
    for j, each in enumerate(task.choices):
        ends = np.cumsum(soft.probabilities[j].numpy().astype(np.float64), axis=1)
        drawn = rng.random((len(numbers), 1)) * ends[:, -1:]
        chosen = np.minimum((drawn >= ends).sum(axis=1), len(each) - 1)
        columns.append(each.draw(chosen, numbers[:, j], rng))
    return np.column_stack(columns)
