"""The all-reduce of gradients over the workers of an epoch (`--dense all-reduce`), and the forming of their group."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from datetime import timedelta
from threading import Lock
from typing import Any, Protocol, cast

from torch import Tensor
from torch.distributed import ProcessGroupGloo, Store  # type: ignore[attr-defined] # re-exported

from esd.services.domain.dense_sums import AllReduce
from esd.services.domain.errors import DeadlineExceeded, Unavailable
from esd.services.domain.plans import Membership
from esd.services.runtime import metrics
from esd.services.runtime.threads import batch_threads

_ALL_ADDRESSES = ("0.0.0.0", "::")  # noqa: S104 - these are refused here

_LOOK_UP = timedelta(seconds=0.25)

_SENT, _RECEIVED = (metrics.DENSE_BYTES.labels(AllReduce.name, operation) for operation in ("sent", "received"))

_log = logging.getLogger(__name__)


class AllReduceGroup(Protocol):
    """The part of gloo's process group that is used here."""

    def allreduce(self, tensors: list[Tensor], /) -> Any:
        """Starts to sum each tensor over the group, in place, and returns an object to wait for."""


class Carrier(Protocol):
    """The link that the bytes of a ring take; `RingLink` is one."""

    def carry(self, size: int) -> Future[None]:
        """Counts `size` bytes in each direction; the result is done when they may have passed."""


class RingReducer:
    """Sums gradients over the workers of one epoch, which send to each other.

    A ring is as fast as its slowest link. So a piece joins the ring when its bytes have passed this worker's link, and
    is summed when every worker's have.

    Args:
        group: the group of these workers.
        workers: their number.
        link: of this worker.
    """

    def __init__(self, group: AllReduceGroup, workers: int, link: Carrier) -> None:
        self._group: AllReduceGroup | None = group
        self._workers = workers
        self._link = link
        self._passing: deque[tuple[Tensor, Future[None]]] = deque()
        self._running: list[Any] = []
        self._left = False
        self._leaving = Lock()
        self.waiting = False
        self.wants = True

    def begin(self, iteration: int) -> None:
        """See DenseReducer."""

    def start(self, gradients: Tensor, *, zeros: bool = False) -> None:  # noqa: ARG002 - a ring sends zeros, too
        """See DenseReducer."""
        with self._leaving, _losses_named():
            self._check_member()
            self._passing.append((gradients, self._carry(gradients.nbytes)))
            while self._passing and self._passing[0][1].done():
                self._sum_first()

    def wait(self) -> None:
        """See DenseReducer."""
        self.waiting = bool(self._passing or self._running)
        try:
            with _losses_named():
                self._await_link()
                running, self._running = self._running, []
                for work in running:
                    self._await(work)
        finally:
            self.waiting = False

    def close(self) -> None:
        """See DenseReducer. It returns when the last sum has failed, which may take as long as the group's timeout."""
        with self._leaving:
            self._left = True
            group, self._group = self._group, None
            for _, passed in self._passing:
                passed.cancel()
        del group

    def _carry(self, size: int) -> Future[None]:
        """Lets the bytes pass that a ring sends, and receives, for a piece of `size` bytes."""
        share = 2 * size * (self._workers - 1) // self._workers
        for counter in (_SENT, _RECEIVED):
            counter.inc(share)
        return self._link.carry(share)

    def _sum_first(self) -> None:
        """Begins to sum the oldest piece, whose bytes have passed. All workers begin pieces in the same order."""
        gradients, _ = self._passing.popleft()
        if self._group is not None:
            self._running.append(self._group.allreduce([gradients]))

    def _await_link(self) -> None:
        """Begins to sum all pieces, each when its bytes have passed."""
        while self._passing:
            with suppress(CancelledError):  # this worker has left
                self._passing[0][1].result()
            with self._leaving:
                self._check_member()
                self._sum_first()

    def _await(self, work: Any) -> None:
        """Waits for a sum. gloo cannot abort it, so this thread checks now and then whether it has left meanwhile."""
        while True:
            try:
                work.wait(_LOOK_UP)
            except RuntimeError:
                self._check_member()
                if work.is_completed():  # it has failed, or has ended since the look-up
                    break
            else:
                return
        work.wait()

    def _check_member(self) -> None:
        if self._left:
            raise Unavailable("this worker has left the epoch")


@contextmanager
def _losses_named() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise Unavailable(
            f"all-reduce failed: another worker is lost, or slower than ESD_WORKER_PEER_TIMEOUT: {error}"
        ) from error


class GroupStore(Store):
    """The key-value store through which torch's process groups form, kept by a service that all members reach.

    Args:
        put: stores a value under a key for all members.
        get: waits for the value under a key, and returns it.
    """

    def __init__(self, put: Callable[[str, bytes], None], get: Callable[[str], bytes]) -> None:
        super().__init__()
        self._put = put
        self._get = get

    # torch calls these from C++, by these names.

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]  # the stubs have it as text
        """Stores a value."""
        self._put(key, bytes(value))

    def get(self, key: str) -> bytes:
        """Waits for a value, and returns it."""
        return self._get(key)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:  # noqa: ARG002 - `get` has its own
        """Waits until all values exist."""
        for key in keys:
            self._get(key)


def join_group(membership: Membership, store: GroupStore, host: str, timeout: float, link: Carrier) -> RingReducer:
    """Meets the other workers of an epoch; returns when all have come.

    Args:
        membership: the workers of the epoch, and this worker's rank.
        store: the store through which they find each other.
        host: the host at which the others reach this worker. gloo listens only there, unless it stands for all
            addresses or is not an address of this machine: then at the address of the machine's name.
        timeout: seconds to wait for the others, here and in every all-reduce.
        link: of this worker.

    Raises:
        Unavailable: not all workers came in time.
        StaleEpoch: the epoch is over.
    """
    workers, rank = len(membership.members), membership.rank
    try:
        # A separate group, not torch's default one: the group of the epoch before may not have ended yet.
        group = _open_group(store, rank, workers, host, timedelta(seconds=timeout))
        return RingReducer(group, workers, link)
    except (RuntimeError, DeadlineExceeded) as error:
        raise Unavailable(
            f"the {workers} workers of epoch {membership.epoch} did not all meet within {timeout:g} s "
            f"(ESD_WORKER_PEER_TIMEOUT): {error}"
        ) from error


def _open_group(store: Store, rank: int, workers: int, host: str, patience: timedelta) -> AllReduceGroup:
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]  # noqa: SLF001
    options._timeout = patience  # noqa: SLF001
    # The thread that serves gloo's connections polls continuously while another one writes to one of them. If it
    # preempted the writing thread itself, both would lose: that took more than a quarter of the time of a sum.
    with batch_threads():
        options._devices = [_gloo_device(host)]  # noqa: SLF001
    return cast("AllReduceGroup", ProcessGroupGloo(store, rank, workers, options))


def _gloo_device(host: str) -> Any:
    """Returns the network device for gloo to listen on."""
    if host not in _ALL_ADDRESSES:
        try:
            return ProcessGroupGloo.create_device(hostname=host)
        except RuntimeError as error:  # for example the outer address of a machine that a router translates
            _log.warning("the all-reduce cannot listen at %s: %s; it listens at this machine's name", host, error)
    return ProcessGroupGloo.create_default_device()
