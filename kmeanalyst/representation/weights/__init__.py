"""Weights on given points: nearest to a measurement, within a bound, or probabilities."""
