"""The share of a table's ids that one server holds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.ids import PARTITIONS, shard_of


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard `index` of `count`, which owns the ids of its partitions. Raises InvalidArgument for impossible numbers."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.count <= PARTITIONS:
            raise InvalidArgument(f"shards is {self.count}, it must be in 1..{PARTITIONS}")
        if not 0 <= self.index < self.count:
            raise InvalidArgument(f"shard is {self.index}, it must be in 0..{self.count - 1}")

    @property
    def partitions(self) -> range:
        """The partitions whose ids belong to this shard."""
        return range(self.index, PARTITIONS, self.count)

    def check_listed(self, place: int, servers: int) -> None:
        """Raises FailedPrecondition unless this server's place in a job's list of servers is its shard number.

        Two servers that are both configured as shard 0 of 1 would accept any id, and each would hold half a table.
        """
        if (place, servers) != (self.index, self.count):
            raise FailedPrecondition(
                f"the job lists this server as shard {place} of {servers}, and it is shard {self.index} of "
                f"{self.count} (ESD_PS_SHARD, ESD_PS_SHARDS); a job names the servers of all shards, each once and in "
                "the order of their numbers (--parameter-servers)"
            )

    def check(self, ids: NDArray[np.uint64]) -> None:
        """Raises InvalidArgument when an id belongs to another shard."""
        if self.count == 1:
            return
        owners = shard_of(ids, self.count)
        foreign = owners != self.index
        if foreign.any():
            at = int(np.argmax(foreign))
            raise InvalidArgument(
                f"row {ids[at]} belongs to shard {owners[at]}, this server is shard {self.index} of {self.count}; "
                "a job names the servers of all shards, in the order of their numbers (--parameter-servers)"
            )
