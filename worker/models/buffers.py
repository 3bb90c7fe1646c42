"""Buffers of a model that change during training, and the rules that keep them equal under any dispatch.

A buffer is a constant unless the model's `buffer_rules` names it. Each worker's forward pass changes its own copy. The
new value on all workers is the value before the iteration, and

- `sum`: the sum of all workers' changes. So a change must be a sum over samples: their number, the sum of a value.
- `lead`: the change of the worker that trains the batch's first sample. So a change must not depend on any sample: the
  number of steps, a decaying average over steps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from enum import Enum

import torch
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument


class BufferRule(Enum):
    """The combination of the changes that the workers' forward passes make. The value is the name in a model."""

    SUM = "sum"
    LEAD = "lead"


_DTYPES = (torch.float32, torch.float64, torch.int32, torch.int64)  # types that an all-reduce can sum


class Buffers:
    """Selected buffers of a module, which remain the same tensors even if the module replaces them.

    Args:
        model: the model, on its device.
        names: names of the buffers.

    Attributes:
        values: the buffers by name.
    """

    def __init__(self, model: nn.Module, names: Collection[str]) -> None:
        self.values = {name: values for name, values in model.named_buffers() if name in names}
        self._places = {name: _place(model, name) for name in self.values}

    @contextmanager
    def undone(self) -> Iterator[dict[str, Tensor]]:
        """Undoes the changes of its body, in place or by replacement, at its end; the yielded mapping then has them."""
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


def rules_of(model: nn.Module) -> dict[str, BufferRule]:
    """Returns the rules of a model's buffers that change, by name; a module without `buffer_rules` has none.

    Raises:
        InvalidArgument: a rule is unknown, or its buffer is unknown, not saved, or of a type that cannot be summed.
    """
    rules: dict[str, BufferRule] = {}
    saved, known = model.state_dict(), dict(model.named_buffers())
    for name, rule in getattr(model, "buffer_rules", {}).items():
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
    """Returns the module that holds a buffer, and the buffer's name in it."""
    path, _, leaf = name.rpartition(".")
    return model.get_submodule(path), leaf
