"""Sample batches, and entries of the sample log, on the wire."""

from __future__ import annotations

import numpy as np

from protos import common_pb2, ps_pb2
from services.domain.batches import LogEntry, SampleBatch
from services.domain.errors import InvalidArgument
from services.wire.arrays import decode_array, encode_array


def encode_batch(batch: SampleBatch) -> common_pb2.SampleBatch:
    """Returns the message of a batch."""
    return common_pb2.SampleBatch(
        samples=len(batch),
        fields=batch.ids.shape[1],
        dense_features=batch.dense.shape[1],
        ids=encode_array(batch.ids, np.uint64, "ids"),
        dense=encode_array(batch.dense, np.float32, "dense"),
        labels=encode_array(batch.labels, np.float32, "labels"),
    )


def decode_batch(message: common_pb2.SampleBatch) -> SampleBatch:
    """Returns the batch of a message, its numbers checked: finite features, labels 0 or 1.

    Whether `fields` and `dense_features` are the job's is left to the service that knows the job.
    """
    k, fields, features = message.samples, message.fields, message.dense_features
    if fields < 1:
        raise InvalidArgument("fields is 0, a sample needs at least one embedding id")
    batch = SampleBatch(
        ids=decode_array(message.ids, np.uint64, (k, fields), "ids"),
        dense=decode_array(message.dense, np.float32, (k, features), "dense"),
        labels=decode_array(message.labels, np.float32, (k,), "labels"),
    )
    batch.validate(fields, features)
    return batch


def encode_log_entry(entry: LogEntry) -> ps_pb2.SampleLogEntry:
    """Returns the message of an entry of the sample log."""
    return ps_pb2.SampleLogEntry(position=entry.position, samples=entry.samples, batch=entry.batch)


def decode_log_entry(message: ps_pb2.SampleLogEntry) -> LogEntry:
    """Reads an entry of the sample log; its batch stays encoded."""
    return LogEntry(message.position, message.samples, message.batch)
