"""Train scikit-learn estimators on a release, and store them as files without code."""
