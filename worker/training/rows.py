"""The embedding rows of a worker: the cache that holds them on the training device, and the optimizers that train them.

The optimizers are for rows that only this worker trains. Their formulas are defined in esd.services.domain.tables; the
parameter server applies the same ones to split rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from esd.native import training
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.plans import UsedRows
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.domain.worker_set import empty, several


def row_caches(
    tables: Sequence[TableSpec], slots: Sequence[int], device: torch.device, *, gathers: bool = False
) -> tuple[RowCache, ...]:
    """Makes a cache for each table, with up to the given number of slots. All begin with an equal share of their slots.

    With `gathers` the caches gather gradients.

    Raises:
        ResourceExhausted: the device has too little memory.
    """
    return tuple(
        RowCache(
            most, table.row_width, device, first=-(-most // len(tables)), gathers=table.dimension if gathers else 0
        )
        for table, most in zip(tables, slots, strict=True)
    )


class RowCache:
    """Holds rows of a table in C slots of W floats each.

    A slot holds a row's D values and its optimizer state. For a row that several workers train, it holds the values and
    later, in their place, the partial gradient; its other floats are not used then, and the row must be pulled again
    before its next use. A cache that gathers gradients has a second memory for them, and its rows stay usable.

    `read` may run in another thread than the other methods, while an iteration trains: the plan names only slots that
    the iteration does not touch. On a GPU it has its own stream, which waits for the last completed write, but not for
    training that is queued meanwhile.

    The tables of a job share the room of a cache, so any of them may fill it, and none gets all of it in advance. A
    slot stays with its table: all caches together take the memory of each table's largest number of cached rows, and at
    most the room of the cache for every table.

    Args:
        slots: the most slots, to which C may grow.
        width: W, floats per row.
        device: the device of training.
        first: C at first; None: all slots.
        gathers: D, if every row is trained here, and its gradients are summed until they are pushed; 0: not so.

    Attributes:
        rows: float32 [C, W] on the device.
        host_rows: the same memory, if the device is the host; otherwise None.
        gathered: float32 [C, D] on the device, sums of gradients that are not pushed yet; None if it gathers none.

    Raises:
        ResourceExhausted: the device has too little memory.
    """

    def __init__(
        self, slots: int, width: int, device: torch.device, *, first: int | None = None, gathers: int = 0
    ) -> None:
        self._device = device
        self._most = slots
        begin = slots if first is None else first
        self.rows = self._zeros(begin, width)
        self.gathered = self._zeros(begin, gathers) if gathers else None
        self._read_stream: torch.cuda.Stream | None = None
        self._written: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._read_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self.mark_written()
        self.host_rows = self.rows.numpy() if device.type == "cpu" else None

    def _zeros(self, slots: int, width: int) -> Tensor:
        try:
            return torch.zeros(slots, width, device=self._device)
        except RuntimeError as error:
            raise ResourceExhausted(
                f"a cache of {slots} rows needs {4 * slots * width} bytes on {self._device}, which has less free; "
                f"lower ESD_WORKER_CACHE_ROWS, --cache-rows or --cache-ratio of a local run: {error}"
            ) from error

    def _grow(self, slots: int) -> None:
        """Grows the cache to at least `slots` slots. A concurrent reader sees the old or the new buffer as a whole."""
        most = min(self._most, max(slots, 2 * len(self.rows)))
        rows = self._grown(self.rows, most)
        gathered = None if self.gathered is None else self._grown(self.gathered, most)
        if self._device.type == "cuda":  # the reader's stream does not wait for the copy
            torch.cuda.current_stream(self._device).synchronize()
        self.rows, self.gathered = rows, gathered
        self.host_rows = rows.numpy() if self.host_rows is not None else None

    def _grown(self, memory: Tensor, slots: int) -> Tensor:
        grown = self._zeros(slots, memory.shape[1])
        with torch.no_grad():
            grown[: len(memory)] = memory
        return grown

    @property
    def width(self) -> int:
        """W, the floats of a slot."""
        return self.rows.shape[1]

    @property
    def gradients(self) -> Tensor:
        """The memory of the slots' partial gradients: the rows' own memory, unless gradients are gathered."""
        return self.rows if self.gathered is None else self.gathered

    def staging(self, count: int) -> NDArray[np.float32]:
        """Returns a buffer for rows to `write`, zeros [count, W], in memory that the device copies fastest."""
        if self.host_rows is not None:
            return np.zeros((count, self.width), np.float32)
        return torch.zeros(count, self.width, pin_memory=True).numpy()

    def index(self, slots: NDArray[np.uint32]) -> Tensor:
        """Returns slots as an index tensor, int64 of the same shape, on the device."""
        return torch.from_numpy(slots.astype(np.int64)).to(self._device)

    def look_up(self, used: UsedRows, dimension: int) -> Tensor:
        """Copies the values of the rows of all ids of a plan's samples: float32 [N, D]."""
        with torch.no_grad():
            return functional.embedding(self.index(used.slots[used.inverse]), self.rows[:, :dimension])

    def train(
        self, used: UsedRows, gradients: Tensor, shared: Tensor, optimizer: OptimizerSpec, rate: float, step: int
    ) -> None:
        """Trains the rows that no other worker trains at once, and keeps the partial gradients of the others.

        A cache that gathers gradients trains all rows, and adds their gradients to its sums.

        Args:
            used: the rows that the samples use, with the workers that train each.
            gradients: float32 [N, D], of the result of `look_up`. Gradients of one row are added up in the order of the
                ids.
            shared: float32 [h, D], receives the sums of the replicated rows, which stay unchanged.
            optimizer: the table's optimizer.
            rate: learning rate of the iteration.
            step: iteration + 1.
        """
        if self._device.type == "cpu":
            _train_on_host(self.rows, used, gradients, shared, optimizer, rate, step, self.gathered)
        else:
            train_on_device(self.rows, used, gradients, shared, optimizer, rate, step, self.gathered)
        self.mark_written()

    def train_replicated(self, used: UsedRows, sums: Tensor, optimizer: OptimizerSpec, rate: float, step: int) -> None:
        """Trains the replicated rows by the sums of all workers' gradients, float32 [h, D], equally on all workers."""
        slots = used.reduced()
        here = UsedRows(slots, np.ones(len(slots), np.uint64), np.arange(len(slots), dtype=np.uint32))
        self.train(here, sums, sums[:0], optimizer, rate, step)

    def read(self, slots: NDArray[np.uint32], columns: int, *, gradients: bool = False) -> NDArray[np.float32]:
        """Copies the first `columns` floats of each slot, or of its gradient, to host memory: float32 [r, columns]."""
        memory = self.gradients if gradients else self.rows
        with torch.no_grad(), torch.cuda.stream(self._read_stream):
            if self._read_stream is not None and self._written is not None:
                self._read_stream.wait_event(self._written)
            return memory[self.index(slots), :columns].cpu().numpy()

    def write(self, slots: NDArray[np.uint32], rows: NDArray[np.float32]) -> None:
        """Puts whole rows, float32 [r, W], into their slots."""
        if len(slots):
            if len(self.rows) < self._most and (needed := int(slots.max()) + 1) > len(self.rows):
                self._grow(needed)
            with torch.no_grad():
                self.rows.index_copy_(0, self.index(slots), torch.from_numpy(rows).to(self._device))
        self.mark_written()

    def empty_gathered(self, slots: NDArray[np.uint32]) -> None:
        """Resets the sums of gradients of these slots to zero, if gradients are gathered."""
        if self.gathered is not None and len(slots):
            self.gathered.index_fill_(0, self.index(slots), 0.0)
            self.mark_written()

    def mark_written(self) -> None:
        """Makes all writes so far visible to later reads."""
        if self._read_stream is not None:
            written = torch.cuda.Event()  # type: ignore[no-untyped-call]
            written.record(torch.cuda.current_stream(self._device))
            self._written = written


def _train_on_host(
    cache: Tensor,
    used: UsedRows,
    gradients: Tensor,
    shared: Tensor,
    optimizer: OptimizerSpec,
    rate: float,
    step: int,
    gathered: Tensor | None,
) -> None:
    """Does in one pass the work of `train_on_device`; its loops are shared with the parameter server."""
    rows = cache.numpy(), used.slots, used.contributors, used.inverse, gradients.numpy(), shared.numpy()
    sums = None if gathered is None else gathered.numpy()
    epsilon, most = optimizer.epsilon, optimizer.max_norm
    match optimizer.kind:
        case OptimizerKind.SGD:
            training.sgd(*rows, rate, sums, most)
        case OptimizerKind.ROWWISE_ADAGRAD:
            training.rowwise_adagrad(*rows, rate, epsilon, sums, most)
        case OptimizerKind.ADAM:
            training.adam(*rows, step, rate, epsilon, optimizer.beta1, optimizer.beta2, sums, most)


@torch.no_grad()
def train_on_device(
    cache: Tensor,
    used: UsedRows,
    gradients: Tensor,
    shared: Tensor,
    optimizer: OptimizerSpec,
    rate: float,
    step: int,
    gathered: Tensor | None = None,
) -> None:
    """Trains the rows that samples use in a cache [C, W] on the same device as the gradients [N, D].

    `shared` [h, D] receives the sums of the replicated rows. With `gathered` [C, D], the gradients of all rows are
    added to it.
    """
    device, dimension = cache.device, gradients.shape[1]
    inverse = torch.from_numpy(used.inverse.astype(np.int64)).to(device)
    slots = torch.from_numpy(used.slots.astype(np.int64)).to(device)
    # The backward pass of a lookup sums the gradients of each row in a fixed order.
    sums = torch.ops.aten.embedding_dense_backward(gradients, inverse, len(slots), -1, False)
    if gathered is not None:
        cache[slots] = updated_rows(cache[slots], sums, optimizer, step, rate)
        gathered[slots] += sums
        return
    replicated, split_rows = empty(used.contributors), several(used.contributors)
    owned = torch.from_numpy(np.flatnonzero(~replicated & ~split_rows)).to(device)
    split = torch.from_numpy(np.flatnonzero(split_rows)).to(device)
    shared.copy_(sums[torch.from_numpy(np.flatnonzero(replicated)).to(device)])
    cache[slots[owned]] = updated_rows(cache[slots[owned]], sums[owned], optimizer, step, rate)
    cache[slots[split], :dimension] = sums[split]


def updated_rows(rows: Tensor, gradients: Tensor, optimizer: OptimizerSpec, step: int, rate: float) -> Tensor:
    """Takes one optimizer step on each row, and limits its norm if the optimizer has a limit.

    Args:
        rows: float32 [r, W], D values followed by the optimizer state.
        gradients: float32 [r, D].
        optimizer: the table's optimizer.
        step: iteration + 1.
        rate: learning rate of the iteration.

    Returns:
        float32 [r, W].
    """
    dimension = gradients.shape[1]
    values, state = rows[:, :dimension], rows[:, dimension:]
    match optimizer.kind:
        case OptimizerKind.SGD:
            updated = values - rate * gradients
        case OptimizerKind.ROWWISE_ADAGRAD:
            updated = _rowwise_adagrad(values, state, gradients, optimizer, rate)
        case OptimizerKind.ADAM:
            updated = _adam(values, state, gradients, optimizer, step, rate)
    if optimizer.max_norm:
        values = updated[:, :dimension]
        norms = torch.linalg.vector_norm(values, dim=1, keepdim=True, dtype=torch.float64)
        factors = torch.where(norms > optimizer.max_norm, optimizer.max_norm / norms, 1.0)
        values.mul_(factors.float())
    return updated


def _rowwise_adagrad(values: Tensor, total: Tensor, gradients: Tensor, optimizer: OptimizerSpec, rate: float) -> Tensor:
    total = total + gradients.square().mean(dim=1, keepdim=True)
    values = values - rate * gradients / (total.sqrt() + optimizer.epsilon)
    return torch.cat((values, total), dim=1)


def _adam(
    values: Tensor, moments: Tensor, gradients: Tensor, optimizer: OptimizerSpec, step: int, rate: float
) -> Tensor:
    first, second = moments.chunk(2, dim=1)
    first = first + (1 - optimizer.beta1) * (gradients - first)
    second = second + (1 - optimizer.beta2) * (gradients.square() - second)
    correction = math.sqrt(1 - optimizer.beta2**step) / (1 - optimizer.beta1**step)
    values = values - rate * correction * (first / (second.sqrt() + optimizer.epsilon))
    return torch.cat((values, first, second), dim=1)
