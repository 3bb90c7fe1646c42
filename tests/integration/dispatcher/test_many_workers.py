"""A job of more workers than a word has bits, over gRPC: members, plans, gradients and cuts name all of them."""

from __future__ import annotations

import numpy as np

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.state import JobPhase
from esd.services.domain.worker_set import WorkerSet
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples
from tests.support.worker_sets import listed

WORKERS, BATCH = 80, 160


async def test_eighty_workers_train_every_sample_once_and_cut_together(dispatcher: Dispatcher) -> None:
    source = samples(5 * BATCH + 30)
    async with parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as server:
        changes = {"parameter_servers": (server.address,), "checkpoint_every": 2}
        job = job_with(workers=WORKERS, batch_size=BATCH, mechanism="esd", **changes)
        workers = await run_to_the_end(dispatcher, job, [source])

    for slot, worker in enumerate(workers):
        assert worker.membership is not None
        assert (worker.membership.slot, worker.membership.members) == (slot, WorkerSet.all_of(WORKERS))
    split_in_both_words = 0
    for iteration, plans in enumerate(zip(*(worker.plans for worker in workers), strict=True)):
        positions = np.concatenate([plan.positions for plan in plans])
        assert sorted(positions.tolist()) == list(range(plans[0].batch_size))
        trainers: dict[int, int] = {}
        for slot, plan in enumerate(plans):
            batch = source[BATCH * iteration : BATCH * (iteration + 1)]
            np.testing.assert_array_equal(plan.unique_ids[plan.inverse], batch[plan.positions].ids)
            for row in plan.unique_ids.tolist():
                trainers[row] = trainers.get(row, 0) | 1 << slot
        for plan in plans:
            assert listed(plan.unique_contributors) == [trainers[row] for row in plan.unique_ids.tolist()]
        split_in_both_words += sum(bool(mask >> 64 and mask % 2**64) for mask in trainers.values())
    assert split_in_both_words > 20
    pushed = [plan.update_gradients.contributors for worker in workers for plan in worker.plans]
    assert any(mask >> 64 for column in pushed for mask in listed(column))

    state = await dispatcher.client.describe()
    assert state is not None
    assert (state.phase, state.iterations_confirmed) == (JobPhase.FINISHED, 6)
    assert state.checkpoint == 6
