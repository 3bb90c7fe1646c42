"""Where commands print messages and progress: standard error, so that standard output holds the result only."""

from rich.console import Console

messages = Console(stderr=True)
