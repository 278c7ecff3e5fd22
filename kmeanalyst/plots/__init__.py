"""Drawings of releases and of results, on matplotlib Axes: each function takes Axes or makes them, and returns them.

What is drawn with an error is drawn with the estimate's own interval, at the level that the caption states. Series differ in
line and marker as well as in colour: they are told apart in a grey print and by the colour-blind.

>>> axes = ka.plots.density(release, "age", sample=sample)
>>> axes.figure.savefig("age.png")
"""

from kmeanalyst.plots.curves import coverage, error_against_epsilon, power, rate_intervals
from kmeanalyst.plots.distributions import histogram
from kmeanalyst.plots.joint import pairs, table
from kmeanalyst.plots.smooth import cdf, density
from kmeanalyst.plots.witness import witness

__all__ = [
    "cdf", "coverage", "density", "error_against_epsilon", "histogram", "pairs", "power", "rate_intervals", "table",
    "witness",
]  # fmt: skip
