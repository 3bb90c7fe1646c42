"""The bodies of the REST API: requests for scores and their answers in JSON, with binary tensors after it or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime.mistakes import mistakes
from esd.serving.requests import InferAnswer, InferRequest
from esd.serving.tensors import Described, Tensor, shown

JSON_LENGTH = "inference-header-content-length"  # of a body with binary tensors: the bytes of its JSON
_MOST_MISTAKES = 5  # in one message

_STRICT = ConfigDict(strict=True)  # unknown keys are allowed: the protocol has extensions


class _OfTensor(BaseModel):
    model_config = _STRICT
    binary_data_size: Annotated[int, Field(ge=0)] | None = None
    binary_data: bool | None = None


class _Input(BaseModel):
    model_config = _STRICT
    name: str
    datatype: str
    shape: Annotated[list[int], FailFast()]
    parameters: _OfTensor = _OfTensor()
    data: list[Any] | None = None


class _Output(BaseModel):
    model_config = _STRICT
    name: str
    parameters: _OfTensor = _OfTensor()


class _OfRequest(BaseModel):
    model_config = _STRICT
    binary_data_output: bool = False


class _Request(BaseModel):
    model_config = _STRICT
    id: str = ""
    parameters: _OfRequest = _OfRequest()
    inputs: Annotated[list[_Input], FailFast()]
    outputs: Annotated[list[_Output], FailFast()] = []


_REQUEST = TypeAdapter(_Request)


@dataclass(slots=True)
class RestRequest:
    """The body of a request.

    Args:
        body: all of its bytes.
        json_length: the header `Inference-Header-Content-Length`; None: all of it is JSON.
        version: of the model, from the path; empty: the one that is served.

    Attributes:
        binary: the labels whose scores the client wants in binary form; known once `parse` has returned.
    """

    body: bytes
    json_length: str | None
    version: str
    binary: frozenset[str] | None = frozenset()

    def parse(self) -> InferRequest:
        """Reads the request.

        Raises:
            InvalidArgument: it is malformed.
        """
        length = self._length()
        document = _read(self.body[:length])
        inputs = _tensors(document.inputs, memoryview(self.body)[length:])
        wanted = document.parameters.binary_data_output
        binary = [
            each.name
            for each in document.outputs
            if (wanted if each.parameters.binary_data is None else each.parameters.binary_data)
        ]
        self.binary = frozenset(binary) if document.outputs or not wanted else None
        return InferRequest(tuple(inputs), tuple(each.name for each in document.outputs), self.version, document.id)

    def encode(self, answer: InferAnswer, name: str) -> tuple[bytes, dict[str, str]]:
        """Returns the body of the answer of a model, and its headers."""
        outputs, binary = [], []
        for label, scores in answer.scores.items():
            output: dict[str, Any] = {"name": label, "datatype": "FP32", "shape": [len(scores)]}
            if self.binary is None or label in self.binary:
                binary.append(scores.astype("<f4").tobytes())
                output["parameters"] = {"binary_data_size": len(binary[-1])}
            else:
                output["data"] = scores.tolist()
            outputs.append(output)
        document = {"model_name": name, "model_version": answer.version, "outputs": outputs}
        text = json.dumps(document | ({"id": answer.id} if answer.id else {})).encode()
        if not binary:
            return text, {"content-type": "application/json"}
        return b"".join((text, *binary)), {"content-type": "application/octet-stream", JSON_LENGTH: str(len(text))}

    def _length(self) -> int:
        """Returns the bytes of the JSON."""
        if self.json_length is None:
            return len(self.body)
        text = self.json_length.strip()
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= len(self.body)):
            raise InvalidArgument(
                f"the header {JSON_LENGTH} is {shown(self.json_length)}, it must be a number of bytes up to the "
                f"{len(self.body)} of the body"
            )
        return int(text)


def _read(text: bytes) -> _Request:
    try:
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        if first["type"] == "json_invalid":
            raise InvalidArgument(f"the body is no JSON: {first['ctx']['error']}") from None
        found = list(mistakes(error, None, lambda _: ()))
        more = f" and {len(found) - _MOST_MISTAKES} more" if len(found) > _MOST_MISTAKES else ""
        raise InvalidArgument(f"the request is malformed: {'; '.join(found[:_MOST_MISTAKES])}{more}") from None


def _tensors(inputs: Sequence[_Input], binary: memoryview) -> list[Tensor]:
    """Reads the inputs, of which those without `data` follow each other in the bytes after the JSON."""
    tensors = []
    place = 0
    for each in inputs:
        described = Described(each.name, each.datatype, tuple(each.shape))
        size = each.parameters.binary_data_size
        if (size is None) == (each.data is None):
            raise InvalidArgument(f"{described} must have either data or the parameter binary_data_size")
        if each.data is not None:
            tensors.append(described.of_list(each.data))
            continue
        size = size or 0
        if size > len(binary) - place:
            raise InvalidArgument(
                f"{described} has the binary_data_size {size}, and {len(binary) - place} bytes are left of the body"
            )
        tensors.append(described.of_raw(binary[place : place + size]))
        place += size
    if place != len(binary):
        raise InvalidArgument(f"the body has {len(binary) - place} bytes after its last input")
    return tensors
