"""SIGTERM ends a run in order, while any task has the processor."""

from __future__ import annotations

import asyncio
import signal

import pytest

from esd.cli.stopping import run_until_stopped


@pytest.mark.parametrize("tasks", [0, 1, 2], ids="the signal comes while a task {} deep has the processor".format)
@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_lets_a_run_clear_up(tasks: int, signals: int) -> None:
    cleared = []

    async def step(deeper: int) -> None:
        if deeper:
            await asyncio.create_task(step(deeper - 1))
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    async def work() -> None:
        try:
            await step(tasks)
        except asyncio.CancelledError:
            for _ in range(1, signals):
                signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.01)  # as what asks the dispatcher to end the job
            cleared.append(True)
            raise

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        run_until_stopped(work())
    assert (ended.value.code, cleared) == (143, [True])
    assert signal.getsignal(signal.SIGTERM) is before
