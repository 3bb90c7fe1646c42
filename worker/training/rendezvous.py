"""Where the workers of a job meet for the all-reduce."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

from torch import distributed
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore  # type: ignore[attr-defined] # re-exported

from services.domain.errors import Unavailable
from services.domain.plans import Membership
from services.runtime.settings import split_address
from worker.training.reducer import AllReduceGroup, DenseReducer


class Rendezvous:
    """A store on a free port of this machine; that of worker slot 0 becomes the meeting point.

    Every worker opens one before it registers, since it learns its slot only then.
    """

    def __init__(self) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    @property
    def port(self) -> int:
        """Where the store listens, on all addresses of this machine."""
        return int(self._store.port)

    def join(self, membership: Membership, device: str, timeout: float) -> DenseReducer:
        """Meets the other workers; returns when all are there.

        Args:
            membership: says where, and who this worker is.
            device: type of the training device: gloo on `cpu`, nccl on `cuda`.
            timeout: seconds to wait for the others, here and in every all-reduce.

        Raises:
            Unavailable: not all workers came in time.
        """
        workers, rank = len(membership.members), membership.rank
        if workers == 1:
            return DenseReducer(None)
        patience = timedelta(seconds=timeout)
        try:
            store = self._store
            if rank > 0:
                host, port = split_address(membership.rendezvous)
                store = TCPStore(host, port, is_master=False, timeout=patience)
            # A group of its own, not torch's default one: that of the epoch before may not have come to its end yet.
            group = _open_group(device, PrefixStore(f"epoch-{membership.epoch}", store), rank, workers, patience)
        except RuntimeError as error:
            raise Unavailable(
                f"the {workers} workers did not all meet at {membership.rendezvous} within {timeout:g} s "
                f"(ESD_WORKER_PEER_TIMEOUT): {error}"
            ) from error
        return DenseReducer(group)


def _open_group(device: str, store: Store, rank: int, workers: int, patience: timedelta) -> AllReduceGroup:
    if device == "cuda":
        options = distributed.ProcessGroupNCCL.Options()
        options._timeout = patience  # noqa: SLF001 - torch's own way
        return cast("AllReduceGroup", distributed.ProcessGroupNCCL(store, rank, workers, options))
    return cast("AllReduceGroup", ProcessGroupGloo(store, rank, workers, patience))
