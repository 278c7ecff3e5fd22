"""Regression tables from a release: a formula, the family of the target, coefficients with errors, tests, effects, predictions.

The estimand is the root of the population's score equations, whether the model is true or not (White 1982). `formula` reads the
text, `design` makes columns of it, `equations` has the families and finds the root, `fit` joins them to a release, `inversion`
gives intervals, `infinite` says why some are infinite, `glm` is the question itself and `result` its answer.
"""
