"""Options of dispatch by the value of one field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.options import MechanismOptions


@dataclass(frozen=True, slots=True)
class HashOptions(MechanismOptions):
    """Options of the mechanism `hash`.

    Attributes:
        hash_field: number of the field whose values decide; None: the mechanism chooses one.

    Example:
        >>> job = esd.load("model").job
        >>> replace(job, mechanism="hash", mechanism_options=esd.HashOptions(hash_field=2))
        Traceback (most recent call last):
        esd.errors.InvalidArgument: hash_field is 2, it must be in 0..1
    """

    name: ClassVar[str] = "hash"
    hash_field: int | None = None

    def check_features(self, features: int) -> None:
        """Raises InvalidArgument if samples have no field of this number."""
        if self.hash_field is not None and not 0 <= self.hash_field < features:
            raise InvalidArgument(f"hash_field is {self.hash_field}, it must be in 0..{features - 1}")
