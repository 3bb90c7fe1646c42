"""A driver's samples are matched to the job by the names of their columns before they are sent."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from esd.services.domain.batches import SampleBatch
from esd.services.domain.columns import SampleColumns
from esd.services.domain.errors import InvalidArgument
from tests.support.simple_clients import Dispatcher, Worker, job_with, samples

NAMES = ("price", "age")


async def test_samples_come_in_the_order_of_the_job_or_are_refused(dispatcher: Dispatcher, server: str) -> None:
    job = job_with(workers=1, dense_features=2, dense_names=NAMES, parameter_servers=(server,))
    assert await dispatcher.client.create_job(job)
    worker = Worker(dispatcher.client, "worker-0")
    plain = samples(8, job=job)
    plain.dense[:, 1] += 100
    other = plain.named(SampleColumns(job.features, job.labels, ("price", "weight")))
    with pytest.raises(InvalidArgument, match="dense features of the samples lack 'age' and have 'weight'"):
        await dispatcher.client.submit(job.name, [other])
    shuffled = SampleBatch(
        plain.by_field[:, ::-1].reshape(-1).copy(),
        plain.dense[:, ::-1].copy(),
        plain.labels,
        columns=SampleColumns(job.features[::-1], job.labels, NAMES[::-1]),
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(dispatcher.client.submit(job.name, [shuffled]))
        tasks.create_task(worker.train())
    (plan,) = worker.plans
    np.testing.assert_array_equal(plan.dense, plain.dense[plan.positions])
    ids = plan.unique_ids[plan.inverse].reshape(-1, job.fields)
    np.testing.assert_array_equal(ids, plain.by_field[plan.positions])
