"""One fault of a run at a random moment, and the observed effects."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from esd.run.services import ServiceProcess
from esd.services.domain.errors import EsdError
from esd.services.domain.state import JobState
from hardening.chaos.system import OPTIONS, System, Training, run
from hardening.chaos.verdict import Undisturbed
from testbed.redis_server import RedisServer

COLUMNS = ("run", "fault", "store", "iteration", "noticed, s", "recovered, s", "redone", "model", "seconds")
AWAY_SECONDS = 7.0  # longer than a lease
SILENT_SECONDS = 12.0  # longer than a worker waits for the answer of the dispatcher

Strike = Callable[[System, RedisServer], Coroutine[Any, Any, None]]


@dataclass
class Fault:
    """A fault that happens to a run once.

    Attributes:
        name: the name of the fault.
        store: `redis` or `directory`.
        strike: causes the fault.
        iteration: the number of confirmed iterations at which it strikes.
        absentee: slot of a worker that does not come back.
    """

    name: str
    store: str
    strike: Strike
    iteration: int
    absentee: int | None = None
    recovered_after: float | None = None
    lost_checkpoint: bool = False
    _struck_at: float = 0.0
    _before: JobState | None = None
    _recoveries: list[float] = field(default_factory=list)
    _checkpoint: int = 0
    _striking: asyncio.Task[None] | None = None

    def see(self, system: System, redis: RedisServer, state: JobState) -> None:
        """Takes in a polled state of the job, and strikes when the moment has come."""
        self.lost_checkpoint |= state.checkpoint < self._checkpoint
        self._checkpoint = max(self._checkpoint, state.checkpoint)
        now = time.monotonic()
        if self._before is None:
            if state.iterations_confirmed >= self.iteration:
                self._before, self._struck_at = state, now
                self._striking = asyncio.create_task(self.strike(system, redis))
        elif self.recovered_after is None and self._recovered(self._before, state):
            self.recovered_after = now - self._struck_at
            self._recoveries = [each.seconds for each in state.recoveries]

    async def over(self) -> None:
        """Returns when all that was to happen has happened."""
        if self._striking is not None:
            await self._striking

    async def run(self, redis: RedisServer, place: Path, undisturbed: Undisturbed) -> tuple[bool, tuple[str, ...]]:
        """Trains once, disturbed. Returns whether it ended well, and the columns from `fault` to `model`."""
        if self.store == "redis":
            await asyncio.to_thread(redis.cli, "flushall")
        final, good = None, False
        try:
            trained = await run(
                Training(OPTIONS),
                redis.url if self.store == "redis" else place / "kept",
                place,
                lambda system, state: self.see(system, redis, state),
                absentee=self.absentee,
            )
            final = trained.state
            await self.over()
            near, verdict = await undisturbed.judge(Training(OPTIONS), trained, place, alone=self.absentee is not None)
            verdict += ", a checkpoint was lost" if self.lost_checkpoint else ""
            verdict += "" if self.happened else ", over before the fault"
            good = near and self.happened and not self.lost_checkpoint
        except (EsdError, TimeoutError) as error:
            verdict = (str(error) or "hangs").splitlines()[0]
        seconds = (_seconds(self.noticed_after), _seconds(self.recovered_after))
        return good, (self.name, self.store, str(self.iteration), *seconds, str(self.redone(final)), verdict)

    @property
    def happened(self) -> bool:
        """Whether the moment has come at which it strikes."""
        return self._before is not None

    @property
    def noticed_after(self) -> float | None:
        """Seconds until the epoch ended, as far as the dispatcher that ended it is still there to tell."""
        if self.recovered_after is None or not self._recoveries:
            return None
        return max(0.0, self.recovered_after - sum(self._recoveries))

    def redone(self, final: JobState | None) -> int:
        """Returns the iterations that were trained twice."""
        if self._before is None or final is None or final.epoch == self._before.epoch:
            return 0
        return sum(each.iterations_redone for each in final.recoveries) or (
            self._before.iterations_confirmed - self._before.checkpoint
        )

    @staticmethod
    def _recovered(before: JobState, now: JobState) -> bool:
        """A new iteration is trained: in the next epoch, or where none was needed, beyond all that was planned."""
        if now.epoch > before.epoch:
            return now.iterations_confirmed > now.checkpoint
        return not now.recoveries and now.iterations_confirmed > before.iterations_planned


def draw_faults(rng: random.Random, runs: int) -> list[Fault]:
    """Draws this number of faults: every kind about as often, in random order, each at a random moment."""
    assert OPTIONS.iterations is not None  # noqa: S101 - it is a constant
    kinds = [_KINDS[number % len(_KINDS)] for number in range(runs)]
    rng.shuffle(kinds)
    last = int(0.8 * OPTIONS.iterations)
    return [
        make(rng.randrange(OPTIONS.workers), rng.choice(("redis", "directory")), rng.randrange(1, last))
        for make in kinds
    ]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _kill(choose: Callable[[System], ServiceProcess]) -> Strike:
    """One process gets SIGKILL."""

    async def strike(system: System, _redis: RedisServer) -> None:
        choose(system).process.send_signal(signal.SIGKILL)

    return strike


async def _restart_redis(_system: System, redis: RedisServer) -> None:
    """Redis gets SIGKILL, and is then started again on its files."""
    await asyncio.to_thread(redis.kill)
    await asyncio.to_thread(redis.start)


def _kill_worker(slot: int, store: str, moment: int) -> Fault:
    return Fault(f"kill worker {slot}", store, _kill(lambda system: system.cluster.workers[slot]), moment)


def _lose_worker(slot: int, store: str, moment: int) -> Fault:
    strike = _kill(lambda system: system.cluster.workers[slot])
    return Fault(f"kill worker {slot}, for good", store, strike, moment, absentee=slot)


def _freeze_worker(slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        pid = system.cluster.workers[slot].process.pid
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(AWAY_SECONDS)
        os.kill(pid, signal.SIGCONT)

    return Fault(f"freeze worker {slot}, {AWAY_SECONDS:g} s", store, strike, moment)


def _kill_dispatcher(_slot: int, store: str, moment: int) -> Fault:
    return Fault("kill dispatcher", store, _kill(lambda system: system.cluster.dispatcher), moment)


def _kill_parameter_server(_slot: int, store: str, moment: int) -> Fault:
    return Fault("kill ps_server", store, _kill(lambda system: system.cluster.parameter_servers[0]), moment)


def _kill_redis(_slot: int, _store: str, moment: int) -> Fault:
    return Fault("kill redis", "redis", _restart_redis, moment)


def _cut_worker(slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        await system.worker_links[slot].cut_for(AWAY_SECONDS)

    return Fault(f"cut worker {slot} - dispatcher, {AWAY_SECONDS:g} s", store, strike, moment)


def _silence_worker(slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        await system.worker_links[slot].hold_for(SILENT_SECONDS)

    return Fault(f"lose packets worker {slot} - dispatcher, {SILENT_SECONDS:g} s", store, strike, moment)


def _cut_store(_slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        await system.store_links[0].cut_for(AWAY_SECONDS)

    return Fault(f"cut ps_server - all, {AWAY_SECONDS:g} s", store, strike, moment)


def _silence_store(_slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        await system.store_links[0].hold_for(SILENT_SECONDS)

    return Fault(f"lose packets ps_server - all, {SILENT_SECONDS:g} s", store, strike, moment)


def _reset_connections(_slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        for link in system.links:
            link.cut()

    return Fault("reset all connections", store, strike, moment)


def _cut_driver(_slot: int, store: str, moment: int) -> Fault:
    async def strike(system: System, _redis: RedisServer) -> None:
        await system.driver_link.cut_for(AWAY_SECONDS)

    return Fault(f"cut driver - dispatcher, {AWAY_SECONDS:g} s", store, strike, moment)


_KINDS = (
    _kill_worker,
    _lose_worker,
    _kill_dispatcher,
    _kill_parameter_server,
    _kill_redis,
    _cut_worker,
    _silence_worker,
    _cut_store,
    _silence_store,
    _reset_connections,
    _cut_driver,
    _freeze_worker,
)
