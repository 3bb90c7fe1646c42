"""Dropout that does not depend on the cluster: the dropped values are a function of seed, iteration and sample.

torch's own dropout draws from one generator per process, so its result would depend on the number of workers and on the
dispatch. Here each module draws for each sample from its own counter-based generator:

    key of a sample = mix64(mix64(mix64(module + call) ^ iteration) ^ position)
    draw j          = mix64(key + (j + 1) * golden) >> 40,  below p * 2**24: dropped

`module` is a hash of the job's seed and the module's name, `call` counts the module's uses in a forward pass,
`position` is the sample's position in the global batch, j counts the sample's values; mix64 is SplitMix64's
(services/domain/ids.py).
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import GOLDEN, mix64

_DRAWN_BITS = 24


class Samples:
    """The samples of the next forward pass.

    Attributes:
        iteration: the iteration that trains them.
        positions: uint32 [m], position of each in the global batch.
    """

    def __init__(self) -> None:
        self.iteration = 0
        self.positions: NDArray[np.uint32] = np.zeros(0, np.uint32)
        self._calls: Counter[int] = Counter()

    def begin(self, iteration: int, positions: NDArray[np.uint32]) -> None:
        """Sets the samples of the next forward pass."""
        self.iteration, self.positions = iteration, positions
        self._calls.clear()

    def keys(self, module: int) -> NDArray[np.uint64]:
        """Returns the key of each sample for this call of a module, uint64 [m]."""
        call = self._calls[module]
        self._calls[module] += 1
        start = mix64(np.array([(module + call) % 2**64], np.uint64)) ^ np.uint64(self.iteration)
        return mix64(mix64(start) ^ self.positions.astype(np.uint64))


class SampleDropout(nn.Module):
    """Zeroes each value with probability p, and scales the others by 1 / (1 - p), as nn.Dropout does.

    Args:
        p: probability, 0..1.
        name: name of the module in its model.
        seed: seed of the job.
        samples: the samples of the next forward pass.
    """

    def __init__(self, p: float, name: str, seed: int, samples: Samples) -> None:
        super().__init__()
        self.p = p
        self._name = name
        self._module = int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest(), "little")
        self._samples = samples

    def forward(self, inputs: Tensor) -> Tensor:
        """Returns float32 [m, ...] of the shape of `inputs`, whose first axis must be the samples."""
        if not self.training or self.p == 0:
            return inputs
        if len(inputs) != len(self._samples.positions):
            raise InvalidArgument(
                f"dropout {self._name} gets {list(inputs.shape)} of {len(self._samples.positions)} samples: its first "
                "axis must be the samples"
            )
        keys = torch.from_numpy(self._samples.keys(self._module).view(np.int64)).to(inputs.device)
        drawn = _draw(keys, inputs[0].numel()).view_as(inputs)
        scale = 0.0 if self.p == 1 else 1 / (1 - self.p)
        return inputs.mul((drawn >= round(self.p * 2**_DRAWN_BITS)) * scale)

    def extra_repr(self) -> str:
        """See nn.Module."""
        return f"p={self.p}"


def replace_dropout(model: nn.Module, seed: int, samples: Samples) -> None:
    """Replaces every nn.Dropout of a model by a SampleDropout."""
    replaced: dict[nn.Module, SampleDropout] = {}
    for path, parent in list(model.named_modules()):
        for name, child in list(parent._modules.items()):  # noqa: SLF001 - named_children leaves repeated ones out
            if type(child) is nn.Dropout:
                full_name = f"{path}.{name}".lstrip(".")
                replaced.setdefault(child, SampleDropout(child.p, full_name, seed, samples))
                setattr(parent, name, replaced[child])


def _draw(keys: Tensor, count: int) -> Tensor:
    """Returns `count` draws of 24 bits for each key [m], int64 [m, count]."""
    counters = torch.arange(1, count + 1, device=keys.device) * _signed(GOLDEN)
    bits = keys[:, None] + counters
    bits.bitwise_xor_(_shifted(bits, 30)).mul_(_signed(0xBF58476D1CE4E5B9))
    bits.bitwise_xor_(_shifted(bits, 27)).mul_(_signed(0x94D049BB133111EB))
    bits.bitwise_xor_(_shifted(bits, 31))
    return _shifted(bits, 64 - _DRAWN_BITS)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shifts to the right and fills with zeros, as for unsigned numbers; torch's shift keeps the sign."""
    return (bits >> places).bitwise_and_((1 << (64 - places)) - 1)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
