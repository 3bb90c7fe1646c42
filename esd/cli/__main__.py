"""`python -m esd.cli` is `esd`."""

from esd.cli.main import main

main()
