"""The kernels, compiled by NVRTC for a device's architecture. Needs cuda-core and NVRTC, but no device."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from esd_native import cuda as native

Algorithm = Literal["dual", "hungarian"]

_COSTS = {np.dtype(np.int32): "std::int32_t", np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_ALGORITHMS = {"dual": "kDual", "hungarian": "kHungarian"}
_NARROW_MASK = 32


@dataclass(frozen=True, slots=True)
class Variant:
    """One instance of the kernel.

    Attributes:
        cost: C++ type of the costs.
        mask: C++ type of a set of workers.
        algorithm: "dual" or "hungarian".
        grid: for a cooperative grid rather than one block.
    """

    cost: str
    mask: str
    algorithm: Algorithm
    grid: bool

    @classmethod
    def of(cls, dtype: DTypeLike, workers: int, algorithm: Algorithm, *, grid: bool) -> Variant:
        """The instance for costs of `dtype` and `workers` workers."""
        mask = "std::uint32_t" if workers <= _NARROW_MASK else "std::uint64_t"
        return cls(_COSTS[np.dtype(dtype)], mask, algorithm, grid)


def source() -> str:
    """The kernel with all it includes, as one text: the run-time compiler has no files to look into."""
    files = native.sources()
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = files[name].replace("#pragma once\n", "")
        return re.sub(r'^#include "(.+)"$', lambda include: expand(include[1]), text, flags=re.MULTILINE)

    return expand("cuda/kernels.cu")


def compile_kernel(variant: Variant, arch: str, cache: Any = None) -> Any:
    """The machine code of an instance, a cuda.core.ObjectCode whose kernel is called `solve`.

    Args:
        variant: the instance.
        arch: as "sm_90".
        cache: a cuda.core.utils.ProgramCacheResource that keeps it, if any.
    """
    from cuda.core import Program, ProgramOptions  # noqa: PLC0415 - optional

    macros = [
        ("ESD_COST", variant.cost),
        ("ESD_MASK", variant.mask),
        ("ESD_ALGORITHM", _ALGORITHMS[variant.algorithm]),
        ("ESD_GRID", str(int(variant.grid))),
    ]
    # No fused multiply-add: fixed point must be rounded as on the CPU.
    options = ProgramOptions(std="c++17", arch=arch, fma=False, define_macro=macros)
    return Program(source(), "c++", options).compile("cubin", cache=cache)
