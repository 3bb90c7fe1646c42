"""Ways to synchronise: when workers push what they have trained, and what each way is told beside its name."""

from __future__ import annotations

from enum import Enum

from esd.services.domain.errors import InvalidArgument


class Sync(Enum):
    """When workers push what they have trained. Each but `bounded` trains the same model."""

    ON_DEMAND = "on-demand"  # when another worker needs the row, or it leaves a cache
    FULL = "full"  # every trained row is pushed while the next iteration trains (vanilla of Herald §3.1)
    WRITE_THROUGH = "write-through"  # the same, and the next iteration begins when all is durable (FRUGAL-SYNC)
    PROACTIVE = "proactive"  # as on demand, and before while links are idle, what is read next first (FRUGAL P2F)
    REPLICATED = "replicated"  # as on demand, but for the hottest rows, which all workers train together (FAE, SCARS)
    BOUNDED = "bounded"  # when so many updates have gathered; copies that lack some are trained on (HET)

    @property
    def pushes_all(self) -> bool:
        """Whether every trained row is pushed, needed or not."""
        return self in (Sync.FULL, Sync.WRITE_THROUGH)

    @property
    def numbers(self) -> tuple[str, ...]:
        """The options of a job that say more of this way to synchronise, whole numbers all."""
        return _NUMBERS.get(self, ())


# Behind its name and a colon, `--sync` has these in this order. Of every other way they are 0.
_NUMBERS: dict[Sync, tuple[str, ...]] = {
    Sync.REPLICATED: ("replicated_rows",),
    Sync.BOUNDED: ("pull_bound", "push_bound"),
}


def parse_sync(text: str) -> dict[str, Sync | int]:
    """Reads a way to synchronise with its numbers, `NAME` or `NAME:NUMBER,NUMBER`, as options of a job.

    Raises:
        InvalidArgument: the name is unknown, or it has other numbers.
    """
    name, _, given = text.partition(":")
    try:
        sync = Sync(name)
    except ValueError:
        raise InvalidArgument(f"--sync {text!r} is unknown; there are {', '.join(map(_form, Sync))}") from None
    parts = given.split(",") if text != name else []
    if len(parts) != len(sync.numbers) or not all(part.isascii() and part.isdecimal() for part in parts):
        numbers = ", of whole numbers" if sync.numbers else ""
        raise InvalidArgument(f"--sync {text!r} is not of the form {_form(sync)}{numbers}")
    return {"sync": sync} | {option: int(part) for option, part in zip(sync.numbers, parts, strict=True)}


def _form(sync: Sync) -> str:
    numbers = ",".join(option.upper() for option in sync.numbers)
    return f"{sync.value}:{numbers}" if numbers else sync.value


def ring_bytes(floats: int, workers: int) -> int:
    """Returns what each of n workers sends to the next, to sum float32 values over all of them in a ring."""
    return 2 * 4 * floats * (workers - 1) // workers
