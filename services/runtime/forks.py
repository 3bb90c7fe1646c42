"""Processes forked from a parent that has already imported their modules, which takes seconds each time.

The parent has one thread and nothing of gRPC running, so a child may do everything that a new process may. Requests
arrive over a socket of packets, with the open files of the child's standard input, output and logs; the end of a child
is reported on the same socket. A child dies with its parent, because its end could no longer be reported.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_PACKET = 65_536  # bytes
STANDARD_FILES = 3

_IN_A_FILE = b"the first file has the request"
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """A request for one child.

    Attributes:
        role: the program to run, among those that the parent offers.
        arguments: its command line, without the program.
        environment: its whole environment.
    """

    role: str
    arguments: list[str]
    environment: dict[str, str]


def send_request(control: socket.socket, request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Sends a request and open files. The request itself is in a file, because it may be longer than any packet."""
    with tempfile.TemporaryFile() as text:
        text.write(json.dumps(request).encode())
        text.flush()
        socket.send_fds(control, [_IN_A_FILE], [text.fileno(), *files])


def receive_request(control: socket.socket, most_files: int) -> tuple[dict[str, Any] | None, list[int]]:
    """Returns the request of `send_request`, or the content of a packet; None once the other side has closed."""
    packet, files, _, _ = socket.recv_fds(control, MAX_PACKET, 1 + most_files)
    if packet != _IN_A_FILE:
        return json.loads(packet) if packet else None, files
    with os.fdopen(files[0], "rb") as text:
        text.seek(0)
        return json.load(text), files[1:]


def serve_forks(control: socket.socket) -> ForkRequest | None:
    """Forks a child for each request, and returns the request in the child.

    In the parent it returns None once the other side has closed and all children have ended; children notice that by
    the end of their standard input.

    Raises:
        RuntimeError: a library has started a thread; a child would inherit its locks in an unknown state.
    """
    gc.collect()
    gc.freeze()  # imported objects are never garbage; if the collector leaves them alone, their memory stays shared
    control.setblocking(True)
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    control.send(json.dumps({"event": "ready"}).encode())
    with control, ended, wake:
        while True:
            ready, _, _ = select.select([control, ended], [], [])
            if ended in ready:
                ended.recv(MAX_PACKET)
                _tell_of_ended_children(control)
            if control not in ready:
                continue
            asked, files = receive_request(control, STANDARD_FILES)
            if asked is None:
                break
            if "signal" in asked:
                _send_signal(asked["pid"], asked["signal"])
                continue
            request = ForkRequest(**asked)
            _require_one_thread()
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _become(request, files, parent)
                return request
            for file in files:
                os.close(file)
            _tell(control, {"event": "started", "pid": pid})
    signal.set_wakeup_fd(-1)
    while _children_are_left():
        os.wait()
    return None


def _become(request: ForkRequest, files: list[int], parent: int) -> None:
    """Turns the forked process into the requested child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent has died since the fork, so no signal will come
            os._exit(1)
    os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv[1:] = request.arguments


def _tell_of_ended_children(control: socket.socket) -> None:
    while _children_are_left():
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        _tell(control, {"event": "ended", "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _children_are_left() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _send_signal(pid: int, number: int) -> None:
    """Signals a child unless it has ended. Its pid cannot be reused before this process waits for it."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    os.kill(pid, number)


def _tell(control: socket.socket, event: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(event).encode())
    except OSError:  # the other side has closed, which the next receive will show
        return


def _require_one_thread() -> None:
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(names := [(task / "comm").read_text().strip() for task in threads.iterdir()]) > 1:
        raise RuntimeError(f"a process with the threads {', '.join(sorted(names))} cannot be forked safely")
