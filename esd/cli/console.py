"""Where commands print messages and progress: standard error, so that standard output holds the result only."""

import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

messages = Console(stderr=True)

_ANSWER_SECONDS = 10.0


@contextmanager
def waiting_for(peer: str) -> Iterator[None]:
    """Prints once that a command waits for a peer, if the block takes longer than an answer should."""
    text = f"waiting for {peer}, which has not answered for {_ANSWER_SECONDS:g} s"
    report = threading.Timer(_ANSWER_SECONDS, messages.print, [text], {"markup": False, "highlight": False})
    report.daemon = True
    report.start()
    try:
        yield
    finally:
        report.cancel()


def prepare_output() -> None:
    """Makes every text printable in any environment.

    A character that the encoding of an output lacks is printed as an escape sequence. A terminal of no columns has no
    room for any text, so COLUMNS=0 counts as not given. gRPC, which is imported later, would add lines of its own to an
    error of a connection.
    """
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if os.environ.get("COLUMNS", "").strip("0") == "":
        os.environ.pop("COLUMNS", None)
