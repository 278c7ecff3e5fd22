"""kmeanalyst: analyse differentially private releases of kernel mean embeddings.

    import kmeanalyst as ka
    release = ka.read_release("adult.kme")
    release.mean("age")
    ka.mmd_test(release, my_sample)

This package never sees private rows; `release_side` is the curator's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kmeanalyst import kernels, plots
    from kmeanalyst.inference.compare.comparison import Comparison, compare
    from kmeanalyst.inference.compare.independence import independence_test
    from kmeanalyst.inference.estimate.estimate import Estimate, Estimates
    from kmeanalyst.inference.questions.association import Association, associations
    from kmeanalyst.inference.questions.conditional import ConditionalLaw
    from kmeanalyst.inference.questions.moments import MatrixEstimate
    from kmeanalyst.inference.questions.regression import RegressionEstimate
    from kmeanalyst.inference.questions.tables import GroupBy
    from kmeanalyst.inference.two_sample.mmd_test import mmd, mmd_squared, mmd_test
    from kmeanalyst.inference.two_sample.result import TestResult
    from kmeanalyst.inference.variables.boundedness import UnboundedWeights
    from kmeanalyst.inference.variables.pushforward import pushforward
    from kmeanalyst.inference.variables.random_variable import RandomVariable
    from kmeanalyst.kernels import KernelMean, median_lengthscale
    from kmeanalyst.learning.column_law.embedding_models import fit_embedding
    from kmeanalyst.learning.scoring.calibration import calibration, expected_calibration_error
    from kmeanalyst.learning.scoring.evaluation import score
    from kmeanalyst.learning.scoring.importance import feature_importance
    from kmeanalyst.learning.training.pipeline import TrainedPipeline, read_model, write_model
    from kmeanalyst.learning.training.refits import refit
    from kmeanalyst.learning.training.training import fit
    from kmeanalyst.learning.weights.weight_support import WeightSupport, weight_support
    from kmeanalyst.release import Release, from_frame, read_release
    from kmeanalyst.releases.domain.column import DomainError
    from kmeanalyst.releases.domain.cyclic_column import Cyclic
    from kmeanalyst.releases.domain.domain import Domain, read_domain
    from kmeanalyst.releases.domain.levels import Boolean, Categorical, Ordinal
    from kmeanalyst.releases.domain.numbers import Date, Integer, Real
    from kmeanalyst.releases.domain.text_column import Text
    from kmeanalyst.releases.file import FileRefused, read_function, validate_release, write_function
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.releases.statement import PrivacyStatement
    from kmeanalyst.representation.points.thinning import thin
    from kmeanalyst.representation.shrinkage import shrunk_mean, shrunk_vector

_HOMES = {
    "kernels": "kmeanalyst.kernels",
    "plots": "kmeanalyst.plots",
    "Association": "kmeanalyst.inference.questions.association",
    "associations": "kmeanalyst.inference.questions.association",
    "KernelMean": "kmeanalyst.kernels",
    "median_lengthscale": "kmeanalyst.kernels",
    "Boolean": "kmeanalyst.releases.domain.levels",
    "Categorical": "kmeanalyst.releases.domain.levels",
    "Cyclic": "kmeanalyst.releases.domain.cyclic_column",
    "Date": "kmeanalyst.releases.domain.numbers",
    "Integer": "kmeanalyst.releases.domain.numbers",
    "Ordinal": "kmeanalyst.releases.domain.levels",
    "Real": "kmeanalyst.releases.domain.numbers",
    "Text": "kmeanalyst.releases.domain.text_column",
    "Domain": "kmeanalyst.releases.domain.domain",
    "DomainError": "kmeanalyst.releases.domain.column",
    "read_domain": "kmeanalyst.releases.domain.domain",
    "FileRefused": "kmeanalyst.releases.file",
    "read_function": "kmeanalyst.releases.file",
    "read_release": "kmeanalyst.release",
    "validate_release": "kmeanalyst.releases.file",
    "Release": "kmeanalyst.release",
    "ReleasedFunction": "kmeanalyst.releases.function",
    "from_frame": "kmeanalyst.release",
    "PrivacyStatement": "kmeanalyst.releases.statement",
    "ConditionalLaw": "kmeanalyst.inference.questions.conditional",
    "Estimate": "kmeanalyst.inference.estimate.estimate",
    "Estimates": "kmeanalyst.inference.estimate.estimate",
    "GroupBy": "kmeanalyst.inference.questions.tables",
    "MatrixEstimate": "kmeanalyst.inference.questions.moments",
    "RegressionEstimate": "kmeanalyst.inference.questions.regression",
    "TestResult": "kmeanalyst.inference.two_sample.result",
    "Comparison": "kmeanalyst.inference.compare.comparison",
    "compare": "kmeanalyst.inference.compare.comparison",
    "independence_test": "kmeanalyst.inference.compare.independence",
    "pushforward": "kmeanalyst.inference.variables.pushforward",
    "RandomVariable": "kmeanalyst.inference.variables.random_variable",
    "UnboundedWeights": "kmeanalyst.inference.variables.boundedness",
    "mmd": "kmeanalyst.inference.two_sample.mmd_test",
    "mmd_squared": "kmeanalyst.inference.two_sample.mmd_test",
    "mmd_test": "kmeanalyst.inference.two_sample.mmd_test",
    "shrunk_mean": "kmeanalyst.representation.shrinkage",
    "shrunk_vector": "kmeanalyst.representation.shrinkage",
    "thin": "kmeanalyst.representation.points.thinning",
    "TrainedPipeline": "kmeanalyst.learning.training.pipeline",
    "WeightSupport": "kmeanalyst.learning.weights.weight_support",
    "calibration": "kmeanalyst.learning.scoring.calibration",
    "feature_importance": "kmeanalyst.learning.scoring.importance",
    "expected_calibration_error": "kmeanalyst.learning.scoring.calibration",
    "fit": "kmeanalyst.learning.training.training",
    "fit_embedding": "kmeanalyst.learning.column_law.embedding_models",
    "read_model": "kmeanalyst.learning.training.pipeline",
    "refit": "kmeanalyst.learning.training.refits",
    "score": "kmeanalyst.learning.scoring.evaluation",
    "weight_support": "kmeanalyst.learning.weights.weight_support",
    "write_function": "kmeanalyst.releases.file",
    "write_model": "kmeanalyst.learning.training.pipeline",
}
__version__ = "0.1.0"
__all__ = [
    "Association", "Boolean", "Categorical", "Comparison", "ConditionalLaw", "Cyclic", "Date", "Domain", "DomainError", "Estimate",
    "Estimates", "FileRefused", "GroupBy", "Integer", "KernelMean", "MatrixEstimate", "Ordinal", "PrivacyStatement",
    "RandomVariable", "Real", "RegressionEstimate", "Release", "ReleasedFunction", "TestResult", "Text",
    "TrainedPipeline", "UnboundedWeights", "WeightSupport", "associations", "calibration", "compare", "expected_calibration_error",
    "feature_importance", "fit", "fit_embedding", "from_frame", "independence_test", "kernels", "median_lengthscale",
    "mmd", "mmd_squared", "mmd_test", "plots", "pushforward", "read_domain", "read_function", "read_model", "read_release",
    "refit", "score", "shrunk_mean", "shrunk_vector", "thin", "validate_release", "weight_support", "write_function",
    "write_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import kmeanalyst` and `--help` stay quick."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kmeanalyst' has no attribute {name!r}")
    module = import_module(_HOMES[name])
    value = module if name in ("kernels", "plots") else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
