"""Workers that are forked from one process, which has imported torch."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from esd.run import worker_host
from esd.run.events import Event
from esd.run.worker_host import ForkedProcess, WorkerHost
from esd.services.domain.errors import InvalidArgument, Unavailable
from esd.services.domain.features import Feature, numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.tables import OptimizerSpec, TableSpec

SECONDS = 120

JOB = JobSpec(
    name="job", workers=1, features=numbered_ids(4), dense_features=3, batch_size=8, workloads=(8,), mechanism="random",
    policy="lru", seed=7, window=2,
    tables=(TableSpec("rows", 5, OptimizerSpec(), seed=7, init_scale=0.1),),
    model=ModelSpec("wdl", (8,), OptimizerSpec()), parameter_servers=("127.0.0.1:1",),
)  # fmt: skip


class Workers:
    """Starts workers that find no dispatcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.host = WorkerHost(folder / "host.log", SECONDS)

    async def start(self, name: str) -> ForkedProcess:
        """A worker that is ready."""
        environment = {
            **os.environ,
            "ESD_WORKER_NAME": name,
            "ESD_WORKER_DISPATCHER": "127.0.0.1:1",
            "ESD_WORKER_LINK": "1e9",
            "ESD_WORKER_CACHE_ROWS": "64",
            "ESD_WORKER_RETRY_TIMEOUT": str(SECONDS),
        }
        with (self.folder / f"{name}.log").open("ab") as log:
            worker = await self.host.start_worker(["--stop-with-stdin"], environment, log.fileno())
        ready = json.loads(await worker.stdout.readline())
        assert ready["service"] == "worker"
        return worker


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    workers = Workers(tmp_path)
    async with asyncio.timeout(SECONDS):
        yield workers
    await workers.host.close()


def parent_of(worker: ForkedProcess) -> int:
    return int(Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_they_have_one_parent_and_an_end_of_their_own(workers: Workers) -> None:
    one, two, three = await asyncio.gather(*(workers.start(name) for name in ("one", "two", "three")))
    assert parent_of(one) == parent_of(two) == parent_of(three) != os.getpid()
    one.kill()
    two.terminate()
    assert await one.wait() == -signal.SIGKILL
    assert await two.wait() == 0
    assert "stopping on SIGTERM" in (workers.folder / "two.log").read_text()
    assert three.returncode is None
    assert (workers.folder / "host.log").read_text() == ""
    with pytest.raises(ProcessLookupError):
        one.kill()

    again = await workers.start("one")
    assert parent_of(again) == parent_of(three)


async def test_they_die_with_their_host_which_is_started_again(workers: Workers) -> None:
    one, two = await asyncio.gather(workers.start("one"), workers.start("two"))
    os.kill(parent_of(one), signal.SIGKILL)
    assert [await one.wait(), await two.wait()] == [-signal.SIGKILL] * 2
    again = await workers.start("one")
    again.terminate()
    assert await again.wait() == 0


async def test_a_model_is_tried_before_there_is_a_worker(workers: Workers) -> None:
    await workers.host.try_model(JOB)
    columns = tuple(Feature(f"a column of a wide table, one of many: {number}") for number in range(2000))
    await workers.host.try_model(replace(JOB, features=columns))  # described in more than a pipe holds
    with pytest.raises(InvalidArgument, match="model 'xyz' is unknown, choose one of wdl, dfm, dcn, dlrm"):
        await workers.host.try_model(replace(JOB, model=replace(JOB.model, name="xyz")))
    with pytest.raises(InvalidArgument, match="dimension is 1, wdl needs at least 2"):
        await workers.host.try_model(replace(JOB, tables=(replace(JOB.table, dimension=1),)))
    worker = await workers.start("one")  # after a trial that has used torch, too
    assert worker.returncode is None


OWN = """
import pathlib, subprocess, time

import torch

import esd

folder = pathlib.Path(__file__).parent

class Net(esd.Model):
    def __init__(self, inputs, hidden):
        super().__init__(inputs, hidden)
        {start}
        self.output = torch.nn.Linear(inputs.width, len(inputs.labels))

    def forward(self, embeddings, dense):
        {forward}
        return self.output(torch.cat((*embeddings.values(), dense), dim=1))
"""


def own_model(folder: Path, monkeypatch: pytest.MonkeyPatch, *, start: str = "pass", forward: str = "pass") -> JobSpec:
    """Writes a model of one's own, which runs these statements when it is built and when it is called."""
    (folder / "own.py").write_text(OWN.format(start=start, forward=forward))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return replace(JOB, model=replace(JOB.model, name="own:Net"))


async def test_a_process_that_a_model_starts_is_not_waited_for(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a tracker; it inherits the pipe to which the trial writes."""
    start = "(folder / 'helper').write_text(str(subprocess.Popen(['sleep', '600']).pid))"
    job = own_model(tmp_path, monkeypatch, start=start)
    try:
        await workers.host.try_model(job)
    finally:
        os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


async def test_a_model_that_hangs_in_its_trial_is_refused(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = own_model(tmp_path, monkeypatch, forward="time.sleep(600)")
    await workers.host.try_model(JOB)  # the host has started, which the limit does not cover
    monkeypatch.setattr(worker_host, "TRIAL_SECONDS", 7.0)
    events: list[Event] = []
    with pytest.raises(InvalidArgument, match="model 'own:Net' takes longer than 7 s to be built and to train two"):
        await workers.host.try_model(job, events.append)
    assert list(map(str, events)) == ["model 'own:Net' is being tried on two samples; this is refused after 7 s"]


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(0)"])
async def test_a_model_that_ends_its_process_in_its_trial_is_refused_with_the_place(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    job = own_model(tmp_path, monkeypatch, forward=f"raise {error}")
    name, _, _ = error.partition("(")
    with pytest.raises(InvalidArgument, match=rf"model 'own:Net' .*{name}.*own\.py:17, in forward: raise {name}"):
        await workers.host.try_model(job)


async def test_a_host_that_cannot_start_says_why(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch for this machine')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(Unavailable, match=r"has ended, or was not ready within 120 s(.|\n)*no torch for this machine"):
        await workers.start("one")
    monkeypatch.undo()
    worker = await workers.start("one")
    assert worker.returncode is None
