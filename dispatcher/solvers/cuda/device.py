"""A CUDA device for solvers: its stream, its memory and its compiled kernels."""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.solvers.cuda.answer import DeviceAnswer
from esd.dispatcher.solvers.cuda.kernel import Algorithm, Variant, compile_kernel
from esd.native import cuda as native
from esd.services.domain.errors import InvalidArgument, Unavailable

# A single block reads this number of samples fast enough. A cooperative grid, with a block per _GRID_SAMPLES, solves
# more.
BLOCK_SAMPLES = 8192
_GRID_SAMPLES = 4096
_ALIGNMENT = 256  # alignment of arrays in device memory, in bytes


@cache
def open_device() -> CudaDevice:
    """Returns the current device, opened once for all solvers. Raises Unavailable with the reason if there is none."""
    try:
        from cuda.core import Device  # noqa: PLC0415 - optional

        device = Device()
        device.set_current()
    except Exception as error:
        raise Unavailable(f"no CUDA device: {str(error).splitlines()[0]}") from error
    return CudaDevice(device)


class CudaDevice:
    """Runs solves on the device, one at a time, from any thread.

    Solves run on a stream of their own with the lowest priority, so that training on the same device takes precedence.
    Buffers and compiled kernels are kept from one solve to the next.
    """

    def __init__(self, device: Any) -> None:
        from cuda.core import LegacyPinnedMemoryResource, StreamOptions  # noqa: PLC0415 - optional
        from cuda.core.utils import FileStreamProgramCache  # noqa: PLC0415

        self._device = device
        self._lowest_priority = StreamOptions(nonblocking=True, priority=None)  # None: the lowest
        self._stream = device.create_stream(options=self._lowest_priority)
        self._pinned = LegacyPinnedMemoryResource()
        self._cache = FileStreamProgramCache()
        self._kernels: dict[Variant, Any] = {}
        self._buffers: dict[str, Any] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The device's name, from the driver."""
        return str(self._device.name)

    @property
    def multiprocessors(self) -> int:
        """The number of multiprocessors of the device. A solve by one block occupies a single multiprocessor."""
        return int(self._device.properties.multiprocessor_count)

    def upload(self, costs: NDArray[Any]) -> Any:
        """Copies costs [k, n] to the device. The copy exports DLPack."""
        from cuda.core.utils import StridedMemoryView  # noqa: PLC0415 - optional

        with self._lock:
            self._use()
            buffer = self._device.allocate(costs.nbytes, stream=self._stream)
            self._send(np.ascontiguousarray(costs).view(np.uint8).ravel(), buffer, "costs-host")
            self._stream.sync()
        return StridedMemoryView.from_buffer(buffer, costs.shape, dtype=costs.dtype)

    def view(self, costs: Any) -> Any:
        """Returns a view of costs that are on this device, without a copy.

        The device's stream waits for the stream that computes the costs.

        Raises:
            InvalidArgument: the costs are not a C-contiguous matrix, or they are on another device.
        """
        from cuda.core.utils import StridedMemoryView  # noqa: PLC0415 - optional

        view = StridedMemoryView.from_any_interface(costs, stream_ptr=int(self._stream.handle))
        if view.device_id != self._device.device_id:
            raise InvalidArgument(
                f"costs are on CUDA device {view.device_id}, this solver is on device {self._device.device_id}"
            )
        if len(view.shape) != 2:
            raise InvalidArgument(f"costs have shape {tuple(view.shape)}, they must be a matrix [k, n]")
        if view.strides is not None:
            expected = (view.shape[1], 1)
            steps = zip(view.shape, view.strides, expected, strict=True)
            if any(size > 1 and stride != wanted for size, stride, wanted in steps):
                raise InvalidArgument(f"costs have strides {tuple(view.strides)}, C-contiguous ones have {expected}")
        return view

    def download(self, costs: Any) -> NDArray[Any]:
        """Copies costs on this device to host memory.

        Raises:
            InvalidArgument: the costs are not a C-contiguous matrix, or they are on another device.
        """
        with self._lock:
            self._use()
            view = self.view(costs)
            host = np.empty(view.shape, view.dtype)
            source = _part(view, int(view.ptr), host.nbytes)
            host.view(np.uint8).ravel()[:] = self._receive(source, host.nbytes)
        return host

    def solve(
        self,
        costs: Any,
        capacities: NDArray[np.int32],
        start: NDArray[np.float64] | None,
        algorithm: Algorithm,
    ) -> tuple[DeviceAnswer, float]:
        """Solves in one launch of the kernel. The host waits once, for the answer.

        Args:
            costs: [k, n], a numpy array or costs for `view`. The caller has checked all but the values.
            capacities: int32 [n], sum k.
            start: float64 [n], the prices at the start of the search, or None.
            algorithm: the dual ascent or the Hungarian algorithm.

        Returns:
            The answer, and the running time of the kernel in milliseconds.
        """
        from cuda.core import EventOptions, LaunchConfig, launch  # noqa: PLC0415 - optional

        with self._lock:
            self._use()
            pointer, shape, dtype = self._costs(costs)
            samples, workers = shape
            blocks = 1 if samples <= BLOCK_SAMPLES else min(-(-samples // _GRID_SAMPLES), self.multiprocessors)
            kernel = self._kernel(Variant.of(dtype, workers, algorithm, grid=blocks > 1))

            prices = np.zeros(workers) if start is None else start
            inputs = np.concatenate([prices.view(np.uint8), capacities.view(np.uint8)])
            inputs_at = self._grown("inputs", len(inputs))
            self._send(inputs, inputs_at, "inputs-host")
            memory = self._grown("memory", native.workspace_bytes(samples, workers))
            _part(memory, int(memory.handle), _ALIGNMENT).fill(0, stream=self._stream)  # the grid's barrier

            answer = DeviceAnswer.empty(samples, workers, dtype)
            parts: tuple[NDArray[Any], ...] = (answer.report, answer.assignment, answer.chosen_costs)
            offsets = np.cumsum([0, *(-(-part.nbytes // _ALIGNMENT) * _ALIGNMENT for part in parts)])
            outputs = self._grown("outputs", int(offsets[-1]))
            report, assignment, chosen_costs = (int(outputs.handle) + int(offset) for offset in offsets[:3])

            timed = EventOptions(timing_enabled=True)
            started = self._stream.record(options=timed)
            launch(
                self._stream,
                LaunchConfig(grid=blocks, block=native.BLOCK_THREADS, is_cooperative=blocks > 1),
                kernel,
                pointer,
                np.int32(samples),
                np.int32(workers),
                int(inputs_at.handle) + prices.nbytes,
                0 if start is None else int(inputs_at.handle),
                report,
                assignment,
                chosen_costs,
                int(memory.handle),
            )
            ended = self._stream.record(options=timed)
            received = self._receive(outputs, int(offsets[-1]))
            for part, offset in zip(parts, offsets, strict=False):
                part.view(np.uint8)[:] = received[offset : offset + part.nbytes]
            return answer, float(ended - started)

    def _use(self) -> None:
        """Makes this device current in the calling thread."""
        from cuda.core import Device  # noqa: PLC0415 - optional

        Device(self._device.device_id).set_current()

    def _costs(self, costs: Any) -> tuple[int, tuple[int, int], np.dtype[Any]]:
        """Returns the costs' address on the device, shape and dtype. A numpy array is uploaded first."""
        if not isinstance(costs, np.ndarray):
            view = self.view(costs)
            return int(view.ptr), tuple(view.shape), np.dtype(view.dtype)
        buffer = self._grown("costs", costs.nbytes)
        self._send(np.ascontiguousarray(costs).view(np.uint8).ravel(), buffer, "costs-host")
        return int(buffer.handle), costs.shape, costs.dtype

    def _kernel(self, variant: Variant) -> Any:
        """Returns the compiled kernel, from memory after the first use."""
        if variant not in self._kernels:
            code = compile_kernel(variant, f"sm_{self._device.arch}", self._cache)
            self._kernels[variant] = code.get_kernel("solve")
        return self._kernels[variant]

    def _grown(self, name: str, size: int) -> Any:
        """Returns the buffer of this name, with at least `size` bytes, and keeps it for the next solve.

        A buffer with a name that ends in "-host" lies in pinned host memory, any other on the device.
        """
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            room = 1 << (size - 1).bit_length()
            if name.endswith("-host"):
                buffer = self._pinned.allocate(room)
            else:
                buffer = self._device.allocate(room, stream=self._stream)
            self._buffers[name] = buffer
        return buffer

    def _send(self, data: NDArray[np.uint8], target: Any, staging: str) -> None:
        """Queues a copy to the device through a staging buffer, which must not change until the copy is complete."""
        host = self._grown(staging, len(data))
        _bytes(host, len(data))[:] = data
        self._copy(host, target, len(data))

    def _receive(self, source: Any, size: int) -> NDArray[np.uint8]:
        """Waits for the stream and returns the first `size` bytes of a device buffer, valid until the next call."""
        host = self._grown("outputs-host", size)
        self._copy(source, host, size)
        self._stream.sync()
        return _bytes(host, size)

    def _copy(self, source: Any, target: Any, size: int) -> None:
        """Queues a copy of the first `size` bytes of a buffer to another buffer."""
        start = _part(source, int(source.handle), size)
        start.copy_to(_part(target, int(target.handle), size), stream=self._stream)


def _bytes(host: Any, size: int) -> NDArray[np.uint8]:
    """Returns a view of the first `size` bytes of a host buffer."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(host.handle)))


def _part(owner: Any, pointer: int, size: int) -> Any:
    """Returns a buffer of `size` bytes at `pointer`, inside the memory that `owner` keeps alive."""
    from cuda.core import Buffer  # noqa: PLC0415 - optional

    return Buffer.from_handle(pointer, size, owner=owner)
