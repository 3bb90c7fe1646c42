"""What the parameter server does to rows, on whole blocks and without the GIL.

Arrays are C-contiguous. There are r rows, D values per row, and W floats per row, which are its values and its
optimizer state. Arrays of unequal length or wrong width raise ValueError, since they are a defect of the caller and not
of a request.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Versions = NDArray[np.int64]
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

def sgd(rows: Rows, gradients: Rows, learning_rate: float) -> None:
    """Takes one step of SGD on `rows` [r, D], in place. services/domain/tables.py has the formulas."""

def rowwise_adagrad(rows: Rows, gradients: Rows, learning_rate: float, epsilon: float) -> None:
    """Takes one step of row-wise Adagrad on `rows` [r, D + 1], in place; `gradients` is [r, D]."""

def adam(
    rows: Rows, gradients: Rows, steps: Versions, learning_rate: float, epsilon: float, beta1: float, beta2: float
) -> None:
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
    def inspect(
        self, ids: Ids, targets: Versions, contributors: Ids, steps: Versions, worker: int
    ) -> NDArray[np.uint8]:
        """What each gradient would mean, uint8 [r]: an `Arrival` of ps_server/core/gradients.py. It changes nothing.

        0 says that the gradient is new and others are missing, 1 that it is new and completes the row, 2 that it is
        repeated, and 3 that it disagrees with what is pending on target version, contributors or step.
        """

    def add(
        self, ids: Ids, targets: Versions, contributors: Ids, steps: Versions, gradients: Rows, worker: int
    ) -> None:
        """Keeps copies of the gradients [r, D]. Repeated ones change nothing, disagreeing ones raise ValueError."""

    def sum(self, ids: Ids, gradients: Rows, worker: int) -> Rows:
        """The sums [r, D] of the pending gradients of each row and the given one, added in ascending worker order."""

    def discard(self, ids: Ids) -> None:
        """Forgets everything that is pending for these ids."""

    def splits(self, ids: Ids) -> tuple[Versions, Ids, Versions]:
        """Target version, contributors and step of what is pending for each id, [r] each; zeros where nothing is."""

    def __len__(self) -> int:
        """The number of pending gradients, over all ids."""
