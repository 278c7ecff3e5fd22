"""What tests of mixture share with others."""

from __future__ import annotations

import numpy as np

from kmeanalyst.kernels import Gaussian
from kmeanalyst.kernels.base import Array
from kmeanalyst.kernels.features.fourier import RandomFourier
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.kernels_for_domain import table_kernel
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer, Real
from kmeanalyst.representation.mixture.component_laws import NormalOrSpecial, Normals
from kmeanalyst.representation.mixture.mixture import Mixture, MixtureFit

TOGETHER = Domain((
    Real(name="a", lower=-50, upper=50), Real(name="b", lower=0, upper=1e6, scale="log1p", atoms=(0,), missing=True),
    Categorical(name="c", levels=("x", "y", "z"), missing=True), Real(name="d", lower=-5, upper=5),
    Integer(name="e", lower=0, upper=4),
))  # fmt: skip


def table_features(domain: Domain, *, pairs: int) -> RandomFourier:
    return RandomFourier.draw(
        table_kernel(domain), n_columns=len(domain), dimension=2 * pairs, missing_columns=domain.missing_columns, rng=0
    )


def search_in(domain: Domain, *, pairs: int = 60, noise: float = 0.01) -> MixtureFit:
    """A search whose target is any vector of the size of a mean phasor."""
    target = np.random.default_rng(1).normal(0, 0.3, (2, pairs))
    return MixtureFit(table_features(domain, pairs=pairs), domain, target[0] + 1j * target[1], noise)


def some_mixture(search: MixtureFit, size: int, seed: int = 2) -> Mixture:
    """Components inside the domain: means in its middle third, spreads of 2 to 6 % of its extent, any probabilities."""
    rng, parts = np.random.default_rng(seed), []
    for law in search.laws:
        low, high = np.array(law.bounds).T
        part = rng.normal(0, 1, (size, law.width))
        n_means = law.width // 2 if isinstance(law, Normals) else int(isinstance(law, NormalOrSpecial))
        middle = rng.uniform(0.35, 0.65, (size, n_means))
        part[:, :n_means] = low[:n_means] + middle * (high - low)[:n_means]
        part[:, law.log_sds] = np.log(law.extents * rng.uniform(0.02, 0.06, (size, n_means)))
        parts.append(np.clip(part, low, high))
    return Mixture(search.laws, len(search.domain), rng.dirichlet(np.ones(size)), np.hstack(parts))


PLANE = Domain((Real(name="x", lower=-6, upper=6), Real(name="y", lower=-6, upper=6)))


PLANTED = (np.array([0.5, 0.3, 0.2]), np.array([[-2.0, 0], [2, 2], [1, -3]]), np.array([0.7, 0.5, 0.9]))


def planted(noise: float, *, pairs: int = 150, seed: int = 0) -> tuple[MixtureFit, Array]:
    """A search for three round clusters in the plane, and their exact mean phasor."""
    features = RandomFourier.draw(Gaussian(1.0), n_columns=2, dimension=2 * pairs, rng=0)
    shares, means, sds = PLANTED
    truth = shares @ np.exp(1j * means @ features.linear - 0.5 * np.outer(sds**2, (features.linear**2).sum(axis=0)))
    rng = np.random.default_rng(1000 + seed)  # not the features' own seed
    y = truth + noise * np.sqrt(pairs) * (rng.standard_normal(pairs) + 1j * rng.standard_normal(pairs))
    return MixtureFit(features, PLANE, y, noise), truth
