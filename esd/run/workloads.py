"""The samples of each worker per iteration, as they are written on the command line."""

from __future__ import annotations

from esd.services.domain.errors import InvalidArgument


def parse_workloads(text: str, workers: int, batch: int | None) -> tuple[int, ...]:
    """Reads the samples of each worker, `96,96,32,32`.

    Args:
        text: the text of the option.
        workers: how many there are.
        batch: samples per worker in the mean, if they were given, too.

    Raises:
        InvalidArgument: they are no numbers, or do not fit.
    """
    try:
        shares = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--workloads {text!r} is not a list of whole numbers") from None
    if len(shares) != workers:
        raise InvalidArgument(f"--workloads names {len(shares)} workers, --workers is {workers}")
    if min(shares) < 0 or sum(shares) == 0:
        raise InvalidArgument(f"--workloads {text!r} must not be negative and must not all be zero")
    if batch is not None and sum(shares) != batch * workers:
        raise InvalidArgument(
            f"--workloads sum to {sum(shares)}, but --batch {batch} x --workers {workers} is {batch * workers}; "
            "leave out one of the two"
        )
    return shares


def parse_limits(text: str | None, samples: int) -> tuple[int, int]:
    """Reads the least and the most samples of a worker, `16,128`; None: 0 and all `samples` of an iteration."""
    if text is None:
        return 0, samples
    try:
        least, most = (int(part) for part in text.split(","))
    except ValueError:
        raise InvalidArgument(f"--workload-limits {text!r} is not two whole numbers: 16,128") from None
    return least, most
