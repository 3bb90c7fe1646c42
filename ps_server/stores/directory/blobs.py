"""The parts of checkpoints and the dense parameters of a table as files."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import re

from esd.ps_server.core.seal import DENSE_REMEDY, sealed, unsealed
from esd.ps_server.stores.folders import Folder, read_bytes, write_bytes

_DENSE = "dense"
_PART = re.compile(r"part-([0-9]+)-.*[a-z]")


class FileBlobs:
    """A BlobStore of one file per part, and one for the dense parameters."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        write_bytes(self._folder, _part(checkpoint, name), data)

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return read_bytes(self._folder, _part(checkpoint, name))

    def checkpoints(self) -> set[int]:
        return {int(found[1]) for name in self._folder.names() if (found := _PART.fullmatch(name))}

    def drop_parts(self, checkpoint: int) -> None:
        for name in self._folder.names():
            if name.startswith(_part(checkpoint, "")):
                self._folder.remove(name)

    def put_dense(self, data: bytes) -> None:
        write_bytes(self._folder, _DENSE, sealed(_DENSE, data))

    def get_dense(self) -> bytes | None:
        stored = read_bytes(self._folder, _DENSE)
        return None if stored is None else unsealed(_DENSE, stored, self._folder.place(_DENSE), DENSE_REMEDY)


def _part(checkpoint: int, name: str) -> str:
    return f"part-{checkpoint}-{name}"
