"""Many draws of the noise of published scores on one table: how often their intervals hold the exact scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.release import Release
from kmeanalyst.releases.quality.noisy_score import NoisyScore
from release_side.door.mechanism import Noise
from release_side.publishing import scores


def draws_of(
    release: Release, encoded: Array, noise: Noise, *, group: str | None, workload: Sequence[str] | None, draws: int
) -> tuple[tuple[NoisyScore, ...], list[tuple[NoisyScore, ...]]]:
    """The scores without noise, and those of so many draws; the exact numbers are computed once.

    encoded   the rows of the private table, as many as the release was made of.
    """
    asked = scores._asked(release, noise, group, workload, None, True)
    query = scores._query(asked, release, noise)
    draft = scores._draft(asked, query, noise)
    exact, sensitivity = query.numbers(query.sums.of_block()(encoded)), float(query.sensitivity(noise.name))
    ends = np.cumsum([part.count for part in query.parts])[:-1]

    def scores_of(numbers: Array) -> tuple[NoisyScore, ...]:
        own = {part.name: tuple(each.tolist()) for part, each in zip(query.parts, np.split(numbers, ends), strict=True)}
        return replace(draft, noisy=own).scores()

    return scores_of(exact), [scores_of(noise.add_to(exact, sensitivity=sensitivity)) for _ in range(draws)]
