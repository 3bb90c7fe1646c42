"""Each misfortune that can happen to a run: processes die or hang, links break, stores fill, the stream pauses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esd.run.train import TrainedRun
from hardening.chaos.system import System
from testbed.redis_server import RedisServer
from tests.support.cuttable_proxy import CuttableProxy

_DISK = "64m"  # a checkpoint of these runs needs less than 1 MB


@dataclass
class Scene:
    """Everything that something can happen to.

    Attributes:
        redis: a server of this day's own.
        disk: the folder of the checkpoints, a file system of its own where this may be mounted.
        again: starts the same command once more, next to the first.
        command: the command that runs at present.
        system: its services.
        killed: the command was killed, and not yet repeated.
    """

    redis: RedisServer
    disk: Path
    again: Callable[[], Awaitable[None]]
    command: asyncio.Task[TrainedRun] | None = None
    system: System | None = None
    killed: bool = False
    _redis_kills: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def restart_redis(self, away: float) -> None:
        """Kills Redis and starts it again after so many seconds."""
        async with self._redis_kills:
            await asyncio.to_thread(self.redis.kill)
            await asyncio.sleep(away)
            await asyncio.to_thread(self.redis.start)

    def pids(self, target: str, slot: int) -> list[int]:
        """Returns the processes that a target names and that run now.

        Args:
            target: `worker`, `worker host`, `dispatcher`, `ps_server`, `redis` or `everything`.
            slot: of the worker.
        """
        if target == "redis":
            return [] if self.redis.process is None else [self.redis.process.pid]
        if self.system is None:
            return []
        cluster = self.system.cluster
        services = {
            "worker": [cluster.workers[slot]],
            "worker host": [cluster.workers[slot]],
            "dispatcher": [cluster.dispatcher],
            "ps_server": [cluster.parameter_servers[0]],
            "everything": cluster.services,
        }[target]
        pids = [service.process.pid for service in services if service.process.returncode is None]
        return [_parent(pid) for pid in pids] if target == "worker host" else pids


Strike = Callable[[Scene], Awaitable[None]]


def kill(target: str, slot: int = 0) -> Strike:
    """SIGKILL. If everything is killed, the command is, too: its services end with it."""

    async def strike(scene: Scene) -> None:
        _signal(scene.pids(target, slot), signal.SIGKILL)
        if target == "everything" and scene.system is not None and scene.command is not None:
            scene.killed = True
            scene.command.cancel()

    return strike


def kill_redis(away: float) -> Strike:
    """SIGKILL of Redis, which starts again after so many seconds."""
    return lambda scene: scene.restart_redis(away)


def hang(target: str, slot: int, seconds: float) -> Strike:
    """SIGSTOP, and SIGCONT after so many seconds."""

    async def strike(scene: Scene) -> None:
        pids = scene.pids(target, slot)
        _signal(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            _signal(pids, signal.SIGCONT)

    return strike


def cut(target: str, slot: int, seconds: float, *, silent: bool) -> Strike:
    """Connections are reset and refused, or lose all packets if `silent`, for so many seconds.

    Args:
        target: `worker`, `ps_server`, `driver` or `all`.
        slot: of the worker.
        seconds: how long.
        silent: whether nothing tells of it.
    """

    def links(system: System) -> list[CuttableProxy]:
        by_name = {
            "worker": [system.worker_links[slot]],
            "ps_server": system.store_links,
            "driver": [system.driver_link],
            "all": system.links,
        }
        return by_name[target]

    async def strike(scene: Scene) -> None:
        if scene.system is not None:
            await asyncio.gather(
                *(link.hold_for(seconds) if silent else link.cut_for(seconds) for link in links(scene.system))
            )

    return strike


def fill_redis(seconds: float) -> Strike:
    """Redis accepts no more for so many seconds."""

    async def strike(scene: Scene) -> None:
        for limit in ("1mb", "0"):
            with contextlib.suppress(subprocess.SubprocessError):  # it is away: a new one has no limit
                await asyncio.to_thread(scene.redis.cli, "config", "set", "maxmemory", limit)
            await asyncio.sleep(seconds if limit != "0" else 0)

    return strike


def fill_disk(seconds: float) -> Strike:
    """The disk of the checkpoints is full for so many seconds."""

    async def strike(scene: Scene) -> None:
        filler = scene.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        await asyncio.sleep(seconds)
        filler.unlink(missing_ok=True)  # another one that is full has ended before

    return strike


def start_again() -> Strike:
    """The same command is started while the first one runs."""

    async def strike(scene: Scene) -> None:
        await scene.again()

    return strike


def in_a_pause(strike: Strike, before: float, after: float) -> Strike:
    """The stream pauses, and something happens meanwhile.

    Args:
        strike: the event.
        before: seconds from the beginning of the pause to that.
        after: seconds from that to the end of the pause.
    """

    async def paused(scene: Scene) -> None:
        if scene.system is None:
            return
        pause = asyncio.create_task(scene.system.stream.pause_for(before + after))
        try:
            await asyncio.sleep(before)
            await strike(scene)
            await pause
        finally:
            pause.cancel()
            await asyncio.gather(pause, return_exceptions=True)

    return paused


def can_mount() -> bool:
    """Whether a small file system can be mounted here, to be filled."""
    return os.geteuid() == 0


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A new folder with a file system of its own, if this may be mounted."""
    folder.mkdir()
    if not can_mount():
        yield folder
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "esd-chaos", str(folder)], check=True)  # noqa: S603, S607
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S603, S607


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
