"""A job whose rows go from worker to worker, while a stranger in a worker's place sends frames that no plan has.

The stranger knows the job, its epoch and its ids. Its frames come before the plan of their iteration, in time, and too
late.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from esd.protos import ps_pb2, worker_pb2
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import JobPhase
from esd.services.domain.sync import OnDemand
from esd.services.runtime.channel import channel
from hardening.fuzz.attended import assert_model, running_job, stream, worker_processes
from hardening.fuzz.calls import DEADLINE_SECONDS, tells_too_much
from hardening.fuzz.twists import drawn, twists

_DELIVER = "/esd.v1.Worker/Deliver"
_FRAMES_OF_A_STREAM = 4
_LOOKED_AT = 20  # batches, for the ids that most samples have
_HOT = 8
_EPOCH = 2  # the first one of a job with checkpoints
_NO_VERSION = (1 << 40) + (1 << 29)  # that no row of the job comes to
_REFUSALS = {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAVAILABLE", "DEADLINE_EXCEEDED"}
_POLL_SECONDS = 0.05
_BATCHES_AHEAD = 4  # of the frames' iteration; the first ones train before there is a frame


def frames_of(job: JobSpec, iterations: int, count: int, number: int) -> list[bytes]:
    """Draws frames by a seed: of rows of the job at versions that no plan has, and twisted ones of an unknown row.

    Args:
        job: whose workers get them.
        iterations: that it trains. The frames follow them, so that many wait for the plan of theirs.
        count: how many frames.
        number: the seed.
    """
    ids, times = np.unique(np.concatenate([batch.ids for batch in stream(_LOOKED_AT)]), return_counts=True)
    hot = ids[np.argsort(times)[-_HOT:]]  # they go from worker to worker all the time
    method: Any = worker_pb2.DESCRIPTOR.services_by_name["Worker"].methods_by_name["Deliver"]
    twisted = drawn(twists(method.input_type, {"table": [job.table.name]}), count, number)

    def frame(row: int, iteration: int) -> bytes:
        block = ps_pb2.RowBlock(
            ids=np.array([row], np.uint64).tobytes(),
            versions=np.array([_NO_VERSION], np.int64).tobytes(),
            rows=np.full(job.table.row_width, 0.5, np.float32).tobytes(),
        )
        request = worker_pb2.DeliverRequest(
            sequence=1, table=job.table.name, epoch=_EPOCH, rows=block, iteration=iteration
        )
        return request.SerializeToString()

    frames = []
    for at, twist in enumerate(twisted):
        iteration = 1 + at * iterations // count
        frames.append(twist(frame(0, iteration)) if at % 4 == 3 else frame(int(hot[at % _HOT]), iteration))
    return frames


async def train_beside_a_stranger(
    dispatcher: str, server: str, folder: Path, *, iterations: int, count: int, number: int
) -> Counter[str]:
    """Trains a job of two workers that send each other rows, and sends both frames all the while.

    Args:
        dispatcher: address.
        server: address of the parameter server.
        folder: for logs.
        iterations: how many are trained.
        count: how many frames are sent.
        number: the seed of the frames.

    Returns:
        How many frames were answered in which way.

    Raises:
        AssertionError: a frame was believed or answered wrongly, the job did not come to its end, no row went from
            worker to worker, or the model is not the one that one machine trains.
    """
    job = replace(running_job(server, workers=2, name="direct"), sync=OnDemand(direct=True))
    batches, frames = stream(iterations), frames_of(job, iterations, count, number)
    async with AsyncDispatcherClient(dispatcher) as client:
        async with worker_processes([dispatcher, dispatcher], folder):
            await client.create_job(job)
            sending = _Sending(frames, iterations)
            submitting = asyncio.create_task(client.submit(job.name, sending.in_step(batches)))
            answers = await sending.send(await _addresses(client))
            await submitting
        state = await client.describe()
    if state is None or state.phase is not JobPhase.FINISHED:
        raise AssertionError(f"beside a stranger the job has come to {state and state.failure}")
    if not sum(worker.transfers.direct_push for worker in state.workers):
        raise AssertionError("no row has gone from worker to worker")
    await assert_model(job, batches)
    return answers


async def _addresses(client: AsyncDispatcherClient) -> list[str]:
    """Returns where the workers are, as soon as they train. Raises AssertionError if they never will."""
    while (state := await client.describe()) is None or not state.iterations_confirmed:
        if state is not None and state.phase is JobPhase.FAILED:
            raise AssertionError(f"the job has failed before its workers were met: {state.failure}")
        await asyncio.sleep(_POLL_SECONDS)
    return [worker.address for worker in state.workers]


class _Sending:
    """Frames on their way to the workers, and the samples of the iterations that they are for.

    The job trains little further than the frames have come, so that they meet it however slow either is.

    Args:
        frames: that are sent, in the order of their iterations.
        iterations: that they follow.
    """

    def __init__(self, frames: Sequence[bytes], iterations: int) -> None:
        self._frames = frames
        self._iterations = iterations
        self._come_to: list[int] = []  # the number of the last frame that has gone to each worker
        self._moved = asyncio.Event()

    async def in_step(self, batches: Sequence[SampleBatch]) -> AsyncIterator[SampleBatch]:
        """Yields the batch of each iteration when the frames that are for it go out."""
        for number, batch in enumerate(batches):
            while number > self._iteration() + _BATCHES_AHEAD:
                self._moved.clear()
                await self._moved.wait()
            yield batch

    async def send(self, addresses: Sequence[str]) -> Counter[str]:
        """Sends each worker its share of the frames, until they are sent or the worker has ended.

        Returns:
            How many were answered in which way.
        """
        self._come_to = [0] * len(addresses)
        return sum(await asyncio.gather(*map(self._send_to, range(len(addresses)), addresses)), Counter())

    async def _send_to(self, slot: int, address: str) -> Counter[str]:
        """Sends one worker its share, a few frames on each stream."""
        answers: Counter[str] = Counter()
        share = range(slot, len(self._frames), len(self._come_to))
        async with channel(address) as there:
            for first in range(0, len(share), _FRAMES_OF_A_STREAM):
                several = share[first : first + _FRAMES_OF_A_STREAM]
                self._move(slot, several[-1])
                frames = iter([self._frames[number] for number in several])
                try:
                    async for data in there.stream_stream(_DELIVER, None, None)(frames, timeout=DEADLINE_SECONDS):
                        answers[_judged(worker_pb2.DeliverResponse.FromString(data))] += 1
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:  # a frame waits for its iteration's plan
                        break
        self._move(slot, len(self._frames))
        del answers[""]
        return answers

    def _move(self, slot: int, number: int) -> None:
        self._come_to[slot] = number
        self._moved.set()

    def _iteration(self) -> int:
        return min(self._come_to, default=0) * self._iterations // len(self._frames)


def _judged(answer: worker_pb2.DeliverResponse) -> str:
    """Returns the refusal in an answer, and nothing if the answer is none.

    Raises:
        AssertionError: the frame was believed or met a defect, or its refusal reveals internals.
    """
    if answer.HasField("credit"):
        return ""
    if not answer.HasField("refusal"):
        if answer.newly_stored:
            raise AssertionError("a row that no plan knows was taken in")
        return "nothing new"
    if tells_too_much(answer.refusal.message):
        raise AssertionError(f"this tells too much: {answer.refusal.message!r}")
    name = next(code.name for code in grpc.StatusCode if code.value[0] == answer.refusal.code)
    if name not in _REFUSALS:
        raise AssertionError(f"a frame was refused with {name}: {answer.refusal.message!r}")
    return name
