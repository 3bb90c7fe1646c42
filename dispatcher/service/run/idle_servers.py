"""The watch over parameter servers while the stream pauses: a restarted server is noticed before the next samples come.

While samples arrive, a server that has restarted refuses the calls of workers and dispatcher, and the refusal begins
the recovery. In a pause nothing is called. Then the recovery would delay the first samples after the pause, and the
rows in the caches of workers, which the restarted server lacks, would be at risk for as long as the pause lasts.
"""

from __future__ import annotations

import asyncio

from esd.dispatcher.service.run.job import Job
from esd.services.domain.errors import EsdError

_LOOK_SECONDS = 5.0


async def watch_idle_servers(job: Job) -> None:
    """Ends the epoch when a parameter server is found in another epoch while the workers wait for samples.

    A server that is away is no reason to end the epoch: it may come back with all its rows.
    """
    while job.checkpoints is not None:
        await asyncio.sleep(_LOOK_SECONDS)
        epoch = job.epoch
        if epoch is None or epoch.over or job.lifecycle.over or not job.waits_for_samples(epoch):
            continue
        try:
            strayed = await job.checkpoints.store.strayed(epoch.number)
        except EsdError:
            continue
        if strayed and job.epoch is epoch:
            job.end_epoch(f"the parameter server at {strayed} is in another epoch: it was restarted")
