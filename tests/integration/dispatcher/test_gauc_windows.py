"""A window of GAUC takes milliseconds for each label: none of them is one in which the dispatcher does nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.core.grouped_auc import FullWindow
from esd.dispatcher.core.progress import RECENT_SAMPLES
from esd.services.domain.batches import SampleBatch
from esd.services.domain.plans import IterationPlan
from tests.support.simple_clients import Dispatcher, Worker, job_with, samples, train_all


@dataclass
class Grouping(Worker):
    """A worker whose samples are of 50 groups, and whose predictions are right but for one in ten."""

    async def report(self, plan: IterationPlan, **changes: Any) -> None:
        labels = plan.labels
        wrong = (np.arange(len(labels)) % 10 == 0)[:, np.newaxis]
        bins = np.where((labels > 0) != wrong, 60_000, 5_000).astype(np.uint16)
        groups = np.arange(len(labels), dtype=np.uint64) % 50
        await super().report(plan, score_bins=bins, groups=groups, **changes)


async def test_windows_are_computed_aside_of_the_event_loop(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, threads, done = FullWindow.figures, [], threading.Event()

    def noted(window: FullWindow) -> tuple[float, int]:
        threads.append(threading.get_ident())
        found = compute(window)
        done.set()
        return found

    monkeypatch.setattr(FullWindow, "figures", noted)
    job = job_with(batch_size=RECENT_SAMPLES)
    assert await dispatcher.client.create_job(job)

    async def until_computed() -> AsyncIterator[SampleBatch]:
        yield samples(RECENT_SAMPLES, job=job)
        assert await asyncio.to_thread(done.wait, 60)

    dispatcher.workers = [Grouping(dispatcher.client, f"edge-{slot}") for slot in range(job.workers)]
    await train_all(dispatcher, job, dispatcher.workers, until_computed())
    assert threads[0] != threading.get_ident()
    state = await dispatcher.client.describe()
    assert state is not None
    assert state.quality.gauc == state.recent.gauc == pytest.approx(0.9, abs=0.02)
