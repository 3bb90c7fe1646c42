"""The conformance test is passed by the built-in worker and by a plain loop of torch, and fails where one is wrong."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import esd
from esd.dispatcher.service.app import serve_dispatcher
from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.app import parameter_server
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.domain.jobs import JobSpec
from esd.testing import JOB, Result, conformance
from esd.testing.job import ITERATIONS, samples
from esd.worker.models import build_model
from examples.own_loop import Net, new_net

ROOT = Path(__file__).parents[2]
MOST_LINES = 12


PAGE = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "own-loop.md").read_text(), re.DOTALL)


def own_net(_: JobSpec) -> Net:
    return new_net()


def built_in() -> Result:
    return conformance([sys.executable, "-m", "esd.worker"], build_model)


def own_loop() -> Result:
    names: dict[str, Result] = {}
    exec(PAGE[1], names)
    return names["result"]


@pytest.mark.parametrize("trained", [built_in, own_loop])
def test_these_trainers_conform(trained: Callable[[], Result]) -> None:
    result = trained()
    assert result.iterations == ITERATIONS + 1
    assert result.evict_pushes > 100
    assert 1 <= result.iterations_redone <= JOB.checkpoint_every
    assert result.deviation < 1e-4


def test_a_loop_of_ones_own_conforms_where_the_servers_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through evictions, a kill, and an iteration in which a worker has no samples."""
    job = replace(JOB, dense_sum=esd.parse_dense_sum("server"))
    monkeypatch.setattr(sys.modules["esd.testing.conformance"], "JOB", job)
    assert own_loop().deviation < 1e-4


async def test_the_loop_of_the_page_trains_a_job() -> None:
    code = PAGE[0]
    nothing_else = {"metrics_port": None, "grace_seconds": 0}
    async with (
        parameter_server(ParameterServerSettings(**nothing_else)) as server,
        serve_dispatcher(DispatcherSettings(**nothing_else)) as dispatcher,
        esd.AsyncDispatcherClient(dispatcher.address) as client,
    ):
        job = replace(JOB, workers=1, workloads=(JOB.batch_size,), parameter_servers=(server.address,))
        await client.create_job(job)
        assert "127.0.0.1:50051" in code
        code = code.replace("127.0.0.1:50051", dispatcher.address)
        trainer = await asyncio.create_subprocess_exec(sys.executable, "-c", code, cwd=ROOT)
        try:
            await client.submit(job.name, [samples()[: 5 * job.batch_size]])
            assert await trainer.wait() == 0
        finally:
            if trainer.returncode is None:
                trainer.kill()
                await trainer.wait()
        state = await client.describe()
    assert state is not None
    assert (state.phase, state.iterations_confirmed) == (esd.JobPhase.FINISHED, 5)


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("undivided", "the trained model differs.*rows by"),
        ("divided_by_own_samples", "the trained model differs.*rows by"),
        ("other_loss", "the trained model differs.*rows by"),
        ("momentum_aside", "the trained model differs.*parameter layers.0.weight by"),
        ("not_optimised", "iteration 3 without a call of step.optimise"),
        ("logits_as_scores", r"scores of iteration 0 are in .*must be probabilities in 0\.\.1"),
        ("mean_loss", r'losses of iteration 0 are \[\], they must be .* needs reduction="none"'),
        ("another_model", "begins with other dense parameters.*seed torch"),
    ],
)
def test_a_trainer_with_a_mistake_is_found_out(mistake: str, said: str) -> None:
    with pytest.raises(AssertionError, match=f"(?s){said}"):
        conformance([sys.executable, "-m", "tests.support.broken_trainers", mistake], own_net)


def test_the_loop_of_ones_own_is_short_and_uses_public_names_alone() -> None:
    text = (ROOT / "examples" / "own_loop.py").read_text()
    (train,) = (each for each in ast.parse(text).body if isinstance(each, ast.FunctionDef) and each.name == "train")
    _, first, *_ = train.body
    assert train.end_lineno is not None
    assert train.end_lineno - first.lineno + 1 <= MOST_LINES
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name for name in imported if name and name.startswith("esd")} == {"esd"}
