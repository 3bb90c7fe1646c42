"""The devices of a local run's workers: `--device`, or ESD_WORKER_DEVICE."""

from __future__ import annotations

import re

from esd.services.domain.errors import InvalidArgument
from esd.services.runtime import gpus

AUTO, CUDA = "auto", "cuda"
_DEVICE = r"cpu|cuda:\d+"


def worker_devices(text: str, workers: int, option: str = "--device") -> tuple[str, ...]:
    """Returns the device of every worker, `cpu` or `cuda:N`.

    Args:
        text: `cpu`; `cuda`, all GPUs of this machine in turn; `auto`, which is `cuda` where there are GPUs and `cpu`
            elsewhere; `cuda:N` for all workers; or a list with a device for each worker, `cuda:0,cuda:1`.
        workers: their number.
        option: names the text in messages.

    Raises:
        InvalidArgument: the text is no such text, a GPU is not here, or the list is not as long as there are workers.
    """
    try:
        if text in (AUTO, CUDA):
            if gpus.device_named(text) == "cpu":
                return ("cpu",) * workers
            return tuple(f"cuda:{worker % gpus.usable_gpus()[0]}" for worker in range(workers))
        devices = tuple(part.strip() for part in text.split(","))
        for device in devices:
            if not re.fullmatch(_DEVICE, device):
                raise ValueError(f"{device!r} is none of cpu, cuda, cuda:N, auto, nor a list such as cuda:0,cuda:1")
            gpus.device_named(device)
    except ValueError as error:
        raise InvalidArgument(f"{option} {text}: {error}") from None
    if len(devices) not in (1, workers):
        raise InvalidArgument(f"{option} {text} lists {len(devices)} devices, there are {workers} workers")
    return devices * workers if len(devices) == 1 else devices
