"""The parameter server's operations on rows, for whole blocks and without the GIL.

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
    """Returns a checksum of each row over its id, its version and the bits of its floats in `rows` [r, W]: uint32 [r].

    With h = mix64(id ^ mix64(version)), each 64-bit word w of the row (little-endian; the last one may have 32 bits)
    makes h = (h ^ w) G, folded by h ^= h >> 32 after each whole word; the checksum is the low half of mix64(h).
    """

def sgd(rows: Rows, gradients: Rows, rates: Rates) -> None:
    """Takes one step of SGD on `rows` [r, D], in place, at the learning rates [r].

    The formulas are in services/domain/tables.py.
    """

def rowwise_adagrad(rows: Rows, gradients: Rows, rates: Rates, epsilon: float) -> None:
    """Takes one step of row-wise Adagrad on `rows` [r, D + 1], in place; `gradients` is [r, D]."""

def adam(rows: Rows, gradients: Rows, steps: Steps, rates: Rates, epsilon: float, beta1: float, beta2: float) -> None:
    """Takes one step of lazy Adam on `rows` [r, 3 D], in place; `gradients` is [r, D], `steps` [r] counts from 1."""

def limit_norms(rows: Rows, dimension: int, most: float) -> None:
    """Scales the first D values of each of `rows` [r, W], in place, down to the norm `most` if theirs is larger.

    The norm is Euclidean, computed in double precision. 0 stands for no limit.
    """

def addresses(ids: Ids) -> tuple[NDArray[np.uint16], NDArray[np.uint8]]:
    """Returns where the Redis store keeps rows (ps_server/stores/redis/records.py).

    Returns:
        The place of each row's hash in the list of a table's hashes, [r]; and its name, the field and the last byte of
        its address, [r, 7].
    """

def ids_at(place: int, names: list[bytes]) -> Ids:
    """Returns the ids of rows in the hash at one place, from their names of 7 bytes each."""

def encode_records(ids: Ids, versions: Versions, rows: Rows) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the records of rows [r, W], one after the other, and where each begins and the last one ends, [r + 1]."""

def hset_commands(
    keys: list[bytes],
    counts: NDArray[np.uint16],
    fields: NDArray[np.uint8],
    values: NDArray[np.uint8],
    starts: NDArray[np.int64],
) -> bytes:
    """Returns commands in the protocol of Redis, an HSET for each key.

    Args:
        keys: of k hashes.
        counts: the number of fields of each hash, [k].
        fields: the names of all fields, hash by hash, [r, bytes of a name].
        values: all values, one after the other.
        starts: where each value begins and the last one ends, [r + 1].
    """

def decode_records(ids: Ids, values: list[bytes | None], width: int) -> tuple[Versions, Rows, Ids]:
    """Finds rows in the values of their fields, None or empty for a field that does not exist.

    Returns:
        The version of each row, [r], 0 for an absent row; the rows, [r, W], zeros for an absent one; and the ids of
        rows whose record is damaged.
    """

def split_records(place: int, fields: list[bytes], values: list[bytes], width: int) -> tuple[Ids, Versions, Rows, Ids]:
    """Returns all rows in fields of the hash at one place: ids, versions and floats, and the ids of damaged ones."""

class FieldFilter:
    """The fields of the Redis store that may hold rows, 2 to 8 bytes each, at most 179 MB. It is thread-safe.

    Attributes:
        memory_bytes: bytes of memory that the filter takes.
    """

    memory_bytes: int

    def __init__(self) -> None: ...
    def add(self, ids: Ids) -> NDArray[np.bool_]:
        """Adds the fields of rows. Returns which are surely new, bool [r].

        Of a thousand new ones up to five are taken for known, and more of them beyond 89 million.
        """

    def has(self, ids: Ids) -> NDArray[np.bool_]:
        """Returns which rows may be there, bool [r]: all that were added, and up to five of a thousand others."""

class IdSet:
    """A set of ids, 11 to 14 bytes each. It is thread-safe.

    Attributes:
        memory_bytes: bytes of memory that the set takes.
    """

    memory_bytes: int

    def __init__(self) -> None: ...
    def add(self, ids: Ids) -> NDArray[np.bool_]:
        """Adds ids. Returns which were new, bool [r]; the first of several equal ids counts as new."""

    def __len__(self) -> int: ...

class ChangedRows:
    """The ids of rows that change, for readers that follow a table. It is thread-safe.

    Ids gather, each once, until a reader comes, and are a generation with a number then. The oldest generations make
    room for new ones.

    Args:
        limit: bytes of the gathering ids, 11 to 14 each, and as many of the generations, 8 each.

    Attributes:
        memory_bytes: bytes of memory that the ids take.
    """

    memory_bytes: int

    def __init__(self, limit: int) -> None: ...
    def add(self, ids: Ids) -> None:
        """Adds the ids of rows that were written before. Waits for no reader."""

    def begin(self) -> int:
        """Returns a number for a reader that is about to read all rows."""

    def read(self, after: int) -> tuple[int, float, Ids] | None:
        """Returns the ids after a generation; None if some of them were dropped: the reader begins anew.

        Args:
            after: the number of the last generation that the reader has.

        Returns:
            The number of the last generation, the seconds since the first change, 0 without any, and the ids [r],
            ascending.
        """

    def lose(self) -> None:
        """Makes every reader begin anew, because rows have changed of which no ids were added."""

class PreImages:
    """The rows of a RowTable that have changed since a cut, as they were at the cut. It is thread-safe.

    The writing methods of RowTable add to it. A row that did not exist at the cut takes 11 to 14 bytes, any other one
    as much as in the table.

    Attributes:
        memory_bytes: bytes of memory that the pre-images take.
    """

    memory_bytes: int

    def __init__(self, width: int) -> None: ...
    def kept(self, ids: Ids) -> NDArray[np.bool_]:
        """Returns which rows have changed since the cut, bool [r]."""

    def overlay(self, ids: Ids, versions: Versions, rows: Rows) -> None:
        """Gives changed rows their versions and values at the cut, version 0 and zeros where a row did not exist.

        Args:
            ids: uint64 [r].
            versions: int64 [r], changed in place.
            rows: float32 [r, W], changed in place.
        """

    def scan(self, cursor: int, limit: int) -> tuple[int, Ids, Versions, Rows]:
        """Returns the next cursor, and ids, versions and rows of up to `limit` changed rows; none at the end.

        The first cursor is 0. The rows that did not exist at the cut come last, at version 0. While rows are added,
        some of these may be skipped or repeated.
        """

    def __len__(self) -> int: ...

class RowTable:
    """The memory store's table from ids to versions and rows. It is thread-safe and grows in slabs, without a stall.

    Attributes:
        width: W, the floats of a row.
        memory_bytes: bytes of memory that the table takes.
        trainings: sum over all rows of the trainings in their present lives (services/domain/versions.py).
    """

    width: int
    memory_bytes: int
    trainings: int

    def __init__(self, width: int) -> None: ...
    def versions(self, ids: Ids) -> Versions:
        """Returns the version of each row, int64 [r]; 0 for an absent row."""

    def read(self, ids: Ids) -> tuple[Versions, Rows]:
        """Returns the versions, int64 [r], and the rows, float32 [r, W]; version 0 and zeros for an absent row."""

    def write_newer(
        self, ids: Ids, versions: Versions, rows: Rows, pre_images: PreImages | None = None
    ) -> NDArray[np.bool_]:
        """Stores each row whose version is above the stored one. Returns which rows were stored, bool [r].

        The previous row is kept in `pre_images` before it is replaced.
        """

    def overwrite(self, ids: Ids, versions: Versions, rows: Rows) -> None:
        """Stores each row, in place of the stored one. Version 0 removes the row."""

    def forget_older(self, ids: Ids, below: int, pre_images: PreImages | None = None) -> int:
        """Removes the rows whose version is below `below`; returns their number. Their space is reused.

        A row is kept in `pre_images` before it is removed.
        """

    def scan(self, cursor: int, limit: int) -> tuple[int, Ids, Versions, Rows]:
        """Returns the next cursor, and ids, versions and rows of up to `limit` rows from `cursor` on; none at the end.

        The first cursor is 0. A row that is stored from the first call to the last is returned once.
        """

    def __len__(self) -> int: ...

class PartialGradients:
    """Partial gradients of split rows, which wait for the gradients of the row's other contributors.

    Each call is thread-safe. `worker` is a worker's slot in 0..127. `contributors` holds sets of workers as bits,
    uint64 [r], or uint64 [r, 2] with the lower word first.

    Attributes:
        memory_bytes: bytes of memory that the pending gradients take.
    """

    memory_bytes: int

    def __init__(self, dimension: int) -> None: ...
    def inspect(self, ids: Ids, targets: Versions, contributors: Ids, steps: Steps, worker: int) -> NDArray[np.uint8]:
        """Returns the effect of each gradient, uint8 [r]: an `Arrival` of ps_server/core/gradients.py. Changes nothing.

        It is 0 for a new gradient if others are missing, 1 for a new one that completes the row, 2 for a repeated one,
        and 3 for one that disagrees with the pending ones on target version, contributors or step.
        """

    def add(self, ids: Ids, targets: Versions, contributors: Ids, steps: Steps, gradients: Rows, worker: int) -> None:
        """Keeps copies of the gradients [r, D]. Repeated ones change nothing, disagreeing ones raise ValueError."""

    def sum(self, ids: Ids, gradients: Rows, worker: int) -> Rows:
        """Returns the sums [r, D] of each row's pending gradients and the given one, added in worker order."""

    def discard(self, ids: Ids) -> None:
        """Drops all pending gradients of these ids."""

    def splits(self, ids: Ids) -> tuple[Versions, Ids, Steps]:
        """Returns target version [r], contributors [r, 2] and step [r] of each id's pending sum; zeros without one."""

    def __len__(self) -> int:
        """Returns the number of pending gradients, over all ids."""

# The exchange (protos/ps.proto): a frame applied to a table in memory in one call, and its answers.

class HeldFrame:
    """A frame, ExchangeRequest, and the message in which its columns lie; nothing is copied before it is applied.

    Raises:
        ValueError: the bytes are not a frame, or a frame of a form that no client of ours writes (a field twice, an
            unknown field), which protobuf may still read.

    Attributes:
        sequence: its sequence number in the stream.
        table: name of the table.
        epoch: epoch of the plan.
        wait_ms: how long its pulls may wait, in milliseconds.
        trace_parent: the span of its sender, as W3C's traceparent; empty without one.
        pushes: whether it stores rows or gradients.
        pulled_rows: number of rows that it pulls.
    """

    sequence: int
    table: str
    epoch: int
    wait_ms: int
    trace_parent: str
    pushes: bool
    pulled_rows: int

    def __init__(self, message: bytes) -> None: ...

class ExactPulls:
    """The unanswered pulls of a frame: rows at exactly their wanted versions.

    A pull is due until it is read. If the row has not reached its version, the pull lags until `retry`.

    Attributes:
        due: number of pulls to read.
        lagging: number of pulls that were read too early.
        done: whether no pull is left.
        stale: id, version and wanted version of a row that is newer than wanted; no further pull is answered then.

    Args:
        ids: uint64 [r], distinct.
        wanted: int64 [r].
        stateless: number of pulls, the last ones, that want no optimizer state; above r it raises ValueError.
    """

    due: int
    lagging: int
    done: bool
    stale: tuple[int, int, int] | None

    def __init__(self, ids: Ids, wanted: Versions, stateless: int = 0) -> None: ...
    def retry(self) -> None:
        """Makes the lagging pulls due again."""

    def due_rows(self, limit: int) -> tuple[Ids, Versions]:
        """Returns ids and wanted versions of the first `limit` due pulls, [r] each."""

    def answer(
        self,
        sequence: int,
        versions: Versions,
        rows: Rows,
        initial: NDArray[np.bool_],
        dimension: int,
        storing: bool = False,
    ) -> bytes | None:
        """Returns the answer, ExchangeResponse, with the first r due rows that have their version; the others then lag.

        Args:
            sequence: sequence of the frame.
            versions: int64 [r], the versions read.
            rows: float32 [r, W], the rows read.
            initial: bool [r], the rows that have their initial values, which are marked in the answer and not sent.
            dimension: D, the floats of a row without its optimizer state.
            storing: whether pushes of the frame are not acknowledged yet, so that this is not its last answer.

        Returns:
            The message; None if it would be empty.
        """

class WaitingRows:
    """The rows that pulls wait for. A ticket identifies a pull. Must be used by one thread.

    Attributes:
        kept_announcements: number of announcements that are kept for reads that are under way.
    """

    kept_announcements: int

    def __init__(self) -> None: ...
    def expect_due(self, ticket: int, pulls: ExactPulls, limit: int) -> None:
        """Makes the pull wait for the first `limit` due rows."""

    def expect_behind(self, ticket: int, pulls: ExactPulls) -> None:
        """Makes the pull wait for the rows that its last answer found behind their version."""

    def begin_read(self, ticket: int) -> None:
        """Notes that the pull begins to read rows in another thread. A pull has one read at a time."""

    def end_read(self, ticket: int, pulls: ExactPulls) -> None:
        """Makes the pull wait for the rows that its last answer found behind their version.

        Rows that were announced at their version since `begin_read` are left out. Does nothing if the pull was
        forgotten meanwhile.
        """

    def announce(self, ids: Ids, versions: Versions) -> list[int]:
        """Announces that rows can be read at these versions; returns the pulls that wait for no further row."""

    def missing(self, ticket: int) -> int:
        """Returns the number of rows that the pull waits for."""

    def first_missing(self, ticket: int) -> tuple[int, int]:
        """Returns id and version of a row that the pull waits for; (0, -1) if it waits for none."""

    def forget(self, ticket: int) -> None:
        """Ends all waits of the pull, and its read."""

    def __len__(self) -> int: ...

class Applied:
    """The result of applying a frame.

    Attributes:
        good: whether all of it was done. If not, the frame is invalid or does not fit the stored rows; a part of it,
            such as the rows without the gradients, may have been stored, and only `woken` is set.
        stored: number of new and of already known rows and gradients; None if the frame pushes nothing.
        woken: tickets of the pulls that wait for no further row.
        pulls: the pulls that are not answered yet; None if all are.
        answer: the message, ExchangeResponse; None if it would be empty.
    """

    good: bool
    stored: tuple[int, int] | None
    woken: list[int]
    pulls: ExactPulls | None
    answer: bytes | None

class FrameTable:
    """The constants of a table for applying frames.

    Args:
        dimension: D.
        width: W.
        seed: seed of the initial values.
        scale: scale of the initial values.
        optimizer: 0 for SGD, 1 for row-wise Adagrad, 2 for Adam.
        epsilon: for Adagrad and Adam.
        beta1: for Adam.
        beta2: for Adam.
        max_norm: the largest Euclidean norm of a row's values after a step; 0: any.
        shard: number of the shard whose ids the table holds.
        shards: number of shards.
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
        max_norm: float,
        shard: int,
        shards: int,
    ) -> None: ...
    def apply(
        self,
        frame: HeldFrame,
        rows: RowTable,
        partials: PartialGradients,
        pre_images: PreImages | None,
        waiting: WaitingRows,
        limit: int,
        changed: ChangedRows | None = None,
    ) -> Applied:
        """Stores the pushes of the frame, announces them, and reads its pulls.

        Args:
            frame: a frame for this table, in its epoch.
            rows: the rows; the caller keeps other threads from changing them.
            partials: the pending partial gradients.
            pre_images: receives each row before its first change, at its version + 1; None: no pre-images are kept.
            waiting: receives every row that can be read at the version that the frame makes.
            limit: the most rows of the answer.
            changed: receives the id of every row that is stored; None: no reader follows the table.
        """

    def answer(
        self, pulls: ExactPulls, sequence: int, rows: RowTable, limit: int, storing: bool = False
    ) -> bytes | None:
        """Returns the next answer of at most `limit` rows, read from the table; None if it would be empty.

        `storing` is as in `ExactPulls.answer`.
        """
