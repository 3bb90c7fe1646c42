"""The ways to synchronise that a job can choose: a class of each, with its options (docs/dispatch.md)."""

from __future__ import annotations

from dataclasses import fields, replace

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.sync.bounded import Bounded, Staleness
from esd.services.domain.sync.full import Full
from esd.services.domain.sync.none import Uncached
from esd.services.domain.sync.on_demand import ON_DEMAND, OnDemand
from esd.services.domain.sync.proactive import FlushedAhead, Proactive
from esd.services.domain.sync.replicated import Replicated
from esd.services.domain.sync.way import NO_FIGURES, Figures, Sync
from esd.services.domain.sync.write_through import WriteThrough

__all__ = [
    "NO_FIGURES",
    "ON_DEMAND",
    "WAYS",
    "Bounded",
    "Figures",
    "FlushedAhead",
    "Full",
    "OnDemand",
    "Proactive",
    "Replicated",
    "Staleness",
    "Sync",
    "Uncached",
    "WriteThrough",
    "parse_sync",
]

WAYS: dict[str, type[Sync]] = {
    way.name: way for way in (OnDemand, Full, WriteThrough, Proactive, Replicated, Bounded, Uncached)
}


def parse_sync(text: str, *, direct: bool = False) -> Sync:
    """Reads a way to synchronise with its numbers, `NAME` or `NAME:NUMBER,NUMBER`.

    >>> esd.parse_sync("bounded:8,2")
    Bounded(pull=8, push=2)

    Args:
        text: as `--sync` has it; the numbers are the whole numbers among the way's options, in their order.
        direct: `--direct`, an option of `on-demand`.

    Raises:
        InvalidArgument: the name is unknown, the way has other numbers, or another way is to be direct.
    """
    name, _, given = text.partition(":")
    way = WAYS.get(name)
    if way is None:
        raise InvalidArgument(f"--sync {text!r} is unknown; there are {', '.join(map(_form, WAYS.values()))}")
    numbers = [option.name for option in fields(way) if option.type == "int"]
    parts = given.split(",") if text != name else []
    if len(parts) != len(numbers) or not all(part.isascii() and part.isdecimal() for part in parts):
        raise InvalidArgument(
            f"--sync {text!r} is not of the form {_form(way)}{', of whole numbers' if numbers else ''}"
        )
    sync = way(**{option: int(part) for option, part in zip(numbers, parts, strict=True)})
    if not direct:
        return sync
    if not isinstance(sync, OnDemand):
        raise InvalidArgument(f"--direct is for --sync on-demand, where workers own rows; --sync is {name}")
    return replace(sync, direct=True)


def _form(way: type[Sync]) -> str:
    numbers = ",".join(option.name.upper() for option in fields(way) if option.type == "int")
    return f"{way.name}:{numbers}" if numbers else way.name
