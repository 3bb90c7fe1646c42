"""Threads that score: requests that wait together are scored together, and each fails alone."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import DeadlineExceeded, InvalidArgument
from esd.services.domain.features import Pooling
from esd.services.domain.jobs import JobSpec
from esd.services.runtime import serving_metrics as metrics
from esd.services.runtime.documents import suggestion
from esd.services.runtime.threads import named_threads
from esd.serving.folder import LoadedModel
from esd.serving.requests import InferAnswer, InferRequest
from esd.serving.tensors import shown

# Requests that are scored together, in bytes: 380 samples of 14 ids and 15 numbers. More would save little.
_TOGETHER_BYTES = 2**16
_PIECE_SAMPLES = 4096
_PIECE_BYTES = 64 * 2**20  # of sequences, which are as long as the longest of them

Parse = Callable[[], InferRequest]


@dataclass(slots=True)
class _Waiting:
    size: int
    parse: Parse
    answer: Future[InferAnswer] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Asked:
    request: InferRequest
    batch: SampleBatch
    answer: Future[InferAnswer]


class Scorer:
    """Scores requests in a bounded number of threads.

    Args:
        current: returns the model that scores.
        threads: their number.
        seconds: time of a request, after which it is refused.
        knob: the setting of this time, for the error.
    """

    def __init__(self, current: Callable[[], LoadedModel], threads: int, seconds: float, knob: str) -> None:
        self._current = current
        self._seconds = seconds
        self._knob = knob
        self._most = threads
        self._threads = named_threads("esd-score", threads)
        self._lock = Lock()
        self._waiting: deque[_Waiting] = deque()
        self._active = 0  # threads that score

    async def answer(self, size: int, parse: Parse) -> InferAnswer:
        """Scores a request.

        Args:
            size: its bytes.
            parse: reads it, in a thread.

        Raises:
            InvalidArgument: the request is malformed, or does not fit the model.
            NotFound: another version is served.
            DeadlineExceeded: its time has passed.
        """
        waiting = _Waiting(size, parse)
        with self._lock:
            self._waiting.append(waiting)
            begin = self._active < self._most
            self._active += begin
        if begin:
            self._threads.submit(self._score_waiting)
        try:
            async with asyncio.timeout(self._seconds):
                return await asyncio.wrap_future(waiting.answer)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the request was not scored within {self._knob}={self._seconds:g} s: the server is short of processors"
            ) from None

    def close(self) -> None:
        """Ends the threads, after the requests that they score."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _score_waiting(self) -> None:
        while taken := self._take():
            loaded = self._current()
            asked = [each for each in (_ask(waiting, loaded) for waiting in taken) if each is not None]
            if asked:
                _score(asked, loaded)

    def _take(self) -> list[_Waiting]:
        """Takes requests that are scored together; none, and this thread is not active any more, if none wait."""
        taken: list[_Waiting] = []
        size = 0
        with self._lock:
            while self._waiting and (not taken or size + self._waiting[0].size <= _TOGETHER_BYTES):
                taken.append(self._waiting.popleft())
                size += taken[-1].size
            self._active -= not taken
        return taken


def _ask(waiting: _Waiting, loaded: LoadedModel) -> _Asked | None:
    """Returns a request with its samples; None if it has its answer, or nothing waits for it any more."""
    if not waiting.answer.set_running_or_notify_cancel():
        return None
    job = loaded.model.job
    try:
        request = waiting.parse()
        _check(request, loaded)
        batch = loaded.reader.read(request.inputs).arranged(job.columns, labelled=False)
        if len(batch):
            batch.check_shape(job.features, job.dense_features, len(job.labels))
            return _Asked(request, batch, waiting.answer)
        waiting.answer.set_result(_answer(request, loaded, np.empty((0, len(job.labels)), np.float32)))
    except Exception as error:  # noqa: BLE001 - the caller raises it
        waiting.answer.set_exception(error)
    return None


def _check(request: InferRequest, loaded: LoadedModel) -> None:
    loaded.check_version(request.version)
    labels = loaded.model.job.labels
    for name in request.outputs:
        if name not in labels:
            raise InvalidArgument(
                f"the model has no output {shown(name)}{suggestion(name, labels)}; it has {', '.join(labels)}"
            )


def _score(asked: Sequence[_Asked], loaded: LoadedModel) -> None:
    """Scores requests together."""
    try:
        batch = SampleBatch.concatenate([each.batch for each in asked]) if len(asked) > 1 else asked[0].batch
        scores = np.concatenate([loaded.model.scores(piece) for piece in _pieces(batch, loaded.model.job)])
    except Exception as error:  # noqa: BLE001 - the callers raise it
        for each in asked:
            each.answer.set_exception(error)
        return
    metrics.SCORED.inc(len(batch))
    first = 0
    for each in asked:
        own = scores[first : first + len(each.batch)]
        each.answer.set_result(_answer(each.request, loaded, own))
        first += len(own)


def _answer(request: InferRequest, loaded: LoadedModel, scores: NDArray[np.float32]) -> InferAnswer:
    labels = loaded.model.job.labels
    wanted = request.outputs or labels
    return InferAnswer(loaded.version, {label: scores[:, labels.index(label)] for label in wanted}, request.id)


def _pieces(batch: SampleBatch, job: JobSpec) -> Iterator[SampleBatch]:
    """Yields the samples in pieces that take bounded memory: sequences are padded to the longest of a piece."""
    size = _PIECE_SAMPLES
    if batch.lengths is not None:
        longest = batch.lengths.max(axis=0, initial=1).tolist()
        padded = sum(
            4 * job.tables[feature.table].dimension * longest[at]
            for at, feature in enumerate(job.features)
            if feature.pooling is Pooling.LIST
        )
        size = max(1, min(size, _PIECE_BYTES // max(1, padded)))
    for first in range(0, len(batch), size):
        yield batch[first : first + size]
