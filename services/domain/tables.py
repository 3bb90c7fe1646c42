"""Embedding tables and their optimizers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from esd.services.domain.errors import InvalidArgument

MAX_DIMENSION = 4096
MAX_ROW_TTL = 2**28 - 1  # iterations: more than a job can have
MAX_ADMIT_AFTER = 255  # iterations: what a cell of 8 bits of the admission's sketch counts
ROW_KEY_BYTES = 16  # sent with a row: its id and its version, eight bytes each
GRADIENT_KEY_BYTES = 32  # sent with a partial gradient: also the contributors of up to 64 workers, step and rate
_NAME = re.compile(r"[a-z0-9_-]{1,64}(~[a-z0-9_-]{1,64})?")


class OptimizerKind(Enum):
    """The update rule of a row. The value is the name in options and files.

    Example:
        >>> esd.OptimizerKind("adagrad").name
        'ROWWISE_ADAGRAD'
    """

    SGD = "sgd"
    ROWWISE_ADAGRAD = "adagrad"
    ADAM = "adam"


@dataclass(frozen=True, slots=True)
class OptimizerSpec:
    """An optimizer and its constants.

    With g the gradient of a row, t the optimizer step (iteration + 1):

    - SGD: w -= lr g
    - ROWWISE_ADAGRAD: s += mean(g^2); w -= lr g / (sqrt(s) + epsilon)
    - ADAM (lazy, as torch.optim.SparseAdam): m, v decay at the row's own steps only;
      w -= lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon)

    With a `max_norm` above 0, the values w of a row whose Euclidean norm is larger after its step are scaled down to
    that norm. The optimizer state stays as it is, and so do rows that are not trained, initial ones included.

    Example:
        >>> adam = esd.OptimizerSpec(esd.OptimizerKind.ADAM, learning_rate=0.01)
        >>> adam.state_width(dimension=16)
        32
    """

    kind: OptimizerKind = OptimizerKind.SGD
    learning_rate: float = 0.05
    epsilon: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    max_norm: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise InvalidArgument(f"learning rate is {self.learning_rate}, it must be positive and finite")
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InvalidArgument(f"epsilon is {self.epsilon}, it must be positive")
        for name, beta in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= beta < 1:
                raise InvalidArgument(f"{name} is {beta}, it must be in [0, 1)")
        if not (math.isfinite(self.max_norm) and self.max_norm >= 0):
            raise InvalidArgument(f"max_norm is {self.max_norm}, it must be finite and not negative")

    @property
    def values_per_parameter(self) -> int:
        """How many values a dense parameter has: its own, and those that the optimizer keeps for it."""
        return 1 + self.state_width(1)

    def state_width(self, dimension: int) -> int:
        """Returns the floats of optimizer state that are stored with a row of `dimension` values."""
        match self.kind:
            case OptimizerKind.SGD:
                return 0
            case OptimizerKind.ROWWISE_ADAGRAD:
                return 1
            case OptimizerKind.ADAM:
                return 2 * dimension


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One embedding table.

    Attributes:
        name: `[a-z0-9_-]{1,64}`; `~` separates the name of a job's first table from the name of a further one.
        dimension: D, values per row, 1..4096.
        optimizer: the update rule of its rows; the optimizer state is stored with the row.
        seed: initial values are a pure function of (seed, id).
        init_scale: initial values are uniform in [-init_scale, init_scale).

    Example:
        >>> table = esd.TableSpec("items", dimension=16, optimizer=esd.OptimizerSpec(), seed=0, init_scale=0.01)
        >>> table.row_transfer_bytes
        80
    """

    name: str
    dimension: int
    optimizer: OptimizerSpec
    seed: int
    init_scale: float

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidArgument(f"table name {self.name!r} must match {_NAME.pattern}")
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise InvalidArgument(f"dimension is {self.dimension}, it must be in 1..{MAX_DIMENSION}")
        if not 0 <= self.seed < 2**64:
            raise InvalidArgument(f"seed is {self.seed}, it must be in 0..2^64-1")
        if not (math.isfinite(self.init_scale) and self.init_scale >= 0):
            raise InvalidArgument(f"init_scale is {self.init_scale}, it must be finite and not negative")

    def further(self, name: str) -> str:
        """Returns the name, on the servers, of a further table of the job whose first table this is.

        No first table can have such a name, so the tables of two jobs never collide by accident.
        """
        return f"{self.name}~{name}"

    def without_rate(self) -> TableSpec:
        """Returns the part that the rows depend on. The learning rate is not: it comes with each gradient."""
        return replace(self, optimizer=replace(self.optimizer, learning_rate=1.0))

    @property
    def row_width(self) -> int:
        """W: floats of a row, optimizer state included."""
        return self.dimension + self.optimizer.state_width(self.dimension)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, optimizer state included."""
        return 4 * self.row_width

    @property
    def row_transfer_bytes(self) -> int:
        """Bytes sent with one row, its id and version included: D_tran of the ESD paper (Table 1)."""
        return self.row_bytes + ROW_KEY_BYTES

    @property
    def value_transfer_bytes(self) -> int:
        """Bytes sent with one row without optimizer state, its id and version included."""
        return 4 * self.dimension + ROW_KEY_BYTES

    @property
    def gradient_transfer_bytes(self) -> int:
        """Bytes sent with one partial gradient: D floats without optimizer state, and its key (GRADIENT_KEY_BYTES)."""
        return 4 * self.dimension + GRADIENT_KEY_BYTES


def slots_of_tables(tables: Sequence[TableSpec], cache_rows: int) -> tuple[int, ...]:
    """Returns for each table the number of its rows that fit a cache of `cache_rows` rows of the first table."""
    room = cache_rows * tables[0].row_transfer_bytes
    return tuple(max(1, room // table.row_transfer_bytes) for table in tables)
