"""`python -m release_side`."""

from release_side.cli.main import main

main()
