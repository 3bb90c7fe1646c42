"""A job's solver in the running dispatcher: the same training under each, a replay that holds, a refusal by name."""

from pathlib import Path
from typing import Any

import pytest

from esd.dispatcher.core.decision_log import read_decisions
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.domain.mechanisms import EsdOptions
from esd.services.wire.jobs import job_of_json
from esd.services.wire.plans import digest_of
from tests.support.simple_clients import Dispatcher, job_with, run_to_the_end, samples

BATCHES = [samples(8, seed=seed) for seed in range(20)]


@pytest.mark.parametrize(
    "solvers", [("dual", "paths"), pytest.param(("dual", "dual-cuda", "hungarian-cuda"), marks=pytest.mark.gpu)]
)
async def test_a_trained_job_costs_the_same_under_every_solver_and_replays(
    solvers: tuple[str, ...], start_dispatcher: Any, tmp_path: Path
) -> None:
    costs = {}
    for solver in solvers:
        log = tmp_path / f"{solver}.jsonl"
        dispatcher = await start_dispatcher(decision_log=log)
        await run_to_the_end(
            dispatcher, job_with(mechanism="esd", mechanism_options=EsdOptions(solver=solver)), BATCHES
        )
        costs[solver] = (await dispatcher.client.describe()).cost_seconds
        opened, *records = read_decisions(log)
        assert opened.job["mechanism_options"]["esd"]["solver"] == solver
        totals = replay_decisions(
            lambda: [opened, *records],  # noqa: B023
            job_of_json(opened.job),
            lambda: iter(BATCHES),
            digest_of,
        )
        assert totals.cost_seconds == costs[solver]
    assert set(costs.values()) == {costs["dual"]}
    assert costs["dual"] > 0


async def test_a_job_or_a_call_whose_solver_has_no_device_is_refused(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Unavailable("no CUDA device: no driver")

    monkeypatch.setattr("esd.dispatcher.solvers.open_device", fail)
    with pytest.raises(FailedPrecondition, match="solver hungarian-cuda needs a CUDA device"):
        await dispatcher.client.create_job(
            job_with(mechanism="esd", mechanism_options=EsdOptions(solver="hungarian-cuda"))
        )
    assert await dispatcher.client.describe() is None
    for alpha in (0.0, 1.0):
        with pytest.raises(FailedPrecondition, match="solver dual-cuda needs a CUDA device"):
            await dispatcher.client.hybrid_dis([[1, 5], [2, 9]], [1, 1], alpha=alpha, solver="dual-cuda")
