"""The `esd` command. Each subcommand has a file of its own."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

import esd
from esd.cli import bench, cancel, checkpoint, cluster, data, demo, plan, serve, simulate, status, train
from esd.cli.report import messages
from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime.settings import SettingsError

EXIT_FAILURE = 1
EXIT_USAGE = 2


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"esd {esd.__version__}")
        raise typer.Exit


app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("train")(train.command)
app.command("simulate")(simulate.command)
app.command("plan")(plan.command)
app.command("demo")(demo.command)
app.command("status")(status.command)
app.command("cancel")(cancel.command)
app.command("bench", context_settings=bench.ALL_ARGUMENTS)(bench.command)
app.add_typer(data.app, name="data")
app.add_typer(serve.app, name="serve")
app.add_typer(checkpoint.app, name="checkpoint")
app.add_typer(cluster.app, name="cluster")


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Embedding sample dispatch: trains click-through models on clusters with slow, unequal links."""


def main() -> None:
    """Entry point: a failure is one line on standard error and an exit code, never a traceback."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        app()
    except (InvalidArgument, SettingsError) as error:
        _fail(error, EXIT_USAGE)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        _fail(f"{error.filename}: {error.strerror}" if named else error, EXIT_FAILURE)
    except EsdError as error:
        _fail(error, EXIT_FAILURE)


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the process as Ctrl-C does, so that everything that was started is stopped."""
    sys.exit(128 + number)


def _fail(error: Exception | str, code: int) -> None:
    messages.print(f"esd: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
