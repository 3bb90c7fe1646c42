"""A planner's knowledge of its stream and its workers, which a checkpoint holds in addition to the engine's state."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

ADMISSION = "admission"  # the name of the learner that counts ids

# Arrays with more bytes are written without their zeros: the counts of admission, most of which are 0 at first.
_SPARSE_BYTES = 2**20

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A planner's state at a checkpoint.

    Attributes:
        engine: the rows and the caches; see `esd.native.engine.Engine.snapshot`.
        learned: the result of `Learned.save`, which nothing changes; empty in checkpoints without it. A checkpoint has
            it as `encode_learned` writes it, which takes so long that no decision waits for it.
    """

    engine: bytes
    learned: Arrays = field(default_factory=dict)


@runtime_checkable
class Learner(Protocol):
    """A part of a planner with state that later decisions depend on."""

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state that later decisions depend on, by name; empty if there is none.

        They may be the learner's own arrays, which `Learned` copies; the large ones of admission are copies.
        """
        ...

    def load(self, saved: Arrays) -> None:
        """Restores a result of `save` that was not empty. Its arrays are the learner's from then on."""
        ...


class Learned:
    """Saves and restores the learners of one planner together.

    Knowledge of workers stays valid for workers with the same links, caches and limits. A mechanism's knowledge of the
    stream stays valid for the same number of workers, and the counts of admission for any workers.
    """

    def __init__(
        self,
        workers: NDArray[np.float64],
        of_workers: Mapping[str, Learner],
        of_stream: Mapping[str, Learner],
        of_samples: Mapping[str, Learner],
    ):
        """Groups the learners by name.

        Args:
            workers: the figures of each worker's registration, float64 [n, any number].
            of_workers: the learners that learn from workers.
            of_stream: the learners that learn from samples and their dispatch.
            of_samples: the learners that learn from samples alone.
        """
        self._workers = workers
        self._of_workers = of_workers
        self._of_stream = of_stream
        self._of_samples = of_samples

    def save(self) -> Arrays:
        """Returns the state of all learners."""
        learners = {**self._of_workers, **self._of_stream, **self._of_samples}
        parts = {name: _own(name, learner.save()) for name, learner in learners.items()}
        return {"workers": self._workers} | within(parts)

    def load(self, saved: Arrays) -> bool:
        """Restores the result of `save`, as far as it is valid. Returns whether the workers are the same."""
        if not saved:
            return False
        same = np.array_equal(saved["workers"], self._workers)
        learners = {**self._of_samples, **(self._of_workers if same else {})}
        if len(saved["workers"]) == len(self._workers):
            learners |= self._of_stream
        for name, learner in learners.items():
            if arrays := of(saved, name):
                learner.load(_own(name, arrays))
        return same


def _own(name: str, arrays: Arrays) -> Arrays:
    """Returns copies of a learner's arrays; the learner of admission copies its arrays itself."""
    return arrays if name == ADMISSION else {each: array.copy() for each, array in arrays.items()}


def counts_alone(learned: Arrays) -> Arrays:
    """Returns the counts of admission in a result of `Learned.save`, without all else, for a job that continues it."""
    counts = {name: array for name, array in learned.items() if name.startswith(f"{ADMISSION}/")}
    return {"workers": np.empty((0, 0))} | counts


def encode_learned(learned: Arrays) -> bytes:
    """Returns a result of `Learned.save` as bytes; of large arrays the elements that are not 0, and a bit for each."""
    written: dict[str, NDArray[Any]] = {}
    for name, array in learned.items():
        if array.nbytes <= _SPARSE_BYTES:
            written[name] = array
            continue
        there = array != 0
        sparse = {"shape": np.array(array.shape), "there": np.packbits(there), "elements": array[there]}
        written |= within({f"{name}/sparse": sparse})
    return save_arrays(written)


def decode_learned(data: bytes) -> Arrays:
    """Returns the arrays in a result of `encode_learned`."""
    learned = read_arrays(data)
    for name in [each.removesuffix("/sparse/there") for each in learned if each.endswith("/sparse/there")]:
        shape, there, elements = (learned.pop(f"{name}/sparse/{part}") for part in ("shape", "there", "elements"))
        array = np.zeros(shape, elements.dtype)
        array[np.unpackbits(there, count=array.size).astype(np.bool_).reshape(shape)] = elements
        learned[name] = array
    return learned


def save_arrays(arrays: Arrays) -> bytes:
    """Returns arrays as the bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_arrays(data: bytes) -> dict[str, NDArray[Any]]:
    """Returns the arrays in a result of `save_arrays`."""
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return dict(arrays)


def within(parts: Mapping[str, Arrays]) -> dict[str, NDArray[Any]]:
    """Merges the arrays of several parts, each under PART/NAME."""
    return {f"{part}/{name}": array for part, arrays in parts.items() for name, array in arrays.items()}


def of(arrays: Arrays, part: str) -> dict[str, NDArray[Any]]:
    """Returns the arrays of one part, by their names within it."""
    return {name.removeprefix(f"{part}/"): array for name, array in arrays.items() if name.startswith(f"{part}/")}
