"""Where noise meets data: what a privacy reviewer must read, and nothing else.

`private_mean` is the door; `private_function` and `exponential_mechanism` are the two mechanisms that do not release a mean of
features, `kernel_machines` has the sensitivities of the functions, `mechanism` the noise distributions and their scales.
"""
