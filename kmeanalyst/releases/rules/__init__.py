"""Rules of a table: public facts that every released row keeps.

`rule` holds a rule as plain data, `compiled` tells which encoded rows break one and computes derived columns, `cells` says which
cells of margins hold a row that keeps a rule, and `contradictions` refuses rules that no row keeps.
"""
