"""`python -m services.cli` is `esd`."""

from services.cli.main import main

main()
