"""Files that are written whole or not at all, even if an error, a signal or a power cut ends the writing.

The content goes to a draft under another name, the draft is synced to the disk, and only then renamed, atomically. The
name is an entry of the folder, so the folder is synced, too, and so is the parent of each folder that had to be made.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

DRAFT = ".draft"  # suffix of a draft; a draft that is left after a crash is of no use


def write_whole(path: Path, write: Callable[[BinaryIO], object], *, mode: int = 0o666) -> None:
    """Writes a file: it is on the disk when this returns, and until then the previous file stays in place.

    If several writers write one file at the same time, the last to finish wins. Their drafts have random names, because
    processes of several containers, or before and after a restart, may have equal process numbers.

    Args:
        path: path of the file; missing folders above it are made.
        write: called with the empty draft; writes the content.
        mode: permissions of the file, less the umask.

    Raises:
        OSError: the file cannot be written; the error names it, and the draft is removed.
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
            draft.unlink(missing_ok=True)  # on a full disk the space of the draft may be the space that is missing
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)
        raise
    sync_folder(path.parent)


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Makes a folder and its parents unless they exist. `mode` as in write_whole, for this folder alone."""
    if not path.exists():
        make_folder(path.parent)
        path.mkdir(mode=mode, exist_ok=True)
        sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Syncs the entries of a folder to the disk, if the file system can do that for a folder."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # fsync(2): the file system has no sync for folders, such as some network ones
            raise
    finally:
        os.close(folder)
