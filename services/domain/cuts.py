"""The iterations at which a job takes checkpoints by number, and with them evaluates held-out samples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts of a job, at equal distances from its first iteration, so that a continued job is cut as a first one.

    Checkpoints and evaluations have this one schedule, because an evaluation needs a checkpoint of exactly its
    iteration.

    Attributes:
        first: the first iteration of the job, which is no cut.
        every: the number of iterations between two cuts; 0 means that there are none.
    """

    first: int
    every: int

    def at(self, iteration: int) -> bool:
        """Returns whether there is a cut before this iteration."""
        return self.every > 0 and iteration > self.first and (iteration - self.first) % self.every == 0

    def after(self, iteration: int) -> int:
        """Returns the first cut after an iteration of the job. Raises ValueError if there are no cuts."""
        return self.latest(iteration) + self.every

    def latest(self, iteration: int) -> int:
        """Returns the last cut up to an iteration, or the first iteration if there is none so early.

        Raises:
            ValueError: there are no cuts, because `every` is 0.
        """
        if not self.every:
            raise ValueError("a job without cuts has no latest one")
        return self.first + max(0, iteration - self.first) // self.every * self.every
