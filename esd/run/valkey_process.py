"""The process of a local run's Valkey server: `python -m esd.run.valkey_process ADDRESS DIRECTORY` serves a directory.

It starts, announces itself and stops as every service does, and the server that it starts ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from esd.run.valkey import valkey_server
from esd.services.domain.errors import FailedPrecondition, Unavailable
from esd.services.runtime.process import StopEvent, announce, announce_progress, run

_READY = b"Ready to accept connections"
_LOCK = "esd.lock"
_STOP_SECONDS = 10.0
_LOOK_SECONDS = 0.2  # between two looks at its progress
_ANSWER_SECONDS = 10.0  # a server that loads answers now and then
_PR_SET_PDEATHSIG = 1  # of prctl(2)


async def main(stop: StopEvent) -> None:
    """Serves until `stop` is set.

    Raises:
        InvalidArgument: no Valkey is installed.
        FailedPrecondition: another process has the directory.
        Unavailable: the server has ended by itself.
    """
    address, directory = sys.argv[1], Path(sys.argv[2])
    with _claimed(directory) as lock:
        server = await _started(address, directory, lock)
        loading = asyncio.create_task(_tell_progress(address))
        ended, stopped = asyncio.create_task(_pass_on(server, address, loading)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                raise Unavailable(f"valkey-server ended with exit code {await server.wait()}")
        finally:
            stopped.cancel()
            loading.cancel()
            await _stop(server)
            await ended


async def _started(address: str, directory: Path, lock: int) -> asyncio.subprocess.Process:
    host, _, port = address.rpartition(":")
    return await asyncio.create_subprocess_exec(
        valkey_server(),
        *("--bind", host.strip("[]"), "--port", port, "--dir", str(directory)),
        # A write is on disk before it is acknowledged, as the recovery of a run supposes.
        *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        pass_fds=(lock,),  # the directory is free when the server has ended, too
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )


async def _pass_on(server: asyncio.subprocess.Process, address: str, loading: asyncio.Task[None]) -> None:
    """Copies the server's log to standard error until the server ends, and announces it when `loading` is over."""
    assert server.stdout is not None  # noqa: S101 - started with a pipe
    async for line in server.stdout:
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
        if _READY in line:
            loading.cancel()
            announce("valkey", address, None)


async def _tell_progress(address: str) -> None:
    """Tells the launcher how much of its file the server has loaded, until it is cancelled."""
    host, _, port = address.rpartition(":")
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with contextlib.suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError
        ):  # it does not listen yet, or is busy
            async with asyncio.timeout(_ANSWER_SECONDS):
                loaded, total = await _loaded_bytes(host.strip("[]"), int(port))
            if total:
                announce_progress("valkey", f"{loaded >> 10} of {total >> 10} KiB of its file are loaded")


async def _loaded_bytes(host: str, port: int) -> tuple[int, int]:
    """Returns the loaded bytes and the size of the file of the server; zeros when it is done."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(b"INFO persistence\r\n")
        size = int((await reader.readline())[1:])
        lines = (await reader.readexactly(size)).split(b"\r\n")
    finally:
        writer.close()
    told = dict(line.split(b":", 1) for line in lines if b":" in line)
    return int(told.get(b"loading_loaded_bytes", 0)), int(told.get(b"loading_total_bytes", 0))


async def _stop(server: asyncio.subprocess.Process) -> None:
    if server.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        server.terminate()
    try:
        await asyncio.wait_for(server.wait(), _STOP_SECONDS)
    except TimeoutError:
        server.kill()
        await server.wait()


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[int]:
    """Makes the directory, and holds a lock on it; yields the descriptor.

    Raises:
        FailedPrecondition: another process has the lock, or the directory cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise FailedPrecondition(f"{directory} cannot hold the data of a Valkey: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FailedPrecondition(f"another Valkey serves {directory}; stop it, or use another directory") from None
        yield lock
    finally:
        os.close(lock)


def _end_with_parent() -> None:
    """Has the kernel kill this process when its parent dies: Linux, prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    run(main)
