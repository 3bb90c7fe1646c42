"""A client of a parameter server that can also send what no honest client would."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from protos import ps_pb2, ps_pb2_grpc
from services.clients.parameter_server import AsyncParameterServerClient
from services.domain.errors import EsdError
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from services.runtime.status import CODES, domain_errors
from services.wire.rows import encode_pull

Rows = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]]  # ids, versions, rows

SPEC = TableSpec("t", 16, OptimizerSpec(OptimizerKind.ADAM, 0.1), seed=11, init_scale=0.5)


def row_push(ids: ArrayLike, version: ArrayLike, rows: ArrayLike) -> ps_pb2.PushRequest:
    """A push chunk; `version` may be one for all rows."""
    ids = np.asarray(ids, np.uint64)
    versions = np.broadcast_to(np.asarray(version, np.int64), len(ids))
    rows = np.ascontiguousarray(np.broadcast_to(rows, (len(ids), SPEC.row_width)), np.float32)
    body = ps_pb2.RowBlock(ids=ids.tobytes(), versions=versions.tobytes(), rows=rows.tobytes())
    return ps_pb2.PushRequest(table="t", rows=body)


def gradient_push(
    worker: int, ids: ArrayLike, target: int, contributors: int, gradients: ArrayLike, step: int = 1
) -> ps_pb2.PushRequest:
    """A push chunk of one worker's partial gradients."""
    ids = np.asarray(ids, np.uint64)
    gradients = np.ascontiguousarray(np.broadcast_to(gradients, (len(ids), SPEC.dimension)), np.float32)
    body = ps_pb2.GradientBlock(
        ids=ids.tobytes(),
        target_versions=np.full(len(ids), target, np.int64).tobytes(),
        contributors=np.full(len(ids), contributors, np.uint64).tobytes(),
        steps=np.full(len(ids), step, np.int64).tobytes(),
        gradients=gradients.tobytes(),
        worker=worker,
    )
    return ps_pb2.PushRequest(table="t", gradients=body)


class Client(AsyncParameterServerClient):
    """The client of one server whose table is `SPEC`.

    `stub` makes calls as they are; `opened` is a channel to use in place of one that repeats calls by itself.
    """

    def __init__(self, address: str, opened: grpc.aio.Channel | None = None, **options: Any) -> None:
        super().__init__(address, SPEC, timeout=10, **options)
        self.address = address
        self.channel = opened or self._channel
        self.stub = self._stub = ps_pb2_grpc.ParameterServerStub(self.channel)  # type: ignore[no-untyped-call]

    async def fetch(self, ids: ArrayLike, version: ArrayLike, within: float = 10) -> Rows:
        """Ids, versions and rows as a pull brings them; `version` may be one for all rows."""
        ids = np.asarray(ids, np.uint64)
        request = encode_pull("t", ids, np.broadcast_to(np.asarray(version, np.int64), len(ids)))
        with domain_errors():
            return joined([response.rows async for response in self.stub.Pull(request, timeout=within)])

    async def send(self, *chunks: ps_pb2.PushRequest, within: float = 10) -> tuple[int, int]:
        """How many rows and gradients of a push of these chunks were stored, and how many were known already."""
        with domain_errors():
            response = await self.stub.Push(iter(chunks), timeout=within)
        return response.stored, response.already_known

    async def everything(self) -> Rows:
        """Ids, versions and rows of all that is stored, ascending by id."""
        blocks = [block async for block in self.scan()]
        ids, versions, rows = (
            np.concatenate([getattr(block, name) for block in blocks]) for name in ("ids", "versions", "rows")
        )
        order = np.argsort(ids)
        return ids[order], versions[order], rows[order]


def joined(chunks: Sequence[ps_pb2.RowBlock]) -> Rows:
    """Columns of the rows of many chunks."""
    return (
        np.frombuffer(b"".join(chunk.ids for chunk in chunks), np.uint64),
        np.frombuffer(b"".join(chunk.versions for chunk in chunks), np.int64),
        np.frombuffer(b"".join(chunk.rows for chunk in chunks), np.float32).reshape(-1, SPEC.row_width),
    )


@contextmanager
def refused(code: grpc.StatusCode, text: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Passes when a call inside the block fails with this code and a message that matches `text`."""
    with pytest.raises((EsdError, grpc.aio.AioRpcError)) as caught:
        yield caught
    error: Any = caught.value
    got, said = (CODES[type(error)], str(error)) if isinstance(error, EsdError) else (error.code(), error.details())
    assert (got, bool(re.search(text, said))) == (code, True), said
