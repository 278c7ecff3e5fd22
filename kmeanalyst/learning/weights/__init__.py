"""Which estimators honour sample weights, signed ones among them: a shipped table."""
