"""Options of the joint search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from esd.services.domain.errors import InvalidArgument
from esd.services.domain.mechanisms.options import MechanismOptions

MAX_HORIZON = 64  # batches; the dispatcher keeps them in memory


@dataclass(frozen=True, slots=True)
class JointOptions(MechanismOptions):
    """Options of the mechanism `joint`.

    Attributes:
        horizon: batches that one decision looks at, its own included, 1..64.

    Example:
        >>> job = esd.load("model").job
        >>> replace(job, mechanism="joint", mechanism_options=esd.JointOptions(horizon=3)).options.horizon
        3
    """

    name: ClassVar[str] = "joint"
    horizon: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.horizon <= MAX_HORIZON:
            raise InvalidArgument(f"horizon is {self.horizon}, it must be in 1..{MAX_HORIZON}")
