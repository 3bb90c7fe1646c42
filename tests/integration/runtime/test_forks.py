"""A process that forks others on request; here the forked module is quick to import."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from esd.services.runtime.forks import MAX_PACKET, send_request

SECONDS = 110

# The roles of the children: `echo` says what it was given, `sleep` waits for a signal, `wait` for the end of its input.
_PARENT = """
import json, os, socket, sys, threading
from esd.services.runtime.forks import serve_forks
if sys.argv[2:] == ["threaded"]:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
asked = serve_forks(socket.socket(fileno=int(sys.argv[1])))
if asked is None:
    sys.exit(0)
if asked.role == "echo":
    print(json.dumps([sys.argv[1:], dict(os.environ), sys.stdin.read(), os.getsid(0) == os.getpid()]))
    print("to the log", file=sys.stderr)
    sys.exit(7)
print("ready", flush=True)
if asked.role == "sleep":
    threading.Event().wait()
sys.stdin.read()
"""


class Parent:
    """The forking process, used as a launcher does."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(SECONDS)
        self.log = folder / "log"
        with other, self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PARENT, str(other.fileno()), *arguments],
                pass_fds=[other.fileno()],
                stderr=log,
            )
        self.stdins: list[int] = []

    def hear(self) -> dict[str, Any] | None:
        packet = self.control.recv(MAX_PACKET)
        return json.loads(packet) if packet else None

    def fork(self, role: str, **environment: str) -> int:
        """Asks for a child; the end of its output."""
        reading, stdin = os.pipe()
        stdout, writing = os.pipe()
        self.stdins.append(stdin)
        request = {"role": role, "arguments": ["--an", "argument"], "environment": environment}
        with self.log.open("ab") as log:
            send_request(self.control, request, [reading, writing, log.fileno()])
        os.close(reading)
        os.close(writing)
        return stdout

    def close(self) -> None:
        self.control.close()
        for stdin in self.stdins:
            os.close(stdin)
        self.stdins.clear()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    parent = Parent(tmp_path)
    assert parent.hear() == {"event": "ready"}
    yield parent
    parent.close()
    parent.process.kill()
    parent.process.wait()


def text_of(stdout: int) -> str:
    with open(stdout) as output:
        return output.read()


def line_of(stdout: int) -> str:
    with open(stdout, closefd=False) as output:
        return output.readline()


def ends(pid: int) -> bool:
    """Whether a process that is no child of this one has ended, or does within a minute."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_child_is_what_it_was_asked_to_be_and_its_end_is_told(parent: Parent) -> None:
    long = "as of a machine with many services " * 3_000
    stdout = parent.fork("echo", ESD_NAME="one", SERVICES=long)
    started = parent.hear()
    os.close(parent.stdins.pop())
    arguments, environment, given, leads = json.loads(text_of(stdout))
    assert arguments == ["--an", "argument"]
    assert {name: value for name, value in environment.items() if name != "LC_CTYPE"} == {
        "ESD_NAME": "one",
        "SERVICES": long,
    }
    assert (given, leads) == ("", True)
    assert parent.hear() == {"event": "ended", "pid": started["pid"], "code": 7}
    assert parent.log.read_text() == "to the log\n"


def test_children_are_signalled_one_by_one(parent: Parent) -> None:
    outputs = [parent.fork("sleep") for _ in range(3)]
    pids = [parent.hear()["pid"] for _ in range(3)]
    assert [line_of(output) for output in outputs] == ["ready\n"] * 3
    parent.control.send(json.dumps({"pid": pids[1], "signal": signal.SIGKILL}).encode())
    assert parent.hear() == {"event": "ended", "pid": pids[1], "code": -signal.SIGKILL}
    # Its number may be anybody's by now; a child of another one is none of its business either.
    for stranger in (pids[1], os.getpid()):
        parent.control.send(json.dumps({"pid": stranger, "signal": signal.SIGKILL}).encode())
    parent.control.send(json.dumps({"pid": pids[0], "signal": signal.SIGTERM}).encode())
    assert parent.hear() == {"event": "ended", "pid": pids[0], "code": -signal.SIGTERM}
    assert parent.process.poll() is None


def test_children_die_with_a_parent_that_is_killed(parent: Parent) -> None:
    outputs = [parent.fork("sleep") for _ in range(2)]
    pids = [parent.hear()["pid"] for _ in range(2)]
    assert [line_of(output) for output in outputs] == ["ready\n"] * 2
    parent.process.kill()
    assert all(ends(pid) for pid in pids)


def test_a_parent_that_nobody_asks_any_more_ends_after_its_children(parent: Parent) -> None:
    output = parent.fork("wait")
    pid = parent.hear()["pid"]
    assert line_of(output) == "ready\n"
    parent.close()
    assert parent.process.wait(SECONDS) == 0
    assert ends(pid)


def test_a_process_with_threads_is_not_forked(tmp_path: Path) -> None:
    parent = Parent(tmp_path, "threaded")
    assert parent.hear() == {"event": "ready"}
    os.close(parent.fork("wait"))
    assert parent.process.wait(SECONDS) == 1
    assert parent.hear() is None
    assert "cannot be forked safely" in parent.log.read_text()
    parent.close()
