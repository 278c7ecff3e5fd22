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
    from kmeanalyst.inference.association import Association, associations
    from kmeanalyst.inference.boundedness import UnboundedWeights
    from kmeanalyst.inference.comparison import Comparison, compare
    from kmeanalyst.inference.conditional_law import ConditionalLaw
    from kmeanalyst.inference.estimate import Estimates
    from kmeanalyst.inference.independence import independence_test
    from kmeanalyst.inference.moments import MatrixEstimate
    from kmeanalyst.inference.pushforward import pushforward
    from kmeanalyst.inference.random_variable import RandomVariable
    from kmeanalyst.inference.regression import RegressionEstimate
    from kmeanalyst.inference.results import Estimate, TestResult
    from kmeanalyst.inference.tabulation import GroupBy
    from kmeanalyst.inference.two_sample import mmd, mmd_squared, mmd_test
    from kmeanalyst.kernels import KernelMean, median_lengthscale
    from kmeanalyst.learning.calibration import calibration, expected_calibration_error
    from kmeanalyst.learning.embedding_models import fit_embedding
    from kmeanalyst.learning.evaluation import score
    from kmeanalyst.learning.importance import feature_importance
    from kmeanalyst.learning.model_file import read_model, write_model
    from kmeanalyst.learning.pipeline import TrainedPipeline
    from kmeanalyst.learning.refits import refit
    from kmeanalyst.learning.training import fit
    from kmeanalyst.learning.weight_support import WeightSupport, weight_support
    from kmeanalyst.releases.columns import Boolean, Categorical, Date, Integer, Ordinal, Real
    from kmeanalyst.releases.cyclic_column import Cyclic
    from kmeanalyst.releases.domain import Domain, DomainError, read_domain
    from kmeanalyst.releases.file import FileRefused, read_function, read_release, validate_release
    from kmeanalyst.releases.function import ReleasedFunction
    from kmeanalyst.releases.release import Release, from_frame
    from kmeanalyst.releases.statement import PrivacyStatement
    from kmeanalyst.releases.text_column import Text
    from kmeanalyst.representation.shrinkage import shrunk_mean, shrunk_vector
    from kmeanalyst.representation.thinning import thin

_HOMES = {
    "kernels": "kmeanalyst.kernels",
    "plots": "kmeanalyst.plots",
    "Association": "kmeanalyst.inference.association",
    "associations": "kmeanalyst.inference.association",
    "KernelMean": "kmeanalyst.kernels",
    "median_lengthscale": "kmeanalyst.kernels",
    "Boolean": "kmeanalyst.releases.columns",
    "Categorical": "kmeanalyst.releases.columns",
    "Cyclic": "kmeanalyst.releases.cyclic_column",
    "Date": "kmeanalyst.releases.columns",
    "Integer": "kmeanalyst.releases.columns",
    "Ordinal": "kmeanalyst.releases.columns",
    "Real": "kmeanalyst.releases.columns",
    "Text": "kmeanalyst.releases.text_column",
    "Domain": "kmeanalyst.releases.domain",
    "DomainError": "kmeanalyst.releases.domain",
    "read_domain": "kmeanalyst.releases.domain",
    "FileRefused": "kmeanalyst.releases.file",
    "read_function": "kmeanalyst.releases.file",
    "read_release": "kmeanalyst.releases.file",
    "validate_release": "kmeanalyst.releases.file",
    "Release": "kmeanalyst.releases.release",
    "ReleasedFunction": "kmeanalyst.releases.function",
    "from_frame": "kmeanalyst.releases.release",
    "PrivacyStatement": "kmeanalyst.releases.statement",
    "ConditionalLaw": "kmeanalyst.inference.conditional_law",
    "Estimate": "kmeanalyst.inference.results",
    "Estimates": "kmeanalyst.inference.estimate",
    "GroupBy": "kmeanalyst.inference.tabulation",
    "MatrixEstimate": "kmeanalyst.inference.moments",
    "RegressionEstimate": "kmeanalyst.inference.regression",
    "TestResult": "kmeanalyst.inference.results",
    "Comparison": "kmeanalyst.inference.comparison",
    "compare": "kmeanalyst.inference.comparison",
    "independence_test": "kmeanalyst.inference.independence",
    "pushforward": "kmeanalyst.inference.pushforward",
    "RandomVariable": "kmeanalyst.inference.random_variable",
    "UnboundedWeights": "kmeanalyst.inference.boundedness",
    "mmd": "kmeanalyst.inference.two_sample",
    "mmd_squared": "kmeanalyst.inference.two_sample",
    "mmd_test": "kmeanalyst.inference.two_sample",
    "shrunk_mean": "kmeanalyst.representation.shrinkage",
    "shrunk_vector": "kmeanalyst.representation.shrinkage",
    "thin": "kmeanalyst.representation.thinning",
    "TrainedPipeline": "kmeanalyst.learning.pipeline",
    "WeightSupport": "kmeanalyst.learning.weight_support",
    "calibration": "kmeanalyst.learning.calibration",
    "feature_importance": "kmeanalyst.learning.importance",
    "expected_calibration_error": "kmeanalyst.learning.calibration",
    "fit": "kmeanalyst.learning.training",
    "fit_embedding": "kmeanalyst.learning.embedding_models",
    "read_model": "kmeanalyst.learning.model_file",
    "refit": "kmeanalyst.learning.refits",
    "score": "kmeanalyst.learning.evaluation",
    "weight_support": "kmeanalyst.learning.weight_support",
    "write_model": "kmeanalyst.learning.model_file",
}
__version__ = "0.1.0"
__all__ = [
    "Association", "Boolean", "Categorical", "Comparison", "ConditionalLaw", "Cyclic", "Date", "Domain", "DomainError", "Estimate",
    "Estimates", "FileRefused", "GroupBy", "Integer", "KernelMean", "MatrixEstimate", "Ordinal", "PrivacyStatement",
    "RandomVariable", "Real", "RegressionEstimate", "Release", "ReleasedFunction", "TestResult", "Text",
    "TrainedPipeline", "UnboundedWeights", "WeightSupport", "associations", "calibration", "compare", "expected_calibration_error",
    "feature_importance", "fit", "fit_embedding", "from_frame", "independence_test", "kernels", "median_lengthscale",
    "mmd", "mmd_squared", "mmd_test", "plots", "pushforward", "read_domain", "read_function", "read_model", "read_release",
    "refit", "score", "shrunk_mean", "shrunk_vector", "thin", "validate_release", "weight_support", "write_model",
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
    return sorted([*globals(), *__all__])
