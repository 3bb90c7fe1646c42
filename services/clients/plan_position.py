"""The position of a worker in the plan stream of an epoch."""

from __future__ import annotations

from esd.services.domain.errors import StaleEpoch
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage, Reload


class PlanPosition:
    """The position in the stream of one epoch, from which the stream resumes when its connection breaks.

    A stream begins with the epoch's membership. The dispatcher accepts `from_iteration` only together with the number
    of its epoch; otherwise it sends the epoch's plans from the first one on. So the epoch of the membership is kept,
    and sent with every further request.

    Args:
        from_iteration: the first wanted plan; the epoch's first if that is later.

    Attributes:
        next_iteration: iteration of the next plan.
        ended: whether the end of the sample stream has arrived.
    """

    def __init__(self, from_iteration: int) -> None:
        self.next_iteration = from_iteration
        self.ended = False
        self._epoch: int | None = None
        self._elsewhere = False
        self._reloaded = False
        self._last_flush = -1, False

    @property
    def epoch(self) -> int:
        """The worker's epoch; 0 before its membership arrives."""
        return self._epoch or 0

    def is_new(self, message: PlanMessage) -> bool:
        """Records a message, and returns whether it arrives for the first time.

        Raises:
            StaleEpoch: the message opens another epoch.
        """
        match message:
            case Membership():
                return self._is_new_membership(message)
            case Reload():
                new, self._reloaded = not self._reloaded, True
                return new
            case IterationPlan():
                new = message.iteration >= self.next_iteration
                self.next_iteration = max(self.next_iteration, message.iteration + 1)
                return new
            case FlushPlan():
                flush = message.iteration, not message.checkpoint  # the stream may end directly after a checkpoint
                new = flush > self._last_flush
                self._last_flush = max(self._last_flush, flush)
                return new
            case EndOfStream():
                self.ended = True
        return True

    def must_reopen(self) -> bool:
        """Returns True once if the stream, opened without the epoch, begins before the first wanted plan."""
        elsewhere, self._elsewhere = self._elsewhere, False
        return elsewhere

    def _is_new_membership(self, message: Membership) -> bool:
        if self._epoch is None:
            self._elsewhere = message.epoch > 0 and self.next_iteration > message.iteration
            self._epoch = message.epoch
            self.next_iteration = max(self.next_iteration, message.iteration)
            return True
        if message.epoch != self._epoch:
            raise StaleEpoch(f"epoch {self._epoch} is over, epoch {message.epoch} has begun")
        return False
