"""`esd cluster` works on several machines at once."""

from __future__ import annotations

from threading import Barrier, Lock

import pytest

from esd.cluster.concurrently import AT_ONCE, for_each
from esd.services.domain.errors import FailedPrecondition, Unavailable


def test_as_many_as_allowed_run_at_once_and_results_keep_their_order() -> None:
    together, lock = Barrier(AT_ONCE), Lock()
    running = most = 0

    def meet(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(timeout=60)  # fails unless AT_ONCE of them are here
        with lock:
            running -= 1
        return number * number

    numbers = range(3 * AT_ONCE)
    assert for_each(meet, numbers) == [number * number for number in numbers]
    assert most == AT_ONCE


def test_every_machine_that_fails_is_named_and_the_others_are_done() -> None:
    done = []

    def start(host: str) -> None:
        if host == "b":
            raise Unavailable("b (ssh://b): away")
        if host == "c":
            raise FailedPrecondition("c: no image")
        done.append(host)

    with pytest.raises(Unavailable, match=r"^b \(ssh://b\): away\nc: no image$"):
        for_each(start, "abcd")
    assert sorted(done) == ["a", "d"]
