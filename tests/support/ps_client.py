"""A client of a parameter server that can also send dishonest requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from esd.protos import ps_pb2, ps_pb2_grpc
from esd.services.domain.errors import EsdError
from esd.services.runtime.status import CODES, domain_errors
from tests.support.exchange import exchange
from tests.support.frames import SPEC, frame
from tests.support.server_client import ServerClient

Rows = tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]]  # ids, versions, rows


class Client(ServerClient):
    """The client of one server whose table is `SPEC`.

    `stub` makes calls as they are; `opened` is a channel to use in place of one that repeats calls by itself.
    """

    def __init__(self, address: str, opened: grpc.aio.Channel | None = None, **options: Any) -> None:
        super().__init__(address, SPEC, timeout=60, **options)
        self.address = address
        self.channel = opened or self.server.channel
        self.stub = self.server.stub = ps_pb2_grpc.ParameterServerStub(self.channel)  # type: ignore[no-untyped-call]

    async def fetch(self, ids: ArrayLike, version: ArrayLike, within: float = 60) -> Rows:
        """Ids, versions and rows as an exchange brings them; `version` may be one for all rows."""
        ids = np.asarray(ids, np.uint64)
        versions = np.broadcast_to(np.asarray(version, np.int64), len(ids))
        with domain_errors():
            async with exchange(self.channel) as stream:
                await stream.write(frame(1, pull=(ids, versions), wait_ms=round(within * 1000)))
                return ids, versions, await stream.rows(1, len(ids))

    async def send(self, *frames: ps_pb2.ExchangeRequest) -> tuple[int, int]:
        """How many rows and gradients of these frames were stored, and how many were known already."""
        stored = known = 0
        with domain_errors():
            async with exchange(self.channel) as stream:
                for number, each in enumerate(frames, 1):
                    request = ps_pb2.ExchangeRequest()
                    request.CopyFrom(each)
                    request.sequence = number
                    await stream.write(request)
                    answer = (await stream.checked(number))[0]
                    stored += answer.newly_stored
                    known += answer.already_known
        return stored, known

    async def everything(self) -> Rows:
        """Ids, versions and rows of all that is stored, ascending by id."""
        blocks = [block async for block in self.scan()]
        ids, versions, rows = (
            np.concatenate([getattr(block, name) for block in blocks]) for name in ("ids", "versions", "rows")
        )
        order = np.argsort(ids)
        return ids[order], versions[order], rows[order]


@contextmanager
def refused(code: grpc.StatusCode, text: str) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Passes when a call inside the block fails with this code and a message that matches `text`."""
    with pytest.raises((EsdError, grpc.aio.AioRpcError)) as caught:
        yield caught
    error: Any = caught.value
    got, said = (CODES[type(error)], str(error)) if isinstance(error, EsdError) else (error.code(), error.details())
    assert (got, bool(re.search(text, said))) == (code, True), said
