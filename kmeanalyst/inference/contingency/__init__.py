"""What measured tables say: tests of independence that know the noise, odds ratios, survival curves, standardised rates."""
