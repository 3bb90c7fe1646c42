"""What a planner has learned from its stream and its workers, kept in checkpoints beside the engine's state."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A planner's state at a checkpoint.

    Attributes:
        engine: the rows and the caches; see `esd.native.engine.Engine.snapshot`.
        learned: what `Learned.save` returned; empty where nothing was learned.
    """

    engine: bytes
    learned: bytes = b""


@runtime_checkable
class Learner(Protocol):
    """Part of a planner that takes something from one iteration to later ones."""

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns all that later decisions depend on, by name; nothing where they depend on nothing."""
        ...

    def load(self, saved: Arrays) -> None:
        """Goes on where `save` was called, if that returned anything."""
        ...


class Learned:
    """Saves the learners of one planner together, and brings back what they knew.

    What was learned of workers holds for workers with the same links, caches and limits; what was learned of the
    stream, by a mechanism, for as many workers.
    """

    def __init__(
        self, workers: NDArray[np.float64], of_workers: Mapping[str, Learner], of_stream: Mapping[str, Learner]
    ):
        """Takes the learners by name.

        Args:
            workers: what each worker registered with, float64 [n, anything].
            of_workers: whoever learns from workers.
            of_stream: whoever learns from samples.
        """
        self._workers = workers
        self._of_workers = of_workers
        self._of_stream = of_stream

    def save(self) -> bytes:
        """Returns what all learners know."""
        learners = {**self._of_workers, **self._of_stream}
        parts = {name: learner.save() for name, learner in learners.items()}
        return save_arrays({"workers": self._workers} | within(parts))

    def load(self, learned: bytes) -> bool:
        """Brings back what was saved. Returns whether the workers are the same."""
        if not learned:
            return False
        saved = read_arrays(learned)
        same = np.array_equal(saved["workers"], self._workers)
        learners = dict(self._of_workers) if same else {}
        if len(saved["workers"]) == len(self._workers):
            learners |= self._of_stream
        for name, learner in learners.items():
            if arrays := of(saved, name):
                learner.load(arrays)
        return same


def save_arrays(arrays: Arrays) -> bytes:
    """Returns arrays as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Returns what `save_arrays` wrote."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def within(parts: Mapping[str, Arrays]) -> dict[str, NDArray[Any]]:
    """Puts the arrays of several parts together, each under PART/NAME."""
    return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def of(arrays: Arrays, part: str) -> dict[str, NDArray[Any]]:
    """Returns the arrays of one part, by their names within it."""
    return {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
