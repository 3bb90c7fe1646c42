"""Who makes the call that is being served, for handlers to which that matters."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from esd.services.runtime.roles import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call.

    Attributes:
        identity: in words: the certificate by its name, else the token, else the machine. What was given to one caller
            (a lease) is not good for another.
        roles: what the caller may be; every role where nobody is asked.
        proven: whether certificate or token prove the identity. A machine is an address, and may get another one.
    """

    identity: str
    roles: frozenset[Role]
    proven: bool = False


_THIS_PROCESS = Caller("this process", frozenset(Role))

_present: ContextVar[Caller] = ContextVar("caller", default=_THIS_PROCESS)


def present_caller() -> Caller:
    """Returns who makes the call that the current task serves; outside of calls, this process itself."""
    return _present.get()


def bind_caller(caller: Caller) -> None:
    """Notes who makes the call that the current task serves. The note ends with the task: every call has its own."""
    _present.set(caller)
