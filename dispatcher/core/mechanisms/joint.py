"""Joint dispatch: assigns all samples of a batch together, and counts a row once per worker that trains it."""

from __future__ import annotations

from esd.dispatcher.core.mechanisms.draws import first_draw
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec


class Joint:
    """Minimises the transmission cost of the whole iteration, plus the expected later cost of its split rows.

    ESD's matrix counts a row once per sample, although samples at one worker share its pull and push. Here the first
    assignment is ESD's optimum; a large-neighbourhood search with exact re-solves then accounts for the sharing. With a
    lookahead, the search also places the following batches tentatively, which steers rows to their next users. With
    balanced workloads, it moves samples away from workers that would be late. A time limit ends the search early.
    `esd.native.engine.Engine.joint` has the objective and the algorithm.
    """

    def __init__(self, job: JobSpec) -> None:
        self._seed = job.seed
        self.lookahead = job.options.horizon - 1

    def decide(self, problem: DispatchInput, /) -> Assignment:
        """Searches until the rounds or the time run out, and returns the best assignment."""
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
            limits=None if limits is None else (limits.least, limits.most, limits.sample_costs, limits.fixed_costs),
            lookahead=[len(later) for later in problem.lookahead],
            sites=None if problem.sites is None else (problem.sites.of_samples, problem.sites.of_workers),
        )
        for effort in rounds:
            problem.time.note(effort)
        if problem.lookahead:
            problem.engine.prepare(*problem.batch.id_columns)
        return Assignment(workers, expected_cost=cost, solver="joint")
