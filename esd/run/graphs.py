"""Exports the dense part of a model in a process of its own (worker/graphs.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from esd.run.events import Listener
from esd.run.local_settings import without_settings
from esd.run.output_events import GraphsNotWritten
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.extras import require_torch
from esd.services.wire.trained_models import ONNX, PT2, describe_model

_SECONDS = 600.0  # for importing torch, tracing a model and translating it
_SHOWN_LINES = 5  # of the output of a process that failed


async def write_graphs(job: JobSpec, folder: Path, listener: Listener, *, required: bool) -> list[str]:
    """Writes `model.pt2` and `model.onnx` of the model whose parameters are in a folder; returns the files' names.

    Args:
        job: of the model.
        folder: has the parameters.
        listener: gets `GraphsNotWritten` for files that cannot be made.
        required: whether a missing file is an error.

    Raises:
        FailedPrecondition: a file is required and cannot be made.
    """
    try:
        require_torch("exporting a model's computation")
        missing = await _export(job, folder)
    except FailedPrecondition as error:
        missing = dict.fromkeys((PT2, ONNX), str(error))
    if missing:
        event = GraphsNotWritten(job.model.name, tuple(missing), "; ".join(dict.fromkeys(missing.values())))
        if required:
            raise FailedPrecondition(str(event))
        listener(event)
    return [name for name in (PT2, ONNX) if name not in missing]


async def _export(job: JobSpec, folder: Path) -> dict[str, str]:
    """Returns the reason for each file that could not be made."""
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "esd.worker.graphs", str(folder),
            env=without_settings(os.environ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # Ctrl-C reaches the command alone
        )  # fmt: skip
        try:
            async with asyncio.timeout(_SECONDS):
                output, _ = await process.communicate(describe_model(job).encode())
        except TimeoutError:
            raise FailedPrecondition(f"the export takes longer than {_SECONDS:g} s, which is the limit") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode == 0:
            missing: dict[str, str] = json.loads(output.decode().rstrip().rpartition("\n")[2])
            return missing
        log.seek(0)
        lines = log.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
        raise FailedPrecondition(f"the export ended with exit code {process.returncode}: " + " | ".join(lines))
