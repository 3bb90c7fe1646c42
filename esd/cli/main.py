"""The `esd` command. Each subcommand has a file of its own."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

import esd
from esd.cli.console import messages, prepare_output
from esd.cli.later import LateGroup, add_late
from esd.native import is_missing
from esd.services.domain.errors import EsdError, InvalidArgument
from esd.services.runtime.low_limits import low_limits

_traceback_wanted = ContextVar("traceback_wanted", default=False)

EXIT_FAILURE = 1
EXIT_USAGE = 2
_WANTS = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EFBIG)  # of files, threads, memory, room
_SCARCE = ("can't start new thread", "can't allocate memory", "failed to map segment")  # of Python, torch, the linker
_WRONG_PATHS = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)  # which an option has named


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"esd {esd.__version__}")
        raise typer.Exit


def _keep_traceback(wanted: bool) -> None:
    _traceback_wanted.set(wanted)


# The line of each subcommand in `esd --help`, which is the first of its own help; its file has its name.
COMMANDS = {
    "train": "Trains a model: all services as processes of this machine, no Docker, Redis or GPU needed.",
    "predict": "Scores Parquet, Arrow or CSV files by a trained model, without torch, row by row in their order.",
    "simulate": "Simulates a run: the same decisions and operations, without network and tensors.",
    "plan": "Recommends samples and cached rows per worker, a policy and rows to replicate: profiles, measures, "
    "simulates.",
    "demo": "Trains Wide & Deep on the New York flights of 2013 with 4 workers, each with one slow network card.",
    "page": "Shows the page of a run that has ended; of several runs, a page that compares them.",
    "submit": "Submits one part of the stream of a running job, as from another site. Repeated, it goes on.",
    "status": "Shows the state of the running job.",
    "plans": "Prints the plans of all workers as the dispatcher publishes them, with reasons and receivers.",
    "cancel": "Ends the running job, so that another one may begin. Repeated, it goes on at its last checkpoint.",
    "bench": "Measures this machine and the mechanisms, in a source tree only.",
    "data": "Looks at data of your own, lists the readers of data, and writes values that stay at sites.",
    "schema": "Prints the JSON Schema of a kind of file, from which editors complete and check it.",
    "serve": "Runs one service in the foreground.",
    "checkpoint": "Lists, verifies and restores the checkpoints of a store.",
    "cluster": "Runs ESD on several machines with container engines.",
}


_IN_SOURCE_TREE = (Path(__file__).parents[2] / "benchmarks").is_dir()

app = typer.Typer(
    cls=LateGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
add_late(app, COMMANDS, hidden=() if _IN_SOURCE_TREE else ("bench",))


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
    _traceback: Annotated[
        bool, typer.Option("--traceback", is_eager=True, callback=_keep_traceback, help="Print all of an error.")
    ] = False,
) -> None:
    """Embedding sample dispatch: trains click-through models on clusters with slow, unequal links."""


def main() -> None:
    """Entry point: a failure is one line on standard error and an exit code, with a traceback if it is asked for."""
    signal.signal(signal.SIGTERM, _terminated)
    prepare_output()
    try:
        app()
    except InvalidArgument as error:
        _fail(error, EXIT_USAGE)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        code = EXIT_USAGE if named and isinstance(error, _WRONG_PATHS) else EXIT_FAILURE
        limits = low_limits() if error.errno in _WANTS else ""
        _fail(f"{error.filename}: {error.strerror}{limits}" if named else f"{error}{limits}", code)
    except EsdError as error:
        _fail(error, EXIT_FAILURE)
    except (ImportError, MemoryError, RuntimeError) as error:
        if isinstance(error, ImportError) and (missing := is_missing(error)) is not None:
            _fail(missing, EXIT_FAILURE)
        scarce = isinstance(error, MemoryError) or any(text in str(error) for text in _SCARCE)
        if not (scarce and (limits := low_limits())):
            raise
        _fail(f"{error or 'out of memory'}{limits}", EXIT_FAILURE)


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the process as Ctrl-C does, so that everything that was started is stopped."""
    sys.exit(128 + number)


def _fail(error: Exception | str, code: int) -> None:
    if _traceback_wanted.get():
        traceback.print_exc()
    messages.print(f"esd: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
