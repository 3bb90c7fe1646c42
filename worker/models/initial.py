"""Initial dense parameters, a pure function of the job's seed."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import nn


def initialise(model: nn.Module, seed: int) -> None:
    """Fills every parameter from a generator of its own, seeded by (seed, parameter name).

    So the values depend neither on the worker, nor on the global random state, nor on the order in which
    layers are created. Weights are uniform in +-1/sqrt(inputs), PyTorch's own rule for linear layers; biases,
    which have one axis only, start at 0.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim < 2:
                parameter.zero_()
                continue
            generator = torch.Generator().manual_seed(_parameter_seed(seed, name))
            bound = 1 / math.sqrt(max(1, parameter.shape[1]))
            parameter.uniform_(-bound, bound, generator=generator)


def _parameter_seed(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1  # a signed 64-bit seed, not negative
