"""The Open Inference Protocol over gRPC."""

# ruff: noqa: N802, ARG002 - names and arguments of the rpcs are the contract's
from __future__ import annotations

from functools import partial
from typing import Any

import esd
from esd.protos import inference_pb2, inference_pb2_grpc
from esd.services.domain.errors import InvalidArgument
from esd.serving.requests import InferAnswer, InferRequest
from esd.serving.samples import TensorKind
from esd.serving.service import EXTENSIONS, GRPC, NAME, PLATFORM, ModelService
from esd.serving.tensors import Described, Tensor

SERVICE = inference_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name
add_to_server = inference_pb2_grpc.add_GRPCInferenceServiceServicer_to_server


class InferenceServicer(inference_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers the calls of the protocol.

    Args:
        model: the model that is served.
    """

    def __init__(self, model: ModelService) -> None:
        self._model = model

    async def ServerLive(
        self, request: inference_pb2.ServerLiveRequest, context: Any
    ) -> inference_pb2.ServerLiveResponse:
        """See inference.proto."""
        return inference_pb2.ServerLiveResponse(live=True)

    async def ServerReady(
        self, request: inference_pb2.ServerReadyRequest, context: Any
    ) -> inference_pb2.ServerReadyResponse:
        """See inference.proto."""
        return inference_pb2.ServerReadyResponse(ready=self._model.ready)

    async def ModelReady(
        self, request: inference_pb2.ModelReadyRequest, context: Any
    ) -> inference_pb2.ModelReadyResponse:
        """See inference.proto."""
        self._model.loaded(request.name, request.version)
        return inference_pb2.ModelReadyResponse(ready=self._model.ready)

    async def ServerMetadata(
        self, request: inference_pb2.ServerMetadataRequest, context: Any
    ) -> inference_pb2.ServerMetadataResponse:
        """See inference.proto."""
        return inference_pb2.ServerMetadataResponse(name=NAME, version=esd.__version__, extensions=EXTENSIONS)

    async def ModelMetadata(
        self, request: inference_pb2.ModelMetadataRequest, context: Any
    ) -> inference_pb2.ModelMetadataResponse:
        """See inference.proto."""
        loaded = self._model.loaded(request.name, request.version)
        return inference_pb2.ModelMetadataResponse(
            name=self._model.name,
            versions=[loaded.version],
            platform=PLATFORM,
            inputs=map(_described, loaded.reader.inputs),
            outputs=map(_described, loaded.reader.outputs),
        )

    async def ModelInfer(
        self, request: inference_pb2.ModelInferRequest, context: Any
    ) -> inference_pb2.ModelInferResponse:
        """See inference.proto."""
        with self._model.request(GRPC) as share:
            self._model.check_name(request.model_name)
            share.take(request.ByteSize())
            answer = await self._model.answer(share, partial(_parsed, request))
            return _encoded(answer, self._model.name)


def _described(kind: TensorKind) -> inference_pb2.ModelMetadataResponse.TensorMetadata:
    return inference_pb2.ModelMetadataResponse.TensorMetadata(name=kind.name, datatype=kind.datatype, shape=kind.shape)


def _parsed(request: inference_pb2.ModelInferRequest) -> InferRequest:
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise InvalidArgument(
            f"raw_input_contents has {len(raw)} entries, and there are {len(request.inputs)} inputs: all inputs are "
            "raw or none"
        )
    inputs = [_tensor(each, raw[at] if raw else None) for at, each in enumerate(request.inputs)]
    outputs = tuple(each.name for each in request.outputs)
    return InferRequest(tuple(inputs), outputs, request.model_version, request.id)


def _tensor(given: inference_pb2.ModelInferRequest.InferInputTensor, raw: bytes | None) -> Tensor:
    described = Described(given.name, given.datatype, tuple(given.shape))
    if raw is None:
        return described.of_contents(given.contents)
    if given.HasField("contents"):
        raise InvalidArgument(f"{described} has contents, and the request has raw_input_contents: only one may be set")
    return described.of_raw(raw)


def _encoded(answer: InferAnswer, name: str) -> inference_pb2.ModelInferResponse:
    return inference_pb2.ModelInferResponse(
        model_name=name,
        model_version=answer.version,
        id=answer.id,
        outputs=[
            inference_pb2.ModelInferResponse.InferOutputTensor(name=label, datatype="FP32", shape=[len(scores)])
            for label, scores in answer.scores.items()
        ],
        raw_output_contents=[scores.astype("<f4").tobytes() for scores in answer.scores.values()],
    )
