"""The options of a dispatch mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class MechanismOptions:
    """The options of a dispatch mechanism. Each subclass has the options of one mechanism and of its variants.

    Every option has a default: a job without options gets them.

    Attributes:
        name: the mechanism's.
        horizon: batches that one decision looks at, its own included.
        eviction_term: whether expected costs contain the evict pushes that a row's entry into a full cache may cause.

    Example:
        >>> isinstance(esd.JointOptions(horizon=3), esd.MechanismOptions)
        True
    """

    name: ClassVar[str]

    @property
    def horizon(self) -> int:
        """See above."""
        return 1

    @property
    def eviction_term(self) -> bool:
        """See above."""
        return False

    def check_features(self, features: int) -> None:
        """Raises InvalidArgument if an option does not fit samples of so many features."""
