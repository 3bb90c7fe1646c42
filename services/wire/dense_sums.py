"""Ways to sum dense gradients on the wire: a way and its message name their options alike."""

from __future__ import annotations

from dataclasses import fields

from esd.protos import dispatcher_pb2
from esd.services.domain.dense_sums import DENSE_SUMS, DenseSum
from esd.services.domain.errors import InvalidArgument


def encode_dense_sum(way: DenseSum) -> dispatcher_pb2.DenseSum:
    """Returns the message of a way to sum."""
    message = dispatcher_pb2.DenseSum()
    chosen = getattr(message, way.name.replace("-", "_"))
    chosen.SetInParent()
    for option in fields(way):
        setattr(chosen, option.name, getattr(way, option.name))
    return message


def decode_dense_sum(message: dispatcher_pb2.DenseSum) -> DenseSum:
    """Returns the way of a message. Raises InvalidArgument if it names none."""
    name = message.WhichOneof("way")
    if name is None:
        raise InvalidArgument(f"job.dense_sum names no way to sum; there are {', '.join(DENSE_SUMS)}")
    way = DENSE_SUMS[name.replace("_", "-")]
    return way(**{option.name: getattr(getattr(message, name), option.name) for option in fields(way)})
