"""Threads bear the names of their pools in the operating system."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from esd.services.runtime.threads import named_threads


def shown_name() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text().strip()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_of_a_pool_bear_its_name() -> None:
    before = shown_name()
    with named_threads("esd-test") as pool:
        assert pool.submit(shown_name).result() == "esd-test"
    assert shown_name() == before


def test_a_pool_has_at_most_as_many_threads_as_it_is_given() -> None:
    both = threading.Barrier(2)
    with named_threads("esd-test", 2) as pool:
        waiting = [pool.submit(both.wait, 30) for _ in range(2)]
        assert sorted(each.result() for each in waiting) == [0, 1]
        assert len({pool.submit(threading.get_ident).result() for _ in range(8)}) <= 2
