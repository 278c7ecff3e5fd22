"""Weights on given points: nearest to a measurement in a convex set, and views of a release's weights."""
