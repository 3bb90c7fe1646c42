"""The samples of one job that wait to be planned: batches of any size come in, global batches of k samples go out."""

from __future__ import annotations

from collections import deque

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition


class SampleQueue:
    """Samples that were taken in and are not planned yet, in stream order.

    The queue holds at most `limit` samples. It takes one batch above the limit as long as it holds less than a global
    batch, because without a whole global batch to plan the stream must go on. What was given out is kept until it is
    released, so that the stream can go back to a checkpoint.

    Args:
        batch_size: k, the samples of a global batch.
        limit: the most samples that wait.
        start: how many samples of the stream lie behind already.
        keep: whether to keep what was given out.

    Attributes:
        taken: how many samples of the stream were taken in so far.
        pending: how many of these are not planned yet.
        closed: whether the stream has ended.
    """

    def __init__(self, batch_size: int, limit: int, *, start: int = 0, keep: bool = False) -> None:
        self._batch_size = batch_size
        self._limit = limit
        self._batches: deque[SampleBatch] = deque()
        self._keep = keep
        self._given: deque[SampleBatch] = deque()
        self._given_from = start  # the position in the stream at which the first of `_given` begins
        self.taken = start
        self.pending = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether `take` has something to give: a whole global batch, or the rest of an ended stream."""
        return self.pending >= self._batch_size or (self.closed and self.pending > 0)

    @property
    def exhausted(self) -> bool:
        """Whether the stream has ended and all of it was given out."""
        return self.closed and self.pending == 0

    @property
    def position(self) -> int:
        """How many samples of the stream were given out."""
        return self.taken - self.pending

    def has_room(self, samples: int) -> bool:
        """Tells whether a batch with this number of samples may come in now."""
        return self.pending < self._batch_size or self.pending + samples <= self._limit

    def put(self, batch: SampleBatch) -> None:
        """Takes a batch of any size in."""
        if len(batch):
            self._batches.append(batch)
        self.taken += len(batch)
        self.pending += len(batch)

    def close(self) -> None:
        """Ends the stream; what is left makes the last, perhaps short, global batch."""
        self.closed = True

    def take(self) -> SampleBatch:
        """Gives the next global batch out. It may be called only when the queue is `ready`."""
        missing = min(self._batch_size, self.pending)
        self.pending -= missing
        parts = []
        while missing:
            batch = self._batches.popleft()
            parts.append(batch[:missing])
            if len(batch) > missing:
                self._batches.appendleft(batch[missing:])
            missing -= len(parts[-1])
        batch = parts[0] if len(parts) == 1 else SampleBatch.concatenate(parts)
        if self._keep:
            self._given.append(batch)
        return batch

    def release(self, position: int) -> None:
        """Forgets what was given out before a position of the stream, to which it will never go back."""
        while self._given and self._given_from + len(self._given[0]) <= position:
            self._given_from += len(self._given.popleft())

    def rewind_to(self, position: int) -> None:
        """Goes back to a position that is not released and at which a global batch began.

        Raises:
            FailedPrecondition: the queue has not given out what follows the position.
        """
        self.release(position)
        if self._given_from != position:
            raise FailedPrecondition(
                f"the job cannot go on at sample {position}: this dispatcher keeps those from {self._given_from} to "
                f"{self.taken}; repeat the job, whose samples are then sent from there"
            )
        self.pending += sum(map(len, self._given))
        self._batches.extendleft(reversed(self._given))
        self._given.clear()
        self._given_from = position
