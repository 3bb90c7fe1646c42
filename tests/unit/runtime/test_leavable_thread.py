"""A thread with a call that never returns does not delay an exit; a call that returns is not interrupted."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from esd.services.runtime.leavable_thread import LeavableThread

HANGING = """
import os
from esd.services.runtime.leavable_thread import LeavableThread

reading, _writing = os.pipe()
thread = LeavableThread("esd-test")
thread.submit(print, "before", flush=True).result()
thread.submit(os.read, reading, 1)
"""

# Its last call begins in time, and takes processor time in native code: it would be cut off if nobody waited.
BUSY = """
from esd.services.runtime import leavable_thread

leavable_thread.LEAVE_SECONDS = 60  # on a machine that is busy
thread = leavable_thread.LeavableThread("esd-test")
thread.submit(sum, range(3_000_000))
thread.submit(print, "all of it", flush=True)
"""


@pytest.mark.parametrize(("program", "printed"), [(HANGING, "before\n"), (BUSY, "all of it\n")])
def test_the_end_of_the_process(program: str, printed: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")


def test_calls_are_made_in_order_in_one_thread_that_bears_its_name() -> None:
    before = set(threading.enumerate())
    thread = LeavableThread("esd-test")
    started, comm = set(threading.enumerate()) - before, Path("/proc/thread-self/comm")
    made: list[int] = []
    appended = [thread.submit(made.append, number) for number in range(5)]
    name, failed = thread.submit(comm.read_text), thread.submit(int, "no number")
    thread.end()
    with pytest.raises(ValueError, match="no number"):
        failed.result(60)
    assert [each.result(60) for each in appended] == [None] * 5
    assert (made, name.result(60)) == (list(range(5)), "esd-test\n")
    thread.join(60)
    assert not started & set(threading.enumerate()), "those of others may end meanwhile"


def test_a_call_that_was_given_up_before_its_turn_is_not_made() -> None:
    thread, turn = LeavableThread("esd-test"), threading.Event()
    made: list[int] = []
    running = thread.submit(turn.wait, 60)
    given_up = thread.submit(made.append, 1)
    assert given_up.cancel()
    turn.set()
    assert running.result(60)
    thread.end()
    thread.join(60)
    assert not made
