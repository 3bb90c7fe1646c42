"""The inputs that a model takes, and its samples from them: ids of rows, or the raw columns of its schema."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.data.opening import table_reader
from esd.data.schema import Schema
from esd.model.trained import TrainedModel
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Pooling
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.documents import suggestion
from esd.serving.tensors import BYTES, Tensor, shown

IDS, LENGTHS, DENSE = "ids", "lengths", "dense"  # the arrays of a SampleBatch
LENGTHS_OF = "lengths/"  # before the name of a column of lists
ANY = -1  # a dimension of any size


@dataclass(frozen=True, slots=True)
class TensorKind:
    """An input or output of a model, as its metadata describe it."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class SampleReader:
    """Makes samples of inputs.

    Args:
        model: the model.

    Raises:
        NotFound: the model has a schema, and pyarrow is not installed.
    """

    def __init__(self, model: TrainedModel) -> None:
        self._job = model.job
        self._columns = None if model.schema is None else ColumnReader(model.schema.to_score)
        self.outputs = tuple(TensorKind(label, "FP32", (ANY,)) for label in model.job.labels)

    @property
    def inputs(self) -> tuple[TensorKind, ...]:
        """The inputs: columns of a model with a schema, ids of another."""
        return inputs_of_ids(self._job) if self._columns is None else self._columns.inputs

    def read(self, inputs: Sequence[Tensor]) -> SampleBatch:
        """Makes a batch of samples.

        Raises:
            InvalidArgument: an input is missing, unknown, there twice or of a wrong type or shape; or a value is none
                that the model takes.
        """
        by_name = {each.name: each for each in inputs}
        if len(by_name) < len(inputs):
            twice = next(each.name for at, each in enumerate(inputs) if by_name[each.name] is not inputs[at])
            raise InvalidArgument(f"input {shown(twice)} is there twice")
        if self._columns is not None and (IDS not in by_name or IDS in self._columns.names):
            return self._columns.read(by_name)
        return samples_of_ids(by_name, self._job)


def inputs_of_ids(job: JobSpec) -> tuple[TensorKind, ...]:
    """Returns the inputs that are the arrays of a SampleBatch."""
    dense = (TensorKind(DENSE, "FP32", (ANY, job.dense_features)),) if job.dense_features else ()
    if all(each.pooling is Pooling.ONE for each in job.features):
        return (TensorKind(IDS, "UINT64", (ANY, len(job.features))), *dense)
    lengths = TensorKind(LENGTHS, "UINT32", (ANY, len(job.features)))
    return (TensorKind(IDS, "UINT64", (ANY,)), lengths, *dense)


def samples_of_ids(inputs: dict[str, Tensor], job: JobSpec) -> SampleBatch:
    """Makes samples of ids of rows, with features and dense features in the model's order.

    Raises:
        InvalidArgument: see SampleReader.read.
    """
    kinds = inputs_of_ids(job)
    _check_names(inputs, [each.name for each in kinds])
    arrays = {each.name: _array(inputs[each.name], each) for each in kinds}
    rows = {name: len(array) for name, array in arrays.items() if array.ndim == 2}
    count = next(iter(rows.values()))
    for name, found in rows.items():
        if found != count:
            raise InvalidArgument(f"input {name!r} has {found} samples, input {next(iter(rows))!r} has {count}")
    batch = SampleBatch(
        arrays[IDS].reshape(-1),
        arrays.get(DENSE, np.empty((count, 0), np.float32)),
        np.zeros((count, len(job.labels)), np.float32),
        arrays.get(LENGTHS),
    )
    batch.check_numbers()
    return batch


def _array(tensor: Tensor, kind: TensorKind) -> NDArray[Any]:
    """Returns the values of a tensor as an array of the type and shape that the model takes."""
    if tensor.datatype != kind.datatype:
        raise InvalidArgument(f"input {tensor.name!r} is of {tensor.datatype}, the model takes {kind.datatype}")
    fits = len(tensor.shape) == len(kind.shape) and all(
        wanted in (ANY, found) for found, wanted in zip(tensor.shape, kind.shape, strict=True)
    )
    if not fits:
        raise InvalidArgument(
            f"input {tensor.name!r} has the shape {list(tensor.shape)}, the model takes {list(kind.shape)}"
        )
    return np.asarray(tensor.values).reshape(tensor.shape)


def _check_names(inputs: Iterable[str], wanted: Sequence[str], optional: Sequence[str] = ()) -> None:
    for name in wanted:
        if name not in inputs:
            raise InvalidArgument(f"input {name!r} is missing; the model takes {_listed(wanted)}")
    for name in inputs:
        if name not in wanted and name not in optional:
            raise InvalidArgument(
                f"the model has no input {shown(name)}{suggestion(name, [*wanted, *optional])}; it takes "
                f"{_listed(wanted)}"
            )


def _listed(names: Sequence[str]) -> str:
    """Returns names for a message, of which a model may have thousands."""
    most = 40
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class ColumnReader:
    """Makes samples of the raw columns of a schema, as training did.

    Args:
        schema: the part that scoring needs.

    Raises:
        NotFound: pyarrow is not installed.
    """

    def __init__(self, schema: Schema) -> None:
        table_reader()  # refuses a missing pyarrow by name
        self._arrow: Any = import_module("pyarrow")
        self._tables: Any = import_module("esd.data.tables.columns")
        self._schema = schema
        self.names = (*schema.categories, *schema.dense)
        self._lengths = tuple(f"{LENGTHS_OF}{name}" for name in schema.categories if name in schema.lists)

    @property
    def inputs(self) -> tuple[TensorKind, ...]:
        """One input for each column."""
        ids = [TensorKind(name, BYTES, (ANY,)) for name in self._schema.categories]
        return (*ids, *(TensorKind(name, "FP64", (ANY,)) for name in self._schema.dense))

    def read(self, inputs: dict[str, Tensor]) -> SampleBatch:
        """Makes samples of columns.

        Raises:
            InvalidArgument: see SampleReader.read.
        """
        _check_names(inputs, self.names, self._lengths)
        columns = {name: self._column(inputs[name], inputs.get(f"{LENGTHS_OF}{name}")) for name in self.names}
        count = len(columns[self.names[0]])
        for name, column in columns.items():
            if len(column) != count:
                raise InvalidArgument(f"input {name!r} has {len(column)} samples, input {self.names[0]!r} has {count}")
        batch = self._arrow.RecordBatch.from_pydict(columns)
        self._tables.check_types(self._schema, batch.schema, "the request", labelled=False)
        samples, mistakes = self._tables.samples_of(batch, self._schema, labelled=False)
        for row, mistake in self._tables.wrong_rows(mistakes):
            found = self._tables.shown(batch.column(mistake.column)[row])
            raise InvalidArgument(f"input {mistake.column!r}, sample {row}: expected {mistake.expected}, found {found}")
        found_batch: SampleBatch = samples.named(self._schema.sample_columns)
        return found_batch

    def _column(self, tensor: Tensor, lengths: Tensor | None) -> Any:
        """Returns a tensor as an Arrow array, of lists if there are lengths."""
        if len(tensor.shape) > 2 or tensor.shape[1:] not in ((), (1,)):
            raise InvalidArgument(f"input {tensor.name!r} has the shape {list(tensor.shape)}, it must be [n] or [n, 1]")
        values = self._values(tensor)
        if lengths is None:
            return values
        counts = _array(lengths, TensorKind(lengths.name, "UINT32", (ANY,)))
        offsets = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        if offsets[-1] != len(values):
            raise InvalidArgument(
                f"input {lengths.name!r} sums to {offsets[-1]}, input {tensor.name!r} has {len(values)} values"
            )
        return self._arrow.ListArray.from_arrays(offsets.astype(np.int32), values)

    def _values(self, tensor: Tensor) -> Any:
        if tensor.datatype != BYTES:
            return self._arrow.array(tensor.values)
        try:
            return self._arrow.array(tensor.values, self._arrow.binary()).cast(self._arrow.string())
        except self._arrow.ArrowInvalid:
            raise InvalidArgument(f"input {tensor.name!r} has a text that is not UTF-8") from None
