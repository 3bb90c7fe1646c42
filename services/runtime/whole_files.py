"""Files that are written whole or not at all, whatever ends the writing: an error, a signal, a power cut.

A file is written under another name, its draft, is put on the disk, and only then takes its name, at once. That name is
an entry of the folder, so the folder is put on the disk, too, and so is the entry of each folder that had to be made.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

DRAFT = ".draft"  # how the name of a draft ends: one that is there after a crash is of no use to anybody


def write_whole(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o666) -> None:
    """Writes a file: when this returns it is on the disk, and until then the one before is what is there.

    When several write one file at the same time, the one that ends last counts. Each has a draft of its own, whoever
    and wherever it is: processes of several containers, or of one that was started again, have the same numbers.

    Args:
        path: of the file; folders above it are made.
        write: is given the draft, which is empty, and writes to it.
        mode: permissions of the file, without those that the umask takes.

    Raises:
        OSError: it cannot be written; the error names it, and the draft is gone.
    """
    make_folder(path.parent)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}{DRAFT}")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)  # what it takes on a full disk may be what is lacking
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Makes a folder that may be there already, and those above it. `mode` as in write_whole, of this one alone."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(mode=mode, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Puts on the disk which files a folder has, and by which names, where the file system can do that for a folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # as fsync(2) says it; some network file systems have no such thing
            raise
    finally:
        os.close(folder)
