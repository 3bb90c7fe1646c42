"""Sample batches, and entries of the sample log, on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from esd.protos import common_pb2, ps_pb2
from esd.services.domain.batches import LogEntry, SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sources import SourcePosition
from esd.services.wire.arrays import decode_array, encode_array

MESSAGE_BYTES = 4 << 20  # of the samples in one message: far below any limit, and long enough for full speed
OVERHEAD_BYTES = 4096  # of the messages around a batch: names of job and table, numbers, tags


def in_messages(batch: SampleBatch, first: int, longest: int) -> Iterator[SampleBatch]:
    """Yields a batch in parts whose messages have at most 4 MiB of samples, or one sample.

    Args:
        batch: the samples.
        first: the number of samples of the stream before it, for errors.
        longest: the bytes of samples that the receiver accepts in one message.

    Raises:
        InvalidArgument: one sample is longer than that, or an array of the batch has a wrong dtype or shape.
    """
    batch.check_arrays()
    ends = np.cumsum(batch.sizes)
    limit, start, sent = min(MESSAGE_BYTES, longest), 0, 0
    while start < len(batch):
        end = max(start + 1, int(np.searchsorted(ends, sent + limit, side="right")))
        if (size := int(ends[end - 1]) - sent) > longest:
            ids, dense = int(np.diff(batch.begins)[start]), batch.dense.shape[1]
            raise InvalidArgument(
                f"sample {first + start} of the stream has {size} bytes ({ids} ids, {dense} dense features), and a "
                f"message has room for {longest} bytes of samples (ESD_DISPATCHER_MAX_REQUEST_BYTES, and "
                "ESD_PS_MAX_REQUEST_BYTES for the sample log)"
            )
        yield batch[start:end]
        start, sent = end, int(ends[end - 1])


def encode_batch(batch: SampleBatch) -> common_pb2.SampleBatch:
    """Returns the message of a batch.

    Raises:
        InvalidArgument: an array has a wrong dtype or shape, as a user's own reader or program may produce.
    """
    batch.check_arrays()
    return common_pb2.SampleBatch(
        samples=len(batch),
        fields=batch.fields,
        dense_features=batch.dense.shape[1],
        ids=encode_array(batch.ids, np.uint64, "ids"),
        dense=encode_array(batch.dense, np.float32, "dense"),
        labels=encode_array(batch.labels, np.float32, "labels"),
        labels_per_sample=0 if batch.labels.shape[1] == 1 else batch.labels.shape[1],
        lengths=b"" if batch.lengths is None else encode_array(batch.lengths, np.uint32, "lengths"),
        weights=b"" if batch.weights is None else encode_array(batch.weights, np.float32, "weights"),
        groups=b"" if batch.groups is None else encode_array(batch.groups, np.uint64, "groups"),
        sites=b"" if batch.sites is None else encode_array(batch.sites, np.uint64, "sites"),
        references=b"" if batch.references is None else encode_array(batch.references, np.uint64, "references"),
        source=encode_position(batch.source),
    )


def decode_batch(message: common_pb2.SampleBatch) -> SampleBatch:
    """Returns the batch of a message, after a check of shapes and numbers.

    The numbers of features and labels are not compared with a job's; the service that knows the job does that.

    Raises:
        InvalidArgument: an array has a wrong number of bytes, or a feature, label or weight is not finite, or a length
            is out of range.
    """
    k, fields = message.samples, message.fields
    labels = message.labels_per_sample if message.references else message.labels_per_sample or 1
    if fields < 1:
        raise InvalidArgument("fields is 0, a sample needs at least one feature of ids")
    lengths: NDArray[np.uint32] | None = None
    ids = k * fields
    if message.lengths:
        lengths = decode_array(message.lengths, np.uint32, (k, fields), "lengths")
        ids = int(lengths.sum(dtype=np.int64))
    batch = SampleBatch(
        ids=decode_array(message.ids, np.uint64, (ids,), "ids"),
        dense=decode_array(message.dense, np.float32, (k, message.dense_features), "dense"),
        labels=decode_array(message.labels, np.float32, (k, labels), "labels"),
        lengths=lengths,
        weights=decode_array(message.weights, np.float32, (k,), "weights") if message.weights else None,
        groups=decode_array(message.groups, np.uint64, (k,), "groups") if message.groups else None,
        sites=decode_array(message.sites, np.uint64, (k,), "sites") if message.sites else None,
        references=decode_array(message.references, np.uint64, (k,), "references") if message.references else None,
        source=decode_position(message.source) if message.HasField("source") else None,
    )
    batch.check_numbers()
    return batch


def encode_position(source: SourcePosition | None) -> common_pb2.SourcePosition | None:
    """Returns the message of a position in a source."""
    if source is None:
        return None
    return common_pb2.SourcePosition(text=source.text, behind=source.behind, lag=source.lag)


def decode_position(message: common_pb2.SourcePosition) -> SourcePosition:
    """Returns the position of a message.

    Raises:
        InvalidArgument: it is too long or too far.
    """
    return SourcePosition(message.text, message.behind, message.lag if message.HasField("lag") else None)


def encode_log_entry(entry: LogEntry) -> ps_pb2.SampleLogEntry:
    """Returns the message of an entry of the sample log."""
    return ps_pb2.SampleLogEntry(position=entry.position, samples=entry.samples, batch=entry.batch)


def decode_log_entry(message: ps_pb2.SampleLogEntry) -> LogEntry:
    """Decodes an entry of the sample log; its batch stays encoded."""
    return LogEntry(message.position, message.samples, message.batch)
