"""Large linear layers on CPUs for which torch's own matrix product is slow.

torch multiplies float32 matrices on x86 by Intel's MKL, which leaves the AVX-512 units of other makers' CPUs unused: on
an EPYC of Zen 5 a layer of 1782 x 256 ran at 77 to 94 GFLOP/s for 64 samples. oneDNN, which torch includes, too, ran it
at 180 to 210. So on such CPUs oneDNN computes the product of the forward pass, and both of the backward pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_LEAST_WEIGHTS = 1 << 16  # of a layer; for smaller ones, the call costs as much as it saves
_SAMPLES = 16  # oneDNN compiles code for every batch size, so batches are padded to multiples of this


class OneDnnLinear(nn.Linear):
    """A linear layer with torch's parameters and, except for rounding, torch's values and gradients."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 - torch's name
        """Returns [m, outputs] of float32 [m, inputs]."""
        if input.device.type != "cpu" or input.dim() != 2 or len(input) < _SAMPLES or not self._is_single(input):
            return functional.linear(input, self.weight, self.bias)
        product: Tensor = _OneDnnProduct.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return product

    def _is_single(self, inputs: Tensor) -> bool:
        return inputs.dtype is torch.float32 and self.weight.dtype is torch.float32


def replace_linear(model: nn.Module) -> None:
    """Turns every large nn.Linear of a model into a OneDnnLinear, if it is faster; keeps its parameters and hooks."""
    if not _mkl_is_slow():
        return
    for module in model.modules():
        if type(module) is nn.Linear and module.weight.numel() >= _LEAST_WEIGHTS:
            module.__class__ = OneDnnLinear


def restore_linear(model: nn.Module) -> None:
    """Turns every OneDnnLinear of a model back into an nn.Linear, whose product every exporter knows."""
    for module in model.modules():
        if type(module) is OneDnnLinear:
            module.__class__ = nn.Linear  # type: ignore[assignment]


class _OneDnnProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        filled = _filled(inputs)
        ctx.save_for_backward(inputs, filled, weight)
        return _product(filled, weight, bias)[: len(inputs)]

    @staticmethod
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, filled, weight = ctx.saved_tensors
        of_inputs, of_weight, of_bias = ctx.needs_input_grad
        bias = gradients.sum(0) if of_bias else None
        if torch.is_grad_enabled():  # second-order gradients are wanted, as for a loss that contains gradients
            return gradients @ weight if of_inputs else None, gradients.t() @ inputs if of_weight else None, bias
        padded = _filled(gradients)
        return (
            _product(padded, weight.t())[: len(gradients)] if of_inputs else None,
            _product(padded.t(), filled.t()) if of_weight else None,
            bias,
        )


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns [m, n]: `left` [m, k] times `right` [n, k] transposed, and `bias` [n] added to each row."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")  # noqa: SLF001
    return product


def _filled(samples: Tensor) -> Tensor:
    """Returns [m, k] with rows of zeros appended, up to a multiple of `_SAMPLES`."""
    missing = -len(samples) % _SAMPLES
    return functional.pad(samples, (0, 0, 0, missing)) if missing else samples


def _mkl_is_slow() -> bool:
    """Returns whether this CPU has AVX-512 and is not Intel's, so that MKL does not use it."""
    cpu = Path("/proc/cpuinfo")
    return (
        torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and cpu.exists()
        and "GenuineIntel" not in cpu.read_text()
    )
