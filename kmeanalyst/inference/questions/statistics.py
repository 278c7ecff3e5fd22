"""The answers to statistics that are named as text: those of workloads, plans and comparisons with a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kmeanalyst.inference.questions.expectation import expectation
from kmeanalyst.inference.questions.moments import MatrixEstimate, corr, cov, std, var
from kmeanalyst.inference.questions.quantiles import quantile
from kmeanalyst.inference.questions.tables import table
from kmeanalyst.releases.expressions import parse
from kmeanalyst.releases.release import Condition, ReleaseData, View


def ask(
    release: ReleaseData, statistic: str, arguments: Sequence[str], *, where: Condition = None, view: View | None = None
) -> Any:
    """The answer to a statistic of expressions as texts: an Estimate, of a table a DataFrame."""
    return _ANSWERS[statistic](release, *arguments, where=where, view=view)


def _entry(matrix: Callable[..., MatrixEstimate]) -> Callable[..., Any]:
    return lambda release, a, b, **asked: matrix(release, [a, b], **asked).estimates[1]


def _table(release: ReleaseData, *columns: str, **asked: Any) -> Any:
    return table(release, *(parse(column).columns[0] for column in columns), **asked)


_ANSWERS: dict[str, Callable[..., Any]] = {
    "mean": expectation, "var": var, "std": std, "cov": _entry(cov), "corr": _entry(corr), "table": _table,
    "quantile": lambda release, a, order, **asked: quantile(release, a, float(order), **asked),
}  # fmt: skip
