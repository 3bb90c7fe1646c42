"""The folder with models of one's own, which `esd cluster` copies to every machine that has a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from esd.services.domain.errors import InvalidArgument

Files = Mapping[str, bytes]

LIMIT = 16 << 20  # bytes of all files together; data belongs elsewhere


def read_code(folder: Path) -> Files:
    """Returns the files of a folder by their path in it, without hidden and compiled files.

    Raises:
        InvalidArgument: there is no such folder, no module is in it, or it is larger than 16 MiB.
    """
    if not folder.is_dir():
        raise InvalidArgument(f"code: there is no folder {folder}")
    files: dict[str, bytes] = {}
    size = 0
    for file in sorted(folder.rglob("*")):
        path = file.relative_to(folder)
        if not file.is_file() or any(part.startswith(".") or part == "__pycache__" for part in path.parts):
            continue
        size += file.stat().st_size
        if size > LIMIT:
            raise InvalidArgument(
                f"code: folder {folder} has more than {LIMIT >> 20} MiB, and every machine gets a copy: keep data apart"
            )
        files[path.as_posix()] = file.read_bytes()
    if not any(path.endswith(".py") for path in files):
        raise InvalidArgument(f"code: folder {folder} has no Python module")
    return files
