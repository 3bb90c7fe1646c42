"""A worker's work beside its model, measured in a short run: messages, rows, plans, the factors of dense gradients.

None of it depends on the links, and all of it takes the processor that also computes the model. On slow machines and
with small batches it may take longer than the model.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from esd.advice.sizing import Profile
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import Event, Progressed
from esd.run.options import RunOptions
from esd.run.services import processor_seconds
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import DeadlineExceeded
from esd.services.domain.footprint import Footprint
from esd.services.domain.state import JobPhase

_WORKERS = 2  # of the short run, if the planned one has as many
_SETTLED = 10  # iterations after which it is measured: by then workers have allocated and imported what they need
_ITERATIONS = 40  # that are measured
_SECONDS = 2.0  # in which they are measured, at least: the state of the job is asked for four times a second
_ENOUGH_SECONDS = 30.0  # before the measurement, and for it: long iterations are fewer
_LONGEST = 300.0  # of the short run


def measure_messages(chosen: RunOptions, profile: Profile, footprint: Footprint, memory: float, device: str) -> float:
    """Trains some iterations on a local cluster, without a limit of its links, for `Footprint.message_seconds`.

    Args:
        chosen: the run, with its batch.
        profile: of its samples.
        footprint: of its model, measured on this machine.
        memory: of a worker, bytes.
        device: where workers train, `cpu` or `cuda:N`.

    Returns:
        Seconds of an iteration that a worker's processor takes beside the model's, as long as they take where the
        model was measured: a machine, or a control group, may give it a share of a processor only.

    Raises:
        ServiceFailed, Unavailable: a service of the local cluster ended, or did not start.
        DeadlineExceeded: not even two iterations were measured in five minutes.
    """
    short = replace(
        chosen,
        workers=min(_WORKERS, chosen.workers),
        links="100g",
        lan=None,
        measured_links=False,
        workloads=None,
        max_rows=0,  # which too many ids would exceed
        checkpoint_every=0,
        checkpoint_seconds=0.0,
    )
    rows = min(profile.room(profile.job(short)), footprint.cache_rows(memory, short.batch or 0))
    used = asyncio.run(_run(short, profile, max(rows, 1), device))
    model = footprint.step_seconds + max(short.worker_samples()) * footprint.sample_seconds
    return max(0.0, used * footprint.slowness - model)


async def _run(short: RunOptions, profile: Profile, rows: int, device: str) -> float:
    """Returns the processor's seconds of a worker and iteration."""
    with tempfile.TemporaryDirectory(prefix="esd-plan-") as logs:
        async with LocalServices(
            worker_links=short.bandwidths(),
            cache_rows=[rows] * short.workers,
            logs=Path(logs),
            shadows=(),
            device=device,
        ) as cluster:
            job = replace(
                profile.job(short), parameter_servers=tuple(server.address for server in cluster.parameter_servers)
            )
            watch = _Watch([worker.process.pid for worker in cluster.workers])
            try:
                async with (
                    AsyncDispatcherClient(cluster.dispatcher.address) as client,
                    asyncio.timeout(_LONGEST),
                ):
                    await drive(client, job, watch.until_measured(profile), watch)
            except TimeoutError:
                raise DeadlineExceeded(
                    f"the messages of iterations of {short.worker_samples()[0]} samples per worker could not be "
                    f"measured in {_LONGEST:.0f} s: plan on a faster machine, or with a smaller --batch"
                ) from None
    return watch.seconds


@dataclass(frozen=True, slots=True)
class _Mark:
    iterations: int
    processor: float  # seconds of all workers
    at: float


class _Watch:
    """Measures workers while they train: a listener of the run, which also ends its samples.

    Args:
        workers: their processes.
    """

    def __init__(self, workers: list[int]) -> None:
        self._workers = workers
        self._marks = [_Mark(0, 0.0, time.monotonic())]  # then those of the measurement's beginning and end

    def __call__(self, event: Event) -> None:
        """Takes the marks as the state of the job shows progress."""
        if not isinstance(event, Progressed) or event.state.phase is not JobPhase.RUNNING or self._is_over:
            return
        wanted, least = ((_SETTLED, 0.0), (_ITERATIONS, _SECONDS))[len(self._marks) - 1]
        iterations, now = event.state.iterations_confirmed, time.monotonic()
        passed, seconds = iterations - self._marks[-1].iterations, now - self._marks[-1].at
        if seconds >= least and (passed >= wanted or (passed > 1 and seconds >= _ENOUGH_SECONDS)):
            self._marks.append(_Mark(iterations, sum(map(processor_seconds, self._workers)), now))

    def until_measured(self, profile: Profile) -> Iterator[SampleBatch]:
        """Yields the profiled samples, again if they are few, until the end is measured."""
        while not self._is_over:
            for batch in profile.samples:
                if self._is_over:
                    return
                yield batch

    @property
    def seconds(self) -> float:
        """The processor's seconds of a worker and iteration."""
        _, first, last = self._marks
        return (last.processor - first.processor) / (last.iterations - first.iterations) / len(self._workers)

    @property
    def _is_over(self) -> bool:
        return len(self._marks) == 3
