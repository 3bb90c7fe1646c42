"""GPUs that training on this machine can use, found out without torch, which takes seconds to import."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_SECONDS = 4.0  # a driver that hangs is as good as none

# Another process asks CUDA's driver: a process that has asked it must not fork, and a driver may hang.
_COUNT = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
print(f"CUDA's driver answers with error {code}" if code else count.value)
"""


def device_named(device: str) -> str:
    """Returns the device that a worker trains on, `cpu` or `cuda:N`.

    Args:
        device: `cpu`; `cuda:N`; `cuda`, the first GPU; or `auto`, the first GPU where there is one, and else `cpu`.

    Raises:
        ValueError: the GPU is not here; the message gives the reason and the way out.
    """
    if device == "cpu":
        return device
    count, reason = usable_gpus()
    if device == "auto":
        return "cuda:0" if count else "cpu"
    number = int(device.partition(":")[2] or 0)
    if count == 0:
        raise ValueError(f"{device} is asked for, and torch can use no GPU here: {reason}; cpu trains without one")
    if number >= count:
        raise ValueError(f"{device} is asked for, and there are {count} GPUs here: cuda:0 to cuda:{count - 1}")
    return f"cuda:{number}"


@cache
def usable_gpus() -> tuple[int, str]:
    """Returns the number of GPUs that torch can use here (CUDA_VISIBLE_DEVICES counts), and if 0, the reason."""
    version = _torch_version()
    if version is not None and not version.cuda:
        return 0, f"torch {version.name} has no CUDA (install torch from https://download.pytorch.org/whl/cu126)"
    command = [sys.executable, "-I", "-c", _COUNT]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return 0, f"CUDA's driver does not answer within {_SECONDS:.0f} s"
    answer = asked.stdout.strip()
    if answer.isdecimal():
        return int(answer), "CUDA's driver sees none (is CUDA_VISIBLE_DEVICES set?)"
    return 0, answer or "there is no NVIDIA driver, libcuda.so.1 (the NVIDIA container toolkit brings it to containers)"


class _TorchVersion:
    """The version of the installed torch, and whether it has kernels for GPUs."""

    def __init__(self, text: str) -> None:
        self.name = self._value(text, "__version__")
        self.cuda = self._value(text, "cuda")

    @staticmethod
    def _value(text: str, name: str) -> str:
        found = re.search(rf"^{name}[^=\n]*= *['\"]([^'\"]*)['\"]", text, re.MULTILINE)
        return found.group(1) if found else ""


def _torch_version() -> _TorchVersion | None:
    """Reads the version of torch without importing it; None if torch is not installed, which others report."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    return _TorchVersion(path.read_text()) if path.is_file() else None
