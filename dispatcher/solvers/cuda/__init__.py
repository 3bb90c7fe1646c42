"""The assignment solvers on a CUDA device.

The kernel's sources are in native/cuda, and esd.native.cuda contains them as text. NVRTC compiles them at run time,
through cuda-core (`pip install esd-train[cuda]`). Importing this package needs neither a device nor cuda-core.
"""

from esd.dispatcher.solvers.cuda.solver import MAX_WORKERS, CudaSolver, check_workers, to_host

__all__ = ["MAX_WORKERS", "CudaSolver", "check_workers", "to_host"]
