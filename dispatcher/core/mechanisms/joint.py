"""Joint dispatch: all samples of a batch placed together, a row counted once per worker that trains it."""

from __future__ import annotations

from esd.dispatcher.core.mechanisms.draws import first_draw
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec


class Joint:
    """Minimises what the whole iteration transmits, and what its split rows are expected to cost later.

    ESD's matrix counts a row once per sample, though samples of one worker share its pull and push. Here the first
    assignment is ESD's optimum; then large-neighbourhood search with exact re-solves takes the sharing into account.
    With a lookahead, the batches that follow are placed tentatively, and rows are led to where they are wanted next.
    Where workloads are balanced, samples move on from workers that would be late. A budget ends the search early.
    `esd.native.engine.Engine.joint` has the objective and the algorithm.
    """

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed
        self.lookahead = job.horizon - 1

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Searches until the rounds or the time are used up; the best assignment counts."""
        seed = first_draw(self._seed, problem.iteration)
        limits = problem.limits
        if problem.lookahead:
            problem.engine.prepare(*SampleBatch.concatenate([problem.batch, *problem.lookahead]).id_columns)
        recorded = problem.time.recorded(), problem.time.recorded()
        workers, cost, _, rounds = problem.engine.joint(
            problem.link_costs,
            problem.capacities,
            seed,
            problem.time.seconds_left,
            most_rounds=recorded,
            limits=None if limits is None else (limits.least, limits.most, limits.sample_costs),
            lookahead=[len(later) for later in problem.lookahead],
        )
        for effort in rounds:
            problem.time.note(effort)
        if problem.lookahead:
            problem.engine.prepare(*problem.batch.id_columns)
        return Assignment(workers, expected_cost=cost, solver="joint")
