"""`esd bench`: hands over to the benchmarks, which belong to the source tree and not to the installed package."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from services.domain.errors import FailedPrecondition

SOURCE_TREE = Path(__file__).resolve().parents[2]

# The benchmarks read their own arguments, --help included.
ALL_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def command(context: typer.Context) -> None:
    """Measures this machine and the mechanisms (in a source tree only)."""
    if not (SOURCE_TREE / "benchmarks" / "command.py").is_file():
        raise FailedPrecondition(
            "the benchmarks are not part of the installed package: get the source tree, run `make setup` in it and then"
            " its .venv/bin/esd bench"
        )
    sys.path.insert(0, str(SOURCE_TREE))  # an editable installation finds the packages of the wheel only
    from benchmarks.command import app  # noqa: PLC0415 - absent from the installed package

    app(context.args, prog_name="esd bench")
