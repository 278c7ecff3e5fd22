"""Mixture models fitted to a measurement: whatever is measured, columns are independent within a component.

`mixture` fits component distributions (`component_laws`) to a noisy mean of random features; its posterior mean (`posterior`)
is the denoised embedding (`denoise`). `latent_classes` fits classes with a probability for each cell to noisy one-way and
two-way tables, of all pairs or of some (`partly_observed`); `within_cells` places numbers within their cells. `components`
is what both share.
"""
