"""A worker's work beside its model, measured in a short run: messages, rows, plans, the factors of dense gradients.

None of it depends on the links, and all of it takes the processor that also computes the model. On slow machines and
with small batches it may take longer than the model.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from esd.advice.sizing import Profile
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import Event, Progressed
from esd.run.options import RunOptions
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.footprint import Footprint
from esd.services.domain.state import JobPhase

_WORKERS = 2  # of the short run, if the planned one has as many
_SETTLED = 10  # iterations after which it is measured: by then workers have allocated and imported what they need
_ITERATIONS = 40  # that are measured, at least
_SECONDS = 2.0  # in which they are measured, at least: the kernel counts processor time in steps of 10 ms
_LONGEST_SECONDS = 120.0  # from the first sample on


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
        TimeoutError: so few iterations took two minutes.
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
            async with AsyncDispatcherClient(cluster.dispatcher.address) as client, asyncio.timeout(_LONGEST_SECONDS):
                await drive(client, job, watch.until_measured(profile), watch)
    return watch.seconds


@dataclass
class _Watch:
    """Measures workers while they train.

    Attributes:
        workers: their processes.
        marks: the iterations and their processor's seconds at the beginning and at the end.
    """

    workers: list[int]
    marks: list[tuple[int, float, float]] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Takes the marks as the state of the job shows progress."""
        if not isinstance(event, Progressed) or event.state.phase is not JobPhase.RUNNING or len(self.marks) == 2:
            return
        iterations, now = event.state.iterations_confirmed, time.monotonic()
        begun = self.marks[0] if self.marks else (iterations - _ITERATIONS, 0.0, now - _SECONDS)
        if iterations >= _SETTLED and iterations - begun[0] >= _ITERATIONS and now - begun[2] >= _SECONDS:
            self.marks.append((iterations, sum(map(_processor_seconds, self.workers)), now))

    def until_measured(self, profile: Profile) -> Iterator[SampleBatch]:
        """Yields the profiled samples, again if they are few, until the end is measured."""
        while len(self.marks) < 2:
            for batch in profile.samples:
                if len(self.marks) == 2:
                    return
                yield batch

    @property
    def seconds(self) -> float:
        """The processor's seconds of a worker and iteration."""
        (first, before, _), (last, after, _) = self.marks
        return (after - before) / (last - first) / len(self.workers)


def _processor_seconds(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
