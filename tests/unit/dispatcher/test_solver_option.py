"""The solver that a job names: none changes a decision, and one that cannot run here is refused by name."""

import pytest

import esd.dispatcher.solvers
from esd.dispatcher.core.planner import Planner, check_job
from esd.dispatcher.simulator.simulate import simulate
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.mechanisms import EsdOptions

BANDWIDTHS, CACHES = [4e6, 4e6, 1e6, 1e6], [60] * 4


@pytest.fixture
def no_device(monkeypatch):
    """A machine without a CUDA device, also if this one has a device."""

    def fail():
        raise Unavailable("no CUDA device: no driver")

    monkeypatch.setattr(esd.dispatcher.solvers, "open_device", fail)


@pytest.mark.parametrize("mechanism", ["esd", "esd-priced"])
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_every_solver_makes_the_same_decisions(make_job, make_batches, mechanism, alpha):
    stream = make_batches(25, samples=32, fields=3, rows=200, seed=5)
    planners = {
        solver: Planner(
            make_job(batch_size=32, mechanism=mechanism, mechanism_options=EsdOptions(alpha, solver=solver)),
            BANDWIDTHS,
            CACHES,
        )
        for solver in ("auto", "dual", "paths")
    }
    used = {solver: set() for solver in planners}
    for batch in stream:
        decisions = {solver: planner.plan(batch) for solver, planner in planners.items()}
        for solver, decision in decisions.items():
            assert decision.assignment.tolist() == decisions["auto"].assignment.tolist()
            assert decision.gap == 0
            used[solver].add(decision.solver)
    assert used["paths"] == {"paths"}
    assert "dual" in used["dual"]
    assert "dual" in used["auto"]


def test_a_simulated_job_costs_the_same_under_every_solver(make_job, make_batches):
    stream = make_batches(25, samples=16, fields=3, rows=200, seed=5)
    costs = {
        simulate(
            Planner(make_job(mechanism="esd", mechanism_options=EsdOptions(solver=solver)), BANDWIDTHS, CACHES), stream
        ).cost_seconds
        for solver in ("dual", "paths")
    }
    assert len(costs) == 1


@pytest.mark.usefixtures("no_device")
@pytest.mark.parametrize("solver", ["hungarian-cuda", "dual-cuda"])
def test_a_cuda_solver_without_a_device_is_refused_by_name(make_job, solver):
    with pytest.raises(FailedPrecondition, match=rf"solver {solver} needs a CUDA device .*--solver.*: .*no driver"):
        check_job(make_job(mechanism="esd", mechanism_options=EsdOptions(solver=solver)))


def test_an_unknown_solver_is_refused_by_name(make_job):
    with pytest.raises(InvalidArgument, match="solver 'simplex' is unknown, it must be one of auto, dual, paths"):
        check_job(make_job(mechanism="esd", mechanism_options=EsdOptions(solver="simplex")))
