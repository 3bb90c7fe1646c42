"""`esd bench`: hands over to the benchmarks, which belong to the source tree and not to the installed package."""

from __future__ import annotations

import typer

from esd.services.domain.errors import FailedPrecondition

# The benchmarks read their own arguments, --help included.
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def command(context: typer.Context) -> None:
    """Measures this machine and the mechanisms, in a source tree only."""
    try:
        from benchmarks.command import app  # noqa: PLC0415 - absent from the installed package
    except ModuleNotFoundError as error:
        if error.name != "benchmarks":
            raise
        raise FailedPrecondition(
            "the benchmarks are not part of the installed package: get the source tree, run `make setup` in it and then"
            " its .venv/bin/esd bench"
        ) from None
    app(context.args, prog_name="esd bench")
