"""A run that is prepared: its options are checked, its data are open, and its job is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from esd.data import Dataset
from esd.data.dataset import negatives_of, table_options_of
from esd.run.events import Listener, OpeningData
from esd.run.options import TABLE, RunOptions
from esd.run.stream import OpenData, TrainingStream, held_out_samples, training_stream
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.runtime.leavable_thread import LeavableThread
from esd.services.runtime.settings import split_address

_REPORT_SECONDS = 4.0  # after which it is told that the data are being opened, again and again
_NOT_STARTED = "not started"  # the address of parameter servers that will be started

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run whose options were checked and whose data are open: it can be trained on any cluster.

    Attributes:
        options: the data, the model and the way of training.
        stream: the samples, in training order.
        held_out: samples that judge the model; None: there are none.
        held_out_name: names these samples, as `job.stream` names the trained ones; empty if there are none. Files that
            change later are refused.
        job: the job, with the parameter servers that were known.
    """

    options: RunOptions
    stream: TrainingStream
    held_out: Dataset | None
    held_out_name: str
    job: JobSpec


def prepare(
    options: RunOptions,
    *,
    table: str = TABLE,
    parameter_servers: tuple[str, ...] = (_NOT_STARTED,),
    opened: OpenData | None = None,
) -> PreparedRun:
    """Opens the data of a run, and checks its options against them. This may read all of the data.

    Args:
        options: the data, the model and the way of training.
        table: name of the first table.
        parameter_servers: `host:port` of every shard, in shard order; `train_on` replaces them by its cluster's.
        opened: the data, if a program has opened them; None: the options name them.

    Raises:
        InvalidArgument: an option is wrong, or does not fit another one or the data.
        NotFound: the data are not there.
    """
    stream = training_stream(options, opened)
    held_out = held_out_samples(options, stream, opened)
    for address in parameter_servers:
        if address != _NOT_STARTED:
            check_address("--parameter-servers", address)
    job = options.job(
        features=stream.dataset.features,
        labels=stream.dataset.labels,
        dense_features=stream.dataset.dense_features,
        negatives=negatives_of(stream.dataset),
        table_options=table_options_of(stream.dataset),
        parameter_servers=parameter_servers,
        stream=stream.fingerprint,
        table=table,
        iterations=stream.iterations,
    )
    return PreparedRun(options, stream, held_out, "" if held_out is None else held_out.fingerprint, job)


async def in_thread(function: Callable[[], T], listener: Listener) -> T:
    """Makes a call that may read for a long time, or for ever; a caller that is cancelled does not wait for it.

    Args:
        function: the call, which opens the data of a run.
        listener: gets `OpeningData` every few seconds until it is made.
    """
    thread = LeavableThread("esd-prepare")
    made = asyncio.wrap_future(thread.submit(function))
    began = time.monotonic()
    try:
        while not (await asyncio.wait([made], timeout=_REPORT_SECONDS))[0]:
            listener(OpeningData(time.monotonic() - began))
        return made.result()
    finally:
        made.cancel()
        thread.end()


def check_address(option: str, address: str) -> None:
    """Raises InvalidArgument, which names the option, for an address that is not `host:port`."""
    try:
        split_address(address)
    except ValueError as error:
        raise InvalidArgument(f"{option}: {error}") from None
