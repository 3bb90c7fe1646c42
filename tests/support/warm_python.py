"""Makes the services of tests forks of one process, so that each need not import grpc and torch again.

A test's `python -m esd.ps_server` takes 0.8 s of processor time to import its modules, `python -m esd.worker.host`
2.3 s, and a forked one some 0.02 s. Nothing else differs: a child is a child of the test's process, with the module as
its `__main__`, and with the requested files, environment, directory and session (tests/support/fork_server.py).

The services of a forked command are forks, too; the process that forks them is a child of the command. In a test with
the fixture `cold_python` all processes start as for users.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from esd.services.runtime.forks import MAX_PACKET, send_request

ROOT = Path(__file__).parents[2]
MODULES = (  # the modules that are forked
    "esd.ps_server",
    "esd.dispatcher",
    "esd.worker",
    "esd.worker.host",
    "esd.cli",
    "examples.own_loop",
    "tests.support.broken_trainers",
)

_LIBRARIES = ("LD_", "MALLOC_", "OMP_", "GRPC_", "PYTHON")  # variables that libraries read as they are loaded
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)
_EXECUTE = "_execute_child"  # the method of `subprocess.Popen` that starts the process
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PLAIN = {"preexec_fn": None, "shell": False, "uid": None, "gid": None, "gids": None, "umask": -1, "process_group": -1}
_PARAMETERS = inspect.signature(getattr(subprocess.Popen, _EXECUTE))


class ForkServer:
    """The process that forks. It ends with the block, or with this process.

    Args:
        control: the socket of one that is a child of this process; None starts one when it is asked first.
    """

    def __init__(self, control: socket.socket | None = None) -> None:
        self._control = control
        if control is not None:
            _adopt_orphans()
        self._turn = threading.Lock()
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("ESD_")}

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._control is not None:
            self._control.close()
            self._process.wait()

    def fork(self, request: dict[str, Any], files: dict[int, int]) -> int:
        """Returns the number of the child that has these files by its own numbers for them."""
        with self._turn:
            if self._control is None:
                self._control = self._start()
            send_request(self._control, request | {"files": list(files)}, list(files.values()))
            return int(self._control.recv(MAX_PACKET))

    def has_read(self, environment: Mapping[str, str]) -> bool:
        """Whether libraries that were loaded here are as in a process which has had this environment from the start."""
        return _read_at_load(environment) == _read_at_load(self._environment)

    def _start(self) -> socket.socket:
        _adopt_orphans()
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.fork_server", str(other.fileno())],
                cwd=ROOT,
                env=self._environment | {"OPENBLAS_NUM_THREADS": "1"},  # which nothing uses in services: no threads
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        return control


def _adopt_orphans() -> None:
    """Children of a fork server become our children as soon as the process between the two has ended."""
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)


def _read_at_load(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_LIBRARIES)}


class WarmPopen(subprocess.Popen[Any]):
    """A process like any other, forked where it is one of our services in Python."""

    server: ClassVar[ForkServer]

    def _execute_child(self, *given: Any, **named: Any) -> None:
        asked = _PARAMETERS.bind(self, *given, **named).arguments
        environment = dict(asked["env"] if asked["env"] is not None else os.environ)
        plain = all(asked[name] == value for name, value in _PLAIN.items()) and self.server.has_read(environment)
        match asked["args"]:
            case [sys.executable, "-m", module, *arguments] if plain and module in MODULES:
                files = {
                    0: asked["p2cread"],
                    1: asked["c2pwrite"],
                    2: asked["errwrite"],
                    **{number: number for number in asked["pass_fds"]},
                }
                self.pid = self.server.fork(
                    {
                        "module": module,
                        "arguments": [os.fspath(argument) for argument in arguments],
                        "environment": environment,
                        "directory": os.fspath(asked["cwd"] or Path.cwd()),
                        "own_session": asked["start_new_session"],
                    },
                    {number: number if file == -1 else file for number, file in files.items()},
                )
                self._child_created = True
                self._close_pipe_fds(*(asked[name] for name in _PIPES))  # type: ignore[attr-defined]
            case _:
                super()._execute_child(*given, **named)  # type: ignore[misc]


def fork_instead(server: ForkServer) -> None:
    """Makes `subprocess` fork the requested process, if it is one of our services."""
    subprocess.Popen = type("WarmPopen", (WarmPopen,), {"server": server})  # type: ignore[assignment,misc]
