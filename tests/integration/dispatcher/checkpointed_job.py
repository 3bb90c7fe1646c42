"""A job that takes checkpoints, and its samples."""

from __future__ import annotations

import asyncio

from esd.services.domain.jobs import JobSpec
from tests.support.simple_clients import Dispatcher, Worker, job_with, samples


async def start_job(dispatcher: Dispatcher, server: str, **changes: object) -> tuple[JobSpec, Worker, Worker]:
    """A job of two workers, both registered, with a checkpoint before every second iteration."""
    job = job_with(parameter_servers=(server,), **({"checkpoint_every": 2} | changes))
    await dispatcher.client.create_job(job)
    workers = dispatcher.worker("edge-0"), dispatcher.worker("edge-1")
    for worker in workers:
        await worker.register()
    return job, *workers


def submit(dispatcher: Dispatcher, job: JobSpec, batches: int) -> asyncio.Task[int]:
    source = [samples(8, seed=seed) for seed in range(batches)]
    return asyncio.create_task(dispatcher.client.submit(job.name, source))
