"""Reports of quick iterations wait for each other while the worker has plans, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from esd.dispatcher.core.planner import Planner
from esd.protos import dispatcher_pb2 as pb
from esd.services.clients.attendance import Attendance, idle
from esd.services.domain.errors import Unavailable
from esd.services.domain.plans import IterationPlan, Membership
from esd.services.domain.reports import FailureReport, FlushReport, IterationReport, Lease, TransferCounts
from esd.services.domain.worker_set import WorkerSet
from esd.services.wire.plans import encode_plan_message
from tests.support.simple_clients import job_with, report_of, samples

QUICK, SLOW = 0.02, 0.5  # seconds of an iteration
JOB = job_with(workers=1)


class Call:
    """A stream on which everything is told at once, and nothing is answered."""

    def __init__(self, *told: bytes) -> None:
        self.written: list[pb.AttendRequest] = []
        self._told = told
        self._open = asyncio.Event()

    async def write(self, data: bytes) -> None:
        self.written.append(pb.AttendRequest.FromString(data))

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for message in self._told:
            yield message
        await self._open.wait()

    def cancel(self) -> None:
        self._open.set()

    async def reported(self) -> list[list[int]]:
        """Returns the iterations in each message that has any, when all that can be sent is sent."""
        for _ in range(20):
            await asyncio.sleep(0)
        return [[each.iteration for each in request.iterations] for request in self.written if request.iterations]


@asynccontextmanager
async def attending(plans: int) -> AsyncIterator[tuple[Attendance, Call, list[IterationReport]]]:
    """A worker that has so many plans, none of them read; and their reports."""
    planner = Planner(JOB, [1e6], [100])
    decisions = [planner.plan(samples(8, seed=seed)) for seed in range(plans)]
    membership = encode_plan_message(Membership(0, 0, JOB, WorkerSet.all_of(1), 0))
    call = Call(membership, b"".join(decision.messages[0] for decision in decisions))
    lease = Lease("its", 1000.0)
    reports = [report_of(decision.plans[0], seconds=QUICK) for decision in decisions]
    async with Attendance(lambda: call, lease, 0, idle, timeout=1e3, patience=1.0) as attendance:
        assert isinstance(await anext(attendance), Membership)
        yield attendance, call, reports


async def train(attendance: Attendance, plans: int) -> None:
    for _ in range(plans):
        assert isinstance(await anext(attendance), IterationPlan)


async def test_half_of_the_window_is_reported_while_the_other_half_trains() -> None:
    async with attending(8) as (attendance, call, reports):
        await train(attendance, 2)  # one of them is read ahead
        answers = []
        for report in reports[:6]:
            answers.append(attendance.confirm(report))
            await train(attendance, 1)
        assert await call.reported() == [[0, 1, 2, 3], [4, 5]]
        assert len(set(map(id, answers))) == 2  # those that travel together have one answer


async def test_a_report_waits_for_nothing_when_iterations_are_slow_or_plans_are_few() -> None:
    async with attending(3) as (attendance, call, reports):
        attendance.confirm(replace(reports[0], seconds=SLOW))
        assert await call.reported() == [[0]]
        await train(attendance, 3)
        attendance.confirm(reports[1])
        assert await call.reported() == [[0], [1]]


async def test_reports_do_not_wait_for_more_than_a_quarter_of_a_second() -> None:
    async with attending(8) as (attendance, call, reports):
        for report in reports[:4]:
            attendance.confirm(replace(report, seconds=0.1))
        assert await call.reported() == [[0, 1, 2]]


async def test_whatever_is_sent_takes_what_waits_along() -> None:
    async with attending(4) as (attendance, call, reports):
        attendance.confirm(reports[0])
        attendance.report(FlushReport(1, TransferCounts(), 0))
        attendance.confirm(reports[1])
        attendance.report(FailureReport("a cable was cut", 0))
        assert await call.reported() == [[0], [1]]
        assert [request.WhichOneof("body") for request in call.written if request.iterations] == ["flush", "failure"]


async def test_reports_that_wait_are_bounded_in_bytes() -> None:
    async with attending(8) as (attendance, call, reports):
        bins, labels = np.zeros((15_000, 1), np.uint16), np.zeros((15_000, 1), np.uint8)  # 45 kB together
        for report in reports[:3]:
            attendance.confirm(replace(report, score_bins=bins, labels=labels))
        assert await call.reported() == [[0, 1]]


async def test_a_report_that_waits_fails_with_its_stream() -> None:
    async with attending(2) as (attendance, _, reports):
        answer = attendance.confirm(reports[0])
    with pytest.raises(Unavailable, match="closed its stream"):
        await answer
