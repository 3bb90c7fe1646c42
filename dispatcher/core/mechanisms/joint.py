"""Joint dispatch: all samples of a batch placed together, a row counted once per worker that trains it."""

from __future__ import annotations

import numpy as np

from dispatcher.core.mechanisms.draws import draws
from dispatcher.core.mechanisms.protocol import Choice, Turn


class Joint:
    """Minimises what the whole iteration transmits, and what its split rows are expected to cost later.

    ESD's matrix counts a row once per sample, though samples of one worker share its pull and push. Here the first
    assignment is ESD's optimum; then large-neighbourhood search with exact re-solves takes the sharing into account.
    With a horizon, the batches that follow are placed tentatively, and rows are led to where they are wanted next.
    Where workloads are balanced, samples move on from workers that would be late. A budget ends the search early.
    `esd_native.engine.Engine.joint` has the objective and the algorithm.
    """

    def __init__(self, seed: int, horizon: int = 1) -> None:
        """Takes the seed of its draws and the number of batches that a decision looks at, its own included."""
        self._seed = seed
        self.lookahead = horizon - 1

    def decide(self, turn: Turn, /) -> Choice:
        """Searches until the rounds or the time are used up; the best assignment counts."""
        seed = int(draws(self._seed, turn.iteration, 1)[0])
        limits = None if turn.limits is None else (turn.limits.least, turn.limits.most, turn.limits.sample_costs)
        if turn.upcoming:
            turn.engine.prepare(np.concatenate([turn.ids, *turn.upcoming]))
        assignment, cost, _, _ = turn.engine.joint(
            turn.link_costs,
            turn.capacities,
            seed,
            turn.seconds_left,
            limits=limits,
            following=[len(ids) for ids in turn.upcoming],
        )
        if turn.upcoming:
            turn.engine.prepare(np.ascontiguousarray(turn.ids))
        return Choice(assignment, expected_cost=cost, solver="joint")
