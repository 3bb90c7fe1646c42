"""Standard error for messages and progress, so that standard output holds the result only; the option for its form."""

import codecs
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console

OUTPUT = "Output"  # the panel of such options

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line.", rich_help_panel=OUTPUT)]
messages = Console(stderr=True)

_ANSWER_SECONDS = 10.0
_ESCAPES = "esd-escapes"


@contextmanager
def waiting_for(peer: str) -> Iterator[None]:
    """Prints once that a command waits for a peer, if the block takes longer than an answer should."""
    text = f"waiting for {peer}: no answer for {_ANSWER_SECONDS:g} s"
    report = threading.Timer(_ANSWER_SECONDS, messages.print, [text], {"markup": False, "highlight": False})
    report.daemon = True
    report.start()
    try:
        yield
    finally:
        report.cancel()


def prepare_output() -> None:
    """Makes every text printable in any environment.

    A character that the encoding of an output lacks is printed as an escape sequence, which TOML and JSON read as that
    character: a schema that `esd data inspect` proposes keeps its names. A terminal of no columns has no
    room for any text, so COLUMNS=0 counts as not given. gRPC, which is imported later, would add lines of its own to an
    error of a connection.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    codecs.register_error(_ESCAPES, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPES)
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Returns the escape sequences for characters that cannot be encoded, and where the text continues."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    codes = map(ord, error.object[error.start : error.end])
    return "".join(f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}" for code in codes), error.end
