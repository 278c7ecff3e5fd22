"""The one exception of the curator's side."""

SPENT = "The noise had been drawn: count this release as spent."  # added to every error after the draw
KEPT = "What was drawn is kept in "  # and where its file was made


class PublishError(ValueError):
    """A publication that cannot continue. The message names public facts only, and how to fix it.

    >>> release_side.publish("private.csv", "domain.toml", epsilon=-1, delta=1e-6)
    Traceback (most recent call last):
        ...
    release_side.errors.PublishError: epsilon must be a positive number between 1e-05 and 100000, got -1: the
        calibration is proven for these alone. Pass e.g. 1.0.
    """
