"""Measure, represent and write a release or a function; plan one without opening private data."""
