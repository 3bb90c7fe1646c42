"""The misfortunes of a bad day: processes die or hang, links break, disks fill, a command is started twice."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from esd.services.domain.state import JobState
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
        again: starts the same command once more, beside the first.
        command: the command that runs at present.
        system: its services.
        killed: the command was killed, and not yet repeated.
    """

    redis: RedisServer
    disk: Path
    again: Callable[[], Awaitable[None]]
    command: asyncio.Task[JobState] | None = None
    system: System | None = None
    killed: bool = False
    _redis_kills: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def restart_redis(self, away: float) -> None:
        """Kills Redis and starts it again after so many seconds."""
        async with self._redis_kills:
            await asyncio.to_thread(self.redis.kill)
            await asyncio.sleep(away)
            await asyncio.to_thread(self.redis.start)


Strike = Callable[[Scene], Awaitable[None]]


@dataclass
class Misfortune:
    """A misfortune that happens to a run once.

    Attributes:
        name: the name of the misfortune.
        strike: causes the misfortune and returns when it is over.
        iteration: the number of confirmed iterations at which it is due.
        delay: seconds between that moment and the misfortune.
    """

    name: str
    strike: Strike
    iteration: int
    delay: float

    def __str__(self) -> str:
        return f"{self.name} @{self.iteration}+{self.delay:.1f} s"

    async def happen(self, scene: Scene) -> None:
        """Strikes when the delay is over, and returns when the trouble is."""
        await asyncio.sleep(self.delay)
        await self.strike(scene)


def draw_strike(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """Draws one thing that can happen to a run on this kind of store, and how it does."""
    return rng.choice([_kill, _kill, _hang, _hang, _cut, _cut, _fill, _start_again])(rng, store, workers)


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


def _processes(rng: random.Random, workers: int) -> tuple[str, Callable[[Scene], list[int]]]:
    """Draws a process, and tells how to find its number."""
    which = rng.choice(["worker", "worker", "worker host", "dispatcher", "ps_server", "everything"])
    slot = rng.randrange(workers)

    def choose(scene: Scene) -> list[int]:
        if scene.system is None:
            return []
        cluster = scene.system.cluster
        pids = [service.process.pid for service in cluster.services if service.process.returncode is None]
        by_name = {"worker": cluster.workers[slot], "dispatcher": cluster.dispatcher}
        by_name["ps_server"] = cluster.parameter_servers[0]
        if which == "everything":
            return pids
        if which == "worker host":
            return [_parent(pid) for pid in pids if pid == cluster.workers[slot].process.pid]
        return [pid for pid in pids if pid == by_name[which].process.pid]

    return (f"worker {slot}" if which == "worker" else which), choose


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """Kills a process by SIGKILL, also Redis.

    If everything is killed, only the command is: its services end with it.
    """
    name, choose = _processes(rng, workers)
    away = rng.uniform(0, 4)
    if store == "redis" and rng.random() < 0.3:
        return f"kill redis, {away:.1f} s", lambda scene: scene.restart_redis(away)

    async def strike(scene: Scene) -> None:
        _signal(choose(scene), signal.SIGKILL)
        if name == "everything" and scene.system is not None and scene.command is not None:
            scene.killed = True
            scene.command.cancel()

    return f"kill {name}", strike


def _hang(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """SIGSTOP, and SIGCONT after 5 to 75 s."""
    name, choose = _processes(rng, workers)
    seconds = rng.uniform(5, 75)
    of_redis = store == "redis" and rng.random() < 0.2

    async def strike(scene: Scene) -> None:
        pids = choose(scene)
        if of_redis:
            pids = [] if scene.redis.process is None else [scene.redis.process.pid]
        _signal(pids, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        _signal(pids, signal.SIGCONT)

    return f"hang {'redis' if of_redis else name}, {seconds:.0f} s", strike


def _cut(rng: random.Random, _store: str, workers: int) -> tuple[str, Strike]:
    """Connections are reset and refused, or lose all packets, for up to 20 s."""
    which = rng.choice(["worker", "ps_server", "driver", "all"])
    slot, seconds, silent = rng.randrange(workers), rng.choice([0.0, rng.uniform(0.5, 20)]), rng.random() < 0.4

    def links(system: System) -> list[CuttableProxy]:
        by_name = {
            "worker": [system.worker_links[slot]],
            "ps_server": [system.store_link],
            "driver": [system.driver_link],
            "all": [*system.worker_links, system.store_link, system.driver_link],
        }
        return by_name[which]

    async def strike(scene: Scene) -> None:
        if scene.system is not None:
            await asyncio.gather(
                *(link.hold_for(seconds) if silent else link.cut_for(seconds) for link in links(scene.system))
            )

    what = "lose packets of" if silent else "cut"
    return f"{what} {f'worker {slot}' if which == 'worker' else which}, {seconds:.1f} s", strike


def _fill(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """The disk of the checkpoints is full, or Redis takes no more, for 1 to 30 s."""
    seconds = rng.uniform(1, 30)
    if store == "redis":

        async def limit(scene: Scene) -> None:
            for limit in ("1mb", "0"):
                with contextlib.suppress(subprocess.SubprocessError):  # it is away: a new one has no limit
                    await asyncio.to_thread(scene.redis.cli, "config", "set", "maxmemory", limit)
                await asyncio.sleep(seconds if limit != "0" else 0)

        return f"redis is full, {seconds:.0f} s", limit
    if not can_mount():
        return _hang(rng, store, workers)

    async def fill(scene: Scene) -> None:
        filler = scene.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        await asyncio.sleep(seconds)
        filler.unlink(missing_ok=True)  # another one that is full has ended before

    return f"full disk, {seconds:.0f} s", fill


def _start_again(_rng: random.Random, _store: str, _workers: int) -> tuple[str, Strike]:
    """The same command is started while the first one runs."""

    async def strike(scene: Scene) -> None:
        await scene.again()

    return "second start", strike
