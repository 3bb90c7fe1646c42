"""How far a worker has come in what it is told in an epoch."""

from __future__ import annotations

from esd.services.domain.errors import StaleEpoch
from esd.services.domain.plans import EndOfStream, FlushPlan, IterationPlan, Membership, PlanMessage, Reload


class PlanPosition:
    """How far the stream of one epoch has come, so that it can go on where its connection broke.

    A stream begins with the epoch's membership. The dispatcher takes `from_iteration` at its word only when it comes
    with the epoch that it is meant for; otherwise it sends the epoch's plans from the first one on. So what the
    membership says is remembered and sent with every further request.

    Args:
        from_iteration: the first plan that is wanted; the epoch's first if that is later.

    Attributes:
        next_iteration: of the next plan.
        ended: whether the end of the sample stream has come.
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
        """The epoch that the worker is in; 0 before it knows."""
        return self._epoch or 0

    def is_new(self, message: PlanMessage) -> bool:
        """Notes a message, and tells whether it comes for the first time.

        Raises:
            StaleEpoch: it opens another epoch.
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
                flush = message.iteration, not message.checkpoint  # the stream may end right behind a checkpoint
                new = flush > self._last_flush
                self._last_flush = max(self._last_flush, flush)
                return new
            case EndOfStream():
                self.ended = True
        return True

    def must_reopen(self) -> bool:
        """Tells, once, that the stream begins before the plan that is wanted: it was opened without the epoch."""
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
