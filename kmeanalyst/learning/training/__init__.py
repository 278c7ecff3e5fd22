"""Train scikit-learn estimators on a release, store them as files without code, and refit them on redrawn noise."""
