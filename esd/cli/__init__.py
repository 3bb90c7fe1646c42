"""The `esd` command."""
