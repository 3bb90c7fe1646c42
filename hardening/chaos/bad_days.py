"""Runs to which two or three things happen, and which may be repeated when they were refused.

On a bad day a command may end with an error. It must name the cause, and when that is over, the same command must end
with the undisturbed model.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

from esd.run.events import EvaluationMissed, Event
from esd.run.options import RunOptions
from esd.run.train import TrainedRun
from esd.services.domain.errors import EsdError
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from hardening.chaos.misfortunes import Misfortune, draw_strike
from hardening.chaos.strikes import Scene, small_disk
from hardening.chaos.system import System, Training, run
from hardening.chaos.verdict import Undisturbed, train_earlier
from testbed.redis_server import RedisServer

OPTIONS = RunOptions(
    data="synthetic:zipf?fields=8&keys=20000",
    workers=3,
    links="1g,500m,200m",
    batch=12,
    dim=8,
    hidden="32",
    cache_rows=600,
    learning_rate=0.002,
    iterations=160,
    seed=1,
    checkpoint_every=4,
)
COLUMNS = ("run", "misfortunes @iteration", "store", "training", "how it ended", "model", "seconds")
_NEXT_SECONDS = 10.0  # within which the next thing happens, if it does not wait for an iteration of its own
_LONGEST_RUN = 600.0  # seconds; a command that takes longer hangs
_NO_CAUSE = ("internal error", "Traceback")  # texts of an error without a remedy
_ALONE = "the next epoch begins without"  # in the dispatcher's log, of a worker that was away for too long


@dataclass
class BadDay:
    """One run with its misfortunes.

    Attributes:
        training: the training.
        store: `redis` or `directory`.
        misfortunes: in the order of their iterations.
    """

    training: Training
    store: str
    misfortunes: Sequence[Misfortune]
    _striking: list[asyncio.Task[None]] = field(default_factory=list)
    _commands: int = 0
    _second_starts: int = 0
    _checkpoint: int = 0
    _missed: list[int] = field(default_factory=list)
    _ends: list[str] = field(default_factory=list)
    _wrong: list[str] = field(default_factory=list)

    async def run(self, redis: RedisServer, place: Path, undisturbed: Undisturbed) -> tuple[bool, tuple[str, ...]]:
        """Lives through the day. Returns whether it ended well, and the columns from `misfortunes` to `model`."""
        await asyncio.to_thread(redis.cli, "flushall")
        verdict = "none"
        with small_disk(place / "kept") as disk:
            store = redis.url if self.store == "redis" else disk
            scene = Scene(redis, disk, lambda: self._second_start(store, place, undisturbed))
            try:
                await train_earlier(self.training, store, place)
                trained = await self._repeated(scene, store, place)
                if trained is None:
                    self._wrong.append("no model")
                else:
                    verdict = await self._judged(trained, place / str(self._commands), undisturbed)
            except TimeoutError:
                self._wrong.append("hangs")
            except EsdError as error:  # of the earlier run, or of the undisturbed one
                self._wrong.append(f"a run without misfortunes is refused: {error}")
            finally:
                for strike in self._striking:
                    strike.cancel()
                await asyncio.gather(*self._striking, return_exceptions=True)
        happened = ", ".join(map(str, self.misfortunes))
        ended = "; ".join([*self._ends, *(f"WRONG: {each}" for each in self._wrong)]) or "by itself"
        return not self._wrong, (happened, self.store, str(self.training), ended, verdict)

    async def _repeated(self, scene: Scene, store: str | Path, place: Path) -> TrainedRun | None:
        """Runs the command, again after each refusal that something had led to; None if it is refused for good."""
        while True:
            before = len(self._striking)
            self._commands += 1
            folder = place / str(self._commands)
            folder.mkdir()
            trained = await self._command(scene, store, folder)
            await asyncio.gather(*self._striking)  # a command is repeated when its trouble is over
            if trained is not None or len(self._striking) == before:
                return trained

    async def _command(self, scene: Scene, store: str | Path, folder: Path) -> TrainedRun | None:
        """Runs the command once; None if it was refused."""

        def watch(system: System, state: JobState) -> None:
            scene.system = system
            self._see(scene, state)

        with (folder / "supervisor.log").open("w", buffering=1) as log:
            report = self._reporter(log)
            scene.command = asyncio.create_task(
                run(self.training, store, folder, watch, longest=_LONGEST_RUN, listener=report)
            )
            try:
                return await scene.command
            except asyncio.CancelledError:
                if not scene.killed:
                    raise
                scene.killed = False
                self._ends.append("killed")
            except EsdError as error:
                report(error)
                self._refused(error)
            finally:
                scene.system = None
        return None

    async def _second_start(self, store: str | Path, place: Path, undisturbed: Undisturbed) -> None:
        """The same command in another terminal: it is refused, or the first one is gone and it trains the model."""
        self._second_starts += 1
        folder = place / f"second-{self._second_starts}"
        folder.mkdir()
        with (folder / "supervisor.log").open("w", buffering=1) as log:
            report = self._reporter(log)
            try:
                trained = await run(
                    self.training, store, folder, lambda _system, _state: None, longest=_LONGEST_RUN, listener=report
                )
            except EsdError as error:
                report(error)
                self._refused(error, "second start ")
            else:
                self._ends.append("second start trained on")
                await self._judged(trained, folder, undisturbed)

    def _reporter(self, log: TextIO) -> Callable[[Event | EsdError], None]:
        """Returns a listener that writes lines to a log. An evaluation may be missed if its checkpoint had no room."""

        def report(line: Event | EsdError) -> None:
            print(line, file=log)
            if isinstance(line, EvaluationMissed):
                self._missed.append(line.iteration)
                where = self._ends if any("full" in each.name for each in self.misfortunes) else self._wrong
                where.append(f"no evaluation at iteration {line.iteration}")

        return report

    async def _judged(self, trained: TrainedRun, folder: Path, undisturbed: Undisturbed) -> str:
        logs = (log.read_text() for log in folder.parent.glob("*/dispatcher.log"))
        alone = any(_ALONE in log for log in logs)
        good, verdict = await undisturbed.judge(self.training, trained, folder, alone=alone, missed=self._missed)
        if not good:
            self._wrong.append(f"model of {folder.name}: {verdict}")
        return verdict

    def _see(self, scene: Scene, state: JobState) -> None:
        if state.checkpoint < self._checkpoint:
            self._wrong.append(f"checkpoint {self._checkpoint} was lost for {state.checkpoint}")
        self._checkpoint = state.checkpoint
        confirmed = state.iterations_confirmed - state.job.first_iteration
        due = [each for each in self.misfortunes if confirmed >= each.iteration]
        self._striking += [asyncio.create_task(each.happen(scene)) for each in due[len(self._striking) :]]

    def _refused(self, error: EsdError, what: str = "") -> None:
        text = str(error)
        self._ends.append(f"{what}refused: {' '.join(text.split()) or 'nothing said'}")
        if not text or any(each in text for each in _NO_CAUSE):
            self._wrong.append("no cause is named")


def draw_bad_days(rng: random.Random, runs: int) -> list[BadDay]:
    """Draws this number of days, each kind of store and of optimizer about as often."""
    assert OPTIONS.iterations is not None  # noqa: S101 - it is a constant
    days = []
    for number in range(runs):
        store = ("redis", "directory")[number % 2]
        optimizer = list(OptimizerKind)[number // 2 % len(OptimizerKind)]
        # One day in eight begins badly: while the workers come together.
        first = 0 if rng.random() < 0.125 else rng.randrange(OPTIONS.iterations + 1)
        misfortunes = [_misfortune(rng, store, first, rng.uniform(0, 0.5 if first else _NEXT_SECONDS))]
        for _ in range(rng.choice((1, 2))):
            at_once = rng.random() < 0.6
            iteration = first if at_once else rng.randrange(OPTIONS.iterations + 1)
            misfortunes.append(_misfortune(rng, store, iteration, rng.uniform(0, _NEXT_SECONDS if at_once else 0.5)))
        misfortunes.sort(key=lambda each: each.iteration)
        days.append(BadDay(Training(replace(OPTIONS, optimizer=optimizer)), store, misfortunes))
    return days


def _misfortune(rng: random.Random, store: str, iteration: int, delay: float) -> Misfortune:
    name, strike = draw_strike(rng, store, OPTIONS.workers)
    return Misfortune(name, strike, iteration, delay)
