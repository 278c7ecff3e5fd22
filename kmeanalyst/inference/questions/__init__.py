"""Questions about one release: expectations, moments, quantiles, tables, regressions, conditional distributions."""
