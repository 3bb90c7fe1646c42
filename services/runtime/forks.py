"""Processes that are forked from one that has imported already what they need, which takes seconds each time.

The parent has one thread and nothing of gRPC running, so a child may do whatever a new process may. It is asked over a
socket of packets; a child's standard input and output and the file of its logs travel along, and its end is told there.
A child dies with its parent: nobody would learn of its end any more.
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
    """What a child is to be.

    Attributes:
        role: what it runs, of what the parent offers.
        arguments: its command line, without the program.
        environment: all of its environment.
    """

    role: str
    arguments: list[str]
    environment: dict[str, str]


def send_request(control: socket.socket, request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Sends a request and open files. It goes in a file, too: an environment may be longer than any packet."""
    with tempfile.TemporaryFile() as text:
        text.write(json.dumps(request).encode())
        text.flush()
        socket.send_fds(control, [_IN_A_FILE], [text.fileno(), *files])


def receive_request(control: socket.socket, most_files: int) -> tuple[dict[str, Any] | None, list[int]]:
    """Returns what `send_request` has sent, or the contents of a packet; None once nobody sends any more."""
    packet, files, _, _ = socket.recv_fds(control, MAX_PACKET, 1 + most_files)
    if packet != _IN_A_FILE:
        return json.loads(packet) if packet else None, files
    with os.fdopen(files[0], "rb") as text:
        text.seek(0)
        return json.load(text), files[1:]


def serve_forks(control: socket.socket) -> ForkRequest | None:
    """Forks a child for each request, and returns the request in the child.

    Returns None in the parent, when nobody asks any more and all children, whose standard input has ended then, have
    ended, too.

    Raises:
        RuntimeError: a library has started a thread, whose locks a child would inherit in whatever state they are.
    """
    gc.collect()
    gc.freeze()  # what is imported is never garbage; to leave it alone keeps its memory shared
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
    """Makes the forked process what it was asked to be."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it has died meanwhile
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
    """Signals a child, unless it has ended. Its number is nobody else's until it was waited for, which happens here."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return
    os.kill(pid, number)


def _tell(control: socket.socket, event: dict[str, Any]) -> None:
    try:
        control.send(json.dumps(event).encode())
    except OSError:  # nobody asks any more, as the next packet will say
        return


def _require_one_thread() -> None:
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(names := [(task / "comm").read_text().strip() for task in threads.iterdir()]) > 1:
        raise RuntimeError(f"a process with the threads {', '.join(sorted(names))} cannot be forked safely")
