"""A fingerprint of a release. Trained models store it, so that scoring on the training release can be flagged."""

from __future__ import annotations

import hashlib

import numpy as np

from kmeanalyst.releases.release import ReleaseData


def digest(release: ReleaseData) -> str:
    """SHA-256 (hexadecimal) of the weights, the encoded points and the measured vector, with their shapes.

    A release read back from its file, or with more derived columns, has the same digest; a thinned one has another.
    """
    fingerprint = hashlib.sha256()
    measured = np.empty(0) if release.measurement is None else release.measurement.vector
    for numbers in (release.weights, release.encoded_points, measured):
        fingerprint.update(f"{numbers.shape};".encode())
        plain = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # one kind of zero and of NaN
        fingerprint.update(plain.astype("<f8").tobytes())
    return fingerprint.hexdigest()
