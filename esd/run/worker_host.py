"""Starts workers as forks of one process that has imported torch (worker/host.py)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from esd.run.events import Listener, ignore
from esd.run.local_settings import without_settings
from esd.run.patience import within
from esd.services.domain.errors import InvalidArgument, Unavailable
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.forks import MAX_PACKET, send_request
from esd.services.runtime.low_limits import low_limits
from esd.services.wire.jobs import encode_job

_LOG_LINES = 15  # of a failed service's log, shown to the user
TRIAL_SECONDS = 60.0  # for a model that is tried on two samples
_END_OF_OUTPUT_SECONDS = 1.0  # after the end of a trial
_PIECE_BYTES = 65536
_WORKER, _TRIAL = "worker", "trial"  # of worker/host.py, whose import takes seconds


def end_of(log: Path) -> str:
    """Returns the path of a log and its last lines, for a message to the user."""
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    return f"{log}:" + "".join(f"\n    {line}" for line in lines)


class Process(Protocol):
    """The part of a process that this package uses; asyncio's processes have it, and forks of the host."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def stdout(self) -> asyncio.StreamReader | None:
        """Its standard output."""

    @property
    def returncode(self) -> int | None:
        """Its exit code, -N if signal N has ended it, None while it runs."""

    async def wait(self) -> int:
        """Returns the exit code, once there is one."""

    def send_signal(self, number: int, /) -> None:
        """Sends a signal. Raises ProcessLookupError when it has ended."""

    def terminate(self) -> None:
        """Sends SIGTERM."""

    def kill(self) -> None:
        """Sends SIGKILL."""


class ForkedProcess:
    """A child of the host.

    Args:
        pid: its number.
        stdin: the end of the pipe that is its standard input, closed when it ends; None if it is closed already.
        stdout: its standard output.
        control: to the host.
    """

    def __init__(self, pid: int, stdin: int | None, stdout: asyncio.StreamReader, control: socket.socket) -> None:
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None
        self._stdin = stdin
        self._control = control
        self._ended = asyncio.Event()

    def ended(self, code: int) -> None:
        """Notes its end, which the host has told."""
        self.returncode = code
        if self._stdin is not None:
            os.close(self._stdin)
        self._ended.set()

    async def wait(self) -> int:
        """Returns the exit code, once there is one."""
        await self._ended.wait()
        assert self.returncode is not None  # noqa: S101 - `ended` sets it first
        return self.returncode

    def send_signal(self, number: int, /) -> None:
        """Has the host send a signal, which alone knows whose the number is. Raises ProcessLookupError at its end."""
        if self.returncode is not None:
            raise ProcessLookupError
        with contextlib.suppress(OSError):  # the host has died, and its children with it
            self._control.send(json.dumps({"pid": self.pid, "signal": int(number)}).encode())

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


@dataclass(slots=True)
class _Asked:
    """A requested fork: its pipes, and the future that gets the process."""

    stdin: int | None
    stdout: asyncio.StreamReader
    child: asyncio.Future[ForkedProcess]


def _file_of(content: bytes) -> int:
    """Returns a file with this content, open at its beginning. A pipe holds less than some jobs have."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        return os.dup(file.fileno())


async def _collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    """Appends the bytes of a stream until it ends."""
    while piece := await stream.read(_PIECE_BYTES):
        into += piece


class WorkerHost:
    """The process that forks workers. It starts when it is needed first, and again if it has died.

    Args:
        log: takes its standard error.
        patience: seconds in which it has to be ready.
    """

    def __init__(self, log: Path, patience: float) -> None:
        self._log = log
        self._patience = patience
        self._starting = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._control: socket.socket | None = None
        self._ready = asyncio.Event()
        self._asked: deque[_Asked] = deque()  # the host answers in order
        self._children: dict[int, ForkedProcess] = {}
        self._transports: list[asyncio.BaseTransport] = []

    async def try_model(self, job: JobSpec, listener: Listener = ignore) -> None:
        """Tries the job's model on two samples, in a child of its own with the environment of this process.

        Args:
            job: the job.
            listener: gets `TakesLong` if the trial takes long.

        Raises:
            InvalidArgument: it cannot be trained, or not exactly, or takes too long.
            Unavailable: the host does not start, or the trial did not come to its end.
        """
        with self._log.open("ab") as log:
            child = await self._fork(_TRIAL, (), os.environ, log.fileno(), given=encode_job(job).SerializeToString())
        refusal = bytearray()
        reading = asyncio.create_task(_collect(child.stdout, refusal))
        try:
            what = f"model {job.model.name!r} is being tried on two samples"
            code = await within(child.wait(), what, TRIAL_SECONDS, listener)
            # The end of the output follows at once, unless a process that the model has started has inherited the pipe.
            await asyncio.wait({reading}, timeout=_END_OF_OUTPUT_SECONDS)
        except TimeoutError:
            child.kill()
            raise InvalidArgument(
                f"model {job.model.name!r} takes longer than {TRIAL_SECONDS:g} s to be built and to train two samples, "
                f"with which it is tried before a run; end of {end_of(self._log)}"
            ) from None
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if code:
            raise Unavailable(
                f"trying model {job.model.name!r} ended with exit code {code}; end of {end_of(self._log)}"
            )
        if refusal:
            raise InvalidArgument(refusal.decode())

    async def start_worker(self, arguments: Sequence[str], environment: Mapping[str, str], log: int) -> ForkedProcess:
        """Starts a worker, whose standard input stays open as long as this process lives.

        Args:
            arguments: its command line.
            environment: all of it.
            log: the open file that takes its standard error.

        Raises:
            Unavailable: the host does not start.
        """
        return await self._fork(_WORKER, arguments, environment, log)

    async def close(self) -> None:
        """Ends the host, and with it all children that are left."""
        if self._control is not None:
            self._disconnect()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        for transport in self._transports:
            transport.close()

    async def _fork(
        self, role: str, arguments: Sequence[str], environment: Mapping[str, str], log: int, given: bytes | None = None
    ) -> ForkedProcess:
        """Has the host fork. `given` is all of the child's input; None keeps that open."""
        request = {"role": role, "arguments": list(arguments), "environment": dict(environment)}
        control = await self._connected()
        loop = asyncio.get_running_loop()
        reading, stdin = os.pipe() if given is None else (_file_of(given), None)
        stdout, writing = os.pipe()
        reader = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(stdout, "rb", 0)
        )
        self._transports.append(transport)
        asked = _Asked(stdin, reader, loop.create_future())
        self._asked.append(asked)
        with contextlib.suppress(OSError):  # the host is gone, as the next packet says
            send_request(control, request, [reading, writing, log])
        os.close(reading)
        os.close(writing)
        return await asked.child

    async def _connected(self) -> socket.socket:
        """Returns the socket to a host that is ready; starts one if there is none."""
        async with self._starting:
            if self._control is None:
                await self._start()
            assert self._control is not None  # noqa: S101 - `_start` has made it
            return self._control

    async def _start(self) -> None:
        self._ready.clear()
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        mine.setblocking(False)
        # A service's settings come with its fork. OpenBLAS, which nothing uses here, would start threads.
        environment = without_settings(os.environ)
        with other, self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "esd.worker.host", str(other.fileno()),
                env=environment | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[other.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches the command alone
            )  # fmt: skip
        self._control = mine
        asyncio.get_running_loop().add_reader(mine, self._read)
        try:
            async with asyncio.timeout(self._patience):
                await self._ready.wait()
        except TimeoutError:
            self._process.kill()
        if self._control is None or self._process.returncode is not None:
            raise self._gone()

    def _read(self) -> None:
        """Takes a packet of the host."""
        assert self._control is not None  # noqa: S101 - it is read as long as it is there
        try:
            packet = self._control.recv(MAX_PACKET)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if not packet:
            self._disconnect()
            return
        told = json.loads(packet)
        match told["event"]:
            case "ready":
                self._ready.set()
            case "started":
                self._started(told["pid"])
            case "ended":
                self._children.pop(told["pid"]).ended(told["code"])

    def _started(self, pid: int) -> None:
        assert self._control is not None  # noqa: S101 - it has just been read
        asked = self._asked.popleft()
        child = self._children[pid] = ForkedProcess(pid, asked.stdin, asked.stdout, self._control)
        if asked.child.cancelled():
            child.kill()
        else:
            asked.child.set_result(child)

    def _disconnect(self) -> None:
        """Gives up the host, which is gone or not needed any more; its children die with it."""
        assert self._control is not None  # noqa: S101 - nobody gives it up twice
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._control = None
        self._ready.set()
        for asked in self._asked:
            if asked.stdin is not None:
                os.close(asked.stdin)
            if not asked.child.cancelled():
                asked.child.set_exception(self._gone())
        self._asked.clear()
        for child in self._children.values():
            child.ended(-signal.SIGKILL)
        self._children.clear()

    def _gone(self) -> Unavailable:
        return Unavailable(
            f"the process that forks workers has ended, or was not ready within {self._patience:g} s{low_limits()}; "
            f"end of {end_of(self._log)}"
        )
