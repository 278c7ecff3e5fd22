"""Rules of a table: public facts that every released row keeps.

`rule` holds a rule as plain data, `compiled` tells which encoded rows break one, computes derived columns and says which cells hold
a row that keeps a rule, `kept_rows` finds rows that keep all of them, and `violations` estimates how many rows of a table do not.
"""
