"""The two compiled engines: sets of workers are one machine word for up to 64 workers, and two words for more.

`esd.native.engine` and `esd.native.wide_engine` have the same classes, which `engine.pyi` describes. An object of one
module is none of the other, so all parts of an engine come from the module of its number of workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from esd.native import engine, wide_engine

if TYPE_CHECKING:
    from esd.native.engine import (
        Admission,
        BatchIds,
        Bounded,
        Engine,
        HotSamples,
        OnDemand,
        Proactive,
        PushAll,
        Replicated,
        Uncached,
    )

_MOST_OF_ONE_WORD = 64  # workers


class EngineModule(Protocol):
    """The classes of a compiled engine that depend on its number of workers, or are given to it."""

    @property
    def Admission(self) -> type[Admission]: ...  # noqa: D102, N802
    @property
    def BatchIds(self) -> type[BatchIds]: ...  # noqa: D102, N802
    @property
    def Bounded(self) -> type[Bounded]: ...  # noqa: D102, N802
    @property
    def Engine(self) -> type[Engine]: ...  # noqa: D102, N802
    @property
    def HotSamples(self) -> type[HotSamples]: ...  # noqa: D102, N802
    @property
    def OnDemand(self) -> type[OnDemand]: ...  # noqa: D102, N802
    @property
    def Proactive(self) -> type[Proactive]: ...  # noqa: D102, N802
    @property
    def PushAll(self) -> type[PushAll]: ...  # noqa: D102, N802
    @property
    def Replicated(self) -> type[Replicated]: ...  # noqa: D102, N802
    @property
    def Uncached(self) -> type[Uncached]: ...  # noqa: D102, N802


def engine_of(workers: int) -> EngineModule:
    """Returns the module whose engine serves so many workers at the least cost."""
    return wide_engine if workers > _MOST_OF_ONE_WORD else engine
