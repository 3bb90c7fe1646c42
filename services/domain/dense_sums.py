"""The ways to sum dense gradients over the workers, of which a job chooses one: a class of each, with its options."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument

MAX_RANK = 1024
MAX_INTERVAL = 65536  # iterations


@dataclass(frozen=True, slots=True)
class DenseSum:
    """A way to sum the gradients that all workers share, with its options. Each subclass is one way.

    It sums gradients of dense parameters and of replicated rows, and changes of buffers.

    Attributes:
        name: as `--dense` names it.

    Example:
        >>> str(esd.parse_dense_sum("low-rank:8"))
        'low-rank:8'
    """

    name: ClassVar[str]

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns the bytes that one of n workers sends, and receives, to sum float32 values over all of them."""
        raise NotImplementedError

    def round_trips(self, workers: int) -> int:
        """Returns how many round trips the sum of one iteration takes, one after the other; 0 for a single worker.

        Links that carry a sum in less than a round trip are assumed.
        """
        raise NotImplementedError

    def iteration_round_trips(self, workers: int) -> int:
        """Returns how many round trips an iteration takes at least: one for its rows, which share it with the sum."""
        return max(1, self.round_trips(workers))

    def dense_floats(self, shapes: Iterable[tuple[int, ...]], values: int) -> int:  # noqa: ARG002 - few ways need it
        """Returns how many float32 values an iteration sums for dense parameters, on average.

        Args:
            shapes: of the parameters.
            values: how many values a parameter has with its optimizer; see `OptimizerSpec.values_per_parameter`.
        """
        return sum(map(math.prod, shapes))

    def __str__(self) -> str:
        """Returns the way as `--dense` has it, with its number."""
        return ":".join([self.name, *(str(getattr(self, option.name)) for option in fields(self))])


@dataclass(frozen=True, slots=True)
class AllReduce(DenseSum):
    """Sums in a ring of the workers, which send to each other (gloo)."""

    name: ClassVar[str] = "all-reduce"

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns 2 (n-1)/n of the values' bytes."""
        return 2 * 4 * floats * (workers - 1) // workers

    def round_trips(self, workers: int) -> int:
        """Returns 4 (n-1): a ring has 2 (n-1) steps, each of which takes gloo two round trips, as measured."""
        return 4 * (workers - 1)


@dataclass(frozen=True, slots=True)
class ServerSum(DenseSum):
    """Sums at the parameter servers, in the order of the workers: each sends its gradients, and gets the sums, once."""

    name: ClassVar[str] = "server"

    def sent_bytes(self, floats: int, workers: int) -> int:
        """Returns the values' bytes; 0 for a single worker."""
        return 4 * floats if workers > 1 else 0

    def round_trips(self, workers: int) -> int:
        """Returns 1: gradients go up, and sums come down; 0 for a single worker."""
        return int(workers > 1)


@dataclass(frozen=True, slots=True)
class LowRank(ServerSum):
    """Sums factors of the gradients' matrices at the parameter servers, and keeps the rest as an error (PowerSGD).

    The trained model is the model of one machine that trains gradients of the same rank.

    Attributes:
        rank: R, columns of the factors, 1..1024. A matrix with more than 2 R rows and columns is summed by factors.
    """

    name: ClassVar[str] = "low-rank"
    rank: int

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= MAX_RANK:
            raise InvalidArgument(f"the rank is {self.rank}, it must be in 1..{MAX_RANK} (--dense low-rank:R)")

    def round_trips(self, workers: int) -> int:
        """Returns 2: the second factors are made of the sums of the first; 0 for a single worker."""
        return 2 * int(workers > 1)

    def dense_floats(self, shapes: Iterable[tuple[int, ...]], values: int) -> int:  # noqa: ARG002 - as above
        """Returns the values of all factors, and of the parameters without."""
        return sum(self.rank * sum(shape) if self.factors(shape) else math.prod(shape) for shape in shapes)

    def factors(self, shape: tuple[int, ...]) -> bool:
        """Returns whether a parameter of a shape is summed by factors."""
        return len(shape) == 2 and min(shape) > 2 * self.rank


@dataclass(frozen=True, slots=True)
class Every(ServerSum):
    """Averages parameters at the parameter servers, every so many iterations, in place of a sum of their gradients.

    Each worker takes steps of its own in between, so the trained model depends on the cluster. Gradients of replicated
    rows, and changes of buffers, are summed in each iteration.

    Attributes:
        iterations: H, 1..65536. After each iteration whose number, counted from 1, is a multiple of H, and before each
            checkpoint, the parameters of all workers become their average.
    """

    name: ClassVar[str] = "every"
    iterations: int

    def __post_init__(self) -> None:
        if not 1 <= self.iterations <= MAX_INTERVAL:
            raise InvalidArgument(
                f"averages are made every {self.iterations} iterations, it must be 1..{MAX_INTERVAL} (--dense every:H)"
            )

    def due(self, iteration: int) -> bool:
        """Returns whether parameters are averaged after an iteration, counted from 0."""
        return (iteration + 1) % self.iterations == 0

    def dense_floats(self, shapes: Iterable[tuple[int, ...]], values: int) -> int:
        """Returns one value, the barrier of each iteration, and the share of an average.

        An average has the parameters, the moments of their optimizer, and the number of samples.
        """
        averaged = values * sum(map(math.prod, shapes)) + 1
        return 1 + math.ceil(averaged / self.iterations)


@dataclass(frozen=True, slots=True)
class Auto(DenseSum):
    """Stands for `server` or `all-reduce`, until the links of the workers are known (`esd.services.domain.auto_sum`).

    It sums nothing itself.
    """

    name: ClassVar[str] = "auto"


AUTO = Auto()
ALL_REDUCE = AllReduce()

DENSE_SUMS: dict[str, type[DenseSum]] = {way.name: way for way in (Auto, AllReduce, ServerSum, LowRank, Every)}


def parse_dense_sum(text: str) -> DenseSum:
    """Reads a way to sum dense gradients.

    >>> esd.parse_dense_sum("server")
    ServerSum()

    Args:
        text: as `--dense` has it.

    Raises:
        InvalidArgument: there is no way of this name, or it has no such number.
    """
    name, _, given = text.partition(":")
    way = DENSE_SUMS.get(name)
    if way is None:
        raise InvalidArgument(f"--dense {text!r} is unknown; there are {', '.join(map(_form, DENSE_SUMS.values()))}")
    numbers = given.split(":") if text != name else []
    if len(numbers) != len(fields(way)) or not all(number.isascii() and number.isdecimal() for number in numbers):
        raise InvalidArgument(f"--dense {text!r} is not of the form {_form(way)}")
    return way(*map(int, numbers))


def _form(way: type[DenseSum]) -> str:
    return ":".join([way.name, *(option.name.upper() for option in fields(way))])
