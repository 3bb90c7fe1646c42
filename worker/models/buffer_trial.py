"""What forward passes on two samples tell of a model's buffers: whether they change as their rules say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from esd.services.domain.errors import InvalidArgument
from esd.worker.models.buffers import BufferRule, Buffers, rules_of
from esd.worker.models.model import Model


class TriedBuffers:
    """The buffers of a model that is tried: every pass is undone, and what it left is compared with that of others.

    Args:
        model: as it was built.
        name: of the model, for messages.

    Attributes:
        rules: of the buffers that change.

    Raises:
        InvalidArgument: see `rules_of`.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.rules = rules_of(model)
        self._name = name
        self._buffers = Buffers(model, dict(model.named_buffers()))
        self._left: dict[str, dict[str, Tensor]] = {}

    @contextmanager
    def left_by(self, what: str) -> Iterator[None]:
        """Keeps what its body leaves the buffers as, under a name."""
        with self._buffers.undone() as left:
            yield
        self._left[what] = left

    def check_constants(self) -> None:
        """Raises InvalidArgument if a buffer without a rule changes with two samples."""
        for buffer, before in self._buffers.values.items():
            if buffer not in self.rules and not torch.equal(self._left["two samples"][buffer], before):
                raise InvalidArgument(
                    f"buffer {buffer} of model {self._name!r} changes in a forward pass: every worker would have "
                    "another one. LayerNorm needs none where BatchNorm does; what may change is said by buffer_rules"
                )

    def check_rules(self) -> None:
        """Raises InvalidArgument if a buffer with a rule changes otherwise, or while nothing is trained."""
        for buffer, rule in self.rules.items():
            both, first, second, judged = (
                self._change(buffer, what) for what in ("two samples", "the first", "the second", "an evaluation")
            )
            if rule is BufferRule.LEAD and not (_close(both, first) and _close(first, second)):
                self._refuse(buffer, "has the rule 'lead', so its change must be the same whatever the samples are")
            if rule is BufferRule.SUM and not _close(both, first + second):
                self._refuse(
                    buffer,
                    f"has the rule 'sum', but what two samples change, {_first(both):g}, is not what one changes, "
                    f"{_first(first):g}, and the other, {_first(second):g}: add up, and divide where it is used",
                )
            if judged.any():
                self._refuse(buffer, "changes in an evaluation: change it if self.training only")

    def _change(self, buffer: str, what: str) -> Tensor:
        left, before = self._left[what][buffer], self._buffers.values[buffer]
        if left.requires_grad:
            self._refuse(buffer, "becomes part of the gradient: detach() what is put into it")
        if left.shape != before.shape or left.dtype != before.dtype:
            self._refuse(buffer, f"is {before.dtype} {list(before.shape)} and becomes {left.dtype} {list(left.shape)}")
        return (left - before).double()

    def _refuse(self, buffer: str, why: str) -> None:
        raise InvalidArgument(f"buffer {buffer} of model {self._name!r} {why}")


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Puts a model into evaluation mode meanwhile."""
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
