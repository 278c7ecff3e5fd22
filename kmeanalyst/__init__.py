"""kmeanalyst: analyse differentially private releases of kernel mean embeddings.

    import kmeanalyst as ka
    release = ka.read_release("adult.kme")
    release.mean("age")
    ka.mmd_test(release, my_sample)

This package never sees private rows; `release_side` is the curator's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmeanalyst.lazy import DOMAIN_HOMES, lazy_names

if TYPE_CHECKING:
    from kmeanalyst import kernels, plots
    from kmeanalyst.inference.combination import Combination, combine
    from kmeanalyst.inference.compare.comparison import Comparison, compare
    from kmeanalyst.inference.compare.independence import independence_test
    from kmeanalyst.inference.contingency.association import Association, associations
    from kmeanalyst.inference.contingency.contingency_test import ContingencyTest, contingency_test
    from kmeanalyst.inference.contingency.rates import SurvivalCurve
    from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
    from kmeanalyst.inference.questions.moments import MatrixEstimate
    from kmeanalyst.inference.questions.tables import GroupBy
    from kmeanalyst.inference.regression.result import RegressionEstimate
    from kmeanalyst.inference.two_sample.distance import mmd, mmd_squared
    from kmeanalyst.inference.two_sample.mmd_test import mmd_test
    from kmeanalyst.inference.two_sample.result import TestResult
    from kmeanalyst.inference.variables.product_distribution import UnboundedWeights
    from kmeanalyst.inference.variables.pushforward import pushforward
    from kmeanalyst.inference.variables.random_variable import RandomVariable
    from kmeanalyst.kernels import KernelMean, median_lengthscale
    from kmeanalyst.learning.scoring.evaluation import score
    from kmeanalyst.learning.training.pipeline import TrainedPipeline, read_model, write_model
    from kmeanalyst.learning.training.training import fit
    from kmeanalyst.learning.training.weight_support import WeightSupport, weight_support
    from kmeanalyst.release import Release, from_frame, read_release
    from kmeanalyst.release.measured_by_others import from_measurements
    from kmeanalyst.releases.declared_statement import DeclaredStatement
    from kmeanalyst.releases.domain.column import DomainError
    from kmeanalyst.releases.domain.domain import Domain, read_domain
    from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
    from kmeanalyst.releases.domain.noisy_tables import NoisyTable
    from kmeanalyst.releases.domain.numbers import Cyclic, Date, Integer, Real
    from kmeanalyst.releases.domain.text_column import Text
    from kmeanalyst.releases.domain.tree_column import Tree
    from kmeanalyst.releases.file import FileRefused, read_function, validate_release, write_function
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.releases.rules.rule import Rule
    from kmeanalyst.releases.statement import PrivacyStatement
    from kmeanalyst.representation.thinning import thin
    from kmeanalyst.sources.sql import sql

_HOMES: dict[str, tuple[str, ...]] = {
    "kmeanalyst.inference.combination": ("Combination", "combine"),
    "kmeanalyst.inference.compare.comparison": ("Comparison", "compare"),
    "kmeanalyst.inference.compare.independence": ("independence_test",),
    "kmeanalyst.inference.contingency.contingency_test": ("ContingencyTest", "contingency_test"),
    "kmeanalyst.inference.contingency.rates": ("SurvivalCurve",),
    "kmeanalyst.inference.estimate.estimate": ("Estimate", "Estimates"),
    "kmeanalyst.inference.contingency.association": ("Association", "associations"),
    "kmeanalyst.inference.questions.moments": ("MatrixEstimate",),
    "kmeanalyst.inference.regression.result": ("RegressionEstimate",),
    "kmeanalyst.inference.questions.tables": ("GroupBy",),
    "kmeanalyst.inference.two_sample.distance": ("mmd", "mmd_squared"),
    "kmeanalyst.inference.two_sample.mmd_test": ("mmd_test",),
    "kmeanalyst.inference.two_sample.result": ("TestResult",),
    "kmeanalyst.inference.variables.product_distribution": ("UnboundedWeights",),
    "kmeanalyst.inference.variables.pushforward": ("pushforward",),
    "kmeanalyst.inference.variables.random_variable": ("RandomVariable",),
    "kmeanalyst.kernels": ("KernelMean", "median_lengthscale"),
    "kmeanalyst.learning.scoring.evaluation": ("score",),
    "kmeanalyst.learning.training.pipeline": ("TrainedPipeline", "read_model", "write_model"),
    "kmeanalyst.learning.training.training": ("fit",),
    "kmeanalyst.learning.training.weight_support": ("WeightSupport", "weight_support"),
    "kmeanalyst.plots": (),
    "kmeanalyst.release": ("Release", "from_frame", "read_release"),
    "kmeanalyst.release.measured_by_others": ("from_measurements",),
    "kmeanalyst.releases.declared_statement": ("DeclaredStatement",),
    "kmeanalyst.releases.domain.noisy_tables": ("NoisyTable",),
    **DOMAIN_HOMES,
    "kmeanalyst.releases.file": ("FileRefused", "read_function", "validate_release", "write_function"),
    "kmeanalyst.releases.function": ("ReleasedFunction",),
    "kmeanalyst.releases.statement": ("PrivacyStatement",),
    "kmeanalyst.representation.thinning": ("thin",),
    "kmeanalyst.sources.sql": ("sql",),
}
__version__ = "0.1.0"
__all__ = [
    "Association", "Boolean", "Categorical", "Combination", "Comparison", "ContingencyTest", "Cyclic", "Date",
    "DeclaredStatement", "Domain", "DomainError", "Estimate", "Estimates", "FileRefused", "GroupBy", "Integer",
    "KernelMean", "MatrixEstimate", "NoisyTable", "Ordinal", "PrivacyStatement", "RandomVariable", "Real",
    "RegressionEstimate", "Release", "ReleasedFunction", "Rule", "SurvivalCurve", "TestResult", "Text",
    "TrainedPipeline", "Tree", "UnboundedWeights", "WeightSupport", "associations", "combine", "compare",
    "contingency_test", "fit", "from_frame", "from_measurements", "independence_test", "kernels",
    "median_lengthscale", "mmd", "mmd_squared", "mmd_test", "plots", "pushforward", "read_domain", "read_function",
    "read_model", "read_release", "score", "sql", "thin", "validate_release", "weight_support",
    "write_function", "write_model",
]  # fmt: skip
__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
