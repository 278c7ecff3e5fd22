"""The internal page: one self-contained HTML file, whose first line and every screen say that it is not for publication."""
