"""The dispatch mechanisms that a job can name (docs/dispatch.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from esd.dispatcher.core.mechanisms.at_sites import AtSites
from esd.dispatcher.core.mechanisms.brute_force import BruteForce
from esd.dispatcher.core.mechanisms.esd import Esd
from esd.dispatcher.core.mechanisms.hash import Hash
from esd.dispatcher.core.mechanisms.history import History
from esd.dispatcher.core.mechanisms.joint import Joint
from esd.dispatcher.core.mechanisms.laia import Laia, LaiaTwoChoices
from esd.dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput, Mechanism, Sites, WorkloadLimits
from esd.dispatcher.core.mechanisms.random import Random
from esd.dispatcher.core.mechanisms.replay import Replay
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec

__all__ = [
    "MECHANISMS",
    "Assignment",
    "DispatchInput",
    "Mechanism",
    "Replay",
    "Sites",
    "WorkloadLimits",
    "get_mechanism",
]

MECHANISMS: dict[str, Callable[[JobSpec], Mechanism]] = {
    "random": Random,
    "hash": Hash,
    "history": lambda _job: History(),
    "laia": Laia,
    "laia-adaptive": LaiaAdaptive,
    "laia-two-choices": LaiaTwoChoices,
    "esd": Esd,
    "esd-priced": partial(Esd, priced=True),
    "joint": Joint,
    "brute-force": lambda _job: BruteForce(),
}

# They minimise the cost of whole iterations. Samples of different sites share rows, so these see all sites at once.
WHOLE_BATCHES = ("joint", "brute-force")


def get_mechanism(job: JobSpec) -> Mechanism:
    """Builds the mechanism that the job names. Raises InvalidArgument if the name is not in MECHANISMS."""
    build = MECHANISMS.get(job.mechanism)
    if build is None:
        raise InvalidArgument(f"mechanism {job.mechanism!r} is unknown; known are {', '.join(MECHANISMS)}")
    return AtSites(build, job) if job.sites and job.mechanism not in WHOLE_BATCHES else build(job)
