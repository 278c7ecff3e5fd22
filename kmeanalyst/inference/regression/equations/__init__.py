"""Score equations of regressions: their root, and the families whose means they follow.

`score_equations` solves them for targets of one mean, with the families and links of `families`; `multinomial` and `ordinal` are
targets of several levels.
"""
