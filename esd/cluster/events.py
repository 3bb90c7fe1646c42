"""The steps of a cluster's start, for a listener of `esd.cluster.engines`; the text of each is a line for people."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class ContainerVisited:
    """A container's turn has come: it is started if it does not run as described.

    Attributes:
        host: name of its machine.
        service: its service.
    """

    host: str
    service: str

    def __str__(self) -> str:
        return f"{self.host}: {self.service}"


@dataclass(frozen=True, slots=True)
class ImageCopied:
    """A machine lacks an image that this one has, and a copy is on its way.

    Attributes:
        host: name of the machine that lacks it.
        image: its name and tag.
    """

    host: str
    image: str

    def __str__(self) -> str:
        return f"{self.host}: copying {self.image}"


Step: TypeAlias = ContainerVisited | ImageCopied
StepListener: TypeAlias = Callable[[Step], object]


def ignore(_: Step) -> None:
    """Listens to nothing."""
