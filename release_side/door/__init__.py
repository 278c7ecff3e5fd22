"""Where noise meets data: three mechanisms, each proved in PROOF.md.

A privacy reviewer reads that page and these files. The page names the functions elsewhere that it relies on.

private_mean           the door: a noisy mean of features (PROOF.md §1 to §7, and §10 for densities)
private_tables         rounds of noisy tables and scores from one reading (§12)
private_function       a kernel machine, such as an SVM, by its noisy coordinates (§11)
exponential_mechanism  a small database, drawn with a probability that decreases with its distance from the table (§9)

turns, _turns.c        cosines of random Fourier features in whole numbers, and their bound (§2a); the loop in C is never needed
mechanism              Gaussian and Laplace noise: the scale for a budget, and exact draws (§4 to §7)
kernel_machines        the solver of private_function, with a fixed number of steps, and the sensitivity of its result
door                   `Door`, what a release method gets in place of rows: one call of private_mean or of the exponential
                       mechanism, and no second one
"""
