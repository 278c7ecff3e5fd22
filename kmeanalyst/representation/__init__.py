"""A noisy mean becomes weighted points. All of it is post-processing: no private row is read here.

`represent` chooses and places points for a measurement; `weights/` fits weights on given points, `mixture/`
(of component distributions), `tables/` (trees of tables) and `generator/` are models whose samples become points;
`thinning` chooses few of many points.
"""
