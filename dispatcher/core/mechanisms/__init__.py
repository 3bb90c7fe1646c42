"""The dispatch mechanisms that a job can name (docs/dispatch.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial

from esd.dispatcher.core.mechanisms.brute_force import BruteForce
from esd.dispatcher.core.mechanisms.esd import Esd
from esd.dispatcher.core.mechanisms.hash import Hash
from esd.dispatcher.core.mechanisms.history import History
from esd.dispatcher.core.mechanisms.joint import Joint
from esd.dispatcher.core.mechanisms.laia import Laia, LaiaTwoChoices
from esd.dispatcher.core.mechanisms.laia_adaptive import LaiaAdaptive
from esd.dispatcher.core.mechanisms.protocol import Assignment, DispatchInput, Mechanism, WorkloadLimits
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


_OF_ESD = ("esd", "esd-priced")
# Options of single mechanisms: the text in error messages, the mechanisms with the option, and the reason why others
# refuse it. Joint has no eviction term, because one hardly changed its cost (docs/mechanisms.md).
_OWN_OPTIONS = {
    "eviction_term": ("eviction_term (--eviction-term)", _OF_ESD, "has none"),
    "auto_alpha": ("auto_alpha (--alpha auto)", _OF_ESD, "has no exact part"),
    "solver": ("solver {} (--solver)", _OF_ESD, "has no exact part"),
    "horizon": ("horizon {} (--horizon)", ("joint",), "has none"),
    "hash_field": ("hash_field {} (--hash-field)", ("hash",), "goes by all fields"),
}
_DEFAULTS = {field.name: field.default for field in fields(JobSpec) if field.name in _OWN_OPTIONS}


def get_mechanism(job: JobSpec) -> Mechanism:
    """Builds the mechanism that the job names.

    Raises:
        InvalidArgument: the name is not in MECHANISMS, or the job sets an option that the mechanism does not have.
    """
    build = MECHANISMS.get(job.mechanism)
    if build is None:
        raise InvalidArgument(f"mechanism {job.mechanism!r} is unknown; known are {', '.join(MECHANISMS)}")
    for option, (text, owners, lack) in _OWN_OPTIONS.items():
        given = getattr(job, option)
        if given != _DEFAULTS[option] and job.mechanism not in owners:
            raise InvalidArgument(f"{text.format(given)} is for {' and '.join(owners)}, {job.mechanism} {lack}")
    return build(job)
