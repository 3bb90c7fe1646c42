"""Messages that are read and written natively: plans, frames of the exchange, and reports of iterations.

Rows are gathered from the table in which they lie into a message, and scattered from a message to their places, in one
copy and without the GIL. Arrays are C-contiguous and of exactly the given types, as an implicit conversion could change
ids or versions. There are D values per row, and W floats per row, which are its values and its optimizer state. Columns
of integers in plans travel packed: each value in as many bits as the widest needs above the least one
(protos/dispatcher.proto, Transfers).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

# Columns of r rows: ids uint64 [r], slots uint32 [r], versions int64 [r].
Rows = tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int64]]

Ids = NDArray[np.uint64]
Versions = NDArray[np.int64]
Slots = NDArray[np.uint32]
Steps = NDArray[np.uint32]
Rates = NDArray[np.float32]
Floats = NDArray[np.float32]

IterationFields = tuple[
    int, int, float, float, float, float, tuple[int, ...], tuple[float, ...], tuple[float, ...], int, int, int, int, int
]

def pack(values: NDArray[Any]) -> bytes:
    """Packs a column: uint64, uint32 or int64 [r], C-contiguous. Raises TypeError for any other."""

def claims(data: bytes, count: int) -> bool:
    """Returns whether the bytes begin as a packed column with this number of values."""

def unpack_uint64(data: bytes, count: int | None = None) -> NDArray[np.uint64]:
    """Reads a packed column.

    Args:
        data: its bytes.
        count: the number of values that it must have; None: any number, up to eight for each byte.

    Returns:
        uint64 [r].

    Raises:
        ValueError: it has another number of values, or the bytes are no packed column; the text follows the name of
            the column.
    """

def unpack_uint32(data: bytes, count: int | None = None) -> NDArray[np.uint32]:
    """Reads a packed column of uint32 [r]. Raises ValueError as `unpack_uint64` does, and for a wider value."""

def unpack_int64(data: bytes, count: int | None = None) -> NDArray[np.int64]:
    """Reads a packed column of int64 [r]. Raises ValueError as `unpack_uint64` does."""

def read_plans(
    data: bytes, features: int, length: int, ids: int, workers: int
) -> tuple[list[dict[str, Any]], bytes] | None:
    """Reads the plans of iterations in a message (protos/dispatcher.proto, AttendResponse).

    Args:
        data: the message.
        features: upper bound on the features of a sample.
        length: upper bound on the ids of one feature of a sample.
        ids: upper bound on the ids of all samples of a plan.
        workers: upper bound on the workers of a job.

    Returns:
        For each plan the fields of esd.services.domain.plans.IterationPlan by name, except for the fields that are None
        by default; rows to move as (ids, slots, versions, early), gradients as (rows, contributors, steps), direct rows
        as (places, peers), and None for any of these without entries. Then the message without the plans. None alone
        for a message of unusual form, which protobuf must read.
    """

def place(places: NDArray[np.uint32], trained: Rows, others: Rows) -> Rows:
    """Puts rows together, some of which their plan trains, too.

    Args:
        places: uint32 [r], C-contiguous: the place of each row among the u rows of `trained`; u: the next of `others`.
        trained: rows by place.
        others: the rows that are not trained, in order.

    Raises:
        ValueError: a place is above u, or the number of `others` is wrong; the text follows the name of the column.
    """

def write_frame(
    sequence: int,
    table: str,
    epoch: int,
    wait_ms: int,
    iteration: int,
    row_ids: Ids,
    row_versions: Versions,
    rows: Floats,
    row_slots: Slots | None,
    gradient_ids: Ids,
    targets: Versions,
    contributors: Ids,
    steps: Steps,
    rates: Rates,
    gradients: Floats,
    gradient_slots: Slots | None,
    dimension: int,
    worker: int,
    pull_ids: Ids,
    pull_versions: Versions,
    stateless: int,
    trace_parent: str,
) -> tuple[bytes, int, int]:
    """Writes a frame, ExchangeRequest or DeliverRequest.

    Args:
        sequence: its number.
        table: name of the table.
        epoch: of the plan.
        wait_ms: how long the pulls may wait for their versions.
        iteration: of rows for another worker (DeliverRequest); 0: the frame is for a parameter server.
        row_ids: uint64 [r], rows to store. An empty part is left out of the message.
        row_versions: int64 [r].
        rows: float32 [.., W], where the rows lie.
        row_slots: uint32 [r], the row of `rows` for each id; None: they are all the rows, in order.
        gradient_ids: uint64 [g], rows whose partial gradients are pushed.
        targets: int64 [g], versions that the sums will make.
        contributors: uint64 [g], sets of workers as bits, or uint64 [g, 2] with the lower word first.
        steps: uint32 [g], optimizer steps.
        rates: float32 [g], learning rates of these steps.
        gradients: float32 [.., D or more], where the gradients lie: the first D floats of a row.
        gradient_slots: uint32 [g], the row of `gradients` for each id; None: they are all the rows, in order.
        dimension: D.
        worker: slot of the sender.
        pull_ids: uint64 [p], rows to read.
        pull_versions: int64 [p], at exactly these versions.
        stateless: number of them, at the end, that come without their optimizer state.
        trace_parent: the sender's span, as W3C's traceparent, in ASCII; empty: there is none.

    Returns:
        The message, and the offsets at which its pushes and its pulls begin.

    Raises:
        ValueError: arrays differ in length, or a slot does not exist.
    """

class AnswerParts:
    """The parts of a server's message, ExchangeResponse, except for the text of a refusal and the amount of credit.

    Raises:
        ValueError: the bytes are no such message.

    Attributes:
        sequence: number of the frame.
        stored: whether the frame's push is durable.
        newly_stored: number of rows and gradients that were new.
        already_known: number of repeated rows and gradients.
        brings_rows: whether the message answers pulls.
        refused: whether the message has a refusal.
        done: whether this is the last answer to the frame.
        credit: whether the message grants credit.
    """

    sequence: int
    stored: bool
    newly_stored: int
    already_known: int
    brings_rows: bool
    refused: bool
    done: bool
    credit: bool

    def __init__(self, message: bytes) -> None: ...
    def scatter(
        self,
        message: bytes,
        rows: Floats,
        ids: Ids,
        places: Versions,
        arrived: NDArray[np.bool_],
        stateless: int,
        dimension: int,
        seed: int,
        scale: float,
        cursor: int,
    ) -> tuple[int, int, int, int]:
        """Copies the rows of the message to their places, and makes the initial rows that it leaves out.

        Args:
            message: the bytes of which these are the parts.
            rows: float32 [.., W], written to.
            ids: uint64 [p], the rows that the frame asks for.
            places: int64 [p], the row of `rows` for each of them.
            arrived: bool [p], the rows that have arrived; written to.
            stateless: number of rows, at the end, that come without their optimizer state.
            dimension: D, the floats of such a row.
            seed: of the table's initial values.
            scale: of these values.
            cursor: the index after the row that came last, 0 at first. Rows without positions follow it.

        Returns:
            The number of rows that the message answers, how many of them were made here, the next cursor, and the bytes
            of the answered rows as they were asked for, sent or not.

        Raises:
            ValueError: a row is not whole, was not asked for, or comes a second time.
        """

def read_iterations(
    message: bytes,
    most_seconds: float,
    least_bandwidth: float,
    most_bandwidth: float,
    most_drift: float,
    most_moved: int,
    most_label: int,
) -> list[IterationFields] | None:
    """Reads a worker's message that has reports of iterations and nothing else, with possible values only.

    Args:
        message: an AttendRequest (protos/dispatcher.proto).
        most_seconds: upper bound on the seconds of an iteration, and of a phase of it.
        least_bandwidth: lower bound on a measured bandwidth.
        most_bandwidth: upper bound on a measured bandwidth.
        most_drift: upper bound on the drift of dense parameters.
        most_moved: upper bound on the rows, and on the bytes, of one kind of transfer.
        most_label: the highest label.

    Returns:
        For each report: iteration, epoch, loss_sum, seconds, measured_bandwidth, drift; transfers, phases and
        label_loss_sums as tuples; the number of labels of all samples, and of one sample; and the offsets in the
        message at which score_bins, labels and groups begin, 0 without groups. None for any other message, which
        protobuf must read.
    """
