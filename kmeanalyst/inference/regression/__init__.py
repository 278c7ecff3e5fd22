"""Regression tables from a release: a formula, the family of the target, coefficients with errors, tests, effects, predictions.

The estimand is the root of the population's score equations, whether the model is true or not (White 1982). `formula` reads the
text, `design` makes columns of it, `equations` finds the root, `fit` joins them to a release, `intervals` inverts the score, `glm`
is the question itself and `result` its answer.
"""
