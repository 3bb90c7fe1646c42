"""Trains as `esd train` does, by the library and in an event loop of its own, for tests without a loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from esd.run.cluster import LocalServices
from esd.run.events import Event, Listener, Progressed, Started
from esd.run.options import RunOptions
from esd.run.results import Result
from esd.run.train import train
from esd.services.domain.state import JobState

Watch = Callable[[LocalServices, JobState], None]


def print_event(event: Event) -> None:
    """Prints an event on standard error, as the command does, unless it only shows progress."""
    if not isinstance(event, Progressed):
        sys.stderr.write(f"{event}\n")


def watching(watch: Watch, listener: Listener = print_event) -> Listener:
    """A listener that hands the cluster and each state of the job to `watch`, and every event to `listener`."""
    clusters: list[LocalServices] = []

    def see(event: Event) -> None:
        listener(event)
        match event:
            case Started(cluster=cluster):
                assert cluster is not None
                clusters.append(cluster)
            case Progressed(state=state):
                watch(clusters[-1], state)

    return see


def run(
    options: RunOptions,
    *,
    watch: Watch = lambda _cluster, _state: None,
    listener: Listener = print_event,
    **where: Any,
) -> Result:
    """The result of a run on a local cluster; `where` are keywords of esd.run.train.train."""
    where.setdefault("graphs", False)  # which take seconds, and which few tests look at
    return asyncio.run(train(options, watching(watch, listener), **where)).result()
