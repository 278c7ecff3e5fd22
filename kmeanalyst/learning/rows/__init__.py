"""Training rows of a release: encoded columns, weights of a view, and where the labels come from."""
