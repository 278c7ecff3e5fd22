"""A fingerprint of a release. Trained models store it, so that scoring on the training release can be flagged."""

from __future__ import annotations

import hashlib

import numpy as np

from kmeanalyst.kernels.base import Array
from kmeanalyst.releases.release import ReleaseData


def digest(release: ReleaseData) -> str:
    """SHA-256 (hexadecimal) of the weights, the encoded points and the measured vector, with their shapes.

    A release read back from its file, or with further derived columns, has the same; a thinned one has another.
    """
    fingerprint = hashlib.sha256()
    measured = np.empty(0) if release.measurement is None else release.measurement.vector
    for numbers in (release.weights, release.encoded_points, measured):
        fingerprint.update(f"{numbers.shape};".encode())
        fingerprint.update(_plain(numbers).tobytes())
    return fingerprint.hexdigest()


def _plain(numbers: Array) -> Array:
    """Little-endian float64 with one zero and one NaN."""
    return np.where(np.isnan(numbers), np.nan, numbers + 0.0).astype("<f8")
