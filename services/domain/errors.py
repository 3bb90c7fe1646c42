"""Errors that cross a service boundary.

    EsdError
        ├── InvalidArgument      a value is wrong in any state of the system
        ├── NotFound             the table, job or lease does not exist
        ├── FailedPrecondition   the request does not fit the state
        │   ├── StaleVersion     a row is already newer than the plan states
        │   └── StaleEpoch       the request belongs to an epoch that is over
    ├── ResourceExhausted    a limit is reached, and the same request would reach it again
        │   └── StorageUnwritable  a store accepts no more data: a full or read-only disk, a full Redis
    ├── Unauthenticated      the peer did not prove its identity
    ├── PermissionDenied     the peer is known, and may not make this request
    ├── Unavailable          a backend is away; the request may be repeated
        │   ├── Loading          a parameter server loads its rows
        │   └── Overloaded       a backend is at its limit of concurrent work
        ├── DeadlineExceeded     an event did not happen in the time allowed
    └── Internal             a defect of ours; peers see a fixed text

A message names the value, the limit and the setting. The mapping to gRPC status codes is one table in
`esd.services.runtime.status`; this module knows no transport.
"""


class EsdError(Exception):
    """Base of all errors that a peer may see."""


class InvalidArgument(EsdError):
    """A value is wrong in any state of the system."""


class NotFound(EsdError):
    """The named table, job or lease does not exist."""


class FailedPrecondition(EsdError):
    """The request is well-formed but does not fit the present state."""


class StaleVersion(FailedPrecondition):
    """A row is already newer than the requested version."""


class StaleEpoch(FailedPrecondition):
    """The request belongs to an epoch that is over, or has not begun here."""


class ResourceExhausted(EsdError):
    """A configured limit is reached. The same request would reach it again, unless space is freed."""


class StorageUnwritable(ResourceExhausted):
    """The storage of a service accepts no more data: a full, read-only or over-quota disk, a full Redis.

    Stored data is not affected, and the same request succeeds once there is space again. A job that fails to take a
    checkpoint for this reason may continue, and try the next one.
    """


class Unauthenticated(EsdError):
    """The peer did not prove its identity: no certificate, or a token that is missing or wrong."""


class PermissionDenied(EsdError):
    """The peer is known, and has no right to make this request."""


class Unavailable(EsdError):
    """A backend is out of reach; the request may be repeated."""


class Loading(Unavailable):
    """A parameter server loads the rows of its checkpoints. The text has its progress: a new text is some."""


class Overloaded(Unavailable):
    """A backend is at its limit of concurrent work; the request may be repeated a moment later."""


class DeadlineExceeded(EsdError):
    """An event did not happen in the time allowed."""


class Internal(EsdError):
    """A defect of ours. Its message is logged, and never sent."""
