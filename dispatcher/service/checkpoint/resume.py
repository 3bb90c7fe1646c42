"""Where a job starts: from nothing, or from what the parameter servers hold of it, a checkpoint and logged samples."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.checkpoint.continuation import goes_on_from
from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.service.state.manifest import Manifest, describe_job
from esd.protos import common_pb2
from esd.services.clients.parameter_server import StoredState
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.wire.batches import decode_batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """What a job that can recover starts from.

    Attributes:
        checkpoints: its checkpoints; it starts at the latest.
        logged: the samples that follow the checkpoint, as far as they were acknowledged.
        closed: whether the stream ends behind these.
    """

    checkpoints: Checkpoints
    logged: Sequence[SampleBatch]
    closed: bool


async def find_starting_point(spec: JobSpec, settings: DispatcherSettings) -> StartingPoint | None:
    """Asks the parameter servers what they hold of a job, and writes checkpoint 0 of one that is new to them.

    Returns:
        The starting point; None if the job takes no checkpoints.

    Raises:
        FailedPrecondition: the table holds the rows of another job, or another dispatcher has it meanwhile.
        StaleEpoch: others take the job over at the same moment, again and again.
        Unavailable: a parameter server is away.
    """
    if not spec.takes_checkpoints:
        return None
    store = CheckpointStore(spec, settings)
    try:
        # From here on nothing of an earlier dispatcher is logged or committed any more.
        epoch = await store.take_over(lambda found: _manifest_for(spec, found))
        entries, cleared = await store.read_samples(epoch), False
        stored = await store.find()
        manifest = _manifest_for(spec, stored)
        if manifest is None or goes_on_from(spec, manifest):
            epoch = stored.epoch  # above ours where a server has lost rows meanwhile
            manifest = await _begin(spec, manifest, store, epoch)
            entries, cleared = [], True
        logged, closed = samples_after(manifest, entries)
        if entries and not logged and not closed:
            await store.trim_samples(None, epoch)  # the next entry may begin anywhere
            cleared = True
        if cleared:  # an attempt at that which was given up, and runs late, must not take what is logged from now on
            epoch += 1
            await store.begin_epoch(epoch)
        checkpoints = Checkpoints(spec, store, manifest, epoch, durable=stored.durable)
        return StartingPoint(checkpoints, logged, closed or manifest.finished)
    except BaseException:
        await store.close()
        raise


def samples_after(manifest: Manifest, entries: Sequence[LogEntry]) -> tuple[list[SampleBatch], bool]:
    """Returns the logged samples that a checkpoint does not cover, and whether the stream ends behind them."""
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


def _manifest_for(spec: JobSpec, stored: StoredState) -> Manifest | None:
    """Returns the checkpoint from which a job goes on; None if it begins with the table as it was created.

    Raises:
        FailedPrecondition: the table holds what is not this job's.
    """
    if stored.manifest:
        manifest = Manifest.decode(stored.manifest)
        if not goes_on_from(spec, manifest):
            _check_is_of(spec, manifest)
        return manifest
    if spec.first_iteration:
        raise FailedPrecondition(f"table {spec.table.name!r} holds no checkpoint to go on from (--continue-from)")
    if stored.rows:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds {stored.rows} rows and no checkpoint: the run that trained them "
            "took none; use an empty store or another table"
        )
    return None


def _check_is_of(spec: JobSpec, manifest: Manifest) -> None:
    """Raises FailedPrecondition if the manifest is that of another job."""
    differing = manifest.differences(spec)
    if "stream" in differing:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of other samples: they were "
            f"{manifest.job.get('stream') or 'not named'}, now they are {spec.stream or 'not named'}; repeat the job "
            "with the former to go on with it, train the model on with the latter (--continue-from), or train the "
            "latter in another table (--table) or an empty store"
        )
    if differing:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of a job that differs in "
            f"{', '.join(differing)}; repeat that job to go on with it, or use an empty store or another table "
            "(--table)"
        )


async def _begin(spec: JobSpec, before: Manifest | None, store: CheckpointStore, epoch: int) -> Manifest:
    """Writes the first checkpoint of a job: the last one of an earlier job, or the table as it was created (None)."""
    start = before or Manifest({})
    manifest = Manifest(
        describe_job(spec),
        iteration=start.iteration,
        checksums=start.checksums,
        time=time.time(),
        size=start.size,
        cuts=start.cuts,
    )
    await store.restore(manifest.iteration, epoch)
    await store.trim_samples(None, epoch)
    await store.commit(manifest.iteration, epoch, manifest.encode(), spec.checkpoints_kept)
    return manifest
