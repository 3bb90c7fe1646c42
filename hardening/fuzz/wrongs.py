"""Answers of services to workers and to each other, with one wrong message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.descriptor import ServiceDescriptor
from hypothesis import strategies as st

from esd.protos import dispatcher_pb2, ps_pb2
from hardening.fuzz.meddler import Honest, Meddling
from hardening.fuzz.twists import Twist, drawn, twists

_DISPATCHER: ServiceDescriptor = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
_PS: ServiceDescriptor = ps_pb2.DESCRIPTOR.services_by_name["ParameterServer"]
_SEVERAL = {"Attend": 8, "Exchange": 12}  # messages of an attempt, about; of other calls there are one or two
_CALLS = {
    "RegisterWorker", "CreateTable", "PutDense", "Cut", "PutPart", "GetPart", "Save", "Commit", "BeginEpoch",
    "Restore", "GetCheckpoint", "AppendSamples", "ReadSamples", "TrimSamples",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wrong:
    """One message that is twisted.

    Attributes:
        method: path of the call with the message.
        number: position among the messages of such calls in an attempt, from 0.
        twist: the change of the message.
    """

    method: str
    number: int
    twist: Twist


def wrongs(count: int, number: int) -> list[Wrong]:
    """Draws wrong messages by a seed: a third each are plans, answers to frames, and answers to other calls."""
    plans = _of_call(_DISPATCHER, "Attend")
    frames = _of_call(_PS, "Exchange")
    known = [(service, name) for service in (_DISPATCHER, _PS) for name in service.methods_by_name if name in _CALLS]
    others = st.one_of([_of_call(service, name) for service, name in known])
    return [*drawn(st.one_of(plans, frames, others), count, number)]


def _of_call(service: ServiceDescriptor, name: str) -> st.SearchStrategy[Wrong]:
    method = service.methods_by_name[name]
    path, number = st.just(f"/{service.full_name}/{name}"), st.integers(0, _SEVERAL.get(name, 1))
    return st.builds(Wrong, path, number, twists(method.output_type, {}))


class Twister:
    """Twists the present wrong message, and no other.

    Args:
        twisted: counts the twisted messages by method.
    """

    def __init__(self, twisted: Counter[str]) -> None:
        self._twisted = twisted
        self._wrong: Wrong | None = None
        self._count = 0

    def begin(self, wrong: Wrong | None) -> None:
        """Begins an attempt; None: all is well."""
        self._wrong = wrong
        self._count = 0

    def meddling(self, method: str) -> Meddling:
        """Makes the `Meddling` of a call."""
        return _Answers(self, method)

    def take(self, method: str, message: bytes) -> bytes:
        """Returns the message of a service, twisted if it is the wrong one."""
        wrong = self._wrong
        if wrong is None or wrong.method != method:
            return message
        self._count += 1
        if self._count <= wrong.number:
            return message
        self._wrong = None
        self._twisted[method.rpartition("/")[2]] += 1
        return wrong.twist(message)


class _Answers(Honest):
    """Forwards the messages of the client, and twists messages of the service."""

    def __init__(self, twister: Twister, method: str) -> None:
        self._twister = twister
        self._method = method

    def down(self, message: bytes) -> Iterable[bytes]:
        """Returns the message, twisted if it is the wrong one."""
        return (self._twister.take(self._method, message),)
