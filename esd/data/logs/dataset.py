"""A sample stream over the messages of a log, which goes on at a position and may have no end."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace

from esd.data.hashing import READER_VERSION
from esd.data.log_address import parse_log
from esd.data.logs.log import Log, LogReader
from esd.data.logs.messages import MessageReader
from esd.data.logs.opening import open_log
from esd.data.positions import behind
from esd.data.schema import Schema
from esd.data.tables.cleaned import Cleaned, cut
from esd.data.tables.dataset import Table
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.sources import SourcePosition


class LogDataset(Table):
    """A `Dataset` over a log. Two readings of it agree as far as the log keeps its messages.

    Without `until` in its address the stream has no end: behind the last message, iteration waits for the next one.

    Raises:
        InvalidArgument: the address is wrong, or there is no such log.
        Unavailable: its server is away for too long.
    """

    name = "log"
    forgets = True
    samples: int | None = None
    timed = False  # its end is not known, and neither are the last of its samples

    def __init__(
        self, address: str, schema: Schema, batch_size: int, skip_bad: int = 0, *, labelled: bool = True
    ) -> None:
        super().__init__(schema, batch_size, skip_bad, labelled=labelled)
        self._address = parse_log(address)
        self._log: Log = open_log(self._address)
        self._log.check()
        self.endless = not self._address.until

    @property
    def fingerprint(self) -> str:
        """Names the log, wherever its server is, its bounds and the schema."""
        made = hashlib.blake2b(self._schema.to_json().encode(), digest_size=8).hexdigest()
        return f"{self._address.identity}, schema {made}, reader {READER_VERSION}"

    def check_reads_on(self, fingerprint: str) -> None:
        """See ReadsOn. The bounds of the earlier reading, and its schema, may have been others."""
        if self._address.first:
            raise InvalidArgument(
                f"{self._log} is read on where the earlier run ended (--continue-stream): leave out from="
                f"{self._address.first}"
            )
        log = replace(self._address, first="", until="").identity
        if not re.fullmatch(re.escape(log) + r"( from .+?)?( until .+?)?, schema [0-9a-f]+, reader .*", fingerprint):
            raise FailedPrecondition(
                f"the earlier run has trained {fingerprint}, and this one would go on in {log}: --continue-stream goes "
                "on in the same log"
            )

    def __iter__(self) -> Iterator[SampleBatch]:
        return self.open()

    def open(self, place: SourcePosition | None = None) -> Iterator[SampleBatch]:
        """See Positioned. A position is `POSITION:SKIPPED`: the log's own, and messages skipped before."""
        if place is None:
            return self._read(None, 0)
        position, _, skipped = place.text.rpartition(":")
        if not position or not skipped.isdecimal():
            raise InvalidArgument(f"position {place.text[:80]!r} was written by another kind of source")
        return behind(self._read(position, int(skipped)), place)

    def _read(self, position: str | None, skipped: int) -> Iterator[SampleBatch]:
        cleaned = Cleaned(self._schema, self._skip_bad, None, self._sites, labelled=self._labelled)
        cleaned.skipped = skipped
        messages = MessageReader(self._schema, self._numbers, cleaned, str(self._log), labelled=self._labelled)
        reader = self._log.reader(position)
        try:
            yield from self._samples(reader, messages, cleaned)
        finally:
            reader.close()

    def _samples(self, reader: LogReader, messages: MessageReader, cleaned: Cleaned) -> Iterator[SampleBatch]:
        while (chunk := reader.read(self._batch_size)) is not None:
            begin = SourcePosition(f"{chunk.position}:{cleaned.skipped}", lag=chunk.lag)
            done = 0
            for piece in messages.pieces(chunk.messages):
                samples = cleaned.samples(piece, str(self._log))
                self.skipped = cleaned.skipped
                yield from cut(replace(samples, source=begin.after(done)), self._batch_size)
                done += len(samples)
            self.skipped = cleaned.skipped
        cleaned.check_some(str(self._log))
