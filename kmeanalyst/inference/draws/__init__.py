"""Draws of the table, and replicate weights: a release's errors in a form that programs which do not know it can use.

`positive` turns weights of either sign into weights of rows, `draws` makes tables and replicate weights, `folder` writes them
with the one rule that each is for.
"""
