"""How long `esd cluster up` waits for services that load their rows, by a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest

from esd.cli import cluster
from esd.cluster.engines import Found
from esd.services.domain.errors import Unavailable


class Clock:
    """Stands in for the module `time`: each sleep passes 50 s."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += 50


class Hosts:
    """Engines that find a parameter server, which says these lines, one after the other, and the last one for ever."""

    def __init__(self, *said: str, then: str) -> None:
        self._said = list(said)
        self._last = ""
        self._then = then

    def found(self) -> list[Found]:
        health = "starting" if self._said else self._then
        self._last = self._said.pop(0) if self._said else self._last
        return [
            Found("edge-7", "redis", "running", "healthy"),
            Found("edge-7", "ps_server", "running", health, self._last),
        ]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(cluster, "time", clock)
    return clock


def wait_for(engines: Any) -> None:
    cluster._await_health(engines)


def test_services_that_load_are_waited_for_as_long_as_they_get_on(clock: Clock) -> None:
    wait_for(Hosts(*(f"{number} MiB" for number in range(20)), then="healthy"))
    assert clock.now >= 1000


def test_one_that_stands_still_is_named_with_its_last_progress(clock: Clock) -> None:
    with pytest.raises(Unavailable, match=r"after 120 s: ps_server on edge-7 \(running, starting, 7 MiB\)"):
        wait_for(Hosts("5 MiB", "7 MiB", then="starting"))
    assert clock.now < 300


def test_one_that_begins_again_and_again_makes_no_progress(clock: Clock) -> None:
    with pytest.raises(Unavailable):
        wait_for(Hosts(*(["5 MiB", "7 MiB"] * 20), then="healthy"))


def test_services_that_say_nothing_have_a_fixed_time(clock: Clock) -> None:
    with pytest.raises(Unavailable, match=r"ps_server on edge-7 \(running, starting\)"):
        wait_for(Hosts(then="starting"))
    assert 120 < clock.now < 250
