"""Buffers of a model that change while it trains, and the rules by which they are the same whoever trains which sample.

A buffer is a constant unless the model's `buffer_rules` names it. Each worker's forward pass changes its own copy; what
the copies become together is the buffer before the iteration, and

- `sum`: everybody's changes. So a change must be a sum over samples: their number, the sum of what is seen of them.
- `lead`: the change of the worker that trains the batch's first sample. So a change must depend on no sample: the
  number of steps, something that fades with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.model import Model


class BufferRule(Enum):
    """What a buffer becomes of the changes that the workers' forward passes make. The value is the name in a model."""

    SUM = "sum"
    LEAD = "lead"


_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)  # that an all-reduce can sum


class Buffers:
    """Some buffers of a module, which stay the same tensors whatever the module does.

    Args:
        model: has them, on its device.
        names: of these buffers.

    Attributes:
        values: the buffers by name.
    """

    def __init__(self, model: nn.Module, names: Collection[str]) -> None:
        self.values = {name: values for name, values in model.named_buffers() if name in names}
        self._places = {name: _place(model, name) for name in self.values}

    @contextmanager
    def undone(self) -> Iterator[dict[str, Tensor]]:
        """Undoes at its end what its body changes in place or puts there anew; then the mapping has what that was."""
        before = {name: values.clone() for name, values in self.values.items()}
        after: dict[str, Tensor] = {}
        try:
            yield after
        finally:
            for name, (module, leaf) in self._places.items():
                left, values = getattr(module, leaf), self.values[name]
                after[name] = left.clone() if left is values else left
                if not torch.equal(values, before[name]):
                    with torch.no_grad():
                        values.copy_(before[name])
                setattr(module, leaf, values)


def rules_of(model: Model) -> dict[str, BufferRule]:
    """Returns the rules of a model's buffers that change, by name.

    Raises:
        InvalidArgument: a rule is unknown, or its buffer is, is not saved, or cannot be summed.
    """
    rules: dict[str, BufferRule] = {}
    saved, known = model.state_dict(), dict(model.named_buffers())
    for name, rule in model.buffer_rules.items():
        if rule not in {each.value for each in BufferRule}:
            raise InvalidArgument(f"the rule of buffer {name} is {rule!r}, there are 'sum' and 'lead'")
        if name not in known:
            raise InvalidArgument(f"buffer_rules names {name!r}, the model's buffers are {', '.join(known) or 'none'}")
        if name not in saved:
            raise InvalidArgument(f"buffer {name} changes and is not persistent: a checkpoint would not have it")
        if known[name].dtype not in _DTYPES:
            raise InvalidArgument(f"buffer {name} changes and is {known[name].dtype}, it must be float or int")
        rules[name] = BufferRule(rule)
    return rules


def _place(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    """Returns the module that has a buffer, and its name there."""
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf
