"""The dispatch mechanisms that a job can name (docs/dispatch.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dispatcher.core.mechanisms.brute_force import BruteForce
from dispatcher.core.mechanisms.esd import Esd
from dispatcher.core.mechanisms.hash import Hash
from dispatcher.core.mechanisms.history import History
from dispatcher.core.mechanisms.joint import Joint
from dispatcher.core.mechanisms.laia import Laia, LaiaTwoChoices
from dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from dispatcher.core.mechanisms.protocol import Assignment, DispatchInput, Mechanism, WorkloadLimits
from dispatcher.core.mechanisms.random import Random
from dispatcher.core.mechanisms.replay import Replay
from services.domain.errors import InvalidArgument
from services.domain.jobs import JobSpec

__all__ = [
    "MECHANISMS",
    "Assignment",
    "DispatchInput",
    "Mechanism",
    "Replay",
    "WorkloadLimits",
    "get_mechanism",
]

MECHANISMS: dict[str, Callable[[JobSpec], Mechanism]] = {
    "random": Random,
    "hash": Hash,
    "history": History,
    "laia": Laia,
    "laia-adaptive": LaiaAdaptive,
    "laia-two-choices": LaiaTwoChoices,
    "esd": Esd,
    "esd-priced": partial(Esd, priced=True),
    "joint": Joint,
    "brute-force": lambda _job: BruteForce(),
}


# Whose expected costs may contain evict pushes (docs/dispatch.md says what that does for joint: nothing), and who has
# an exact part that a solver assigns.
_OF_ESD = ("esd", "esd-priced")
_ANY_SOLVER = "auto"


def get_mechanism(job: JobSpec) -> Mechanism:
    """Builds the mechanism that the job names.

    Raises:
        InvalidArgument: the name is not in MECHANISMS; the job has an option that the mechanism lacks.
    """
    build = MECHANISMS.get(job.mechanism)
    if build is None:
        raise InvalidArgument(f"mechanism {job.mechanism!r} is unknown; known are {', '.join(MECHANISMS)}")
    if job.mechanism not in _OF_ESD:
        owners = " and ".join(_OF_ESD)
        if job.eviction_term:
            raise InvalidArgument(f"eviction_term (--eviction-term) is for {owners}, {job.mechanism} has none")
        if job.auto_alpha:
            raise InvalidArgument(f"auto_alpha (--alpha auto) is for {owners}, {job.mechanism} has no exact part")
        if job.solver != _ANY_SOLVER:
            raise InvalidArgument(f"solver {job.solver} (--solver) is for {owners}, {job.mechanism} has no exact part")
    return build(job)
