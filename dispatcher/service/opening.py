"""Where a new job begins: at nothing, or at the checkpoint that the parameter servers hold of it."""

from __future__ import annotations

from dispatcher.service.checkpoint_store import CheckpointStore
from dispatcher.service.checkpoints import Checkpoints
from dispatcher.service.manifest import Manifest, describe_job
from dispatcher.service.settings import DispatcherSettings
from services.domain.errors import FailedPrecondition
from services.domain.jobs import JobSpec


async def open_checkpoints(spec: JobSpec, settings: DispatcherSettings) -> Checkpoints | None:
    """The checkpoints of a job, the first of them (nothing trained) written; None if the job takes none.

    Raises:
        FailedPrecondition: the table holds the rows of another job.
        Unavailable: a parameter server is away.
    """
    if not spec.checkpoint_every:
        return None
    store = CheckpointStore(spec, settings)
    try:
        kept = await store.find()
        job = describe_job(spec)
        if kept.manifest:
            manifest = Manifest.decode(kept.manifest)
            if manifest.job != job:
                raise FailedPrecondition(_other_job(spec, manifest))
        else:
            if kept.rows:
                raise FailedPrecondition(
                    f"table {spec.table.name!r} holds {kept.rows} rows and no checkpoint: the run that trained them "
                    "took none; use an empty store or another table"
                )
            manifest = Manifest(job)
            await store.restore(0, kept.epoch)
            await store.commit(0, kept.epoch, manifest.encode())
        return Checkpoints(spec.checkpoint_every, store, manifest, kept.epoch)
    except BaseException:
        await store.close()
        raise


def _other_job(spec: JobSpec, manifest: Manifest) -> str:
    asked = describe_job(spec)
    differing = sorted(key for key in asked.keys() | manifest.job.keys() if asked.get(key) != manifest.job.get(key))
    return (
        f"table {spec.table.name!r} holds checkpoint {manifest.iteration} of a job that differs in "
        f"{', '.join(differing)}; repeat that job to go on with it, or use an empty store or another table"
    )
