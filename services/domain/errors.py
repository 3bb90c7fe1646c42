"""Errors that cross a service boundary.

    EsdError
    ├── InvalidArgument      a value is wrong, whatever the state
    ├── NotFound             no such table, job, lease
    ├── FailedPrecondition   the request does not fit the state
    │   ├── StaleVersion     a row is already newer than the plan says
    │   └── StaleEpoch       the request belongs to an epoch that is over
    ├── ResourceExhausted    a limit is reached, and the same request would reach it again
    │   └── StorageUnwritable  a store takes nothing more: a full or read-only disk, a full Redis
    ├── Unauthenticated      the peer did not prove who it is
    ├── PermissionDenied     the peer is known, and may not do this
    ├── Unavailable          a backend is away; the request may be repeated
    │   └── Overloaded       a backend does as much as it takes on
    ├── DeadlineExceeded     waited as long as allowed
    └── Internal             a defect of ours; peers see a fixed text

A message says which value, which limit, which knob. The mapping to gRPC status codes is one table in
`services/runtime/status.py`; this module knows no transport.
"""


class EsdError(Exception):
    """Base of all errors that a peer may see."""


class InvalidArgument(EsdError):
    """A value is wrong, whatever the state of the system."""


class NotFound(EsdError):
    """The named table, job or lease does not exist."""


class FailedPrecondition(EsdError):
    """The request is well-formed but does not fit the present state."""


class StaleVersion(FailedPrecondition):
    """A row is already newer than the version that was asked for."""


class StaleEpoch(FailedPrecondition):
    """The request belongs to an epoch that is over, or has not begun here."""


class ResourceExhausted(EsdError):
    """A configured limit is reached. The same request would reach it again, unless somebody makes room."""


class StorageUnwritable(ResourceExhausted):
    """What a service keeps its state in takes nothing more: a full, read-only or over-quota disk, a full Redis.

    Nothing that was kept before is lost, and the same request succeeds once there is room again. Whoever wanted a
    checkpoint has failed to take this one, and may go on and try the next.
    """


class Unauthenticated(EsdError):
    """The peer did not prove who it is: no certificate, or a token that is missing or wrong."""


class PermissionDenied(EsdError):
    """The peer proved who it is, and may not do this."""


class Unavailable(EsdError):
    """A backend is out of reach; the request may be repeated."""


class Overloaded(Unavailable):
    """A backend does as much at a time as it takes on; the request is welcome a moment later."""


class DeadlineExceeded(EsdError):
    """What was waited for did not happen in the time allowed."""


class Internal(EsdError):
    """A defect of ours. Its text is logged, never sent."""
