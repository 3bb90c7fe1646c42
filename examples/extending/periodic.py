"""A way to synchronise: on demand, and every few iterations everything that was trained is pushed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

from esd.dispatcher.core.sync import SyncPlanning
from esd.native.engine import Way
from esd.native.engines import engine_of
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync import Sync


@dataclass(frozen=True, slots=True)
class Periodic(Sync):
    """The choice of a job: the name, and the options with their checks.

    Attributes:
        every: iterations from one push of everything to the next, >= 1.
    """

    name: ClassVar[str] = "periodic"
    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InvalidArgument(f"everything would be pushed every {self.every} iterations (--sync periodic:EVERY)")


class PeriodicPlanning(SyncPlanning):
    """The part of the planner: no more than the choice of the engine's class."""

    def way(self) -> Way:
        """Returns the engine's part."""
        ways = engine_of(self.job.workers)
        way: Way = ways.Periodic(every=cast(Periodic, self.job.sync).every)  # type: ignore[attr-defined]
        return way
