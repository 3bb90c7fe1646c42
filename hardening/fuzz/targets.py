"""The targets of fuzzing: the methods of each service, good requests to start from, and a check that it still works."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import grpc
import numpy as np
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from esd.protos import common_pb2, dispatcher_pb2, ps_pb2, ps_pb2_grpc, worker_pb2, worker_pb2_grpc
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError
from esd.services.domain.features import numbered_ids
from esd.services.domain.jobs import JobSpec, ModelSpec
from esd.services.domain.reports import Registration
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.wire.jobs import encode_job
from esd.services.wire.reports import encode_registration
from esd.services.wire.tables import encode_table
from hardening.fuzz.calls import Method
from hardening.fuzz.twists import Pools

TABLE = TableSpec("table-placeholder", 4, OptimizerSpec(OptimizerKind.ADAM, 0.1), seed=1, init_scale=0.5)
_KEPT = replace(TABLE, name="kept")  # no request names it

_JOB = JobSpec(
    name="job",
    workers=2,
    features=numbered_ids(2),
    dense_features=1,
    batch_size=4,
    workloads=(2, 2),
    mechanism="esd",
    policy="emark",
    seed=7,
    window=2,
    tables=(TABLE,),
    model=ModelSpec("wdl", (8,), OptimizerSpec()),
    parameter_servers=("127.0.0.1:1",),
)
_LEASES = ("lease-of-first--", "lease-of-second-")
_WAITING = {"Exchange", "Sum", "Changes", "Attend", "WatchPlans", "GetGroupKey", "Submit", "Deliver"}
_ASKING = {"CreateJob", "Meet"}


@dataclass(frozen=True, slots=True)
class Target:
    """One running service.

    Attributes:
        name: name in the report.
        address: `host:port`.
        examples: good requests by method name; their class is the method's input.
        pools: meaningful values by the name of a string field.
        refresh: brings the service into a state in which good requests are accepted. Returns the replacements, of equal
            length, of the placeholders in pools and examples.
        check: raises AssertionError unless the service does its work.
        module: generated code of its contract.
    """

    name: str
    address: str
    module: ModuleType
    examples: Mapping[str, Sequence[Message]]
    pools: Pools
    refresh: Callable[[], Coroutine[Any, Any, Mapping[bytes, bytes]]]
    check: Callable[[], Coroutine[Any, Any, None]]

    def methods(self) -> list[tuple[Method, Descriptor]]:
        """Returns every RPC with the descriptor of its input."""
        (service,) = self.module.DESCRIPTOR.services_by_name.values()
        return [
            (
                Method(
                    f"/{service.full_name}/{method.name}",
                    method.client_streaming,
                    method.server_streaming,
                    waits=method.name in _WAITING,
                    may_be_unavailable=method.name in _ASKING,
                ),
                method.input_type,
            )
            for method in service.methods
        ]


def parameter_server(name: str, address: str, channel: grpc.aio.Channel) -> Target:
    """Makes the target of a parameter server, with a table that requests name and one that they do not."""
    stub: Any = ps_pb2_grpc.ParameterServerStub(channel)  # type: ignore[no-untyped-call]
    ids, versions = np.arange(3, dtype=np.uint64).tobytes(), np.ones(3, np.int64).tobytes()
    rows = np.full((3, TABLE.row_width), 0.25, np.float32).tobytes()
    gradients = ps_pb2.GradientBlock(
        ids=ids,
        target_versions=versions,
        contributors=np.full(3, 3, np.uint64).tobytes(),
        steps=np.ones(3, np.uint32).tobytes(),
        rates=np.full(3, 0.1, np.float32).tobytes(),
        gradients=np.ones((3, TABLE.dimension), np.float32).tobytes(),
    )
    block = ps_pb2.RowBlock(ids=ids, versions=versions, rows=rows)
    pulls = ps_pb2.PullBlock(ids=ids, versions=bytes(24))
    frames = [
        ps_pb2.ExchangeRequest(sequence=1, table=TABLE.name, rows=block, wait_ms=100),
        ps_pb2.ExchangeRequest(sequence=2, table=TABLE.name, gradients=gradients, pulls=pulls, wait_ms=100),
    ]
    entry = ps_pb2.SampleLogEntry(samples=2, batch=b"samples")
    examples: dict[str, Sequence[Message]] = {
        "CreateTable": [ps_pb2.CreateTableRequest(table=encode_table(TABLE))],
        "Exchange": frames,
        "Sum": [
            ps_pb2.SumRequest(member=ps_pb2.SumMember(table=TABLE.name, worker=1, members=2, wait_ms=100)),
            ps_pb2.SumRequest(pieces=[ps_pb2.SumPiece(length=3, values=rows[:12])]),
            ps_pb2.SumRequest(pieces=[ps_pb2.SumPiece(iteration=1, length=40_000)], sums=1),
            ps_pb2.SumRequest(farewell=ps_pb2.SumFarewell(), sums=2),
        ],
        "Lookup": [ps_pb2.LookupRequest(table=TABLE.name, ids=ids)],
        "Forget": [ps_pb2.ForgetRequest(table=TABLE.name, ids=ids, below=2**30)],
        "Scan": [ps_pb2.ScanRequest(table=TABLE.name)],
        "Changes": [ps_pb2.ChangesRequest(table=encode_table(TABLE), shards=1, pause_ms=50)],
        "PutDense": [ps_pb2.PutDenseRequest(table=TABLE.name, data=b"dense", last=True)],
        "GetDense": [ps_pb2.GetDenseRequest(table=TABLE.name)],
        "Cut": [ps_pb2.CutRequest(table=TABLE.name, checkpoint=1, worker=0, contributors=1)],
        "PutPart": [ps_pb2.PutPartRequest(table=TABLE.name, checkpoint=1, name="dense", data=b"part", last=True)],
        "GetPart": [ps_pb2.GetPartRequest(table=TABLE.name, checkpoint=1, name="dense")],
        "Save": [ps_pb2.SaveRequest(table=TABLE.name, checkpoint=1)],
        "Commit": [ps_pb2.CommitRequest(table=TABLE.name, checkpoint=1, manifest=b"{}")],
        "BeginEpoch": [ps_pb2.BeginEpochRequest(table=TABLE.name, epoch=1, claimant=bytes(16), takes_over=True)],
        "Restore": [ps_pb2.RestoreRequest(table=encode_table(TABLE), checkpoint=1, epoch=1, claimant=bytes(16))],
        "GetCheckpoint": [ps_pb2.GetCheckpointRequest(table=TABLE.name)],
        "AppendSamples": [ps_pb2.AppendSamplesRequest(table=TABLE.name, entry=entry)],
        "ReadSamples": [ps_pb2.ReadSamplesRequest(table=TABLE.name)],
        "TrimSamples": [ps_pb2.TrimSamplesRequest(table=TABLE.name, position=2)],
        "DescribeServer": [ps_pb2.DescribeServerRequest()],
    }
    kept = ps_pb2.ExchangeRequest(sequence=1, table="kept", rows=block)

    numbers = itertools.count()

    async def refresh() -> Mapping[bytes, bytes]:
        fresh = f"t{next(numbers):0{len(TABLE.name) - 1}}"  # in epoch 0, where good requests belong
        for spec in (replace(TABLE, name=fresh), _KEPT):
            await stub.CreateTable(ps_pb2.CreateTableRequest(table=encode_table(spec)))
        async for _ in stub.Exchange(iter([kept])):
            pass
        return {TABLE.name.encode(): fresh.encode()}

    async def check() -> None:
        request = ps_pb2.LookupRequest(table="kept", ids=ids)
        found = [(chunk.versions, chunk.values) async for chunk in stub.Lookup(request, timeout=60)]
        values = np.full((3, _KEPT.dimension), 0.25, np.float32).tobytes()
        _expect(found == [(versions, values)], f"{name} has lost rows that no request named")

    pools = {"table": [TABLE.name], "name": [TABLE.name, "dense", "engine"]}
    return Target(name, address, ps_pb2, examples, pools, refresh, check)


def dispatcher(address: str, client: AsyncDispatcherClient) -> Target:
    """Makes the target of a dispatcher with a job whose workers hold leases and train nothing."""
    batch = common_pb2.SampleBatch(
        samples=2,
        fields=2,
        dense_features=1,
        ids=np.arange(4, dtype=np.uint64).tobytes(),
        dense=np.zeros(2, np.float32).tobytes(),
        labels=np.ones(2, np.float32).tobytes(),
    )
    registrations = [
        Registration(f"w-{slot}", 1e6, 100, f"h:{slot}", f"process-{slot}") for slot in range(_JOB.workers)
    ]
    costs = np.arange(8, dtype=np.float32)
    report = dispatcher_pb2.IterationReport(
        score_bins=np.full(2, 3, np.uint16).tobytes(),
        labels=b"\1\0",
        transfers=dispatcher_pb2.TransferCounts(miss_pull=2),
        phases=dispatcher_pb2.PhaseTimes(compute=0.1),
    )
    evaluation = dispatcher_pb2.Evaluation(iteration=1, labels=[dispatcher_pb2.Quality(loss=0.7, auc=0.5)])
    examples: dict[str, Sequence[Message]] = {
        "HybridDis": [
            dispatcher_pb2.HybridDisRequest(
                samples=4,
                workers=2,
                float_costs=costs.tobytes(),
                capacities=np.array([2, 2], np.int32).tobytes(),
                alpha=0.5,
            )
        ],
        "CreateJob": [dispatcher_pb2.CreateJobRequest(job=encode_job(_JOB))],
        "RegisterWorker": [encode_registration(each) for each in registrations],
        "Attend": [
            dispatcher_pb2.AttendRequest(attendance=dispatcher_pb2.Attendance(lease_id=_LEASES[0])),
            dispatcher_pb2.AttendRequest(sequence=1, heartbeat=dispatcher_pb2.WORKER_PHASE_COMPUTE),
            dispatcher_pb2.AttendRequest(sequence=2, iterations=[report, report]),
            dispatcher_pb2.AttendRequest(sequence=3, flush=dispatcher_pb2.FlushReport()),
            dispatcher_pb2.AttendRequest(sequence=4, failure=dispatcher_pb2.FailureReport(cause="fuzzed")),
        ],
        "CancelJob": [dispatcher_pb2.CancelJobRequest(job="another", reason="fuzzed")],
        "PutGroupKey": [dispatcher_pb2.PutGroupKeyRequest(lease_id=_LEASES[0], key="0/0", value=bytes(8))],
        "GetGroupKey": [dispatcher_pb2.GetGroupKeyRequest(lease_id=_LEASES[0], key="0/0")],
        "Submit": [dispatcher_pb2.SubmitRequest(job="job", batch=batch)],
        "RecordEvaluations": [dispatcher_pb2.RecordEvaluationsRequest(job="job", evaluations=[evaluation])],
        "DescribeJob": [dispatcher_pb2.DescribeJobRequest()],
        "DescribePage": [dispatcher_pb2.DescribePageRequest(job="job")],
        "WatchPlans": [dispatcher_pb2.WatchPlansRequest(job="job", from_iteration=0, ids=True)],
    }

    pools = {
        "job": ["job"],
        "lease_id": _LEASES,
        "worker": ["w-0", "w-1"],
        "mechanism": ["esd", "laia", "random", "joint"],
        "policy": ["lru", "lfu", "emark"],
        "name": ["job", TABLE.name, "wdl", "dlrm"],
        "solver": ["auto"],
    }

    async def refresh() -> Mapping[bytes, bytes]:
        leases = {}
        try:
            await client.create_job(_JOB)
            for placeholder, each in zip(_LEASES, registrations, strict=True):
                leases[placeholder.encode()] = (await client.register(each)).lease_id.encode()
        except EsdError:
            pass  # a request has opened another job, or taken a place; that ends when its workers do not come
        return leases

    async def check() -> None:
        matrix = np.array([[1, 5], [5, 1], [1, 5], [5, 1]], np.float32)
        result = await client.hybrid_dis(matrix, np.array([2, 2], np.int32))
        _expect(result.assignment.tolist() == [0, 1, 0, 1], "the dispatcher assigns samples wrongly")
        await client.describe()

    return Target("dispatcher", address, dispatcher_pb2, examples, pools, refresh, check)


def worker(address: str, channel: grpc.aio.Channel) -> Target:
    """Makes the target of a running worker."""
    stub: Any = worker_pb2_grpc.WorkerStub(channel)  # type: ignore[no-untyped-call]
    row = ps_pb2.RowBlock(
        ids=np.arange(1, dtype=np.uint64).tobytes(),
        versions=np.ones(1, np.int64).tobytes(),
        rows=np.full((1, TABLE.row_width), 0.25, np.float32).tobytes(),
    )
    examples: dict[str, Sequence[Message]] = {
        "DescribeWorker": [worker_pb2.DescribeWorkerRequest()],
        "Meet": [worker_pb2.MeetRequest(slot=1)],
        "Deliver": [worker_pb2.DeliverRequest(sequence=1, table=TABLE.name, rows=row, iteration=1)],
    }

    async def refresh() -> Mapping[bytes, bytes]:
        return {}

    async def check() -> None:
        described = await stub.DescribeWorker(worker_pb2.DescribeWorkerRequest(), timeout=60)
        _expect(bool(described.worker), "the worker does not know its name")

    return Target("worker", address, worker_pb2, examples, {"table": [TABLE.name]}, refresh, check)


def _expect(holds: bool, complaint: str) -> None:
    if not holds:
        raise AssertionError(complaint)
