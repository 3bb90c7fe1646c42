"""The bytes that the network adds to messages."""

from __future__ import annotations

_PREFIX = 5  # bytes that gRPC puts before a message
_FRAME, _FRAME_HEADER = 1 << 14, 9  # of HTTP/2, with the frame size of gRPC
# Of Ethernet with packets of 1,500 bytes: headers of Ethernet (14), IP (20) and TCP with time stamps (32).
_SEGMENT, _SEGMENT_HEADERS = 1448, 66


def framing_bytes(size: int) -> int:
    """Returns the bytes that gRPC, HTTP/2, TCP, IP and Ethernet add to a message of `size` bytes, in full packets."""
    prefixed = size + _PREFIX
    stream = prefixed + _FRAME_HEADER * -(-prefixed // _FRAME)
    return stream - size + _SEGMENT_HEADERS * -(-stream // _SEGMENT)
