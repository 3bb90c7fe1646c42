"""Access rights: the roles, the one table of all RPCs, and the roles of names and tokens.

docs/security.md shows the table to people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from esd.services.domain.errors import InvalidArgument


class Role(StrEnum):
    """The part of a caller in a deployment. One caller may have several roles."""

    WORKER = "worker"  # trains: moves rows and reports
    DISPATCHER = "dispatcher"  # plans: writes checkpoints and the sample log, and restores them
    DRIVER = "driver"  # starts jobs, sends samples, fetches the model
    OBSERVER = "observer"  # reads the state of jobs and servers
    OPERATOR = "operator"  # reads everything, and ends jobs
    SCORER = "scorer"  # asks a served model for scores
    MODEL = "model"  # is a served model: reads the rows and dense parameters that a job trains


ANYBODY = frozenset(Role)  # health calls need no role at all

_WORKER = frozenset({Role.WORKER})
_DISPATCHER = frozenset({Role.DISPATCHER})
_TRAINING = _WORKER | _DISPATCHER
_DRIVER = frozenset({Role.DRIVER})
_OWNERS = frozenset({Role.DRIVER, Role.OPERATOR})
_PEOPLE = frozenset({Role.DRIVER, Role.OBSERVER, Role.OPERATOR})
_SCORING = frozenset({Role.SCORER, Role.DRIVER})
_FOLLOWERS = _OWNERS | {Role.MODEL}

ROLES_BY_RPC: Mapping[str, frozenset[Role]] = MappingProxyType(
    {
        "/esd.v1.Dispatcher/HybridDis": _OWNERS,
        "/esd.v1.Dispatcher/CreateJob": _DRIVER,
        "/esd.v1.Dispatcher/CancelJob": _OWNERS,
        "/esd.v1.Dispatcher/RegisterWorker": _WORKER,
        "/esd.v1.Dispatcher/Attend": _WORKER,
        "/esd.v1.Dispatcher/PutGroupKey": _WORKER,
        "/esd.v1.Dispatcher/GetGroupKey": _WORKER,
        "/esd.v1.Dispatcher/Submit": _DRIVER,
        "/esd.v1.Dispatcher/RecordEvaluations": _DRIVER,
        "/esd.v1.Dispatcher/DescribeJob": _PEOPLE,
        "/esd.v1.Dispatcher/DescribePage": _PEOPLE,
        "/esd.v1.Dispatcher/WatchPlans": _PEOPLE,
        "/esd.v1.ParameterServer/CreateTable": _TRAINING,
        "/esd.v1.ParameterServer/Exchange": _WORKER,
        "/esd.v1.ParameterServer/Lookup": _OWNERS,
        "/esd.v1.ParameterServer/Forget": _WORKER,
        "/esd.v1.ParameterServer/Scan": _OWNERS,
        "/esd.v1.ParameterServer/Changes": _FOLLOWERS,
        "/esd.v1.ParameterServer/Sum": _WORKER,
        "/esd.v1.ParameterServer/PutDense": _WORKER,
        "/esd.v1.ParameterServer/GetDense": _FOLLOWERS,
        "/esd.v1.ParameterServer/Cut": _WORKER,
        "/esd.v1.ParameterServer/PutPart": _TRAINING,  # see PARTS_OF_WORKERS
        "/esd.v1.ParameterServer/GetPart": _TRAINING,
        "/esd.v1.ParameterServer/Save": _DISPATCHER,
        "/esd.v1.ParameterServer/Commit": _DISPATCHER,
        "/esd.v1.ParameterServer/BeginEpoch": _DISPATCHER,
        "/esd.v1.ParameterServer/Restore": _DISPATCHER,
        "/esd.v1.ParameterServer/GetCheckpoint": _DISPATCHER | _OWNERS,
        "/esd.v1.ParameterServer/AppendSamples": _DISPATCHER,
        "/esd.v1.ParameterServer/ReadSamples": _DISPATCHER,
        "/esd.v1.ParameterServer/TrimSamples": _DISPATCHER,
        "/esd.v1.ParameterServer/DescribeServer": _PEOPLE,
        "/esd.v1.Worker/DescribeWorker": _PEOPLE,
        "/esd.v1.Worker/Meet": _WORKER,
        "/esd.v1.Worker/Deliver": _WORKER,
        "/inference.GRPCInferenceService/ServerLive": frozenset(Role),
        "/inference.GRPCInferenceService/ServerReady": frozenset(Role),
        "/inference.GRPCInferenceService/ModelReady": frozenset(Role),
        "/inference.GRPCInferenceService/ServerMetadata": _SCORING | _PEOPLE,
        "/inference.GRPCInferenceService/ModelMetadata": _SCORING | _PEOPLE,
        "/inference.GRPCInferenceService/ModelInfer": _SCORING,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": frozenset(Role),
        "/grpc.health.v1.Health/Check": ANYBODY,
        "/grpc.health.v1.Health/List": ANYBODY,
        "/grpc.health.v1.Health/Watch": ANYBODY,
    }
)

# The parts of checkpoints that a worker may store and read; only the dispatcher may use the others.
DENSE_PART = "dense"
PARTS_OF_WORKERS = frozenset({DENSE_PART})

# Names in certificates that denote a role by themselves.
_PLAIN_NAMES: Mapping[str, Role] = MappingProxyType({role.value: role for role in Role} | {"client": Role.DRIVER})
_ANY_NAME = "*"


class RolesByName:
    """The roles of the names in certificates, from the setting `tls_clients`.

    Args:
        listed: entries NAME=ROLE, separated by commas. NAME alone suffices if it denotes its role: the name of a role,
            or `client`, which is a driver. `*=ROLE` is for every name; `*` alone, for every name that denotes its role.

    Raises:
        InvalidArgument: an entry names no role.
    """

    def __init__(self, listed: str) -> None:
        self._listed: dict[str, Role] = {}
        for entry in filter(None, (entry.strip() for entry in listed.split(","))):
            name, _, role = (part.strip() for part in entry.partition("="))
            if entry == _ANY_NAME:
                self._listed |= {name: role for name, role in _PLAIN_NAMES.items() if name not in self._listed}
            else:
                self._listed[name] = _role(role, entry) if name and role else _role(entry, entry)

    def of(self, names: Iterable[str]) -> frozenset[Role]:
        """Returns the roles of all names of one certificate."""
        return frozenset(self._listed[name] for name in (*names, _ANY_NAME) if name in self._listed)


def _role(name: str, entry: str) -> Role:
    if name not in _PLAIN_NAMES:
        raise InvalidArgument(f"{entry!r} names no role; write NAME=ROLE, with one of {', '.join(Role)}")
    return _PLAIN_NAMES[name]


@dataclass(frozen=True, slots=True)
class Token:
    """A token that callers may carry.

    Attributes:
        secret: the token itself.
        role: the role of its bearer; None for every role, if one token is for all callers.
        name: identifies it in messages without revealing it.
    """

    secret: str = field(repr=False)
    role: Role | None = None
    name: str = "the token"


def read_tokens(text: str) -> tuple[Token, ...]:
    """Reads a file of tokens: a single token for all roles, or lines of a role and a token.

    A role may have several tokens, so that each of its callers can have its own. Lines that begin with # are comments.

    Raises:
        InvalidArgument: the file is empty, a line is not a role and a token, two tokens are equal, or a token has
            characters that the header of a call cannot carry. The message reveals no token.
    """
    lines = {number: line.split() for number, line in enumerate(text.splitlines(), 1) if not line.startswith("#")}
    lines = {number: words for number, words in lines.items() if words}
    if not lines:
        raise InvalidArgument("the file is empty")
    for number, words in lines.items():
        if not (words[-1].isascii() and words[-1].isprintable()):
            raise InvalidArgument(f"the token in line {number} has characters other than the printable ones of ASCII")
    if len(lines) == 1 and all(len(words) == 1 for words in lines.values()):
        return tuple(Token(secret) for (secret,) in lines.values())
    for number, words in lines.items():
        if len(words) != 2 or words[0] not in set(Role):
            raise InvalidArgument(
                f"line {number} is not a role and a token; a file has one token, or lines `ROLE TOKEN` with one of "
                f"{', '.join(Role)}"
            )
    if len({secret for _, secret in lines.values()}) < len(lines):
        raise InvalidArgument("two lines have the same token")
    return tuple(
        Token(secret, Role(role), f"the token of role {role} in line {number}")
        for number, (role, secret) in lines.items()
    )
