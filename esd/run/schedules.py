"""Learning-rate schedules, as they are written on the command line."""

from __future__ import annotations

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.schedules import CONSTANT, Decay, Schedule

_FORMS = "constant, cosine[:ITERATIONS[:SHARE]] or step:ITERATIONS:SHARE, with warm-up:ITERATIONS, before it"


def parse_schedule(text: str, iterations: int | None, option: str = "--lr-schedule") -> Schedule:
    """Reads a schedule as it is written on the command line.

    Args:
        text: parts with commas between them: `warm-up:500,cosine:20000:0.1`.
        iterations: of the whole run, if they are known.
        option: the option that has the text, for messages.

    Raises:
        InvalidArgument: it is none, or says a thing twice, or a cosine has no end.
    """
    found: dict[str, list[str]] = {}
    for part in text.split(","):
        name, *values = part.strip().split(":")
        kind = "warm-up" if name == "warm-up" else "decay"
        if kind in found:
            raise InvalidArgument(f"{option} {text!r} has two parts of one kind; it is {_FORMS}")
        found[kind] = values if kind == "warm-up" else [name, *values]
    try:
        warm_up = int(*found.get("warm-up", ["0"]))
        match found.get("decay", ["constant"]):
            case ["constant"]:
                return Schedule(warm_up=warm_up) if warm_up else CONSTANT
            case ["cosine"] if iterations is None:
                raise InvalidArgument(f"{option} cosine needs the number of iterations here: cosine:ITERATIONS")
            case ["cosine", *rest]:
                given = [str(iterations), "0"]
                length, share = rest + given[len(rest) :]
                return Schedule(Decay.COSINE, warm_up, int(length), float(share))
            case ["step", length, share]:
                return Schedule(Decay.STEP, warm_up, int(length), float(share))
    except (ValueError, TypeError):
        pass
    raise InvalidArgument(f"{option} {text!r} is unknown; it is {_FORMS}")
