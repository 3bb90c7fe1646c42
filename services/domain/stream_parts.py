"""The parts of a stream with several submitters, and the turns in which they are merged into one order."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Self

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.sources import SourcePosition, Taken

MAX_STREAM_NAME = 1000  # characters of the name of a stream, or of a part of one
MAX_SUBMITTERS = 64  # of one job: the dispatcher holds a message of each that comes before its turn


@dataclass(frozen=True, slots=True)
class StreamPart:
    """How much of one part a stream has at some place.

    Attributes:
        share: samples that the part gives in a turn.
        samples: its samples before the place.
        source: the place of its next sample in its source; None: unknown.
        ended: whether other parts were merged past its end. A part that has ended as well may lack this mark until the
            next samples of another part.
        stream: says which samples they are, as `JobSpec.stream`; empty: unknown.
    """

    share: int
    samples: int = 0
    source: SourcePosition | None = None
    ended: bool = False
    stream: str = ""

    @property
    def taken(self) -> Taken:
        """The number of its samples, with the place of the next one in its source."""
        return Taken(self.samples, self.source)


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A place between two samples of a stream, and by that in each of its parts.

    The order of the samples is a function of the parts alone, and not of their arrival. Each part in turn gives its
    share of samples, so that a global batch has its share of each; a part that ends gives less, and has no turn after
    that.

    Attributes:
        parts: the parts, in the order of their turns.
        turn: the number of the part whose turn it is.
        given: samples that it has given in this turn.
    """

    parts: tuple[StreamPart, ...]
    turn: int = 0
    given: int = 0

    @classmethod
    def beginning(cls, shares: Collection[int]) -> Self:
        """Returns the beginning of a stream whose parts have these shares of a global batch."""
        return cls(tuple(map(StreamPart, shares)))

    @property
    def samples(self) -> int:
        """The number of samples of the stream before the place."""
        return sum(part.samples for part in self.parts)

    @property
    def left(self) -> int:
        """How many samples the part whose turn it is may still give in this turn; the only part of a stream any."""
        return self.parts[self.turn].share - self.given if len(self.parts) > 1 else sys.maxsize

    def past(self, ended: Collection[int]) -> Self:
        """Returns the same place with the turn of the first part that is not in `ended`.

        Raises:
            FailedPrecondition: all parts have ended.
        """
        place = self
        while place.turn in ended:
            place = place._turned(place._with(replace(place.parts[place.turn], ended=True)))
        return place

    def at(self, part: int, source: SourcePosition | None = None, stream: str = "") -> Self:
        """Returns the same place with the turn of a part: the parts that would come before it have ended.

        Args:
            part: its number.
            source: the place of the part's next sample in its source; None: unknown.
            stream: the name of the part; empty: the one that it has.

        Raises:
            FailedPrecondition: the part itself has ended, or does not exist.
        """
        if part >= len(self.parts) or self.parts[part].ended:
            raise FailedPrecondition(f"the stream goes on with part {part}, which it has not, or which has ended")
        parts = list(self.parts)
        parts[part] = replace(parts[part], source=source, stream=stream or parts[part].stream)
        others = [number for number in range(len(parts)) if number != part]
        return replace(self, parts=tuple(parts)).past(others)

    def after(self, samples: int) -> Self:
        """Returns the place so many samples later, at most `left`, all of the part whose turn it is."""
        part = self.parts[self.turn]
        source = None if part.source is None else part.source.after(samples)
        parts = self._with(replace(part, samples=part.samples + samples, source=source))
        if samples == self.left:
            return self._turned(parts)
        return replace(self, parts=parts, given=self.given + samples if len(parts) > 1 else 0)

    def _with(self, part: StreamPart) -> tuple[StreamPart, ...]:
        """Returns the parts with another state of the one whose turn it is."""
        return (*self.parts[: self.turn], part, *self.parts[self.turn + 1 :])

    def _turned(self, parts: tuple[StreamPart, ...]) -> Self:
        """Returns the place with these parts at the beginning of the next turn."""
        following = (*range(self.turn + 1, len(parts)), *range(self.turn + 1))
        turn = next((number for number in following if not parts[number].ended), None)
        if turn is None:
            raise FailedPrecondition("all parts of the stream have ended")
        return replace(self, parts=parts, turn=turn, given=0)
