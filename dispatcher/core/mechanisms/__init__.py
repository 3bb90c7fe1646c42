"""Dispatch mechanisms, chosen by name."""

from __future__ import annotations

from collections.abc import Callable

from dispatcher.core.mechanisms.brute_force import BruteForce
from dispatcher.core.mechanisms.esd import Esd
from dispatcher.core.mechanisms.joint import Joint
from dispatcher.core.mechanisms.laia import Laia
from dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from dispatcher.core.mechanisms.laia_two_choices import LaiaTwoChoices
from dispatcher.core.mechanisms.protocol import Choice, Limits, Mechanism, Turn
from dispatcher.core.mechanisms.random import Random
from dispatcher.core.mechanisms.replay import Replay
from services.domain.errors import InvalidArgument
from services.domain.jobs import JobSpec

__all__ = ["MECHANISMS", "Choice", "Limits", "Mechanism", "Replay", "Turn", "get_mechanism"]

MECHANISMS: dict[str, Callable[[JobSpec], Mechanism]] = {
    "random": lambda job: Random(job.seed),
    "laia": lambda job: Laia(job.seed),
    "laia-adaptive": lambda job: LaiaAdaptive(job.seed, job.fields, job.workers),
    "laia-two-choices": lambda job: LaiaTwoChoices(job.seed),
    "esd": lambda job: Esd(job.alpha, job.criterion),
    "esd-priced": lambda job: Esd(job.alpha, job.criterion, priced=True),
    "joint": lambda job: Joint(job.seed, job.horizon),
    "brute-force": lambda _: BruteForce(),
}


def get_mechanism(job: JobSpec) -> Mechanism:
    """Builds the mechanism that the job names. Raises InvalidArgument for a name that is not in MECHANISMS."""
    build = MECHANISMS.get(job.mechanism)
    if build is None:
        raise InvalidArgument(f"mechanism {job.mechanism!r} is unknown; known are {', '.join(MECHANISMS)}")
    return build(job)
