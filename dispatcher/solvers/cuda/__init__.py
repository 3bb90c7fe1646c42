"""The assignment solvers on a CUDA device.

The kernels' sources are in native/cuda and travel in esd_native.cuda as text. NVRTC compiles them at run time, through
cuda-core (`pip install esd-train[cuda]`); nothing here needs a device or cuda-core to be imported.
"""

from dispatcher.solvers.cuda.solver import CudaSolver

__all__ = ["CudaSolver"]
