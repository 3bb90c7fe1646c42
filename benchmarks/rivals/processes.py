"""The processes of a rival's run: started, held to their shares of a processor, begun together, and read."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import IO

from testbed.cards import Machine
from testbed.processor_shares import ProcessorShare

_LONGEST_SILENCE = 300.0  # seconds beyond a run's limit until its processes are killed
_LONGEST_END = 30.0
_HOPELESS = 3.0  # times its bound that a run would take


@dataclass(frozen=True, slots=True)
class Program:
    """A program of `benchmarks.rivals`, and where it runs.

    Attributes:
        words: its name and its arguments.
        share: of a processor.
        machine: whose network it has; None: this machine's.
    """

    words: tuple[str, ...]
    share: ProcessorShare
    machine: Machine | None = None

    def start(self, errors: IO[bytes]) -> subprocess.Popen[str]:
        """Starts it."""
        name, *arguments = self.words
        command = [sys.executable, "-m", f"benchmarks.rivals.{name}", *arguments]
        if self.machine is not None:
            command = self.machine.command(*command)
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)  # noqa: S603 - ours


@dataclass(frozen=True, slots=True)
class Cards:
    """The machines of a run whose bytes are counted.

    Attributes:
        hub: the machine at the switch.
        machines: the others; none: nothing is counted.
    """

    hub: Machine | None = None
    machines: Sequence[Machine] = ()

    def carried(self) -> int:
        """Returns the bytes that all cards of the machines have sent and received."""
        return sum(sum(machine.carried(self.hub)) for machine in self.machines if self.hub is not None)


@dataclass(frozen=True, slots=True)
class Line:
    """How far a run was.

    Attributes:
        iteration: iterations that were trained.
        seconds: from its beginning, without the time in which the model was judged.
        megabytes: that all cards had sent and received.
        figures: AUC and normalised entropy of the held-out samples, where the model was judged.
    """

    iteration: int
    seconds: float
    megabytes: float
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a run is ended before its last iteration.

    Attributes:
        seconds: of the run, without the time in which the model is judged. It is ended in a quarter of them, too, if
            its iterations would take three times as long.
        target: AUC.
        iterations: of the task.
    """

    seconds: float = 3600.0
    target: float = math.inf
    iterations: int = 0

    def reached(self, line: Line) -> bool:
        """Returns whether a run is ended that has come so far."""
        hopeless = line.seconds * self.iterations > _HOPELESS * self.seconds * line.iteration
        return (
            line.seconds > self.seconds
            or (hopeless and line.seconds > self.seconds / 4)
            or line.figures.get("auc", -math.inf) >= self.target
        )


def run(programs: Sequence[Program], cards: Cards, bound: Bound, log: Path) -> list[Line]:
    """Runs programs, of which the first one tells how far the run is.

    Args:
        programs: they begin together, when all are ready.
        cards: of their machines.
        bound: where the run is ended.
        log: gets the standard error of all programs.

    Raises:
        RuntimeError: a program failed; the message has the end of the log.
    """
    lines: list[Line] = []
    with ExitStack() as stack:
        errors = stack.enter_context(log.open("wb"))
        processes = [stack.enter_context(program.start(errors)) for program in programs]
        for process in processes:
            stack.callback(process.kill)
        for program, process in zip(programs, processes, strict=True):
            if _stream(process.stdout).readline() != "ready\n":
                raise RuntimeError(f"{' '.join(program.words)} is not ready: {_end_of(log)}")
            program.share.hold(process.pid)
        before = cards.carried()
        watch = Timer(bound.seconds + _LONGEST_SILENCE, processes[0].kill)
        stack.callback(watch.cancel)
        watch.start()
        for process in processes:
            _stream(process.stdin).write("\n")
            _stream(process.stdin).flush()
        for text in _stream(processes[0].stdout):
            told = json.loads(text)
            iteration, seconds = told.pop("iteration"), told.pop("seconds")
            lines.append(Line(iteration, seconds, (cards.carried() - before) / 1e6, told))
            if bound.reached(lines[-1]):
                return lines
        if processes[0].wait(_LONGEST_END) != 0:
            raise RuntimeError(f"{' '.join(programs[0].words)} failed: {_end_of(log)}")
    return lines


def _stream(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise RuntimeError("a process was started without a pipe")
    return pipe


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-1000:]
