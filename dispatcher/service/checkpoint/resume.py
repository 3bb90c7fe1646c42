"""The starting point of a job: an empty table, or the checkpoint and the logged samples on the parameter servers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from esd.dispatcher.service.checkpoint.checkpoints import Checkpoints
from esd.dispatcher.service.checkpoint.continuation import first_place, goes_on_from, with_earlier_sum
from esd.dispatcher.service.checkpoint.servers import CheckpointStore
from esd.dispatcher.service.settings import DispatcherSettings
from esd.dispatcher.service.state.manifest import Manifest, describe_job
from esd.protos import common_pb2
from esd.services.clients.checkpoints import StoredState
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.memory import return_freed_memory
from esd.services.wire.batches import decode_batch

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoggedSamples:
    """Samples that an earlier dispatcher has accepted.

    Attributes:
        batch: the samples.
        part: of the stream, to which they belong.
        stream: the name of the part; empty: unknown.
    """

    batch: SampleBatch
    part: int
    stream: str


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The starting point of a job that takes checkpoints.

    Attributes:
        checkpoints: the job's checkpoints; it starts at the latest.
        logged: the acknowledged samples after the checkpoint.
        closed: whether the stream ends after these samples.
    """

    checkpoints: Checkpoints
    logged: Sequence[LoggedSamples]
    closed: bool


async def find_starting_point(spec: JobSpec, settings: DispatcherSettings) -> StartingPoint | None:
    """Reads the state of a job from the parameter servers, and writes checkpoint 0 of a new job.

    Returns:
        The starting point; None if the job takes no checkpoints.

    Raises:
        FailedPrecondition: the table holds the rows of another job, or another dispatcher has taken it over meanwhile.
        StaleEpoch: five times another dispatcher took the job over at the same moment.
        Unavailable: a parameter server is away.
    """
    if not spec.takes_checkpoints:
        return None
    store = CheckpointStore(spec, settings)
    try:
        # From here on the servers refuse samples and commits of an earlier dispatcher. Only then are log and checkpoint
        # stable, so both are read after it.
        epoch = await store.take_over(lambda found: _manifest_for(spec, found))
        entries, cleared = await store.read_samples(epoch), False
        stored = await store.find()
        manifest = _manifest_for(spec, stored)
        spec = with_earlier_sum(spec, manifest)
        if manifest is None or goes_on_from(spec, manifest):
            epoch = stored.epoch  # higher than the epoch above if a server has lost rows meanwhile
            manifest = await _begin(spec, manifest, store, epoch)
            entries, cleared = [], True
        logged, closed = samples_after(manifest, entries)
        useless = bool(entries) and not logged and not closed
        del entries
        await asyncio.to_thread(return_freed_memory)  # of the entries, which are as long as the samples
        if useless:
            await store.trim_samples(None, epoch)  # the next entry may begin anywhere
            cleared = True
        # A trim that timed out here may still run at the server. A new epoch keeps it from deleting entries logged
        # later.
        if cleared:
            epoch += 1
            await store.begin_epoch(epoch)
        checkpoints = Checkpoints(spec, store, manifest, epoch, durable=stored.durable)
        return StartingPoint(checkpoints, logged, closed or manifest.finished)
    except BaseException:
        await store.close()
        raise


def samples_after(manifest: Manifest, entries: Sequence[LogEntry]) -> tuple[list[LoggedSamples], bool]:
    """Returns the logged samples after a checkpoint, and whether the stream ends after them.

    A gap between the checkpoint and the log makes the whole log useless: the result is then empty.
    """
    position = manifest.samples
    logged: list[LoggedSamples] = []
    for entry in entries:
        if entry.position > position:
            _log.warning(
                "the sample log continues at sample %d, and the checkpoint is at %d: the client must send all again",
                entry.position, position,
            )  # fmt: skip
            return [], False
        if entry.end > position:
            message = common_pb2.SampleBatch.FromString(entry.batch)
            batch = decode_batch(message)[position - entry.position :]
            logged.append(LoggedSamples(batch, message.part, message.stream))
            position = entry.end
    return logged, bool(entries) and entries[-1].closes


def _manifest_for(spec: JobSpec, stored: StoredState) -> Manifest | None:
    """Returns the checkpoint from which a job continues; None if it begins with a new table.

    Raises:
        FailedPrecondition: the table holds another job's checkpoint, or rows without a checkpoint; or the job continues
            from a checkpoint, and the table holds none.
    """
    if stored.manifest:
        manifest = Manifest.decode(stored.manifest)
        if goes_on_from(spec, manifest):
            first_place(spec, manifest)  # refuses a checkpoint without one
        else:
            _check_is_of(spec, manifest)
        return manifest
    if spec.first_iteration:
        raise FailedPrecondition(f"table {spec.table.name!r} holds no checkpoint to continue from (--continue-from)")
    if stored.rows:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds {stored.rows} rows and no checkpoint: the run that trained them "
            "took none; use an empty store or another table"
        )
    return None


def _check_is_of(spec: JobSpec, manifest: Manifest) -> None:
    """Raises FailedPrecondition if the manifest belongs to another job."""
    differing = manifest.differences(spec)
    if "stream" in differing:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of other samples: they were "
            f"{manifest.job.get('stream') or 'not named'}, now they are {spec.stream or 'not named'}; repeat the job "
            "with the former to resume it, continue training the model with the latter (--continue-from), or train the "
            "latter in another table (--table) or an empty store"
        )
    if differing:
        raise FailedPrecondition(
            f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of a job that differs in "
            f"{', '.join(differing)}; repeat that job to resume it, or use an empty store or another table "
            "(--table)"
        )


async def _begin(spec: JobSpec, before: Manifest | None, store: CheckpointStore, epoch: int) -> Manifest:
    """Commits the first checkpoint of a job: the earlier job's last checkpoint, or an empty one if `before` is None."""
    start = before or Manifest({})
    manifest = Manifest(
        describe_job(spec),
        iteration=start.iteration,
        checksums=start.checksums,
        time=time.time(),
        size=start.size,
        cuts=start.cuts,
        place=first_place(spec, before),
    )
    await store.restore(manifest.iteration, epoch)
    await store.trim_samples(None, epoch)
    await store.commit(manifest.iteration, epoch, manifest.encode(), spec.checkpoints_kept)
    return manifest
