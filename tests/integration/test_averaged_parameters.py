"""Dense parameters that are averaged every so many iterations, beside rows that are trained by all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.stream import first_samples, global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import Every
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import OptimizerKind, OptimizerSpec
from esd.worker.models import build_model
from tests.support import training
from tests.support.models import assert_same_model, distance, model_arrays
from tests.support.reference import Rows, by_feature

OPTIONS = RunOptions(
    data="synthetic:criteo?samples=3000",
    model="dlrm",
    workers=4,
    links="1g,1g,100m,100m",
    workloads="30,20,14,0",  # the last worker has no samples
    dim=8,
    cache_rows=700,  # so that rows are evicted
    optimizer=OptimizerKind.SGD,
    learning_rate=0.05,
    iterations=40,
    seed=3,
    checkpoint_every=15,
)
ALONE = replace(OPTIONS, workers=1, workloads=None, batch=64, links="1g", cache_rows=2000)
ADAGRAD = {"optimizer": OptimizerKind.ROWWISE_ADAGRAD, "learning_rate": 0.02}


def arrays_of(options: RunOptions, path: Path, **where: Any) -> dict[str, np.ndarray]:
    training.run(options, **{"store": "memory", "shards": 2, "out": path, **where})
    return model_arrays(path / "model")


def trained(model: dict[str, np.ndarray]) -> list[str]:
    return [name for name in model if name == "rows" or name.startswith("dense/")]


class Recorded(Planner):
    """Keeps the workers of all samples."""

    assignments: list[NDArray[np.int32]]

    def plan(self, *args: Any, **options: Any) -> Decision:
        decision = super().plan(*args, **options)
        self.assignments.append(decision.assignment)
        return decision


def planned(options: RunOptions, batches: Sequence[SampleBatch]) -> tuple[JobSpec, list[NDArray[np.int32]]]:
    dataset = options.open(1024)
    job = options.job(features=dataset.features, dense_features=dataset.dense_features, parameter_servers=("none",))
    planner = Recorded(job, options.bandwidths(), [options.cache_rows] * options.workers)
    planner.assignments = []
    simulate(planner, batches)
    return job, planner.assignments


class Reference:
    """One process with a model for each worker, and one table, whose rows are trained by all gradients."""

    def __init__(self, job: JobSpec, batches: Sequence[SampleBatch], every: int) -> None:
        self._job = job
        self._every = every
        self.table = Rows(job.tables[0], np.unique(np.concatenate([batch.ids for batch in batches])), None)
        self._models = [build_model(job) for _ in range(job.workers)]
        self._optimizers = [_optimizer(job.model.dense_optimizer, model) for model in self._models]
        self._samples = np.zeros(job.workers, np.int64)

    def train(self, iteration: int, batch: SampleBatch, assignment: NDArray[np.int32]) -> None:
        size = len(batch)
        shape = size, self._job.fields, self._job.tables[0].dimension
        rows = self.table.look_up(batch.ids, iteration).view(shape)
        losses = []
        for worker, model in enumerate(self._models):
            model.zero_grad(set_to_none=False)
            own = torch.from_numpy(np.flatnonzero(assignment == worker))
            self._samples[worker] += len(own)
            if len(own):
                labels = torch.tensor(batch.labels)[own]
                logits = model(by_feature(self._job, rows[own]), torch.tensor(batch.dense)[own]).view_as(labels)
                losses.append(functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum"))
        (sum(losses) / size).backward()
        self.table.train(1.0)
        for worker, (model, optimizer) in enumerate(zip(self._models, self._optimizers, strict=True)):
            for parameter in model.parameters():
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                parameter.grad *= size / max(1, (assignment == worker).sum())
            optimizer.step()
        if (iteration + 1) % self._every == 0 or (iteration + 1) % self._job.checkpoint_every == 0:
            self.average()

    @torch.no_grad()
    def average(self) -> None:
        if not self._samples.any():
            return
        shares = self._samples / self._samples.sum()
        for copies in zip(*(model.parameters() for model in self._models), strict=True):
            self._to_mean(copies, shares)
            if "sum" in self._optimizers[0].state[copies[0]]:
                states = [each.state[copy]["sum"] for each, copy in zip(self._optimizers, copies, strict=True)]
                self._to_mean(states, shares)
        self._samples[:] = 0

    @staticmethod
    def _to_mean(copies: Sequence[torch.Tensor], shares: NDArray[np.float64]) -> None:
        mean = sum(float(share) * copy for share, copy in zip(shares, copies, strict=True))
        for copy in copies:
            copy.copy_(mean)

    @property
    def dense(self) -> dict[str, NDArray[np.float32]]:
        return {name: values.numpy() for name, values in self._models[0].state_dict().items()}


def _optimizer(spec: OptimizerSpec, model: torch.nn.Module) -> torch.optim.Optimizer:
    if spec.kind is OptimizerKind.SGD:
        return torch.optim.SGD(model.parameters(), lr=spec.learning_rate)
    return torch.optim.Adagrad(model.parameters(), lr=spec.learning_rate, eps=spec.epsilon)


@pytest.mark.parametrize("changes", [{}, ADAGRAD], ids=["SGD", "Adagrad"])
def test_a_cluster_trains_what_plain_torch_trains_with_a_model_for_each_worker(changes: dict, tmp_path: Path) -> None:
    """Averages are made every 6 iterations, at both checkpoints and at the end; rows are evicted."""
    options = replace(OPTIONS, dense_sum="every:6", **changes)
    found = arrays_of(options, tmp_path)
    batches = list(global_batches(first_samples(options.open(1024), 40 * 64), 64))
    job, assignments = planned(options, batches)
    reference = Reference(job, batches, 6)
    for iteration, (batch, assignment) in enumerate(zip(batches, assignments, strict=True)):
        reference.train(iteration, batch, assignment)
    reference.average()
    rows = reference.table.trained()
    np.testing.assert_array_equal(found["ids"], rows.ids)
    np.testing.assert_array_equal(found["versions"], rows.versions)
    limit = 1e-5 if not changes else 1e-4  # Adagrad divides rounding by its own size
    assert distance(found["rows"], rows.rows) < limit
    for name, values in reference.dense.items():
        assert distance(found[f"dense/{name}"], values) < limit, name


def test_an_average_after_each_iteration_trains_the_model_of_one_machine_by_sgd(tmp_path: Path) -> None:
    one = arrays_of(replace(ALONE, dense_sum="every:1"), tmp_path / "alone")
    plain = arrays_of(replace(ALONE, dense_sum="server"), tmp_path / "plain")
    four = arrays_of(replace(OPTIONS, dense_sum="every:1", mechanism="random"), tmp_path / "four")
    seldom = arrays_of(replace(OPTIONS, dense_sum="every:8", mechanism="random"), tmp_path / "seldom")
    assert all(np.array_equal(one[name], plain[name]) for name in trained(one)), "one worker has nothing to average"
    assert max(distance(four[name], one[name]) for name in trained(one)) < 1e-5
    assert max(distance(seldom[name], one[name]) for name in trained(one)) > 1e-3, "it is not one machine's model"


def test_the_result_has_the_drift_and_the_bytes_of_a_simulation(tmp_path: Path) -> None:
    options = replace(OPTIONS, dense_sum="every:10", checkpoint_every=0, **ADAGRAD)
    results = {run: training.run(options, store="memory", shards=1, out=tmp_path / run) for run in ("first", "second")}
    assert_same_model(tmp_path / "first", tmp_path / "second")
    assert 0 < results["first"]["dense_drift"] == results["second"]["dense_drift"] < 1
    every = simulate_run(options)["link_bytes"]["dense"]["up"]
    whole = simulate_run(replace(options, dense_sum="server"))["link_bytes"]["dense"]["up"]
    assert Every(10).dense_floats([(100,)], values=2) == 1 + 21
    assert 0.19 < every[0] / whole[0] < 0.21, "parameters and the state of Adagrad, every 10 iterations"
    for sent, counted in zip(results["first"]["link_bytes"]["dense"]["up"][:3], every[:3], strict=True):
        assert counted < sent < 1.1 * counted
    assert training.run(replace(options, dense_sum="server"), store="memory", shards=1, out=None)["dense_drift"] is None


def test_another_number_of_workers_goes_on_from_the_average_in_any_way_to_sum(tmp_path: Path) -> None:
    """A single worker trains the same in each way, so a difference would be one of the state that it goes on from."""
    adam = {"optimizer": OptimizerKind.ADAM, "learning_rate": 0.002}
    ways = {}
    for way in ("every:1000", "server"):
        where = {"store": "memory", "checkpoint_dir": tmp_path / way.partition(":")[0]}
        first = replace(OPTIONS, dense_sum="every:1000", iterations=20, **adam)
        ended = arrays_of(first, tmp_path / f"first {way}", table="model", **where)
        second = replace(ALONE, dense_sum=way, iterations=1, learning_rate=1e-9, optimizer=OptimizerKind.ADAM)
        ways[way] = arrays_of(second, tmp_path / f"second {way}", continue_from="model", **where)
        assert all(distance(ways[way][name], ended[name]) < 1e-5 for name in ended if name.startswith("dense/"))
    assert all(np.array_equal(ways["server"][name], values) for name, values in ways["every:1000"].items())
