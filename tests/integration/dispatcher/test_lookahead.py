"""A mechanism that looks ahead gets the batches that follow, also from the running dispatcher."""

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.services.domain.mechanisms import JointOptions, MechanismOptions
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples


@pytest.mark.parametrize(("mechanism", "options"), [("laia-two-choices", None), ("joint", JointOptions(4))])
async def test_the_service_looks_ahead_as_far_as_the_simulator(
    dispatcher: Dispatcher, mechanism: str, options: MechanismOptions | None
) -> None:
    job = job_with(mechanism=mechanism, mechanism_options=options, window=1)
    batches = [samples(8, seed=seed) for seed in range(12)]
    batches.append(samples(3, seed=99))
    workers = await run_to_the_end(dispatcher, job, batches)

    planner = Planner(job, [1e6, 1e6], [100, 100])
    for t, batch in enumerate(batches):
        decision = planner.plan(batch, batches[t + 1 : t + 1 + planner.lookahead])
        for worker in workers:
            positions = np.flatnonzero(decision.assignment == worker.membership.slot)
            assert worker.plans[t].positions.tolist() == positions.tolist()
