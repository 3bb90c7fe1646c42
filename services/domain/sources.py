"""Positions in the source of a sample stream, by which a stream goes on that was cut off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from esd.services.domain.errors import InvalidArgument

MAX_POSITION = 1 << 16  # characters of a position: some thousand partitions
_MOST_BEHIND = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The place of a sample in its source.

    A source that is opened at `text` yields the samples of the batch that began there, in the same order; the samples
    after them may be others than before, as the messages of several partitions come in another order.

    Attributes:
        text: a position, as the source itself writes and reads it.
        behind: samples between the position and this one.
        lag: messages of the source that were waiting behind the position when it was read; None: unknown.
    """

    text: str
    behind: int = 0
    lag: int | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Checks the bounds of the wire."""
        if len(self.text) > MAX_POSITION:
            raise InvalidArgument(f"a position of a source has {len(self.text):,} characters, at most {MAX_POSITION}")
        if not 0 <= self.behind <= _MOST_BEHIND:
            raise InvalidArgument(f"a sample is {self.behind} behind its position, it must be 0 to {_MOST_BEHIND}")

    def __str__(self) -> str:
        """Names the place for people."""
        return f"{self.text} + {self.behind:,} samples" if self.behind else self.text

    def after(self, samples: int) -> SourcePosition:
        """Returns the place so many samples behind this one."""
        return replace(self, behind=self.behind + samples) if samples else self


class Taken(int):
    """The number of samples that a job has accepted.

    Attributes:
        source: the place of the next sample in the source; None: the samples so far came without positions.
    """

    source: SourcePosition | None

    def __new__(cls, samples: int, source: SourcePosition | None = None) -> Self:
        """Makes a number that knows its place."""
        made = super().__new__(cls, samples)
        made.source = source
        return made
