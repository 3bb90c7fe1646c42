"""The parameters in a file `model.onnx`, replaced by others of the same model, without the package onnx.

Of the messages of ONNX only the fields that lead to the parameters are declared here; protobuf keeps all others as they
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from numpy.typing import NDArray

from esd.services.domain.errors import FailedPrecondition

Parameters = Mapping[str, NDArray[Any]]

_PREFIX = "model."  # of the names of parameters in the graph, whose module has the model (worker/graphs.py)

_FIELD = descriptor_pb2.FieldDescriptorProto
# By message, its fields: name, number, type, whether there are several, and the message that it is.
_FIELDS: Mapping[str, tuple[tuple[str, int, int, bool, str], ...]] = {
    "Tensor": (
        ("dims", 1, _FIELD.TYPE_INT64, True, ""),
        ("name", 8, _FIELD.TYPE_STRING, False, ""),
        ("raw_data", 9, _FIELD.TYPE_BYTES, False, ""),
    ),
    "Graph": (("initializer", 5, _FIELD.TYPE_MESSAGE, True, "Tensor"),),
    "Model": (("graph", 7, _FIELD.TYPE_MESSAGE, False, "Graph"),),
}


def with_parameters(path: Path, parameters: Parameters) -> bytes:
    """Returns the content of a file `model.onnx` with other parameters.

    Args:
        path: of the file.
        parameters: all parameters and buffers of the model by name.

    Raises:
        FailedPrecondition: the file does not have these parameters, each by its name and in this shape.
    """
    model = _message("Model")()
    model.ParseFromString(path.read_bytes())
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for name, values in parameters.items():
        tensor = tensors.get(_PREFIX + name)
        if tensor is None or (*tensor.dims,) != values.shape or len(tensor.raw_data) != values.nbytes:
            raise FailedPrecondition(
                f"{path} has no parameter {name!r} of {values.dtype} {list(values.shape)}: it is of another model, or "
                "of an earlier version of ESD; export the model again"
            )
        tensor.raw_data = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    content: bytes = model.SerializeToString()
    return content


@cache
def _message(name: str) -> Any:
    """Returns the class of a message."""
    file = descriptor_pb2.FileDescriptorProto(name="onnx_parameters.proto", package="onnx", syntax="proto2")
    for message, fields in _FIELDS.items():
        described = file.message_type.add(name=message)
        for field, number, kind, several, of in fields:
            added = described.field.add(name=field, number=number, type=kind)
            added.label = _FIELD.LABEL_REPEATED if several else _FIELD.LABEL_OPTIONAL
            if of:
                added.type_name = f".onnx.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"onnx.{name}"))
