"""Checks, by forward passes on two samples, that the buffers of a model change as their rules state."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.buffers import BufferRule, Buffers, rules_of
from esd.worker.models.model import Model


class TriedBuffers:
    """The buffers of a model in trial passes: each pass is undone, and its changes are compared with other passes'.

    Args:
        model: the newly built model.
        name: name of the model, for messages.

    Attributes:
        rules: the rules of the buffers that change.

    Raises:
        InvalidArgument: a rule is unknown, or its buffer is unknown, not saved, or of a type that cannot be summed.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.rules = rules_of(model)
        self._name = name
        self._buffers = Buffers(model, dict(model.named_buffers()))
        self._left: dict[str, dict[str, Tensor]] = {}

    @contextmanager
    def left_by(self, what: str) -> Iterator[None]:
        """Runs a pass in its body, undoes its changes of the buffers, and keeps them under the name `what`."""
        with self._buffers.undone() as left:
            yield
        self._left[what] = left

    def check_constants(self) -> None:
        """Raises InvalidArgument if a buffer without a rule changed in the pass over two samples."""
        for buffer, before in self._buffers.values.items():
            if buffer not in self.rules and not torch.equal(self._left["two samples"][buffer], before):
                raise InvalidArgument(
                    f"buffer {buffer} of model {self._name!r} changes in a forward pass, so it would differ between "
                    "workers. Use LayerNorm instead of BatchNorm, or name the buffer in buffer_rules"
                )

    def check_rules(self) -> None:
        """Raises InvalidArgument if a buffer changed against its rule, or in an evaluation."""
        for buffer, rule in self.rules.items():
            both, first, second, judged = (
                self._change(buffer, what) for what in ("two samples", "the first", "the second", "an evaluation")
            )
            if rule is BufferRule.LEAD and not (_close(both, first) and _close(first, second)):
                self._refuse(buffer, "has the rule 'lead', so its change must not depend on the samples")
            if rule is BufferRule.SUM and not _close(both, first + second):
                self._refuse(
                    buffer,
                    f"has the rule 'sum', but the change by two samples, {_first(both):g}, is not the sum "
                    f"of their single ones, {_first(first):g} and {_first(second):g}: sum up, and divide at its use",
                )
            if judged.any():
                self._refuse(buffer, "changes in an evaluation: change it only if self.training")

    def _change(self, buffer: str, what: str) -> Tensor:
        left, before = self._left[what][buffer], self._buffers.values[buffer]
        if left.requires_grad:
            self._refuse(buffer, "becomes part of the gradient: detach() the values that are assigned to it")
        if left.shape != before.shape or left.dtype != before.dtype:
            self._refuse(buffer, f"is {before.dtype} {list(before.shape)} and becomes {left.dtype} {list(left.shape)}")
        return (left - before).double()

    def _refuse(self, buffer: str, why: str) -> None:
        raise InvalidArgument(f"buffer {buffer} of model {self._name!r} {why}")


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Puts a model into evaluation mode during the block."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def _close(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-3, atol=1e-5)


def _first(change: Tensor) -> float:
    return float(change.flatten()[0])
