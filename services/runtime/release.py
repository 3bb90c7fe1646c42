"""The release of a process, and a clear error between processes of different releases.

A caller names its release in the user agent of its calls, after its own name. The release is the version of the package
and a digest of the interfaces, so that two builds of one version with different messages are two releases. Callers with
stubs of their own name no release, and are not checked.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from urllib.parse import quote

from esd.protos import common_pb2, dispatcher_pb2, ps_pb2, worker_pb2
from esd.services.domain.errors import FailedPrecondition

INTERFACES = tuple(module.DESCRIPTOR for module in (common_pb2, dispatcher_pb2, ps_pb2, worker_pb2))

_PRODUCT = "esd/"
_LONGEST_SHOWN = 64  # characters of a peer's release in the error
_DIGEST = hashlib.sha256(b"".join(file.serialized_pb for file in INTERFACES)).hexdigest()[:8]

RELEASE = f"{version('esd-train')}+{_DIGEST}"


def user_agent(caller: str) -> str:
    """Returns the user agent of a channel: the caller's name, and its release. gRPC adds its own."""
    return f"{quote(caller)} {_PRODUCT}{RELEASE}".lstrip()


def check_release(agent: str) -> None:
    """Raises FailedPrecondition if the user agent of a call names another release than this process's."""
    named = next((word.removeprefix(_PRODUCT) for word in agent.split() if word.startswith(_PRODUCT)), RELEASE)
    if named != RELEASE:
        raise FailedPrecondition(
            f"the caller has release {named[:_LONGEST_SHOWN]} of ESD, and this service has {RELEASE}: use images and "
            "packages of one release"
        )
