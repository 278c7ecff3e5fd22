"""`python -m release_side`."""

from release_side.cli import main

main()
