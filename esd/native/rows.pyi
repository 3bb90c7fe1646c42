"""What the parameter server does to rows, on whole blocks and without the GIL.

Arrays are C-contiguous. There are r rows, D values per row, and W floats per row, which are its values and its
optimizer state. Arrays of unequal length or wrong width raise ValueError, since they are a defect of the caller and not
of a request.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Versions = NDArray[np.int64]
Steps = NDArray[np.uint32]
Rates = NDArray[np.float32]
Rows = NDArray[np.float32]

def initialise(ids: Ids, versions: Versions, rows: Rows, dimension: int, seed: int, scale: float) -> None:
    """Writes the initial row of every id whose version is 0 to `rows` [r, W], in place.

    For id x and column c: h = mix64(mix64(x ^ mix64(seed + G)) + (c + 1) G) with G = 0x9e3779b97f4a7c15,
    u = (h >> 40) 2^-24, value = float32((2u - 1) scale). Optimizer state starts at zero.
    """

def checksums(ids: Ids, versions: Versions, rows: Rows) -> NDArray[np.uint32]:
    """A checksum of each row over its id, its version and the bits of its floats in `rows` [r, W]: uint32 [r].

    With h = mix64(id ^ mix64(version)), each 64-bit word w of the row (little-endian; the last one may have 32 bits)
    makes h = (h ^ w) G, folded by h ^= h >> 32 after each whole word; the checksum is the low half of mix64(h).
    """

def sgd(rows: Rows, gradients: Rows, rates: Rates) -> None:
    """Takes one step of SGD on `rows` [r, D], in place, at the learning rates [r].

    services/domain/tables.py has the formulas.
    """

def rowwise_adagrad(rows: Rows, gradients: Rows, rates: Rates, epsilon: float) -> None:
    """Takes one step of row-wise Adagrad on `rows` [r, D + 1], in place; `gradients` is [r, D]."""

def adam(rows: Rows, gradients: Rows, steps: Steps, rates: Rates, epsilon: float, beta1: float, beta2: float) -> None:
    """Takes one step of lazy Adam on `rows` [r, 3 D], in place; `gradients` is [r, D], `steps` [r] counts from 1."""

class RowTable:
    """The memory store's table from ids to versions and rows. It is thread-safe and grows in chunks, without a stall.

    Attributes:
        width: the floats of a row, W.
        memory_bytes: the memory that the table takes.
        trainings: the trainings of all rows in their present lives, added up (services/domain/versions.py).
    """

    width: int
    memory_bytes: int
    trainings: int

    def __init__(self, width: int) -> None: ...
    def versions(self, ids: Ids) -> Versions:
        """The version of each row, int64 [r], 0 where there is none."""

    def read(self, ids: Ids) -> tuple[Versions, Rows]:
        """The versions, int64 [r], and the rows, float32 [r, W]; version 0 and zeros where there is none."""

    def write_newer(self, ids: Ids, versions: Versions, rows: Rows) -> NDArray[np.bool_]:
        """Stores each row whose version is above the stored one. Returns which rows were stored, bool [r]."""

    def overwrite(self, ids: Ids, versions: Versions, rows: Rows) -> None:
        """Stores each row whatever is there. Version 0 forgets the row, as if it had never been stored."""

    def forget_older(self, ids: Ids, below: int) -> int:
        """Forgets the rows whose version is below `below`. Returns how many there were; their space is used again."""

    def scan(self, cursor: int, limit: int) -> tuple[int, Ids, Versions, Rows]:
        """The next cursor, and ids, versions and rows of up to `limit` rows from `cursor` on; none at the end.

        The first cursor is 0.
        """

    def __len__(self) -> int: ...

class PartialGradients:
    """Partial gradients of split rows, which wait for those of the row's other contributors.

    Each call is thread-safe. `worker` is a worker's slot in 0..63, and `contributors` holds sets of workers as bits.

    Attributes:
        memory_bytes: the memory that the pending gradients take.
    """

    memory_bytes: int

    def __init__(self, dimension: int) -> None: ...
    def inspect(self, ids: Ids, targets: Versions, contributors: Ids, steps: Steps, worker: int) -> NDArray[np.uint8]:
        """What each gradient would mean, uint8 [r]: an `Arrival` of ps_server/core/gradients.py. It changes nothing.

        0 says that the gradient is new and others are missing, 1 that it is new and completes the row, 2 that it is
        repeated, and 3 that it disagrees with what is pending on target version, contributors or step.
        """

    def add(self, ids: Ids, targets: Versions, contributors: Ids, steps: Steps, gradients: Rows, worker: int) -> None:
        """Keeps copies of the gradients [r, D]. Repeated ones change nothing, disagreeing ones raise ValueError."""

    def sum(self, ids: Ids, gradients: Rows, worker: int) -> Rows:
        """The sums [r, D] of the pending gradients of each row and the given one, added in ascending worker order."""

    def discard(self, ids: Ids) -> None:
        """Forgets everything that is pending for these ids."""

    def splits(self, ids: Ids) -> tuple[Versions, Ids, Steps]:
        """Target version, contributors and step of what is pending for each id, [r] each; zeros where nothing is."""

    def __len__(self) -> int:
        """The number of pending gradients, over all ids."""

# The exchange (protos/ps.proto): a frame applied to a table in memory in one call, and its answers.

class HeldFrame:
    """A frame, ExchangeRequest, and the message in which its columns lie; nothing is copied before it is applied.

    Raises:
        ValueError: the bytes are no frame, or a frame of a form that no client of ours writes (a field twice, an
            unknown field), which protobuf may still read.

    Attributes:
        sequence: its number in the stream.
        table: name of the table.
        epoch: of the plan.
        wait_ms: how long its pulls may wait, in milliseconds.
        pushes: whether it stores rows or gradients.
        pulled_rows: how many rows it pulls.
    """

    sequence: int
    table: str
    epoch: int
    wait_ms: int
    pushes: bool
    pulled_rows: int

    def __init__(self, message: bytes) -> None: ...

class ExactPulls:
    """The pulls of a frame until all of them are answered: rows at exactly the versions that they want.

    A pull is due until it is read. If the row is not there yet, it lags until `retry`.

    Attributes:
        due: how many are to be read.
        lagging: how many were read and are not there yet.
        done: whether there are neither.
        stale: id, version and wanted version of a row that is newer than wanted; nothing is answered from then on.

    Args:
        ids: uint64 [r], distinct.
        wanted: int64 [r].
        stateless: how many, the last ones, are wanted without their optimizer state; more than r raise ValueError.
    """

    due: int
    lagging: int
    done: bool
    stale: tuple[int, int, int] | None

    def __init__(self, ids: Ids, wanted: Versions, stateless: int = 0) -> None: ...
    def retry(self) -> None:
        """Makes the lagging ones due again."""

    def due_rows(self, limit: int) -> tuple[Ids, Versions]:
        """Ids and wanted versions of the first `limit` ones that are due, [r] each."""

    def answer(
        self, sequence: int, stored: tuple[int, int] | None, versions: Versions, rows: Rows, dimension: int
    ) -> bytes | None:
        """The answer, ExchangeResponse, with those of the first r due rows that are as wanted; the others lag.

        Args:
            sequence: of the frame.
            stored: what it has stored, new and already known, if this is the first answer and it pushes.
            versions: int64 [r], as they were read.
            rows: float32 [r, W].
            dimension: D, the floats of a row without its optimizer state.

        Returns:
            The message; None if there is nothing to tell.
        """

class WaitingRows:
    """The rows that pulls wait for. A ticket names a pull. One thread uses it."""

    def __init__(self) -> None: ...
    def expect_due(self, ticket: int, pulls: ExactPulls, limit: int) -> None:
        """From now on the pull waits for the first `limit` rows that are due."""

    def expect_behind(self, ticket: int, pulls: ExactPulls) -> None:
        """From now on the pull waits for the rows that its last answer found to be behind."""

    def found(self, ticket: int, pulls: ExactPulls) -> None:
        """The pull waits no more for the rows of its last answer."""

    def announce(self, ids: Ids, versions: Versions) -> list[int]:
        """Says that rows can be read at these versions; the pulls that wait for nothing more by that."""

    def missing(self, ticket: int) -> int:
        """How many rows the pull waits for."""

    def first_missing(self, ticket: int) -> tuple[int, int]:
        """Id and version of a row that the pull waits for; (0, -1) if it waits for none."""

    def forget(self, ticket: int) -> None:
        """The pull waits for nothing more."""

    def __len__(self) -> int: ...

class Applied:
    """What has become of a frame.

    Attributes:
        good: whether all of it was done. Otherwise something is wrong with the frame, or does not fit what is stored;
            then a part of it may have been stored, as by a push that ends in the middle, and `woken` alone counts.
        stored: how many rows and gradients were new, and how many already known; None if it pushes nothing.
        woken: the pulls that wait for nothing more, by their tickets.
        pulls: those that are not answered yet; None if all are.
        answer: the message, ExchangeResponse; None if there is nothing to tell yet.
    """

    good: bool
    stored: tuple[int, int] | None
    woken: list[int]
    pulls: ExactPulls | None
    answer: bytes | None

class FrameTable:
    """What frames need to know of a table.

    Args:
        dimension: D.
        width: W.
        seed: of the initial values.
        scale: of the initial values.
        optimizer: 0 for SGD, 1 for row-wise Adagrad, 2 for Adam.
        epsilon: of the optimizer, for Adagrad and Adam.
        beta1: for Adam.
        beta2: for Adam.
        shard: of the ids that the table has here.
        shards: how many there are.
    """

    def __init__(
        self,
        dimension: int,
        width: int,
        seed: int,
        scale: float,
        optimizer: int,
        epsilon: float,
        beta1: float,
        beta2: float,
        shard: int,
        shards: int,
    ) -> None: ...
    def apply(
        self,
        frame: HeldFrame,
        rows: RowTable,
        partials: PartialGradients,
        pre_images: RowTable | None,
        waiting: WaitingRows,
        limit: int,
    ) -> Applied:
        """Stores what the frame pushes, tells it those who wait, and reads what it pulls.

        Args:
            frame: for this table, in its epoch.
            rows: where the rows are; nobody else changes them meanwhile.
            partials: where the partial gradients are.
            pre_images: where rows are kept before they change first, at their version + 1; None: nowhere.
            waiting: is told of every row that can be read at the version that the frame makes.
            limit: the most rows of the answer.
        """

    def answer(self, pulls: ExactPulls, sequence: int, rows: RowTable, limit: int) -> bytes | None:
        """The next answer of at most `limit` rows, read from the table; None if there is nothing to tell."""
