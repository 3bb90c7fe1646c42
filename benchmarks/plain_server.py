"""A plain parameter server and its workers, the rival of `benchmarks.round_trips`.

A worker sends one message per iteration: the gradients of its rows and of all dense parameters, and the ids of its next
samples. When all workers have sent theirs, the server trains and answers with the rows of these ids and the dense
parameters. So an iteration takes one round trip, and nothing is cached, planned, encrypted or recovered.

    python -m benchmarks.plain_server serve WORKERS ADDRESS HIDDEN
    python -m benchmarks.plain_server work WORKERS ADDRESS HIDDEN RANK ITERATIONS
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from esd.data.opening import open_data

Floats = NDArray[np.float32]
Ids = NDArray[np.uint64]
Shapes = Sequence[tuple[int, ...]]

DIM = 128
SAMPLES = 64  # of one worker in an iteration
_DATA, _FEATURES, _DENSE = "flights", 14, 15
_RATE, _EPSILON, _SCALE = 0.02, 1e-10, 0.01
_MOST_ROWS = 1 << 17  # more than the data has
_LONGEST_WAIT = 60.0  # seconds for the other workers, or for the server


def shapes_of(hidden: str) -> Shapes:
    """Returns the shapes of the dense parameters: the matrix and the vector of each layer."""
    widths = [_FEATURES * DIM + _DENSE, *map(int, hidden.split(",")), 1]
    return [shape for inputs, outputs in pairwise(widths) for shape in ((outputs, inputs), (outputs,))]


class Messages:
    """Arrays over a TCP connection, each after its length."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(_LONGEST_WAIT)
        self._connection = connection

    def send(self, *arrays: Floats | Ids) -> None:
        """Sends arrays in one burst."""
        self._connection.sendall(b"".join(struct.pack("<Q", each.nbytes) + each.tobytes() for each in arrays))

    def floats(self) -> Floats:
        """Receives an array of numbers."""
        return np.frombuffer(self._array(), np.float32)

    def ids(self) -> Ids:
        """Receives an array of ids."""
        return np.frombuffer(self._array(), np.uint64)

    def _array(self) -> bytearray:
        (size,) = struct.unpack("<Q", self._read(8))
        return self._read(size)

    def _read(self, size: int) -> bytearray:
        data, read = bytearray(size), 0
        while read < size:
            part = self._connection.recv_into(memoryview(data)[read:])
            if not part:
                raise EOFError
            read += part
        return data


@dataclass(slots=True)
class Sent:
    """The part of one worker in an iteration: its ids, and the gradients of their rows and of the dense parameters."""

    ids: Ids
    rows: Floats
    dense: Floats


class Parameters:
    """All parameters and their optimizers: Adagrad, row-wise for rows.

    Args:
        shapes: of the dense parameters.

    Attributes:
        dense: float32 [P], the dense parameters.
        dimension: D, values of a row.
    """

    dimension = DIM

    def __init__(self, shapes: Shapes) -> None:
        chance = np.random.default_rng(0)
        scales = [(2 / shape[1]) ** 0.5 if len(shape) > 1 else 0.0 for shape in shapes]
        layers = [chance.normal(0, scale, shape).ravel() for scale, shape in zip(scales, shapes, strict=True)]
        self.dense: Floats = np.concatenate(layers).astype(np.float32)
        self._squares = np.zeros_like(self.dense)
        self._places: dict[int, int] = {}
        self._rows = np.zeros((_MOST_ROWS, DIM), np.float32)
        self._row_squares = np.zeros(_MOST_ROWS, np.float32)
        self._lock = threading.Lock()  # of the places

    def look_up(self, ids: Ids) -> Floats:
        """Returns rows, float32 [i, DIM]. A row begins with values that follow from its id."""
        with self._lock:
            return self._rows[self._places_of(ids)]

    def train(self, parts: Sequence[Sent]) -> None:
        """Trains all parameters by the gradients of one iteration."""
        dense = np.sum([part.dense for part in parts], axis=0)
        self._squares += dense * dense
        self.dense -= _RATE * dense / (np.sqrt(self._squares) + _EPSILON)
        ids, places = np.unique(np.concatenate([part.ids for part in parts]), return_inverse=True)
        gradients = np.zeros((len(ids), DIM), np.float32)
        np.add.at(gradients, places, np.concatenate([part.rows for part in parts]))
        rows = self._places_of(ids)
        self._row_squares[rows] += (gradients * gradients).mean(axis=1)
        self._rows[rows] -= _RATE * gradients / (np.sqrt(self._row_squares[rows]) + _EPSILON)[:, None]

    def _places_of(self, ids: Ids) -> NDArray[np.int64]:
        for number in ids.tolist():
            if number not in self._places:
                place = self._places[number] = len(self._places)
                self._rows[place] = np.random.default_rng(number).uniform(-_SCALE, _SCALE, DIM)
        return np.array([self._places[number] for number in ids.tolist()], np.int64)


class Served(Protocol):
    """The parameters that a server trains.

    Attributes:
        dimension: D, values of a row.
    """

    dimension: int

    @property
    def dense(self) -> Floats:
        """The dense parameters, float32 [P]."""

    def look_up(self, ids: Ids) -> Floats:
        """Returns rows, float32 [i, D]. Several threads call it at once."""

    def train(self, parts: Sequence[Sent]) -> None:
        """Trains all parameters by the gradients of one iteration."""


class PlainServer:
    """Trains with the gradients of all workers, until the first one leaves.

    Args:
        workers: their number.
        parameters: of the model.
    """

    def __init__(self, workers: int, parameters: Served) -> None:
        self._parameters = parameters
        self._parts: list[Sent | None] = [None] * workers
        self._left = False  # whether a worker had left when all came
        self._all_here = threading.Barrier(workers, self._train, _LONGEST_WAIT)

    def serve(self, listening: socket.socket) -> None:
        """Accepts each worker, and returns when they have left."""
        threads = [
            threading.Thread(target=self._attend, args=(rank, listening.accept()[0]), name=f"worker-{rank}")
            for rank in range(len(self._parts))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _attend(self, rank: int, connection: socket.socket) -> None:
        messages, ids = Messages(connection), np.empty(0, np.uint64)
        try:
            while True:
                self._parts[rank], ids = self._received(messages, ids)
                self._all_here.wait()
                if self._left:
                    return
                messages.send(self._parameters.look_up(ids), self._parameters.dense)
        except (ConnectionError, threading.BrokenBarrierError):
            self._all_here.abort()
        finally:
            connection.close()

    def _received(self, messages: Messages, ids: Ids) -> tuple[Sent | None, Ids]:
        """Returns the gradients of the last ids and the ids of the next samples, or None when the worker has left."""
        try:
            rows = messages.floats().reshape(-1, self._parameters.dimension)
            return Sent(ids, rows, messages.floats()), messages.ids()
        except (EOFError, ConnectionError):
            return None, ids

    def _train(self) -> None:
        """Trains when all workers have come, no row being looked up meanwhile. First messages have no gradients.

        A worker that has left comes, too: until then, the others' last answers may be on their way.
        """
        parts = [part for part in self._parts if part is not None]
        self._left = len(parts) < len(self._parts)
        if not self._left and len(parts[0].dense):
            self._parameters.train(parts)


def work(server: socket.socket, rank: int, workers: int, iterations: int, shapes: Shapes) -> tuple[float, list[float]]:
    """Trains one worker's part of every batch.

    Returns:
        Seconds from the first message to the last answer, and the mean loss of the worker's samples by iteration.
    """
    messages, none = Messages(server), np.empty(0, np.float32)
    samples = list(islice(samples_of(rank, workers), iterations + 1))
    losses = []
    began = time.perf_counter()
    messages.send(none, none, samples[0].ids)
    for current, following in pairwise(samples):
        rows, dense = messages.floats().reshape(-1, DIM), messages.floats()
        loss, gradients = gradients_of(current, rows, dense, shapes, SAMPLES * workers)
        losses.append(loss / SAMPLES)
        messages.send(*gradients, following.ids)
    messages.floats(), messages.floats()  # the answer to the last gradients
    return time.perf_counter() - began, losses


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one worker in an iteration: their distinct ids, the places of these, and the rest."""

    ids: Ids
    places: Tensor
    dense: Tensor
    labels: Tensor


def samples_of(rank: int, workers: int) -> Iterator[Samples]:
    """Yields the samples of one worker, batch by batch."""
    part = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
    for batch in open_data(_DATA, SAMPLES * workers, seed=0):
        table = np.asarray(batch.ids).reshape(SAMPLES * workers, -1)[part]
        ids, places = np.unique(table, return_inverse=True)
        dense, labels = (torch.from_numpy(np.array(each)[part]) for each in (batch.dense, batch.labels))
        yield Samples(ids, torch.from_numpy(places.reshape(table.shape)), dense, labels[:, 0])


def gradients_of(
    samples: Samples, rows: Floats, dense: Floats, shapes: Shapes, batch_size: int
) -> tuple[float, tuple[Floats, Floats]]:
    """Returns the sum of the losses, and the gradients of rows and dense parameters for the mean loss of the batch."""
    embedded, flat = (torch.from_numpy(each.copy()).requires_grad_() for each in (rows, dense))
    sizes = [int(np.prod(shape)) for shape in shapes]
    layers = [part.view(shape) for part, shape in zip(torch.split(flat, sizes), shapes, strict=True)]
    hidden = torch.cat((embedded[samples.places].flatten(1), samples.dense), 1)
    for matrix, vector in zip(layers[:-2:2], layers[1:-2:2], strict=True):
        hidden = linear(hidden, matrix, vector).relu()
    outputs = linear(hidden, *layers[-2:]).squeeze(1)
    loss = binary_cross_entropy_with_logits(outputs, samples.labels, reduction="sum")
    of_rows, of_dense = torch.autograd.grad(loss / batch_size, (embedded, flat))
    return loss.item(), (of_rows.numpy(), of_dense.numpy())


def main() -> None:
    """Runs the server, which prints "listening", or a worker, which prints its iterations per second."""
    role, workers, address, hidden = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    host, port = address.split(":")
    shapes = shapes_of(hidden)
    torch.set_num_threads(1)
    if role == "serve":
        with socket.create_server((host, int(port))) as listening:
            print("listening", flush=True)
            PlainServer(workers, Parameters(shapes)).serve(listening)
        return
    rank, iterations = map(int, sys.argv[5:])
    with socket.create_connection((host, int(port)), _LONGEST_WAIT) as server:
        seconds, _ = work(server, rank, workers, iterations, shapes)
    print(iterations / seconds)


if __name__ == "__main__":
    main()
