"""The `esd` command: each of its subcommands has a file here, or a folder."""
