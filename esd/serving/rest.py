"""The Open Inference Protocol over REST."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from types import MappingProxyType

import grpc
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import esd
from esd.services.domain.errors import (
    DeadlineExceeded,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from esd.services.runtime.byte_budget import Share
from esd.services.runtime.caller import bind_caller
from esd.services.runtime.http import is_loopback, is_loopback_name
from esd.services.runtime.server import Server
from esd.services.runtime.status import status_of
from esd.serving.rest_bodies import JSON_LENGTH, RestRequest
from esd.serving.samples import TensorKind
from esd.serving.service import EXTENSIONS, METHODS, NAME, PLATFORM, REST, ModelService
from esd.serving.settings import ModelSettings

_STATUSES = MappingProxyType(
    {
        grpc.StatusCode.INVALID_ARGUMENT: 400,
        grpc.StatusCode.NOT_FOUND: 404,
        grpc.StatusCode.FAILED_PRECONDITION: 409,
        grpc.StatusCode.UNAUTHENTICATED: 401,
        grpc.StatusCode.PERMISSION_DENIED: 403,
        grpc.StatusCode.RESOURCE_EXHAUSTED: 413,
        grpc.StatusCode.UNAVAILABLE: 503,
        grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    }
)
_TOO_MANY_REQUESTS = 429

NAMES = "names"  # in the state of a request: the names in the client's certificate, as bytes

_log = logging.getLogger(__name__)

_Answer = Callable[[Request], Awaitable[Response]]


class RestApi:
    """The paths of the protocol.

    Args:
        model: the model that is served.
        server: whose callers and limits it shares.
        settings: the limits of a request.
    """

    def __init__(self, model: ModelService, server: Server, settings: ModelSettings) -> None:
        self._model = model
        self._server = server
        self._settings = settings
        self._admit = {
            name: server.guard.by_evidence(METHODS + name)
            for name in ("ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
        }
        self._knob = settings.variable("answer_seconds")

    def app(self) -> Starlette:
        """Returns the application."""
        model = "/v2/models/{name}"
        routes = [
            Route("/v2/health/live", _answering(self._live), methods=["GET"]),
            Route("/v2/health/ready", _answering(self._ready), methods=["GET"]),
            Route("/v2", _answering(self._server_metadata), methods=["GET"]),
        ]
        for path in (model, model + "/versions/{version}"):
            routes += [
                Route(path, _answering(self._model_metadata), methods=["GET"]),
                Route(path + "/ready", _answering(self._model_ready), methods=["GET"]),
                Route(path + "/infer", _answering(self._infer), methods=["POST"]),
            ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _of_path})

    async def _live(self, _: Request) -> Response:
        return JSONResponse({"live": True})

    async def _ready(self, _: Request) -> Response:
        return JSONResponse({"ready": self._model.ready}, 200 if self._model.ready else 503)

    async def _server_metadata(self, request: Request) -> Response:
        self._admitted(request, "ServerMetadata")
        return JSONResponse({"name": NAME, "version": esd.__version__, "extensions": EXTENSIONS})

    async def _model_ready(self, request: Request) -> Response:
        self._admitted(request, "ModelReady")
        self._model.loaded(*_of_model(request))
        return JSONResponse({"ready": self._model.ready}, 200 if self._model.ready else 503)

    async def _model_metadata(self, request: Request) -> Response:
        self._admitted(request, "ModelMetadata")
        loaded = self._model.loaded(*_of_model(request))
        return JSONResponse(
            {
                "name": self._model.name,
                "versions": [loaded.version],
                "platform": PLATFORM,
                "inputs": [_described(each) for each in loaded.reader.inputs],
                "outputs": [_described(each) for each in loaded.reader.outputs],
            }
        )

    async def _infer(self, request: Request) -> Response:
        peer, limits = self._admitted(request, "ModelInfer"), self._server.limits
        with self._model.request(REST) as share:
            limits.take(METHODS, peer)
            try:
                name, version = _of_model(request)
                self._model.check_name(name)
                asked = RestRequest(await self._body(request, share), request.headers.get(JSON_LENGTH), version)
                answer = await self._model.answer(share, asked.parse)
            finally:
                limits.leave(METHODS, peer)
            body, headers = asked.encode(answer, self._model.name)
            return Response(body, headers=headers)

    def _admitted(self, request: Request, call: str) -> str:
        """Admits the caller of a request, and returns its address in gRPC's form. Raises as Guard.by_evidence."""
        host, port = request.client or ("", 0)
        peer = f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
        bind_caller(self._admit[call](peer, request.state[NAMES], request.headers.getlist("authorization")))
        return peer

    async def _body(self, request: Request, share: Share) -> bytes:
        """Receives the body of a request.

        Raises:
            ResourceExhausted: it is too long.
            Overloaded: other requests hold the memory.
            DeadlineExceeded: it does not arrive in time.
        """
        most = self._settings.max_request_bytes
        too_long = ResourceExhausted(
            f"the body is longer than {most} bytes, the limit is {self._settings.variable('max_request_bytes')}"
        )
        stated = request.headers.get("content-length", "")
        if stated.isdecimal() and int(stated) > most:
            raise too_long
        chunks = []
        try:
            async with asyncio.timeout(self._settings.answer_seconds):
                async for chunk in request.stream():
                    share.take(len(chunk))
                    chunks.append(chunk)
                    if share.held > most:
                        raise too_long
        except ClientDisconnect:
            raise Unavailable("the client has gone before its body was complete") from None
        except TimeoutError:
            raise DeadlineExceeded(
                f"the body did not arrive within {self._knob}={self._settings.answer_seconds:g} s"
            ) from None
        return b"".join(chunks)


def _of_model(request: Request) -> tuple[str, str]:
    """Returns the name and the version of the model in a path."""
    return request.path_params["name"], request.path_params.get("version", "")


def _described(kind: TensorKind) -> dict[str, object]:
    return {"name": kind.name, "datatype": kind.datatype, "shape": list(kind.shape)}


def _answering(answer: _Answer) -> _Answer:
    """Returns a handler whose errors are answers."""

    @wraps(answer)
    async def answered(request: Request) -> Response:
        server = request.scope.get("server") or ("", 0)
        if is_loopback(server[0]) and not is_loopback_name(request.headers.get("host", "localhost")):
            return _failure(421, "at a loopback address only requests for a loopback host are answered")
        try:
            return await answer(request)
        except Exception as error:  # noqa: BLE001 - the boundary of the process: any error becomes a status
            return _refused(error)

    return answered


def _refused(error: Exception) -> Response:
    status = status_of(error)
    if isinstance(error, Unauthenticated | PermissionDenied):
        _log.warning("request refused: %s", status.details)
    code = _TOO_MANY_REQUESTS if isinstance(error, Overloaded) else _STATUSES.get(status.code, 500)
    return _failure(code, status.details)


def _failure(code: int, text: str) -> Response:
    headers = {"retry-after": "1"} if code in (_TOO_MANY_REQUESTS, 503, 504) else {}
    return JSONResponse({"error": text}, code, headers | {"x-content-type-options": "nosniff"})


async def _of_path(request: Request, error: Exception) -> Response:
    """Answers a request of a path or a method that the protocol does not have."""
    code = error.status_code if isinstance(error, HTTPException) else 500
    return _failure(code, f"{request.method} {request.url.path[:200]} is no request of the protocol")
