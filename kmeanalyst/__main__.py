"""`python -m kmeanalyst`."""

from kmeanalyst.cli.main import main

main()
