"""Messages from workers to the dispatcher: registrations, and reports of trained iterations."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sites import check_site

SCORE_BINS = 65536  # predicted probabilities are reported as floor(65536 p)
OTHER_LABEL = 2  # the reported class of a label that is neither 0 nor 1
_LONGEST_NAME = 256

# Far above the figures of any iteration, and far below the limits of sums and products of such numbers.
MOST_SECONDS = 1e9
LEAST_BANDWIDTH, MOST_BANDWIDTH = 1e-3, 1e15  # bytes per second
MOST_MOVED = 1 << 48  # rows, or bytes
MOST_DRIFT = 1e9

# The kinds of bytes on a link: rows and requests for them; partial gradients of rows; sums over the workers, of dense
# gradients, of buffers and of gradients of replicated rows; plans with their samples, and reports; checkpoints of dense
# parameters and acknowledgements; and the bytes that gRPC, TCP and IP add to these, by formula.
LINK_KINDS = ("rows", "gradients", "dense", "plans", "other", "framing")
LINK_DIRECTIONS = ("up", "down")  # sent by the worker, received by it


class TransferCounts(NamedTuple):
    """The transfers of one worker: rows by kind of operation, their bytes, and all bytes on its link.

    Requests for rows count in `bytes_pulled`. `bytes_reduced` were sent to other workers: the gradients of replicated
    rows. `direct_push` rows of the update pushes, in `bytes_direct` of the pushed bytes, were sent straight to the
    worker that trains them next.

    The other fields have everything that the link carried in each direction since the report before, by LINK_KINDS:
    `link_rows_up` are the bytes of rows, and of requests for rows, that the worker sent, `link_rows_down` the bytes of
    rows that it received, from parameter servers and from other workers. They include repeated messages.

    `initial_pull` rows of the miss pulls were never trained: the worker made them, and nothing but requests crossed.

    Example:
        >>> esd.TransferCounts(miss_pull=3) + esd.TransferCounts(miss_pull=1, update_push=2)
        TransferCounts(miss_pull=4, update_push=2, evict_push=0, ...)
    """

    miss_pull: int = 0
    update_push: int = 0
    evict_push: int = 0
    flush_push: int = 0
    bytes_pulled: int = 0
    bytes_pushed: int = 0
    bytes_reduced: int = 0
    direct_push: int = 0
    bytes_direct: int = 0
    link_rows_up: int = 0
    link_rows_down: int = 0
    link_gradients_up: int = 0
    link_gradients_down: int = 0
    link_dense_up: int = 0
    link_dense_down: int = 0
    link_plans_up: int = 0
    link_plans_down: int = 0
    link_other_up: int = 0
    link_other_down: int = 0
    link_framing_up: int = 0
    link_framing_down: int = 0
    initial_pull: int = 0

    def __add__(self, other: TransferCounts) -> TransferCounts:  # type: ignore[override]  # tuple's + concatenates
        return TransferCounts._make(map(add, self, other))

    def check(self) -> None:
        """Raises InvalidArgument if a count is above the most that one iteration or flush can move."""
        for name, count in zip(TRANSFERS, self, strict=True):
            if count > MOST_MOVED:
                raise InvalidArgument(f"{name} is {count}, it must be at most {MOST_MOVED}")

    def on_link(self, kind: str, direction: str) -> int:
        """Returns the bytes of one of LINK_KINDS that the link carried `up` or `down`."""
        carried: int = getattr(self, f"link_{kind}_{direction}")
        return carried


TRANSFERS = TransferCounts._fields


class PhaseTimes(NamedTuple):
    """Seconds that one worker spent in the phases of an iteration.

    Attributes:
        plan_wait: waiting for the plan.
        push: waiting for pushes.
        pull: waiting for pulls.
        compute: forward and backward pass.
        all_reduce: sum of the dense gradients over the workers.
        update: optimizer on dense parameters and owned rows.

    Example:
        >>> sum(esd.PhaseTimes(pull=0.25, compute=0.5))
        0.75
    """

    plan_wait: float = 0.0
    push: float = 0.0
    pull: float = 0.0
    compute: float = 0.0
    all_reduce: float = 0.0
    update: float = 0.0

    def __add__(self, other: PhaseTimes) -> PhaseTimes:  # type: ignore[override]  # tuple's + concatenates
        return PhaseTimes._make(map(add, self, other))


PHASES = PhaseTimes._fields


@dataclass(frozen=True, slots=True)
class Registration:
    """A worker that offers to train in a job.

    Attributes:
        name: unique in the job.
        bandwidth: bytes per second of its link to the parameter server.
        cache_rows: rows that its embedding cache holds.
        address: `host:port` of its own gRPC service.
        least_samples: the fewest samples that it accepts per iteration.
        most_samples: the most samples that it accepts per iteration; 0: any number.
        lan: bytes per second of a second network, which goes between workers; None: there is none.
        site: where it stands, so that it trains the samples of this site; empty: nowhere in particular.
        may_rest: whether it follows `IterationPlan.dense_role`, and has no use for the sums of dense gradients while it
            has no samples. A training loop of a user's own is promised all of them.
        instance: random, one per process. It distinguishes a repeated registration from a restarted worker, and is kept
            secret: a caller that knows it can get the worker's lease.

    Example:
        >>> esd.Registration("edge-1", bandwidth=100e6 / 8, cache_rows=20_000, address="edge-1:7000").most_samples
        0
    """

    name: str
    bandwidth: float
    cache_rows: int
    address: str
    instance: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    least_samples: int = 0
    most_samples: int = 0
    lan: float | None = None
    site: str = ""
    may_rest: bool = False

    def __post_init__(self) -> None:
        for label, text in (("worker", self.name), ("address", self.address), ("instance", self.instance)):
            if not 1 <= len(text) <= _LONGEST_NAME:
                raise InvalidArgument(f"{label} has {len(text)} characters, it must have 1..{_LONGEST_NAME}")
        for label, speed in (("bandwidth", self.bandwidth), ("lan", self.lan)):
            if speed is not None and not LEAST_BANDWIDTH <= speed <= MOST_BANDWIDTH:
                raise InvalidArgument(
                    f"{label} of worker {self.name} is {speed}, it must be in "
                    f"{LEAST_BANDWIDTH:g}..{MOST_BANDWIDTH:g} bytes per second"
                )
        if self.site:
            check_site(self.site, f"worker {self.name}")
        if self.cache_rows < 1:
            raise InvalidArgument(f"cache_rows of worker {self.name} is {self.cache_rows}, it must be at least 1")
        if self.most_samples and self.least_samples > self.most_samples:
            raise InvalidArgument(
                f"worker {self.name} takes at least {self.least_samples} samples and at most {self.most_samples}"
            )


@dataclass(frozen=True, slots=True)
class Lease:
    """A slot in the job, held while a heartbeat arrives at least every `heartbeat_seconds`.

    Example:
        >>> esd.Lease("1f0c", heartbeat_seconds=1.5).heartbeat_seconds
        1.5
    """

    lease_id: str
    heartbeat_seconds: float


@dataclass(frozen=True, slots=True)
class IterationReport:
    """One trained iteration of one worker: confirms its plan.

    Attributes:
        loss_sum: sum of the losses of its m samples, scored before they were trained, without weights.
        score_bins: uint16 [m, L], floor(65536 p) of each predicted probability p.
        labels: uint8 [m, L], 0, 1, or 2 for a label that is neither (`label_classes`), or stays at its site
            (`withheld`).
        transfers: rows and bytes moved for this iteration.
        phases: time by phase.
        seconds: wall time of the iteration.
        epoch: epoch of the plan.
        measured_bandwidth: bytes per second measured on the link; 0 if there was too little traffic for a measurement.
        groups: uint64 [m], the group of each sample; None: unknown.
        label_loss_sums: with several labels, the sum of the losses of each, L of them; with one label empty.
        drift: the distance of the dense parameters from their average after the iteration, divided by the norm of the
            average (`--dense every:H`); 0 without an average.

    Example:
        A worker that predicts one half for each of two samples, of which the first one has the label 1:

        >>> report = esd.IterationReport(
        ...     iteration=0, loss_sum=2 * np.log(2), score_bins=np.full((2, 1), 32768, np.uint16),
        ...     labels=np.array([[1], [0]], np.uint8), transfers=esd.TransferCounts(miss_pull=4),
        ...     phases=esd.PhaseTimes(compute=0.1), seconds=0.1, epoch=1,
        ... )
        >>> report.transfers.miss_pull
        4
    """

    iteration: int
    loss_sum: float
    score_bins: NDArray[np.uint16]
    labels: NDArray[np.uint8]
    transfers: TransferCounts
    phases: PhaseTimes
    seconds: float
    epoch: int
    measured_bandwidth: float = 0.0
    groups: NDArray[np.uint64] | None = None
    label_loss_sums: tuple[float, ...] = ()
    drift: float = 0.0

    def __post_init__(self) -> None:
        labels = self.labels.shape[1] if self.labels.ndim > 1 else 1
        if len(self.label_loss_sums) != (0 if labels == 1 else labels):
            raise InvalidArgument(f"label_loss_sums are {len(self.label_loss_sums)} for {labels} labels")
        if self.groups is not None and len(self.groups) != len(self.labels):
            raise InvalidArgument(f"{len(self.groups)} groups given for {len(self.labels)} samples")
        if self.score_bins.shape != self.labels.shape:
            raise InvalidArgument(f"score_bins are {self.score_bins.shape}, labels are {self.labels.shape}")
        if self.labels.size and self.labels.max() > OTHER_LABEL:
            raise InvalidArgument(f"labels hold {int(self.labels.max())}, they must be 0, 1 or 2")
        for loss_sum in (self.loss_sum, *self.label_loss_sums):
            if not math.isfinite(loss_sum):
                raise InvalidArgument(f"loss_sum of iteration {self.iteration} is {loss_sum}, it must be finite")
        self.transfers.check()
        for name, value, most in (
            ("seconds", self.seconds, MOST_SECONDS),
            ("measured_bandwidth", self.measured_bandwidth, MOST_BANDWIDTH),
            ("drift", self.drift, MOST_DRIFT),
            *zip(PHASES, self.phases, repeat(MOST_SECONDS)),
        ):
            if not 0 <= value <= most:
                raise InvalidArgument(f"{name} of iteration {self.iteration} is {value}, it must be in 0..{most:g}")
        if 0 < self.measured_bandwidth < LEAST_BANDWIDTH:
            raise InvalidArgument(
                f"measured_bandwidth of iteration {self.iteration} is {self.measured_bandwidth}, it must be 0 or at "
                f"least {LEAST_BANDWIDTH:g}"
            )


def label_classes(labels: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Returns the reported classes of labels, uint8 of the same shape: 0, 1, or 2 for a label that is neither."""
    return np.where(labels == 0, 0, np.where(labels == 1, 1, OTHER_LABEL)).astype(np.uint8)


def withheld(score_bins: NDArray[np.uint16]) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Returns the reported scores and classes of samples whose labels stay at their site: of the same shape, 0 and 2.

    Scores stay, too: beside them, a gradient or a loss would tell the label.
    """
    return np.zeros_like(score_bins), np.full(score_bins.shape, OTHER_LABEL, np.uint8)


@dataclass(frozen=True, slots=True)
class FlushReport:
    """Confirms the flush plan of `iteration`: the parameter server has all updates of this worker.

    Attributes:
        epoch: epoch of the plan.
        dense_checksum: SHA-256, hex, of the checkpoint's dense parameters, from the worker that stored them; otherwise
            empty.
        failure: why the checkpoint cannot be taken, such as a full disk; empty if it can.
        checkpoint: whether the plan is for a checkpoint. A stream may end right after a checkpoint, whose report may
            then be repeated.

    Example:
        >>> esd.FlushReport(iteration=100, transfers=esd.TransferCounts(flush_push=12), epoch=1).checkpoint
        False
    """

    iteration: int
    transfers: TransferCounts
    epoch: int
    dense_checksum: str = ""
    failure: str = ""
    checkpoint: bool = False

    def __post_init__(self) -> None:
        self.transfers.check()


class WorkerPhase(Enum):
    """The activity of a worker, as its heartbeats report it.

    Example:
        >>> esd.WorkerPhase("all_reduce").name
        'ALL_REDUCE'
    """

    IDLE = "idle"  # between epochs, or waiting for a plan
    PUSH = "push"
    PULL = "pull"
    COMPUTE = "compute"
    ALL_REDUCE = "all_reduce"  # waiting for the other workers
    FLUSH = "flush"  # for a checkpoint, or at the end of the stream


@dataclass(frozen=True, slots=True)
class FailureReport:
    """The reason why a worker cannot continue in an epoch.

    Attributes:
        cause: description of the failure.
        epoch: the epoch in which it happened.
        fatal: whether another epoch would fail, too, as after a loss that is not finite.

    Example:
        >>> esd.FailureReport("the loss is not finite", epoch=1, fatal=True).fatal
        True
    """

    cause: str
    epoch: int
    fatal: bool = False


Report = IterationReport | FlushReport | FailureReport
