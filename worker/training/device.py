"""The training device, and the settings that make its results repeatable."""

from __future__ import annotations

import os

import torch

from esd.services.domain.errors import FailedPrecondition


def prepare_device(name: str, threads: int) -> torch.device:
    """Prepares a device for bit-identical runs. Call it in the training thread, before any other use of torch.

    Args:
        name: `cpu` or `cuda:N`.
        threads: threads of torch's CPU kernels; another number may change the lowest bits.

    Raises:
        FailedPrecondition: the device does not exist.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # otherwise cuBLAS varies the order of its sums
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms would import torch's compiler, too
    torch.set_num_threads(threads)
    device = torch.device(name)
    if device.type == "cuda":
        if device.index >= torch.cuda.device_count():
            raise FailedPrecondition(f"ESD_WORKER_DEVICE is {name}, torch sees {torch.cuda.device_count()} GPUs")
        torch.cuda.set_device(device)
    return device
