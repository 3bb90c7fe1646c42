"""`python -m tests.support.fork_server FD`: forks on requests from the socket FD (tests/support/warm_python.py)."""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import os
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

from esd.services.runtime.forks import MAX_PACKET, receive_request
from tests.support.warm_python import ForkServer, fork_instead

MAX_FILES = 16

_COMMAND = "esd.cli"
_PRELOADED = (
    "esd.ps_server.service.app",
    "esd.dispatcher.service.app",
    "esd.worker.service.app",
    "esd.worker.models",
    "esd.cli.main",
    "esd.cli.train",
)
_ABOVE = 500  # numbers of files that no request names


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Forks a child for each request, and returns the request in the child; None when the socket is closed.

    Between a child and this process is another one, which ends at once, so that the requesting process adopts the
    child.
    """
    with control:
        while True:
            request, files = receive_request(control, MAX_FILES)
            if request is None:
                return None
            reading, writing = os.pipe()
            between = os.fork()
            if between == 0:
                child = os.fork()
                if child:
                    os.write(writing, str(child).encode())
                    os._exit(0)
                os.close(reading)
                os.close(writing)
                request["files"] = dict(zip(request["files"], files, strict=True))
                return request
            os.waitpid(between, 0)
            control.send(os.read(reading, MAX_PACKET))
            for file in (reading, writing, *files):
                os.close(file)


def become(request: dict[str, Any]) -> None:
    """Makes this process equal to a new one of the request, except for its imported modules."""
    if request["own_session"]:
        os.setsid()
    given = {number: fcntl.fcntl(file, fcntl.F_DUPFD, _ABOVE) for number, file in request["files"].items()}
    for file in request["files"].values():
        os.close(file)
    for number, file in given.items():
        os.dup2(file, number)
        os.close(file)
    open_outputs()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path[0] = str(Path.cwd())
    sys.argv[1:] = request["arguments"]
    if request["module"] == _COMMAND:
        fork_here()
    run(request["module"])


def open_outputs() -> None:
    """Opens the outputs as a new process does: the server's text streams seek, which a pipe cannot."""
    sys.stdout = io.TextIOWrapper(
        os.fdopen(1, "wb", closefd=False), sys.stdout.encoding, sys.stdout.errors, line_buffering=os.isatty(1)
    )
    sys.stderr = io.TextIOWrapper(
        os.fdopen(2, "wb", closefd=False), sys.stderr.encoding, sys.stderr.errors, line_buffering=True
    )


def fork_here() -> None:
    """Makes the services that this process starts forks, too: of a child that has imported the same modules."""
    mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork():
        other.close()
        fork_instead(ForkServer(mine))
        return
    mine.close()
    if (request := serve(other)) is not None:
        become(request)
    sys.exit()


def run(module: str) -> None:
    """Runs a module as the program. A service is spared the 0.2 s of tearing torch down, object by object."""
    codes: list[int] = []
    if module != _COMMAND:  # whose end is tested: its children end with its objects
        atexit.register(leave, codes)  # called after all that the program registers
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        codes.append(0)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            codes.append(end.code or 0)
        raise


def leave(codes: list[int]) -> None:
    """Ends the process, if it has come to its end in order."""
    for code in codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    """Imports, forks, and becomes something else."""
    for module in _PRELOADED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()  # imported objects are never garbage; their memory stays shared if the collector skips them
    if (request := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        become(request)


if __name__ == "__main__":
    main()
