"""Parts of checkpoints as stores keep them, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

from esd.ps_server.core.store import BlobStore
from esd.services.domain.parts import is_last, piece_name


def part_of(blobs: BlobStore, checkpoint: int, name: str) -> Iterator[bytes]:
    """Yields the pieces of a part, as far as they are there; none if the checkpoint has no such part."""
    number = 0
    while (piece := blobs.get_part(checkpoint, piece_name(name, number))) is not None:
        yield piece
        if is_last(piece):
            return
        number += 1
