"""The group of the processes of a rival that has no server: gloo over their machines' cards."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

_PORT = 29500  # in a namespace of its own
_LONGEST_WAIT = timedelta(seconds=300)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a process in its group.

    Attributes:
        rank: its number.
        workers: how many there are.
        first: address of the machine of the first one.
        card: the network device of each.
    """

    rank: int
    workers: int
    first: str
    card: str

    @classmethod
    def read(cls, words: list[str]) -> Place:
        """Reads the words of a command line: RANK WORKERS FIRST CARD."""
        rank, workers, first, card = words
        return cls(int(rank), int(workers), first, card)

    def join(self) -> None:
        """Returns when all have joined."""
        os.environ["GLOO_SOCKET_IFNAME"] = self.card
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{self.first}:{_PORT}",
            rank=self.rank,
            world_size=self.workers,
            timeout=_LONGEST_WAIT,
        )


def gathered(own: Tensor, counts: list[int], group: dist.ProcessGroup | None = None) -> list[Tensor]:
    """Returns the tensors of all, of which each has another length. On the way all have the longest one's.

    Args:
        own: [c, ...].
        counts: the length of each.
        group: of the processes; None: all.
    """
    longest = max(counts)
    padded = own.new_zeros(longest, *own.shape[1:])
    padded[: len(own)] = own
    buffers = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(buffers, padded, group=group)
    return [buffer[:count] for buffer, count in zip(buffers, counts, strict=True)]


def summed(places: list[Tensor], values: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns distinct rows [u], the sum of their values [u, W], and how often each occurs [u]."""
    distinct, which, counts = torch.unique(torch.cat(places), return_inverse=True, return_counts=True)
    total = values[0].new_zeros(len(distinct), values[0].shape[1])
    return distinct, total.index_add_(0, which, torch.cat(values)), counts
