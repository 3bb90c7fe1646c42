"""How the planner carries out each way to synchronise."""

from __future__ import annotations

from esd.dispatcher.core.sync.bounded import BoundedPlanning
from esd.dispatcher.core.sync.none import UncachedPlanning
from esd.dispatcher.core.sync.on_demand import OnDemandPlanning
from esd.dispatcher.core.sync.proactive import ProactivePlanning
from esd.dispatcher.core.sync.push_all import PushAllPlanning
from esd.dispatcher.core.sync.replicated import ReplicatedPlanning
from esd.dispatcher.core.sync.way import SyncContext, SyncPlanning
from esd.services.domain.jobs import JobSpec
from esd.services.domain.sync import Bounded, Full, OnDemand, Proactive, Replicated, Sync, Uncached, WriteThrough

__all__ = ["PLANNING", "SyncContext", "SyncPlanning", "sync_planning"]

PLANNING: dict[type[Sync], type[SyncPlanning]] = {
    OnDemand: OnDemandPlanning,
    Full: PushAllPlanning,
    WriteThrough: PushAllPlanning,
    Proactive: ProactivePlanning,
    Replicated: ReplicatedPlanning,
    Bounded: BoundedPlanning,
    Uncached: UncachedPlanning,
}


def sync_planning(job: JobSpec, context: SyncContext) -> SyncPlanning:
    """Returns how a job synchronises.

    Raises:
        InvalidArgument: its way does not fit the caches.
    """
    return PLANNING[type(job.sync)](job, context)
