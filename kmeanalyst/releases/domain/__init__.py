"""The public description of a table: names and kinds of columns, bounds and levels, and how cells become numbers.

`columns` has the kinds, `domain` the table of them and its TOML file, `draft` proposes a domain from a public sample,
`kernels_for_domain` chooses a kernel from the columns alone.
"""
