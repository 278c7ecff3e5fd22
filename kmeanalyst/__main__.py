"""`python -m kmeanalyst`."""

from kmeanalyst.cli import main

main()
