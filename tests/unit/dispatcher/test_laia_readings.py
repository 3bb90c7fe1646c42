"""LAIA by Herald's text and by its released code: each as an independent implementation of a few lines decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from esd.dispatcher.core.mechanisms import Assignment, DispatchInput
from esd.dispatcher.core.mechanisms.draws import start_of
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.native import solver
from esd.native.engine import Engine
from esd.services.domain.mechanisms import LaiaOptions, LaiaReading

LINKS = [6.25e8, 6.25e8, 6.25e7, 6.25e7]


class PlainLaia:
    """Herald Alg. 1 over the rows' copies as Herald App. A describes them: s[x][j] is 1, a share of a gradient, or 0.

    Evictions are left out, so that it holds for caches which keep everything.
    """

    lookahead = 0

    def __init__(self, workers: int, seed: int, counted: Any) -> None:
        self.state: dict[int, NDArray[np.float64]] = {}
        self.workers, self.seed, self.counted = workers, seed, counted

    def decide(self, problem: DispatchInput, /) -> Assignment:
        samples = [set(sample) for sample in problem.batch.by_field.tolist()]
        nowhere = np.zeros(self.workers)
        scores = np.array([sum(self.counted(self.state.get(x, nowhere)) for x in xs) for xs in samples], np.int32)
        workers = solver.allocate(scores, problem.capacities, start_of(self.seed, problem.iteration))
        trained: dict[int, set[int]] = {}
        for xs, worker in zip(samples, workers.tolist(), strict=True):
            for x in xs:
                trained.setdefault(x, set()).add(worker)
        for x, trainers in trained.items():
            self.state[x] = np.array([j in trainers for j in range(self.workers)]) / len(trainers)
        return Assignment(workers)


COUNTED = {LaiaReading.TEXT: lambda s: s == 1, LaiaReading.CODE: lambda s: s > 0}


@pytest.mark.parametrize("reading", LaiaReading)
@pytest.mark.parametrize("mechanism", ["laia", "laia-adaptive"])
def test_both_readings_cost_what_a_plain_implementation_costs(
    make_job: Any, make_batches: Any, mechanism: str, reading: LaiaReading
) -> None:
    batches = make_batches(60, samples=32, fields=5, rows=300, seed=4)
    job = make_job(
        workers=4, batch_size=32, fields=5, seed=3, mechanism=mechanism, mechanism_options=LaiaOptions(reading)
    )
    plain = PlainLaia(4, 3, COUNTED[reading])
    expected = simulate(Planner(job, LINKS, [400] * 4, mechanism=plain), batches)
    assert simulate(Planner(job, LINKS, [400] * 4), batches).cost_seconds == expected.cost_seconds
    other = next(each for each in LaiaReading if each is not reading)
    job = replace(job, mechanism_options=LaiaOptions(other))
    assert simulate(Planner(job, LINKS, [400] * 4), batches).cost_seconds != expected.cost_seconds


def test_no_worker_has_the_latest_copy_of_a_row_that_two_have_trained() -> None:
    engine = Engine([4, 4], "emark")
    engine.prepare(np.array([[1], [1], [2]], np.uint64))
    engine.commit(np.array([0, 1, 1], np.int32))
    engine.prepare(np.array([[1], [2]], np.uint64))
    assert engine.affinity().tolist() == [[1, 1], [0, 1]]
    assert engine.affinity(latest=True).tolist() == [[0, 0], [0, 1]]
