"""Drawings of releases and of results, on matplotlib Axes: each function takes Axes or makes them, and returns them.

What is drawn with an error is drawn with the estimate's own interval, at the level that the caption states. Series differ in
form as well as in colour: a grey print and colour-blind readers distinguish them.

>>> axes = ka.plots.histogram(release, "age", sample=sample)
>>> axes.figure.savefig("age.png")
"""

from kmeanalyst.plots.distributions import histogram
from kmeanalyst.plots.joint import table

__all__ = ["histogram", "table"]
