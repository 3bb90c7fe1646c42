"""Samples are logged as they came, before they are put in the queue; those that came before are cut off."""

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from esd.dispatcher.service.run.submit import Submission
from esd.dispatcher.service.state.lifecycle import Lifecycle
from esd.dispatcher.service.state.samples import SampleQueue
from esd.protos import common_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument, Unavailable
from esd.services.domain.stream_parts import StreamPlace
from esd.services.wire.batches import decode_batch, encode_batch

OF_A_LATER_VERSION = b"\xf8\x07\x01"  # a field that this version does not know: what is encoded anew has lost it


def message(start: int, count: int) -> common_pb2.SampleBatch:
    """Samples whose id is their position in the stream."""
    ids = np.arange(start, start + count, dtype=np.uint64)[:, None]
    batch = SampleBatch.of_fields(ids, np.zeros((count, 2), np.float32), np.zeros(count, np.float32))
    return common_pb2.SampleBatch.FromString(encode_batch(batch).SerializeToString() + OF_A_LATER_VERSION)


class SampleLog:
    """Stands for the parameter server's log."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.error: Exception | None = None

    async def append_samples(self, entry: LogEntry, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        assert epoch == 7
        self.entries.append(entry)


class Stream:
    def __init__(self, job: Any) -> None:
        self.log = SampleLog()
        latest = SimpleNamespace(iteration=5, samples=0)
        checkpoints: Any = SimpleNamespace(store=self.log, durable=True, epoch=7, latest=latest)
        self.lifecycle = Lifecycle("job")
        self.samples = SampleQueue(job.batch_size, 1000, 2**30, StreamPlace.beginning(job.shares), keep=True)
        self.submission = Submission(job, self.lifecycle, self.samples, checkpoints, self.lifecycle.fail)


@pytest.fixture
async def stream(make_job: Any) -> Stream:
    return Stream(make_job(fields=1))


async def test_samples_are_logged_as_they_came(stream: Stream) -> None:
    first, second = message(0, 5), message(5, 3)
    await stream.submission.take_in(first)
    await stream.submission.take_in(second, position=5)
    assert [(entry.position, entry.samples) for entry in stream.log.entries] == [(0, 5), (5, 3)]
    assert [entry.batch for entry in stream.log.entries] == [first.SerializeToString(), second.SerializeToString()]
    assert stream.log.entries[0].batch.endswith(OF_A_LATER_VERSION)
    assert await stream.submission.taken() == stream.samples.pending == 8


async def test_samples_that_came_before_are_not_logged_again(stream: Stream) -> None:
    await stream.submission.take_in(message(0, 5))
    await stream.submission.take_in(message(0, 5), position=0)
    await stream.submission.take_in(message(3, 6), position=3)
    assert [(entry.position, entry.samples) for entry in stream.log.entries] == [(0, 5), (5, 4)]
    logged = decode_batch(common_pb2.SampleBatch.FromString(stream.log.entries[1].batch))
    assert logged.ids.tolist() == [5, 6, 7, 8]
    stream.samples.close()
    assert stream.samples.take().ids.tolist() == list(range(9))


async def test_a_gap_is_refused(stream: Stream) -> None:
    with pytest.raises(FailedPrecondition, match="begins at sample 3, job test has accepted 0: continue from there"):
        await stream.submission.take_in(message(3, 2), position=3)
    assert stream.log.entries == []


async def test_a_malformed_batch_is_refused_before_it_is_logged(stream: Stream) -> None:
    broken = message(0, 5)
    broken.samples = 6
    with pytest.raises(InvalidArgument, match="ids has 40 bytes"):
        await stream.submission.take_in(broken)
    assert stream.log.entries == []
    assert await stream.submission.taken() == 0


async def test_a_label_that_the_loss_does_not_take_is_refused_before_it_is_logged(stream: Stream) -> None:
    """The client may leave the sample out and continue."""
    await stream.submission.take_in(message(0, 3))
    wrong = message(3, 3)
    wrong.labels = np.array([0, 1, 1.5], np.float32).tobytes()
    with pytest.raises(InvalidArgument, match=r"label 'label' of sample 5 is 1\.5, the loss bce"):
        await stream.submission.take_in(wrong, position=3)
    assert (len(stream.log.entries), stream.lifecycle.failure) == (1, "")
    await stream.submission.take_in(message(3, 2), position=3)
    assert await stream.submission.taken() == 5


async def test_the_end_is_logged_once(stream: Stream) -> None:
    await stream.submission.take_in(message(0, 2))
    await stream.submission.end()
    await stream.submission.end()
    assert [(entry.position, entry.samples, entry.batch) for entry in stream.log.entries][1:] == [(2, 0, b"")]
    assert stream.samples.closed
    with pytest.raises(FailedPrecondition, match="has ended after 2 samples"):
        await stream.submission.take_in(message(2, 1))


async def test_samples_that_cannot_be_logged_fail_the_job_and_are_not_taken_in(stream: Stream) -> None:
    stream.log.error = Unavailable("the server is away")
    with pytest.raises(Unavailable):
        await stream.submission.take_in(message(0, 2))
    assert stream.samples.taken == 0
    assert stream.lifecycle.failure == (
        "the sample log cannot be written: the server is away; the last checkpoint is 5"
    )


async def test_samples_that_are_on_their_way_to_the_log_when_the_job_ends_are_answered(stream: Stream) -> None:
    """A cancelled handler answers nothing, and the client would wait for ever."""
    stream.log.append_samples = lambda *_: asyncio.Event().wait()  # type: ignore[method-assign,assignment]
    submitting = asyncio.create_task(stream.submission.take_in(message(0, 5)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.lifecycle.fail("a link broke")
    await stream.submission.close()
    with pytest.raises(FailedPrecondition, match="a link broke"):
        await submitting
