"""Bad input at every call: the exact status code, and a text that names the value and its limit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import numpy as np
import pytest

from esd.protos import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from esd.services.runtime.channel import channel
from esd.services.wire.batches import encode_batch
from esd.services.wire.jobs import encode_job
from tests.support.simple_clients import JOB, Dispatcher, job_with, samples

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND


@pytest.fixture
async def stub(dispatcher: Dispatcher) -> AsyncIterator[dispatcher_pb2_grpc.DispatcherStub]:
    """Raw calls, below the client's own checks, to a dispatcher with a job that waits for its workers."""
    await dispatcher.client.create_job(JOB)
    async with channel(dispatcher.address) as open_channel:
        yield dispatcher_pb2_grpc.DispatcherStub(open_channel)


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value


def problem(costs: np.ndarray, capacities: Sequence[int], **changes: object) -> dispatcher_pb2.HybridDisRequest:
    field = "float_costs" if costs.dtype == np.float32 else "int_costs"
    values = {
        "samples": costs.shape[0],
        "workers": costs.shape[1],
        field: costs.tobytes(),
        "capacities": np.array(capacities, np.int32).tobytes(),
        "alpha": 0.5,
    }
    return dispatcher_pb2.HybridDisRequest(**(values | changes))


ONES = np.ones((4, 2), np.float32)
INTS = np.ones((4, 2), np.int32)


def with_value(value: float) -> np.ndarray:
    costs = ONES.copy()
    costs[2, 1] = value
    return costs


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (problem(ONES, [2, 1]), "capacities sum to 3, .*4"),
        (problem(ONES, [-1, 5]), "capacity of worker 0 is -1"),
        (problem(with_value(np.nan), [2, 2]), "nan"),
        (problem(with_value(np.inf), [0, 4]), r"sample 2 can only go to worker 1, whose cost for it is inf"),
        (problem(with_value(-1.5), [2, 2]), "-1.5"),
        (problem(-INTS, [2, 2]), "-1"),
        (problem(ONES, [2, 2], alpha=1.5), "alpha is 1.5"),
        (problem(ONES, [2, 2], alpha=float("nan")), "alpha is nan"),
        (problem(ONES, [2, 2], samples=5), r"float_costs has 32 bytes, float32 \[5, 2\] needs 40"),
        (problem(ONES, [2, 2], float_costs=b"\0" * 31), r"float_costs has 31 bytes"),
        (problem(ONES, [4]), r"capacities has 4 bytes, int32 \[2\] needs 8"),
        (problem(ONES, [2, 2], samples=0), "samples is 0"),
        (problem(ONES, [2, 2], workers=129), "workers is 129, it must be in 1..128"),
        (problem(ONES, [2, 2], solver="oracle"), "solver 'oracle' is unknown"),
        (problem(ONES, [2, 2], criterion=9), "criterion is 9"),
        (dispatcher_pb2.HybridDisRequest(samples=1, workers=1), "costs are not set"),
    ],
)
async def test_hybrid_dis(
    stub: dispatcher_pb2_grpc.DispatcherStub, request_: dispatcher_pb2.HybridDisRequest, text: str
) -> None:
    error = await refusal(stub.HybridDis(iter([request_])))
    assert error.code() is INVALID
    with pytest.raises(ValueError, match=text):
        raise ValueError(error.details())


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("name", "", "the job's name is empty"),
        ("mechanism", "magic", "mechanism 'magic' is unknown; known are random"),
        ("policy", "fifo", "fifo"),
        ("workers", 0, "workers is 0, it must be in 1..128"),
        ("workers", 129, "workers is 129, it must be in 1..128"),
        ("batch_size", 0, "batch_size is 0"),
        ("batch_size", 9, r"workloads \[4, 4\] must not be negative and must sum to batch_size 9"),
        ("window", 0, "window is 0"),
        ("mechanism_options", {"esd": {"alpha": float("nan")}}, "alpha is nan"),
        ("mechanism_options", {"esd": {"criterion": 17}}, "criterion is 17"),
        ("mechanism_options", {"joint": {"horizon": 65}}, r"horizon is 65, it must be in 1\.\.64"),
        ("mechanism_options", {"joint": {"horizon": 2}}, r"JointOptions\(horizon=2\), mechanism random has none"),
    ],
)
async def test_create_job(dispatcher: Dispatcher, field: str, value: object, text: str) -> None:
    job = encode_job(JOB)
    job.ClearField(field)
    job.MergeFrom(dispatcher_pb2.JobSpec(**{field: value}))
    async with channel(dispatcher.address) as open_channel:
        stub = dispatcher_pb2_grpc.DispatcherStub(open_channel)
        error = await refusal(stub.CreateJob(dispatcher_pb2.CreateJobRequest(job=job)))
        empty = await refusal(stub.CreateJob(dispatcher_pb2.CreateJobRequest()))
    assert error.code() is empty.code() is INVALID
    assert empty.details() == "job is not set"
    with pytest.raises(ValueError, match=text):
        raise ValueError(error.details())
    assert await dispatcher.client.describe() is None


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("worker", "", "worker has 0 characters"),
        ("worker", "x" * 300, "worker has 300 characters"),
        ("bandwidth_bytes_per_second", 0.0, "bandwidth of worker edge-0 is 0.0"),
        ("bandwidth_bytes_per_second", float("nan"), "bandwidth of worker edge-0 is nan"),
        ("cache_rows", 0, "cache_rows of worker edge-0 is 0"),
        ("instance", "", "instance has 0 characters"),
        ("wait_seconds", -1.0, "wait_seconds is -1.0, it must be in 0..60"),
        ("wait_seconds", float("nan"), "wait_seconds is nan"),
        ("wait_seconds", 61.0, "wait_seconds is 61.0"),
    ],
)
async def test_register(stub: dispatcher_pb2_grpc.DispatcherStub, field: str, value: object, text: str) -> None:
    request = dispatcher_pb2.RegisterWorkerRequest(
        worker="edge-0", bandwidth_bytes_per_second=1e6, cache_rows=10, address="h:1", instance="4711"
    )
    setattr(request, field, value)
    error = await refusal(stub.RegisterWorker(request))
    assert (error.code(), text in error.details()) == (INVALID, True), error.details()


async def test_unknown_lease_everywhere(stub: dispatcher_pb2_grpc.DispatcherStub) -> None:
    attendance = dispatcher_pb2.AttendRequest(attendance=dispatcher_pb2.Attendance(lease_id="gone"))
    attending = stub.Attend(iter([attendance]))
    for error in (
        await refusal(stub.PutGroupKey(dispatcher_pb2.PutGroupKeyRequest(lease_id="gone"))),
        await refusal(stub.GetGroupKey(dispatcher_pb2.GetGroupKeyRequest(lease_id="gone"))),
        await refusal(attending.read()),
    ):
        assert error.code() is NOT_FOUND
        assert error.details() == "no lease 'gone': it has expired or was never given; register again"


def batch(**changes: object) -> common_pb2.SampleBatch:
    message = encode_batch(samples(2))
    for field, value in changes.items():
        setattr(message, field, value)
    return message


NAN = np.float32(np.nan).tobytes()


@pytest.mark.parametrize(
    ("job", "message", "code", "text"),
    [
        ("", batch(), INVALID, "job is not set in the first message"),
        ("other", batch(), NOT_FOUND, "no job 'other'; job flights is waiting for workers"),
        (JOB.name, batch(ids=b"\0" * 47), INVALID, "ids has 47 bytes, uint64 [6] needs 48"),
        (JOB.name, batch(samples=3), INVALID, "ids has 48 bytes, uint64 [9] needs 72"),
        (JOB.name, batch(dense=b""), INVALID, "dense has 0 bytes, float32 [2, 1] needs 8"),
        (JOB.name, batch(dense=NAN * 2), INVALID, "dense of sample 0 is not finite"),
        (JOB.name, batch(labels=NAN * 2), INVALID, "label of sample 0 is not finite"),
        (
            JOB.name,
            batch(labels=np.array([1, 2], np.float32).tobytes()),
            INVALID,
            "label 'label' of sample 1 is 2, the loss bce (--loss) takes labels in 0..1",
        ),
        (
            JOB.name,
            encode_batch(samples(2, job=job_with(fields=4))),
            INVALID,
            "the batch has 4 features per sample, the job has 3",
        ),
        (
            JOB.name,
            encode_batch(samples(2, job=job_with(dense_features=0))),
            INVALID,
            "the batch has 0 dense features per sample, the job has 1",
        ),
    ],
)
async def test_submit(
    stub: dispatcher_pb2_grpc.DispatcherStub,
    job: str,
    message: common_pb2.SampleBatch,
    code: grpc.StatusCode,
    text: str,
) -> None:
    call = stub.Submit(iter([dispatcher_pb2.SubmitRequest(job=job, batch=message)]))
    error = await refusal(call.read())
    assert error.code() is code
    assert text in error.details()
    described = await stub.DescribeJob(dispatcher_pb2.DescribeJobRequest())
    assert described.job.samples_submitted == 0


async def test_message_over_the_limit(start_dispatcher: Callable[..., Any]) -> None:
    dispatcher = await start_dispatcher(max_request_bytes=2**16)
    async with channel(dispatcher.address) as open_channel:
        stub = dispatcher_pb2_grpc.DispatcherStub(open_channel)
        error = await refusal(stub.HybridDis(iter([problem(np.ones((2**15, 2), np.float32), [2**14, 2**14])])))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in error.details()
