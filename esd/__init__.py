"""The face of the project: the public names and the `esd` command."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - takes a third of the time of `import esd`

        return version("esd-train")
    raise AttributeError(f"module 'esd' has no attribute {name!r}")
