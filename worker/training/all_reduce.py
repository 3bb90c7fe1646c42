"""The all-reduce of the dense gradients: where the workers of an epoch meet, and the sum that they make together."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Protocol, cast

from torch import Tensor, distributed
from torch.distributed import PrefixStore, ProcessGroupGloo, Store, TCPStore  # type: ignore[attr-defined] # re-exported

from services.domain.errors import Unavailable
from services.domain.plans import Membership
from services.runtime.settings import split_address


class AllReduceGroup(Protocol):
    """What is used of torch's process groups."""

    def allreduce(self, tensors: list[Tensor], /) -> Any:
        """Starts to sum each tensor over the group, in place, and returns work that can be waited for."""


class DenseReducer:
    """Sums the dense gradients over the workers of one epoch, which all call `sum` once per iteration.

    Args:
        group: of these workers; None when there is only one.

    Attributes:
        waiting: whether this worker is in `sum`, which ends when all have come.
    """

    def __init__(self, group: AllReduceGroup | None) -> None:
        self._group = group
        self.waiting = False

    def sum(self, gradients: Tensor) -> None:
        """Replaces the flat gradient vector by its sum over all workers, which is bit-identical on each of them.

        Raises:
            Unavailable: a worker is lost or late.
        """
        if self._group is None:
            return
        self.waiting = True
        try:
            self._group.allreduce([gradients]).wait()
        except RuntimeError as error:
            raise Unavailable(
                f"all-reduce failed, another worker is lost, or later than ESD_WORKER_PEER_TIMEOUT: {error}"
            ) from error
        finally:
            self.waiting = False

    def close(self) -> None:
        """Leaves the group: its connections close, so that others who wait for this worker stop waiting."""
        self._group = None


class Rendezvous:
    """A store on a free port of this machine. In each epoch, the workers meet at that of the first member.

    Every worker opens one before it registers, since it learns only with the membership who the first is.
    """

    def __init__(self) -> None:
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    @property
    def port(self) -> int:
        """The port at which the store listens, on all addresses of this machine."""
        return int(self._store.port)

    def join(self, membership: Membership, device: str, timeout: float) -> DenseReducer:
        """Meets the other workers; returns when all are there.

        Args:
            membership: says where they meet, and which of them this worker is.
            device: type of the training device: gloo sums on `cpu`, nccl on `cuda`.
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
