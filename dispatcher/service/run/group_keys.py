"""The key-value store of an epoch, in which members exchange, for example, the addresses of their all-reduce sockets.

The dispatcher keeps the store because every member reaches it and it knows each by its lease. So no worker has to run a
rendezvous server, or to discover the others.
"""

from __future__ import annotations

from esd.dispatcher.service.run.job import Job
from esd.dispatcher.service.state.epoch import Epoch
from esd.services.domain.errors import InvalidArgument, ResourceExhausted

_LONGEST_KEY = 256
_MOST_BYTES = 2**24  # of keys and values of an epoch; 64 workers need a hundredth


def put_group_key(job: Job, lease_id: str, epoch_number: int, key: str, value: bytes) -> None:
    """Keeps a value for the members of an epoch, and wakes the members that wait for it. The call may be repeated.

    Raises:
        NotFound: the lease has expired.
        FailedPrecondition: the job failed.
        StaleEpoch: the epoch is over.
        InvalidArgument: the key is empty or too long.
        ResourceExhausted: keys and values of the epoch would exceed 16 MiB.
    """
    epoch = _epoch_of(job, lease_id, epoch_number)
    if not 1 <= len(key) <= _LONGEST_KEY:
        raise InvalidArgument(f"key has {len(key)} characters, it must have 1..{_LONGEST_KEY}")
    others = sum(len(name) + len(kept) for name, kept in epoch.group_keys.items() if name != key)
    if others + len(key) + len(value) > _MOST_BYTES:
        raise ResourceExhausted(
            f"the group keys of epoch {epoch.number} take {others} bytes, and {key[:32]!r} needs {len(value)} more; "
            f"the dispatcher keeps {_MOST_BYTES}"
        )
    epoch.group_keys[key] = value
    job.lifecycle.notify()


async def get_group_key(job: Job, lease_id: str, epoch_number: int, key: str) -> bytes:
    """Waits until a member of the epoch has put the value, and returns it.

    Raises:
        NotFound: the lease has expired.
        FailedPrecondition: the job failed.
        StaleEpoch: the epoch is over.
    """
    epoch = _epoch_of(job, lease_id, epoch_number)
    await job.lifecycle.wait_until(lambda: key in epoch.group_keys, during=epoch)
    return epoch.group_keys[key]


def _epoch_of(job: Job, lease_id: str, epoch_number: int) -> Epoch:
    job.caller(lease_id)
    epoch = job.current_epoch()
    epoch.raise_unless_current(epoch_number)
    return epoch
