"""The misfortunes of bad days, and how they are drawn."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

from hardening.chaos import strikes
from hardening.chaos.strikes import Scene, Strike


@dataclass
class Misfortune:
    """A misfortune that happens to a run once.

    Attributes:
        name: the name of the misfortune.
        strike: causes the misfortune and returns when it is over.
        iteration: the number of confirmed iterations of the run at which it is due.
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


def _process(rng: random.Random, workers: int) -> tuple[str, str, int]:
    """Draws a process: its name, and the target and slot of its strikes."""
    target = rng.choice(["worker", "worker", "worker host", "dispatcher", "ps_server", "everything"])
    slot = rng.randrange(workers)
    return (f"worker {slot}" if target == "worker" else target), target, slot


def _kill(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    name, target, slot = _process(rng, workers)
    away = rng.uniform(0, 4)
    if store == "redis" and rng.random() < 0.3:
        return f"kill redis, {away:.1f} s", strikes.kill_redis(away)
    return f"kill {name}", strikes.kill(target, slot)


def _hang(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """A hang of 5 to 75 s."""
    name, target, slot = _process(rng, workers)
    seconds = rng.uniform(5, 75)
    if store == "redis" and rng.random() < 0.2:
        name = target = "redis"
    return f"hang {name}, {seconds:.0f} s", strikes.hang(target, slot, seconds)


def _cut(rng: random.Random, _store: str, workers: int) -> tuple[str, Strike]:
    """Links are cut or silent for up to 20 s."""
    target = rng.choice(["worker", "ps_server", "driver", "all"])
    slot, seconds, silent = rng.randrange(workers), rng.choice([0.0, rng.uniform(0.5, 20)]), rng.random() < 0.4
    what = "lose packets of" if silent else "cut"
    name = f"{what} {f'worker {slot}' if target == 'worker' else target}, {seconds:.1f} s"
    return name, strikes.cut(target, slot, seconds, silent=silent)


def _fill(rng: random.Random, store: str, workers: int) -> tuple[str, Strike]:
    """The disk of the checkpoints is full, or Redis accepts no more, for 1 to 30 s."""
    seconds = rng.uniform(1, 30)
    if store == "redis":
        return f"redis is full, {seconds:.0f} s", strikes.fill_redis(seconds)
    if not strikes.can_mount():
        return _hang(rng, store, workers)
    return f"full disk, {seconds:.0f} s", strikes.fill_disk(seconds)


def _start_again(_rng: random.Random, _store: str, _workers: int) -> tuple[str, Strike]:
    return "second start", strikes.start_again()
