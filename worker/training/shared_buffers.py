"""The changing buffers of a model, combined over the workers of an epoch: equal on all after every iteration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from esd.worker.models.buffers import BufferRule, Buffers, rules_of
from esd.worker.training.reducer import DenseReducer


class SharedBuffers:
    """The buffers of a model that have a rule (worker/models/buffers.py). Does nothing if no buffer has one.

    Args:
        model: must already be on its device.
        reducer: sums over the workers of the epoch.
    """

    def __init__(self, model: nn.Module, reducer: DenseReducer) -> None:
        self._rules = rules_of(model)
        self._buffers = Buffers(model, self._rules)
        self._reducer = reducer
        self._by_dtype: defaultdict[torch.dtype, list[str]] = defaultdict(list)
        for name, values in self._buffers.values.items():
            self._by_dtype[values.dtype].append(name)
        self._forward = ExitStack()
        self._after: dict[str, Tensor] = {}
        self._changes: dict[str, Tensor] = {}
        self._sums: dict[torch.dtype, Tensor] = {}

    @property
    def values(self) -> Sequence[Tensor]:
        """The buffers, in the same order on all workers."""
        return list(self._buffers.values.values())

    def keep(self) -> None:
        """Keeps the buffers as they are before a forward pass, which may change them until `restore`."""
        self._changes = {}
        self._forward = ExitStack()
        self._after = self._forward.enter_context(self._buffers.undone())

    def restore(self) -> None:
        """Notes the changes of a forward pass for `start`; until `finish` the buffers are as they were before it."""
        self._forward.close()
        self._changes = {name: self._after[name] - values for name, values in self._buffers.values.items()}

    def start(self, *, leads: bool, zeros: bool = False) -> None:
        """Begins to sum the changes of all workers in this iteration; `reducer.wait` ends the sum.

        Args:
            leads: whether this worker trained the first sample of the batch.
            zeros: whether this worker has no samples.

        Raises:
            Unavailable: another worker is lost.
        """
        for dtype, names in self._by_dtype.items():
            self._sums[dtype] = torch.cat([self._change(name, leads=leads).reshape(-1) for name in names])
            self._reducer.start(self._sums[dtype], zeros=zeros)

    def finish(self) -> None:
        """Adds the summed changes to the buffers."""
        for dtype, names in self._by_dtype.items():
            shared = [self._buffers.values[name] for name in names]
            changes = torch.split(self._sums[dtype], [values.numel() for values in shared])
            for values, change in zip(shared, changes, strict=True):
                values.add_(change.view_as(values))

    def _change(self, name: str, *, leads: bool) -> Tensor:
        """Returns this worker's addend; zeros without samples."""
        if name in self._changes and (leads or self._rules[name] is BufferRule.SUM):
            return self._changes[name]
        return torch.zeros_like(self._buffers.values[name])
