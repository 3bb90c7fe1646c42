"""Where a new job begins: at nothing, or at what the parameter servers hold of it, a checkpoint and logged samples."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dispatcher.service.checkpoint.checkpoints import Checkpoints
from dispatcher.service.checkpoint.servers import CheckpointStore
from dispatcher.service.settings import DispatcherSettings
from dispatcher.service.state.manifest import Manifest, describe_job
from protos import common_pb2
from services.clients.parameter_server import StoredState
from services.domain.batches import LogEntry, SampleBatch
from services.domain.errors import FailedPrecondition
from services.domain.jobs import JobSpec
from services.wire.batches import decode_batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a job that can recover begins with.

    Attributes:
        checkpoints: the latest is where it begins.
        logged: the samples that follow it, as far as they were acknowledged.
        closed: whether the stream ends there.
    """

    checkpoints: Checkpoints
    logged: Sequence[SampleBatch]
    closed: bool


async def open_checkpoints(spec: JobSpec, settings: DispatcherSettings) -> Opening | None:
    """The checkpoints of a job, the first of them (nothing trained) written; None if the job takes none.

    Raises:
        FailedPrecondition: the table holds the rows of another job.
        StaleEpoch: another dispatcher has just taken the job.
        Unavailable: a parameter server is away.
    """
    if not spec.takes_checkpoints:
        return None
    store = CheckpointStore(spec, settings)
    try:
        # From here on nothing of an earlier dispatcher is logged or committed any more.
        epoch = (await store.find()).epoch + 1
        entries = await store.read_samples(epoch)
        kept = await store.find()
        if kept.manifest:
            manifest = _manifest_of(spec, kept)
        else:
            manifest, entries = await _begin(spec, store, kept), []
        logged, closed = _after(manifest, entries)
        if entries and not logged and not closed:
            await store.trim_samples(None, epoch)  # the next entry may begin anywhere
        checkpoints = Checkpoints(spec, store, manifest, epoch, durable=kept.durable)
        return Opening(checkpoints, logged, closed or manifest.finished)
    except BaseException:
        await store.close()
        raise


def _manifest_of(spec: JobSpec, kept: StoredState) -> Manifest:
    manifest = Manifest.decode(kept.manifest)
    differing = manifest.differences(spec)
    if differing:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of a job that differs in "
            f"{', '.join(differing)}; repeat that job to go on with it, or use an empty store or another table"
        )
    return manifest


async def _begin(spec: JobSpec, store: CheckpointStore, kept: StoredState) -> Manifest:
    """Writes checkpoint 0 of a job that is new to the servers."""
    if kept.rows:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds {kept.rows} rows and no checkpoint: the run that trained them "
            "took none; use an empty store or another table"
        )
    manifest = Manifest(describe_job(spec), time=time.time())
    await store.restore(0, kept.epoch)
    await store.trim_samples(None, kept.epoch)
    await store.commit(0, kept.epoch, manifest.encode(), spec.checkpoints_kept)
    return manifest


def _after(manifest: Manifest, entries: Sequence[LogEntry]) -> tuple[list[SampleBatch], bool]:
    """The logged samples that a checkpoint does not cover, and whether the stream ends behind them."""
    position, logged = manifest.samples, []
    for entry in entries:
        if entry.position > position:
            _log.warning(
                "the sample log goes on at sample %d, and the checkpoint is at %d: the client has to send all again",
                entry.position, position,
            )  # fmt: skip
            return [], False
        if entry.end > position:
            batch = decode_batch(common_pb2.SampleBatch.FromString(entry.batch))
            logged.append(batch[position - entry.position :])
            position = entry.end
    return logged, bool(entries) and entries[-1].closes
