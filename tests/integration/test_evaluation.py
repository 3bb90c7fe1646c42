"""Held-out samples are scored again where a parameter server was away, and a model that hangs meanwhile is refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
import torch

from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run import evaluation
from esd.run.evaluation import Evaluator
from esd.run.events import Event, TakesLong
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.retry import AWAY, repeated
from esd.worker.training.reducer import Alone
from esd.worker.training.trainer import model_of_job
from tests.support.cuttable_proxy import CuttableProxy
from tests.support.server_client import ServerClient
from tests.support.simple_clients import job_with, samples


class AwayOnce:
    """Samples, at the first reading of which the server is away for a while."""

    def __init__(self, proxy: CuttableProxy) -> None:
        self.readings = 0
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[SampleBatch]:
        self.readings += 1
        if self.readings == 1:
            self._loop.call_soon_threadsafe(self._proxy.refuse)
        yield samples(8)


async def test_a_server_that_is_away_while_rows_are_read_is_waited_for() -> None:
    async with (
        parameter_server(ParameterServerSettings(metrics_port=None, grace_seconds=0)) as server,
        CuttableProxy.running(server.address) as proxy,
    ):
        job = job_with(parameter_servers=(proxy.address,))
        async with ServerClient(server.address, job.table) as client:
            await client.create_table()
            await client.put_dense(model_of_job(job, Alone(), torch.device("cpu")).to_npz())
        held_out = AwayOnce(proxy)
        evaluator = Evaluator(job, held_out)

        async def evaluate() -> float:
            if held_out.readings:
                proxy.admit()
            (quality,), _ = await evaluator.evaluate()
            return quality.loss

        assert await repeated(evaluate, 20.0, on=AWAY) > 0
        assert held_out.readings == 2
        evaluator.close()


async def test_a_model_that_hangs_here_is_refused_after_a_limit_and_reported_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trial may pass in the workers, where another machine or other packages run the model."""
    released = threading.Event()
    monkeypatch.setattr(evaluation, "TRIAL_SECONDS", 0.3)
    monkeypatch.setattr(evaluation, "_REPORTED_SECONDS", 0.1)
    monkeypatch.setattr(evaluation, "_try_model", lambda _job: released.wait())
    events: list[Event] = []
    evaluator = Evaluator(job_with(), [samples(8)], listener=events.append)
    with pytest.raises(InvalidArgument, match=r"model 'wdl' is being tried for held-out samples for longer than 0.3 s"):
        await evaluator.prepare()
    assert events == [TakesLong("model 'wdl' is being tried for held-out samples", 0.3)]
    evaluator.close()
    released.set()


async def test_a_slow_import_of_torch_is_reported_and_is_no_mistake_of_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine with much other work needs more than a minute for it."""
    reported = threading.Event()
    monkeypatch.setattr(evaluation, "TRIAL_SECONDS", 0.3)
    monkeypatch.setattr(evaluation, "_REPORTED_SECONDS", 0.4)
    monkeypatch.setattr(evaluation, "_import_torch", lambda: reported.wait(60))
    monkeypatch.setattr(evaluation, "_try_model", lambda _job: None)
    events: list[Event] = []

    def listen(event: Event) -> None:
        events.append(event)
        reported.set()

    evaluator = Evaluator(job_with(), [samples(8)], listener=listen)
    await evaluator.prepare()
    assert [event.work for event in events if isinstance(event, TakesLong)] == [
        "torch is being imported for held-out samples"
    ]
    evaluator.close()
