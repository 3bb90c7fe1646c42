"""What the parameter server does to rows, on whole blocks and without the GIL.

Arrays are C-contiguous. r rows, D values per row, W floats per row (values and optimizer state).
Arrays of unequal length or wrong width raise ValueError: a defect of the caller, not of a request.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Versions = NDArray[np.int64]
Rows = NDArray[np.float32]

def initialise(ids: Ids, versions: Versions, rows: Rows, dimension: int, seed: int, scale: float) -> None:
    """Writes the initial row of every id whose version is 0 into `rows` [r, W], in place.

    For id x and column c: h = mix64(mix64(x ^ mix64(seed + G)) + (c + 1) G) with G = 0x9e3779b97f4a7c15,
    u = (h >> 40) 2^-24, value = float32((2u - 1) scale). Optimizer state starts at zero.
    """

def checksums(ids: Ids, versions: Versions, rows: Rows) -> NDArray[np.uint32]:
    """A checksum per row over its id, its version and the bits of `rows` [r, W]: uint32 [r].

    With h = mix64(id ^ mix64(version)), each 64-bit word w of the row (little-endian; the last one may have 32 bits)
    makes h = (h ^ w) G, folded by h ^= h >> 32 after each whole word; the checksum is the low half of mix64(h).
    """

def sgd(rows: Rows, gradients: Rows, learning_rate: float) -> None:
    """One step of SGD on `rows` [r, D], in place. Formulas: services/domain/tables.py."""

def rowwise_adagrad(rows: Rows, gradients: Rows, learning_rate: float, epsilon: float) -> None:
    """One step of row-wise Adagrad on `rows` [r, D + 1], in place; `gradients` [r, D]."""

def adam(
    rows: Rows, gradients: Rows, steps: Versions, learning_rate: float, epsilon: float, beta1: float, beta2: float
) -> None:
    """One step of lazy Adam on `rows` [r, 3 D], in place; `gradients` [r, D], `steps` [r] from 1."""

class RowTable:
    """The memory store's table: id -> version + row. Thread-safe; grows in chunks, without a stall.

    `trainings` sums the trainings of all rows in their present lives (services/domain/versions.py).
    """

    width: int
    memory_bytes: int
    trainings: int

    def __init__(self, width: int) -> None: ...
    def versions(self, ids: Ids) -> Versions:
        """The version of each row, 0 where there is none."""

    def read(self, ids: Ids) -> tuple[Versions, Rows]:
        """Versions and rows [r, W]; version 0 and zeros where there is none."""

    def write_newer(self, ids: Ids, versions: Versions, rows: Rows) -> NDArray[np.bool_]:
        """Stores each row whose version is above the stored one; tells which were stored."""

    def overwrite(self, ids: Ids, versions: Versions, rows: Rows) -> None:
        """Stores each row whatever is there; version 0 takes the row out, as if it had never been stored."""

    def forget_older(self, ids: Ids, below: int) -> int:
        """Forgets each row whose version is below `below`; how many there were. Their space is used again."""

    def scan(self, cursor: int, limit: int) -> tuple[int, Ids, Versions, Rows]:
        """Up to `limit` rows from `cursor` on (0 to start), with the next cursor; no rows at the end."""

    def __len__(self) -> int: ...

class PartialGradients:
    """Partial gradients of split rows that wait for their other contributors. Thread-safe per call."""

    memory_bytes: int

    def __init__(self, dimension: int) -> None: ...
    def inspect(
        self, ids: Ids, targets: Versions, contributors: Ids, steps: Versions, worker: int
    ) -> NDArray[np.uint8]:
        """What each contribution means, changing nothing: an `Arrival` of ps_server/core/gradients.py.

        0: new, others are missing. 1: new, completes the row. 2: repeated. 3: disagrees with what is pending
        on target version, contributors or step.
        """

    def add(
        self, ids: Ids, targets: Versions, contributors: Ids, steps: Versions, gradients: Rows, worker: int
    ) -> None:
        """Keeps copies of the gradients [r, D]. Repeated ones change nothing; disagreeing ones raise ValueError."""

    def sum(self, ids: Ids, gradients: Rows, worker: int) -> Rows:
        """Per id the sum of the pending gradients and this one, added in ascending worker order: [r, D]."""

    def discard(self, ids: Ids) -> None:
        """Forgets everything pending for these ids."""

    def splits(self, ids: Ids) -> tuple[Versions, Ids, Versions]:
        """Target version, contributor mask and step of what is pending for each id; zeros where nothing is."""

    def __len__(self) -> int:
        """Pending gradients, over all ids."""
