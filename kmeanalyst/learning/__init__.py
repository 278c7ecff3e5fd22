"""Releases for scikit-learn: rows and weights that an estimator can use, trained models and what they are worth.

`weights/` knows which estimators honour weights, `rows/` encodes columns and chooses labels,
`training/` fits and stores pipelines, `scoring/` evaluates them with error bars.
"""
