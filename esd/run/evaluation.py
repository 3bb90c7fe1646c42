"""How good a model is on samples that it is not trained with: read from the parameter servers, and scored here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import AsyncExitStack, aclosing
from importlib import import_module
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import known_triples_of
from esd.dispatcher.core.grouped_auc import Grouped, mean_gauc
from esd.dispatcher.core.scores import ScoreHistogram
from esd.run.events import Listener, ignore
from esd.run.model import look_here
from esd.run.patience import within
from esd.run.ranking import LinkPrediction, ranks_links
from esd.run.stream import global_batches
from esd.run.worker_host import TRIAL_SECONDS
from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.read_ahead import read_ahead
from esd.services.clients.tables import TableClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import parts_of_tables
from esd.services.domain.jobs import JobSpec
from esd.services.domain.reports import label_classes
from esd.services.domain.state import Quality, Ranking
from esd.services.runtime.extras import require_torch
from esd.services.runtime.leavable_thread import LeavableThread
from esd.services.runtime.security import PLAINTEXT, Credentials

_TOGETHER = 16_384  # samples whose rows are read at once, each row once
_AHEAD = 2  # times that many: some are scored while the next ones are read
_SCORING_SECONDS = 600.0  # for that many samples
_IMPORT_SECONDS = 600.0  # for torch, on a machine that is slow or has much other work; no model is blamed for it
_REPORTED_SECONDS = 30.0  # after which a call of the model is reported

P = ParamSpec("P")
T = TypeVar("T")

_Chunk: TypeAlias = tuple[SampleBatch, list[NDArray[np.uint64]], list[NDArray[np.int64]]]


class Evaluator:
    """Scores held-out samples with the model that a job's parameter servers hold.

    Nothing is trained and no version rises; rows that were never trained count with their initial values.

    Args:
        job: trains the model.
        samples: the held-out ones; each evaluation reads them from the beginning.
        credentials: for the parameter servers.
        listener: gets `TakesLong` if the model is slow, which may be a user's code.

    Call `prepare` before the model is trained.
    """

    def __init__(
        self,
        job: JobSpec,
        samples: Iterable[SampleBatch],
        credentials: Credentials = PLAINTEXT,
        listener: Listener = ignore,
    ) -> None:
        self._job = job
        self._samples = samples
        self._known = known_triples_of(samples)
        self._credentials = credentials
        self._listener = listener
        # One, since torch's settings belong to a thread; a model that hangs in it must not keep the process.
        self._thread = LeavableThread("esd-evaluate")

    async def prepare(self) -> None:
        """Builds the model once: one that cannot be scored here is refused before it is trained, not after.

        Raises:
            FailedPrecondition: torch is not installed here.
            InvalidArgument: there is no such model, or it cannot be built, or takes too long.
        """
        await self._within(_IMPORT_SECONDS, "torch is being imported for held-out samples", _import_torch)
        name = repr(self._job.model.name)
        await self._within(TRIAL_SECONDS, f"model {name} is being tried for held-out samples", _try_model, self._job)

    async def evaluate(self, checkpoint: int = 0) -> tuple[tuple[Quality, ...], Ranking | None]:
        """Returns the figures of the model at a checkpoint, or of the finished model (0).

        The figures are by label, in the job's order, and of a graph's links; None: the model or the data are of none.

        Raises:
            FailedPrecondition, NotFound: the checkpoint is not kept.
            InvalidArgument: a held-out sample is malformed, or there is none; or the model takes too long.
            Unavailable: a parameter server is away.
        """
        of_labels, count = [OfLabel() for _ in self._job.labels], 0
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(ParameterServerConnection(address, credentials=self._credentials))
                for address in self._job.parameter_servers
            ]
            tables = [TableClient(servers, table) for table in self._job.tables]
            dense = await tables[0].get_dense(checkpoint=checkpoint)
            scorer = await self._within(TRIAL_SECONDS, "the model is being built", _make_scorer, self._job, dense)
            links = await self._link_prediction()
            if links is not None:
                await links.load(tables, checkpoint)
            chunks = read_ahead(_chunks(self._samples, len(self._job.tables)), _AHEAD)
            async for batch, ids, inverse in await stack.enter_async_context(aclosing(chunks)):
                values = [
                    (await table.look_up(wanted, checkpoint=checkpoint))[1]
                    for table, wanted in zip(tables, ids, strict=True)
                ]
                what = f"{len(batch)} held-out samples are being scored"
                losses, bins = await self._within(_SCORING_SECONDS, what, scorer.score, batch, values, inverse)
                count += len(batch)
                if links is not None:
                    await links.add(batch)
                for label, figures in enumerate(of_labels):
                    figures.add(losses[label], bins[:, label], label_classes(batch.labels[:, label]), batch.groups)
        if not count:
            raise InvalidArgument("there are no held-out samples (--evaluate, --holdout)")
        return tuple(each.quality(count) for each in of_labels), None if links is None else links.ranking()

    async def _link_prediction(self) -> LinkPrediction | None:
        if self._known is None:
            return None
        if not await self._within(TRIAL_SECONDS, "the model is being looked up", ranks_links, self._job):
            return None
        return LinkPrediction(self._job, self._known, self._within, _SCORING_SECONDS)

    def close(self) -> None:
        """Ends the thread after its running call, for which nothing waits."""
        self._thread.end()

    async def _within(self, limit: float, what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Makes a call in the thread. Raises InvalidArgument if it takes longer than the limit, in seconds."""
        call = self._thread.submit(function, *args, **kwargs)
        try:
            return await within(asyncio.wrap_future(call), what, limit, self._listener, _REPORTED_SECONDS)
        except TimeoutError:
            raise InvalidArgument(f"{what} for longer than {limit:g} s, which is the limit") from None


class OfLabel:
    """Collects the figures of one label over all held-out samples."""

    def __init__(self) -> None:
        self._histogram = ScoreHistogram()
        self._loss_sum = 0.0
        self._grouped: list[Grouped] = []

    def add(
        self, loss: float, bins: NDArray[np.uint16], classes: NDArray[np.uint8], groups: NDArray[np.uint64] | None
    ) -> None:
        """Takes the sum of the losses of k samples, their score bins, classes of labels and groups, [k] each."""
        self._loss_sum += loss
        self._histogram.add(bins, classes)
        if groups is not None:
            self._grouped.append((groups, bins, classes))

    def quality(self, samples: int) -> Quality:
        """Returns the figures of all samples, of which there are so many."""
        return self._histogram.scores().quality(self._loss_sum, samples, mean_gauc(self._grouped))


def _import_torch() -> None:
    require_torch("scoring held-out samples")
    import_module("esd.worker.models")


def _try_model(job: JobSpec) -> None:
    """Builds the job's model."""
    look_here()
    import_module("esd.worker.models").build_model(job)


def _make_scorer(job: JobSpec, dense: bytes) -> Any:
    """Makes a esd.worker.training.scorer.Scorer."""
    return import_module("esd.worker.training.scorer").Scorer(job, dense)


def _chunks(samples: Iterable[SampleBatch], tables: int) -> Iterator[_Chunk]:
    """Yields the samples, and by table their distinct ids, uint64 [u], and which of these all are, int64 [N]."""
    for batch in global_batches(samples, _TOGETHER):
        found = [np.unique(batch.ids[part], return_inverse=True) for part in parts_of_tables(batch.ids, tables)]
        yield batch, [ids for ids, _ in found], [inverse for _, inverse in found]
