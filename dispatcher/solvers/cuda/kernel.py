"""The kernel, compiled by NVRTC for a device's architecture.

This needs cuda-core and NVRTC, but no device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import DTypeLike

from esd.native import cuda as native

Algorithm = Literal["dual", "hungarian"]

_COSTS = {np.dtype(np.int32): "std::int32_t", np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_ALGORITHMS = {"dual": "kDual", "hungarian": "kHungarian"}
_NARROW_WORKERS = 32  # largest number of workers for esd::NarrowWorkerSet, with which steps are faster


@dataclass(frozen=True, slots=True)
class Variant:
    """The parameters of one compilation of the kernel.

    Attributes:
        cost: C++ type of the costs.
        worker_set: C++ type of a set of workers.
        algorithm: "dual" or "hungarian".
        grid: whether a cooperative grid runs the kernel instead of one block.
    """

    cost: str
    worker_set: str
    algorithm: Algorithm
    grid: bool

    @classmethod
    def of(cls, dtype: DTypeLike, workers: int, algorithm: Algorithm, *, grid: bool) -> Variant:
        """Returns the variant for costs of `dtype` and `workers` workers."""
        worker_set = "NarrowWorkerSet" if workers <= _NARROW_WORKERS else "WorkerSet"
        return cls(_COSTS[np.dtype(dtype)], worker_set, algorithm, grid)


def source() -> str:
    """Returns the kernel with all its includes expanded, since the run-time compiler has no include files."""
    files = native.sources()
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = files[name].replace("#pragma once\n", "")
        return re.sub(r'^#include "(.+)"$', lambda include: expand(include[1]), text, flags=re.MULTILINE)

    return expand("cuda/kernel.cu")


def compile_kernel(variant: Variant, arch: str, cache: Any = None) -> Any:
    """Returns the machine code of a variant, a cuda.core.ObjectCode with a kernel called `solve`.

    Args:
        variant: the parameters of the compilation.
        arch: the device's architecture, such as "sm_90".
        cache: a cuda.core.utils.ProgramCacheResource for the code, or None.
    """
    from cuda.core import Program, ProgramOptions  # noqa: PLC0415 - optional

    macros = [
        ("ESD_COST", variant.cost),
        ("ESD_WORKER_SET", variant.worker_set),
        ("ESD_ALGORITHM", _ALGORITHMS[variant.algorithm]),
        ("ESD_GRID", str(int(variant.grid))),
    ]
    # Without fused multiply-add, because fixed-point numbers must be rounded as on the CPU. NVRTC 13.0 takes a generic
    # lambda, which cannot be annotated, for a function of the host unless the device is the default.
    options = ProgramOptions(
        std="c++17", arch=arch, fma=False, define_macro=macros, device_as_default_execution_space=True
    )
    return Program(source(), "c++", options).compile("cubin", cache=cache)
