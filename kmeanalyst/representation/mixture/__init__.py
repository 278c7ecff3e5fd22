"""A mixture of product distributions fitted to a noisy mean of random Fourier features, and points near the mean.

`mixture` fits component distributions (`component_laws`); its posterior mean is the denoised embedding (`denoise`), and
`reduced_set` moves points to where their mean feature is near one.
"""
