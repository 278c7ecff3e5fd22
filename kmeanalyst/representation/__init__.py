"""A noisy mean becomes weighted points. All of it is post-processing: no private row is read here.

`represent` chooses and places points for a measurement; `weights/` fits weights on given points, `points/` selects points,
`mixture/` (of component distributions, and of latent classes), `tables/` and `generator/` are models whose samples become
points; `redraw` repeats the noise.
"""
