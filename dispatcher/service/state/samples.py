"""The samples of one job that wait to be planned: clients put batches of any size, the planner takes global batches."""

from __future__ import annotations

from collections import deque

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.stream_parts import StreamPlace


class SampleQueue:
    """Accepted samples that are not planned yet, in stream order.

    The queue holds at most `limit` samples and `limit_bytes` bytes of them. Batches may exceed the limits while the
    queue holds less than a global batch, because the stream would stall if a large batch waited for a plan that cannot
    be made. Batches given to the planner are kept until they are released, so that the stream can be rewound to a
    checkpoint.

    Args:
        batch_size: k, the samples of a global batch.
        limit: the largest number of waiting samples.
        limit_bytes: the most bytes of waiting samples.
        start: the place of the stream at which the queue begins.
        keep: whether to keep the batches given to the planner.

    Attributes:
        place: the place of the stream behind the samples accepted so far.
        pending: the number of accepted samples that are not planned yet.
        pending_bytes: their bytes.
        closed: whether the stream has ended.
    """

    def __init__(
        self,
        batch_size: int,
        limit: int,
        limit_bytes: int,
        start: StreamPlace,
        *,
        keep: bool = False,
    ) -> None:
        self._batch_size = batch_size
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._batches: deque[SampleBatch] = deque()
        self._keep = keep
        self._given: deque[SampleBatch] = deque()
        self._given_from = start.samples  # the position in the stream at which the first of `_given` begins
        self.place = start
        self._lags: list[int | None] = [None] * len(start.parts)
        self._places = deque([start])  # of the batches that a checkpoint may cut
        self.pending = self.pending_bytes = 0
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether `take` can return a batch: a whole global batch, or the rest of an ended stream."""
        return self.pending >= self._batch_size or (self.closed and self.pending > 0)

    @property
    def exhausted(self) -> bool:
        """Whether the stream has ended and all its samples were given to the planner."""
        return self.closed and self.pending == 0

    @property
    def taken(self) -> int:
        """The number of samples of the stream accepted so far."""
        return self.place.samples

    @property
    def position(self) -> int:
        """The number of samples of the stream given to the planner."""
        return self.taken - self.pending

    @property
    def lag(self) -> int | None:
        """Messages that waited in the sources behind the latest batch of each part when it was read; None: unknown."""
        lags = [lag for lag, part in zip(self._lags, self.place.parts, strict=True) if not part.ended]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None

    def has_room(self, batch: SampleBatch) -> bool:
        """Returns whether the queue accepts a batch now."""
        fits = self.pending + len(batch) <= self._limit and self.pending_bytes + batch.nbytes <= self._limit_bytes
        return self.pending < self._batch_size or fits

    def put(self, batch: SampleBatch, part: int = 0, stream: str = "") -> None:
        """Adds a batch of a part, named `stream`, of no more samples than are left of the part's turn."""
        if len(batch):
            self._batches.append(batch)
            begin = self.place.at(part, batch.source, stream)
            if self._keep:
                self._places.append(begin)
            self._lags[part] = None if batch.source is None else batch.source.lag
            self.place = begin.after(len(batch))
        self.pending += len(batch)
        self.pending_bytes += batch.nbytes

    def close(self) -> None:
        """Ends the stream; the samples left over make the last, perhaps short, global batch."""
        self.closed = True

    def take(self) -> SampleBatch:
        """Removes and returns the next global batch. The caller must check `ready` first."""
        missing = min(self._batch_size, self.pending)
        self.pending -= missing
        pieces = []
        while missing:
            batch = self._batches.popleft()
            pieces.append(batch[:missing])
            if len(batch) > missing:
                self._batches.appendleft(batch[missing:])
            missing -= len(pieces[-1])
        self.pending_bytes -= sum(piece.nbytes for piece in pieces)
        batch = pieces[0] if len(pieces) == 1 else SampleBatch.concatenate(pieces)
        if self._keep:
            self._given.append(batch)
        return batch

    def place_at(self, position: int) -> StreamPlace:
        """Returns the place behind so many accepted samples, from the released ones on."""
        begin = next(each for each in reversed(self._places) if each.samples <= position)
        return begin.after(position - begin.samples)

    def release(self, position: int) -> None:
        """Forgets the batches before a position of the stream, which no recovery will need again."""
        while len(self._places) > 1 and self._places[1].samples <= position:
            self._places.popleft()
        while self._given and self._given_from + len(self._given[0]) <= position:
            self._given_from += len(self._given.popleft())

    def rewind_to(self, position: int) -> None:
        """Rewinds the stream to a position at which a global batch began, and which is not released.

        Raises:
            FailedPrecondition: the queue does not hold all samples after the position.
        """
        self.release(position)
        if self._given_from != position:
            raise FailedPrecondition(
                f"the job cannot continue at sample {position}: this dispatcher holds samples {self._given_from} to "
                f"{self.taken}; repeat the job, so that its client sends the samples again from there"
            )
        self.pending += sum(map(len, self._given))
        self.pending_bytes += sum(batch.nbytes for batch in self._given)
        self._batches.extendleft(reversed(self._given))
        self._given.clear()
        self._given_from = position
