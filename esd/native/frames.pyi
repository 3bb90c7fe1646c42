"""A client's end of an exchange: frames, and answers to them, as bytes (protos/ps.proto, protos/worker.proto).

Rows are gathered from where they lie into a message, and scattered from a message to where they belong, in one copy and
without the GIL. Arrays are C-contiguous and of exactly the given types: an implicit conversion could change ids or
versions. There are D values per row, and W floats per row, which are its values and its optimizer state. Arrays of
unequal length, and slots and places that do not exist, raise ValueError, since they are a defect of the caller.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.uint64]
Versions = NDArray[np.int64]
Slots = NDArray[np.uint32]
Steps = NDArray[np.uint32]
Rates = NDArray[np.float32]
Rows = NDArray[np.float32]

def encode(
    sequence: int,
    table: str,
    epoch: int,
    wait_ms: int,
    iteration: int,
    row_ids: Ids,
    row_versions: Versions,
    rows: Rows,
    row_slots: Slots | None,
    gradient_ids: Ids,
    targets: Versions,
    contributors: Ids,
    steps: Steps,
    rates: Rates,
    gradients: Rows,
    gradient_slots: Slots | None,
    dimension: int,
    worker: int,
    pull_ids: Ids,
    pull_versions: Versions,
    stateless: int,
) -> tuple[bytes, int, int]:
    """The message of a frame, ExchangeRequest or DeliverRequest, and where in it the pushes and the pulls begin.

    Args:
        sequence: its number.
        table: name of the table.
        epoch: of the plan.
        wait_ms: how long the pulls may wait for their versions.
        iteration: of rows for another worker (DeliverRequest); 0: the frame is for a parameter server.
        row_ids: uint64 [r], rows to store. What is empty is left out of the message.
        row_versions: int64 [r].
        rows: float32 [.., W], where the rows lie.
        row_slots: uint32 [r], the row of `rows` for each id; None: they are all the rows, in order.
        gradient_ids: uint64 [g], rows whose partial gradients are pushed.
        targets: int64 [g], versions that the sums will make.
        contributors: uint64 [g], sets of workers as bits.
        steps: uint32 [g], optimizer steps.
        rates: float32 [g], learning rates of these steps.
        gradients: float32 [.., D or more], where the gradients lie: the first D floats of a row.
        gradient_slots: uint32 [g], the row of `gradients` for each id; None: they are all the rows, in order.
        dimension: D.
        worker: slot of the sender.
        pull_ids: uint64 [p], rows to read.
        pull_versions: int64 [p], at exactly these versions.
        stateless: how many of them, the last ones, without their optimizer state.
    """

class Answer:
    """What a message of the server, ExchangeResponse, says, apart from the texts of refusals and the figures of credit.

    Bytes that are no such message raise ValueError.

    Attributes:
        sequence: number of the frame.
        stored: what the frame pushes is durable.
        newly_stored: rows and gradients that were new.
        already_known: repeated ones.
        row_bytes: size of the rows in the message.
        refused: the message has a refusal.
        done: the last answer to the frame.
        credit: the message grants credit.
    """

    sequence: int
    stored: bool
    newly_stored: int
    already_known: int
    row_bytes: int
    refused: bool
    done: bool
    credit: bool

    def __init__(self, message: bytes) -> None: ...
    def place(
        self,
        message: bytes,
        rows: Rows,
        places: Versions,
        arrived: NDArray[np.bool_],
        stateless: int,
        dimension: int,
        cursor: int,
    ) -> tuple[int, int]:
        """Puts the rows of the message in their places.

        Args:
            message: the one that was read.
            rows: float32 [.., W], written to.
            places: int64 [p], the row of `rows` for each row that the frame asks for.
            arrived: bool [p], which of them have come; written to.
            stateless: how many of them, the last ones, come without their optimizer state.
            dimension: D, the floats of such a row.
            cursor: behind the one that came last; 0 at first. Rows without positions follow it.

        Returns:
            How many rows there are, and the next cursor. Rows that are not whole, not asked for or come a second time
            raise ValueError.
        """
