"""Feature maps, one file for each family."""

from kmeanalyst.kernels.features.base import FeatureMap
from kmeanalyst.kernels.features.binning import RandomBinning
from kmeanalyst.kernels.features.cells import CellFeatures
from kmeanalyst.kernels.features.certified import CertifiedNystroem
from kmeanalyst.kernels.features.composed import ColumnFeatures, Concatenation, ScaledFeatures, TensorProduct
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.kernels.features.hermite import Hermite
from kmeanalyst.kernels.features.maclaurin import RandomMaclaurin
from kmeanalyst.kernels.features.margins import MarginFeatures
from kmeanalyst.kernels.features.nystroem import Nystroem
from kmeanalyst.kernels.features.pivots import Pivots

__all__ = [
    "CellFeatures", "CertifiedNystroem", "ColumnFeatures", "Concatenation", "FeatureMap", "Hermite", "MarginFeatures",
    "Nystroem", "Pivots", "RandomBinning", "RandomFourier", "RandomMaclaurin", "ScaledFeatures", "TensorProduct",
]  # fmt: skip
