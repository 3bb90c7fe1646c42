"""Options of LAIA: which of the two published definitions of its score applies."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.options import MechanismOptions


class LaiaReading(Enum):
    """The definition of a copy that LAIA's score counts (Herald Alg. 1, line 6): the paper's text, or its code.

    Attributes:
        TEXT: the latest copies alone count (Herald §4.2). No worker has the latest copy of a row that several workers
            have just trained (App. A).
        CODE: copies also count whose worker took part in the row's last training, as in Herald's released scheduler.

    Example:
        >>> esd.LaiaReading("text").name
        'TEXT'
    """

    TEXT = "text"
    CODE = "code"


@dataclass(frozen=True, slots=True)
class LaiaOptions(MechanismOptions):
    """Options of the mechanisms `laia`, `laia-adaptive` and `laia-two-choices`.

    Attributes:
        laia_reading: the copies that count as being at hand.

    Example:
        >>> job = esd.load("model").job
        >>> options = esd.LaiaOptions(esd.LaiaReading.TEXT)
        >>> replace(job, mechanism="laia", mechanism_options=options).options.laia_reading.value
        'text'
    """

    name: ClassVar[str] = "laia"
    laia_reading: LaiaReading = LaiaReading.CODE

    def __post_init__(self) -> None:
        if not isinstance(self.laia_reading, LaiaReading):
            known = ", ".join(map(str, LaiaReading))
            raise InvalidArgument(f"laia_reading is {self.laia_reading!r}, it must be one of {known}")
