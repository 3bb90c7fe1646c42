"""Machines with slow processors: control groups, to which the kernel grants a share of a processor. It needs root."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

_PERIOD = 10_000  # microseconds in which a group gets its share: the kernel's default of 100,000 makes long pauses
_PRIORITY = 10  # times the weight of other work, so that its load takes little from a group's share
_FIRST_VERSION = Path("/sys/fs/cgroup/cpu")
_ROOTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))  # of the second version
_LONGEST_END = 10.0  # seconds until killed processes have left a group


@dataclass(frozen=True, slots=True)
class ProcessorShare:
    """A control group with a share of a processor, which all its processes have together.

    Attributes:
        folder: of the group.
    """

    folder: Path

    def hold(self, process: int) -> None:
        """Moves a process into the group, with its threads. Processes that it starts later are in it, too."""
        (self.folder / "cgroup.procs").write_text(str(process))

    @property
    def processes(self) -> list[int]:
        """The processes of the group."""
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]


def unavailable() -> str:
    """Returns why this machine has no control groups for processors; empty if it has."""
    if os.geteuid() != 0:
        return "control groups of processors need root"
    if not _FIRST_VERSION.is_dir() and _second_version() is None:
        return "neither version of control groups has the controller of processors here"
    return ""


@contextmanager
def processor_shares(*shares: float) -> Iterator[list[ProcessorShare]]:
    """Makes control groups until the end of the block; their processes must have ended by then.

    Args:
        shares: of a processor: 0.25 is a quarter of one.

    Raises:
        RuntimeError: the machine has no control groups for processors, or processes are left in one.
    """
    reason = unavailable()
    if reason:
        raise RuntimeError(reason)
    with ExitStack() as stack:
        made = []
        for share in shares:
            folder = _make(share)
            stack.callback(_remove, folder)
            made.append(ProcessorShare(folder))
        yield made


def _second_version() -> Path | None:
    for root in _ROOTS:
        controllers = root / "cgroup.controllers"
        if controllers.is_file() and "cpu" in controllers.read_text().split():
            return root
    return None


def _make(share: float) -> Path:
    quota = round(share * _PERIOD)
    root = _second_version()
    if root is not None:
        (root / "cgroup.subtree_control").write_text("+cpu")
        folder = Path(mkdtemp(prefix="esd-", dir=root))
        settings = {"cpu.max": f"{quota} {_PERIOD}", "cpu.weight": str(100 * _PRIORITY)}
    else:
        folder = Path(mkdtemp(prefix="esd-", dir=_FIRST_VERSION))
        settings = {
            "cpu.cfs_period_us": str(_PERIOD),
            "cpu.cfs_quota_us": str(quota),
            "cpu.shares": str(1024 * _PRIORITY),
        }
    for file, value in settings.items():
        (folder / file).write_text(value)
    return folder


def _remove(folder: Path) -> None:
    """Removes a group. A process that was killed leaves it a moment later."""
    deadline = time.monotonic() + _LONGEST_END
    while True:
        try:
            folder.rmdir()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                left = (folder / "cgroup.procs").read_text().split()
                raise RuntimeError(f"{folder} has processes after {_LONGEST_END:.0f} s: {left}") from error
            time.sleep(0.05)
