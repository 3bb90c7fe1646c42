"""Which release a process is of: two that differ are told so, instead of misunderstanding each other.

A caller names its release in the user agent of its calls, behind its own name. It is the version of the package and a
digest of the interfaces, so that two builds of one version whose messages differ are two releases. Whoever calls with
stubs of their own names none, and is not asked.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from urllib.parse import quote

from esd.protos import common_pb2, dispatcher_pb2, ps_pb2, worker_pb2
from esd.services.domain.errors import FailedPrecondition

INTERFACES = tuple(module.DESCRIPTOR for module in (common_pb2, dispatcher_pb2, ps_pb2, worker_pb2))

_PRODUCT = "esd/"
_LONGEST_SHOWN = 64  # of what a peer says
_DIGEST = hashlib.sha256(b"".join(file.serialized_pb for file in INTERFACES)).hexdigest()[:8]

RELEASE = f"{version('esd-train')}+{_DIGEST}"


def user_agent(caller: str) -> str:
    """Returns what a channel says of its calls: the caller's name, and its release. gRPC adds itself."""
    return f"{quote(caller)} {_PRODUCT}{RELEASE}".lstrip()


def check_release(agent: str) -> None:
    """Raises FailedPrecondition if the user agent of a call names another release than this process is of."""
    named = next((word.removeprefix(_PRODUCT) for word in agent.split() if word.startswith(_PRODUCT)), RELEASE)
    if named != RELEASE:
        raise FailedPrecondition(
            f"the caller is of release {named[:_LONGEST_SHOWN]} of ESD, and this service of {RELEASE}: use images and "
            'packages of one release (docs/operations.md, "Another version")'
        )
