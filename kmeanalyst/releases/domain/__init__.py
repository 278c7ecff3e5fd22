"""The public description of a table: names and kinds of columns, bounds and levels, and how cells become numbers.

`column` has the base class of columns; `numbers`, `levels`, `text_column` and `tree_column` have the
kinds; `cells` reads one cell. `domain` has the table of columns and its TOML file, `noisy_tables` what others declare of theirs,
`draft` proposes one of a public sample, `sample_digest` names it, and `kernels_for_domain` chooses a kernel from the columns alone.
"""
