"""A TCP proxy that keeps all that passes."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from tests.support.tcp_proxy import TcpProxy


class ListeningProxy(TcpProxy):
    """Forwards bytes to one address, and knows all of them."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self._heard: dict[asyncio.StreamWriter, bytearray] = defaultdict(bytearray)  # by the end that has received it

    def found(self, patterns: Sequence[bytes]) -> int:
        """Counts the patterns that have passed, each as a whole in one direction of a connection."""
        return sum(any(pattern in heard for heard in self._heard.values()) for pattern in patterns)

    async def pass_on(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        """Keeps the bytes, too."""
        self._heard[writer] += data
        await super().pass_on(data, writer)
