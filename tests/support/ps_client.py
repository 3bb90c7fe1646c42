"""A client of a parameter server that speaks in arrays."""

import re
from contextlib import contextmanager

import grpc
import numpy as np
import pytest

from protos import ps_pb2, ps_pb2_grpc
from services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from services.wire.tables import encode_table

SPEC = TableSpec("t", 16, OptimizerSpec(OptimizerKind.ADAM, 0.1), seed=11, init_scale=0.5)


def row_push(ids, version, rows):
    """A push chunk; `version` may be one for all rows."""
    ids = np.asarray(ids, np.uint64)
    versions = np.broadcast_to(np.asarray(version, np.int64), len(ids))
    rows = np.ascontiguousarray(np.broadcast_to(rows, (len(ids), SPEC.row_width)), np.float32)
    body = ps_pb2.RowPush(ids=ids.tobytes(), versions=versions.tobytes(), rows=rows.tobytes())
    return ps_pb2.PushChunk(table="t", rows=body)


def gradient_push(worker, ids, target, contributors, gradients, step=1):
    """A push chunk of one worker's partial gradients."""
    ids = np.asarray(ids, np.uint64)
    gradients = np.ascontiguousarray(np.broadcast_to(gradients, (len(ids), SPEC.dimension)), np.float32)
    body = ps_pb2.GradientPush(
        ids=ids.tobytes(),
        target_versions=np.full(len(ids), target, np.int64).tobytes(),
        contributors=np.full(len(ids), contributors, np.uint64).tobytes(),
        steps=np.full(len(ids), step, np.int64).tobytes(),
        gradients=gradients.tobytes(),
        worker=worker,
    )
    return ps_pb2.PushChunk(table="t", gradients=body)


class Client:
    """One server's rpcs, in arrays."""

    def __init__(self, address, opened):
        self.address = address
        self.channel = opened
        self.stub = ps_pb2_grpc.ParameterServerStub(opened)

    async def create(self, spec=SPEC):
        request = ps_pb2.CreateTableRequest(table=encode_table(spec))
        return (await self.stub.CreateTable(request, timeout=10)).created

    async def pull(self, ids, version, within=10):
        """Ids, versions and rows as they came."""
        ids = np.asarray(ids, np.uint64)
        versions = np.ascontiguousarray(np.broadcast_to(np.asarray(version, np.int64), len(ids)))
        request = ps_pb2.PullRequest(table="t", ids=ids.tobytes(), versions=versions.tobytes())
        return joined([chunk async for chunk in self.stub.Pull(request, timeout=within)])

    async def push(self, *chunks, within=10):
        """How many were stored, and how many were known already."""
        response = await self.stub.Push(iter(chunks), timeout=within)
        return response.stored, response.already_known

    async def scan(self):
        """Every stored row, ascending by id."""
        ids, versions, rows = joined(
            [chunk async for chunk in self.stub.Scan(ps_pb2.ScanRequest(table="t"), timeout=10)]
        )
        order = np.argsort(ids)
        return ids[order], versions[order], rows[order]

    async def put_dense(self, data, piece=100_000):
        async def chunks():
            for start in range(0, max(1, len(data)), piece):
                part = data[start : start + piece]
                yield ps_pb2.DenseChunk(table="t", data=part, last=start + piece >= len(data))

        return (await self.stub.PutDense(chunks(), timeout=10)).bytes

    async def get_dense(self):
        call = self.stub.GetDense(ps_pb2.GetDenseRequest(table="t"), timeout=10)
        return b"".join([chunk.data async for chunk in call])

    async def describe(self):
        return await self.stub.Describe(ps_pb2.DescribeServerRequest(), timeout=10)


def joined(chunks):
    """Columns of the rows of many chunks."""
    return (
        np.frombuffer(b"".join(chunk.ids for chunk in chunks), np.uint64),
        np.frombuffer(b"".join(chunk.versions for chunk in chunks), np.int64),
        np.frombuffer(b"".join(chunk.rows for chunk in chunks), np.float32).reshape(-1, SPEC.row_width),
    )


@contextmanager
def refused(code, text):
    """Passes when a call inside the block fails with this code and a message that matches `text`."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield caught
    assert (caught.value.code(), bool(re.search(text, caught.value.details()))) == (code, True), caught.value.details()
