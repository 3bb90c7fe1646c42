"""The face of the project: the public names and the `esd` command."""
